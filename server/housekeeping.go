package server

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lookEvery is how often the housekeeper looks whether the node has become idle.
	lookEvery = 10 * time.Second
	// idleFrames is what a connection that only pings sends meanwhile, and some more.
	idleFrames = 4
	// worthTrimming is how much memory must have been taken since the last time.
	worthTrimming = 4 << 20
)

// idleness decides when memory is given back.
type idleness struct {
	seen uint64 // frames at the last look
	kept uint64 // memory after the last time, or at the start
}

// trim reports whether the node has been idle since the last look, and holds enough more memory than it needs to.
func (i *idleness) trim(frames uint64, connections int64, resident uint64) bool {
	since := frames - i.seen
	i.seen = frames
	return since <= idleFrames*uint64(max(connections, 0)) && resident > i.kept+worthTrimming
}

// housekeep logs the use of resources while there is any, and gives memory back
// to the system when the node has become idle: a high target of the collector
// (TuneRuntime) would keep what sign-ins and large frames took. It ends with stop.
func (s *Server) housekeep() {
	defer s.keeper.Done()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	var usage <-chan time.Time
	if every := s.cfg.Logging.SysinfoInterval; every > 0 {
		t := time.NewTicker(every)
		defer t.Stop()
		usage = t.C
	}
	var told uint64
	idle := idleness{kept: resident()}
	frames, connections := s.gateway.Stats().Frames.Load, s.gateway.Stats().Active.Load
	for {
		select {
		case <-s.stop:
			return
		case <-usage:
			if n := frames(); n != told {
				told = n
				s.logUsage()
			}
		case <-look.C:
			if idle.trim(frames(), connections(), resident()) {
				// The first collection empties the free lists, the second finds what was in them.
				runtime.GC()
				debug.FreeOSMemory()
				idle.kept = resident()
			}
		}
	}
}

func (s *Server) logUsage() {
	st, gw := s.broker.Stats(), s.gateway.Stats()
	s.log.Info("usage", "cpu_percent", st.CPUUsage, "memory_bytes", st.MemoryUsage, "free_memory_bytes", st.AvailableMemory, "free_disk_bytes", st.FreeDiskSpace,
		"connections", gw.Active.Load(), "frames", gw.Frames.Load(), "bytes_in", gw.BytesIn.Load(), "bytes_out", gw.BytesOut.Load(),
		"malformed", gw.Malformed.Load(), "refused", gw.Refused.Load(), "messages", st.MessagesCount)
	if s.link != nil {
		s.log.Info("forwarding", s.forwardCounters()...)
	}
}

// resident is the memory that the runtime has from the system and has not given back.
func resident() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}
