package server

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// TuneRuntime sets the garbage collector for a process that is a node and
// nothing else: more work when the limit of the control group comes near.
// GOMEMLIMIT of the environment wins. The collector's target stays at Go's: what
// is live is mostly the tail caches, in which there is nothing to search, so a
// collection is cheap, while each byte of a larger heap is memory that the
// system has to clear.
func TuneRuntime() {
	if os.Getenv("GOMEMLIMIT") == "" {
		if limit := memoryLimit(); limit > 0 {
			// The rest is for stacks, page tables and the kernel's buffers.
			debug.SetMemoryLimit(limit / 10 * 8)
		}
	}
}

// memoryLimit of the control group, or of the machine; 0 = unknown.
func memoryLimit() int64 {
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && n < 1<<50 {
			return n
		}
	}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(v), "kB")), 10, 64)
			return n << 10
		}
	}
	return 0
}
