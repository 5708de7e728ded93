package broker

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/whippetmq/whippet/wire"
)

// statistics holds what the next Stats compares with.
type statistics struct {
	mu       sync.Mutex
	wall     time.Time
	own, all float64 // CPU seconds of the process; busy CPU seconds of the machine
	total    float64 // all CPU seconds of the machine
	fixed    *fixedStats
}

// fixedStats do not change while the process lives.
type fixedStats struct{ hostname, osName, osVersion, kernel string }

// Stats are the figures of this node (model.md §13). CPU usage is since the
// previous call, the first time since the start.
func (b *Broker) Stats() wire.Stats {
	cat := b.cfg.Metadata.Catalog()
	st := wire.Stats{
		ProcessID: uint32(os.Getpid()), RunTime: uint64(time.Since(b.started).Microseconds()),
		StartTime:    uint64(b.started.UnixMicro()),
		StreamsCount: uint32(cat.StreamCount()), TopicsCount: uint32(cat.TopicCount()), PartitionsCount: uint32(cat.PartitionCount()),
		ConsumerGroupsCount: uint32(cat.GroupCount()), ClientsCount: uint32(b.ConnectionCount()),
		ServerVersion: b.cfg.Version, ServerSemver: semver(b.cfg.Version),
	}
	for t, mp := range cat.Partitions() {
		f := b.figures(t, mp)
		st.MessagesSizeBytes += f.Bytes
		st.MessagesCount += f.Messages
		st.SegmentsCount += f.Segments
	}
	b.stats.process(&st, b.started)
	var fs unix.Statfs_t
	if unix.Statfs(b.cfg.DataDir, &fs) == nil {
		st.TotalDiskSpace = fs.Blocks * uint64(fs.Bsize)
		st.FreeDiskSpace = fs.Bavail * uint64(fs.Bsize)
	}
	return st
}

// semver is the number of a version "major.minor.patch"; 0 when it is none.
func semver(v string) uint32 {
	v, _, _ = strings.Cut(v, "-")
	parts := strings.Split(v, ".")
	if len(parts) != 3 {
		return 0
	}
	var n [3]uint64
	for i, p := range parts {
		x, err := strconv.ParseUint(p, 10, 32)
		if err != nil || x > 999 {
			return 0
		}
		n[i] = x
	}
	return uint32(n[0]*1_000_000 + n[1]*1000 + n[2])
}

// process fills in what /proc says; where there is none the fields stay zero.
func (s *statistics) process(st *wire.Stats, started time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fixed == nil {
		s.fixed = readFixed()
		s.wall = started
	}
	f := s.fixed
	st.Hostname, st.OSName, st.OSVersion, st.KernelVersion = f.hostname, f.osName, f.osVersion, f.kernel
	status := fields("/proc/self/status")
	st.MemoryUsage = kib(status["VmRSS"])
	threads, _ := strconv.ParseUint(status["Threads"], 10, 32)
	st.ThreadsCount = uint32(threads)
	mem := fields("/proc/meminfo")
	st.TotalMemory, st.AvailableMemory = kib(mem["MemTotal"]), kib(mem["MemAvailable"])
	io := fields("/proc/self/io")
	st.ReadBytes, _ = strconv.ParseUint(io["read_bytes"], 10, 64)
	st.WrittenBytes, _ = strconv.ParseUint(io["write_bytes"], 10, 64)

	now := time.Now()
	var ru unix.Rusage
	own := s.own
	if unix.Getrusage(unix.RUSAGE_SELF, &ru) == nil {
		own = seconds(ru.Utime) + seconds(ru.Stime)
	}
	if wall := now.Sub(s.wall).Seconds(); wall > 0 {
		st.CPUUsage = float32((own - s.own) / wall * 100)
	}
	busy, total := machineCPU()
	if d := total - s.total; d > 0 {
		st.TotalCPUUsage = float32((busy - s.all) / d * 100)
	}
	s.wall, s.own, s.all, s.total = now, own, busy, total
}

func seconds(t unix.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }

// fields reads "key: value" lines.
func fields(file string) map[string]string {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	out := map[string]string{}
	for line := range bytes.Lines(text) {
		if k, v, ok := bytes.Cut(line, []byte(":")); ok {
			out[string(k)] = strings.TrimSpace(string(v))
		}
	}
	return out
}

func kib(v string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimSuffix(v, " kB"), 10, 64)
	return n << 10
}

// machineCPU gives busy and all CPU time of the machine, in ticks.
func machineCPU() (busy, total float64) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(strings.TrimPrefix(line, "cpu ")) {
		n, _ := strconv.ParseFloat(f, 64)
		if i >= 8 { // guest time is in user time already
			break
		}
		total += n
		if i != 3 && i != 4 { // idle, iowait
			busy += n
		}
	}
	return busy, total
}

func readFixed() *fixedStats {
	f := &fixedStats{osName: runtime.GOOS}
	f.hostname, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		f.kernel = unix.ByteSliceToString(u.Release[:])
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		for line := range strings.Lines(string(text)) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			v = strings.Trim(v, `"`)
			switch k {
			case "NAME":
				f.osName = v
			case "VERSION_ID":
				f.osVersion = v
			}
		}
	}
	return f
}
