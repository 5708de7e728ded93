package server

import (
	"runtime"
	"runtime/debug"
	"time"
)

// lookEvery is how often the housekeeper looks whether the node has become idle.
const lookEvery = 10 * time.Second

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
	var seen, told, trimmed uint64
	for {
		frames := s.gateway.Stats().Frames.Load
		select {
		case <-s.stop:
			return
		case <-usage:
			if n := frames(); n != told {
				told = n
				s.logUsage()
			}
		case <-look.C:
			n := frames()
			if n == seen && n != trimmed {
				// The first collection empties the free lists, the second finds what was in them.
				runtime.GC()
				debug.FreeOSMemory()
				trimmed = n
			}
			seen = n
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
