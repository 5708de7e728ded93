package bench

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Usage of a process, as the kernel counts it (Linux; zero elsewhere).
type Usage struct {
	PID          int     `json:"pid"`
	CPUSeconds   float64 `json:"cpu_seconds"`
	Resident     uint64  `json:"resident_bytes"`      // now
	PeakResident uint64  `json:"peak_resident_bytes"` // since it started
	// Written is what was sent to the device or its cache; WroteCalls is what was passed to write calls, sockets
	// included.
	Written    uint64 `json:"written_bytes"`
	WroteCalls uint64 `json:"write_call_bytes"`
	ReadDevice uint64 `json:"read_device_bytes"`
	ReadCalls  uint64 `json:"read_call_bytes"`
	Switches   uint64 `json:"context_switches"`
}

// clockTicks is the kernel's USER_HZ, which has been 100 on every platform that Go runs on.
const clockTicks = 100

// ReadUsage reads /proc of a process.
func ReadUsage(pid int) (Usage, error) {
	dir := "/proc/" + strconv.Itoa(pid)
	u := Usage{PID: pid}
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return u, fmt.Errorf("usage of process %d: %w", pid, err)
	}
	// The name in brackets may hold spaces: fields count from the last bracket. utime and stime are fields 14, 15.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return u, fmt.Errorf("usage of process %d: unexpected %q", pid, stat)
	}
	u.CPUSeconds = float64(number(fields[11])+number(fields[12])) / clockTicks
	for key, v := range keyed(dir + "/status") {
		switch key {
		case "VmRSS":
			u.Resident = v * 1024
		case "VmHWM":
			u.PeakResident = v * 1024
		}
	}
	for key, v := range keyed(dir + "/io") {
		switch key {
		case "write_bytes":
			u.Written = v
		case "wchar":
			u.WroteCalls = v
		case "read_bytes":
			u.ReadDevice = v
		case "rchar":
			u.ReadCalls = v
		}
	}
	tasks, err := os.ReadDir(dir + "/task")
	if err == nil {
		for _, t := range tasks {
			for key, v := range keyed(dir + "/task/" + t.Name() + "/status") {
				if strings.HasSuffix(key, "ctxt_switches") {
					u.Switches += v
				}
			}
		}
	}
	return u, nil
}

// since is what was used between an earlier reading and this one.
func (u Usage) since(o Usage) Usage {
	u.CPUSeconds -= o.CPUSeconds
	u.Written -= o.Written
	u.WroteCalls -= o.WroteCalls
	u.ReadDevice -= o.ReadDevice
	u.ReadCalls -= o.ReadCalls
	if u.Switches >= o.Switches {
		u.Switches -= o.Switches
	}
	return u
}

// keyed reads lines of "key: number ...".
func keyed(path string) map[string]uint64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil // the process is another user's, or gone
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(b)) {
		key, rest, ok := strings.Cut(line, ":")
		if !ok {
			continue
		}
		if f := strings.Fields(rest); len(f) > 0 {
			out[key] = number(f[0])
		}
	}
	return out
}

func number(s string) uint64 {
	n, _ := strconv.ParseUint(s, 10, 64)
	return n
}
