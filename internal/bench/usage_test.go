package bench

import (
	"os"
	"runtime"
	"testing"
)

func TestReadUsage(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	u, err := ReadUsage(os.Getpid())
	if err != nil || u.Resident == 0 || u.PeakResident < u.Resident {
		t.Errorf("own usage: %+v, %v", u, err)
	}
	if _, err := ReadUsage(1 << 30); err == nil {
		t.Error("a process that does not exist has a usage")
	}
}
