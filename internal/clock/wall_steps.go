//go:build clocksteps

package clock

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// StepFile is the environment variable that names a file with microseconds to add to the machine's clock. Only binaries
// built with the tag clocksteps know it: a test steps the wall clock of its nodes without stepping that of its machine.
const StepFile = "WHIPPET_TEST_CLOCK_FILE"

// rereadEvery bounds how often the file is read.
const rereadEvery = 10 * time.Millisecond

var (
	step     atomic.Int64 // nanoseconds
	readNext atomic.Int64 // when the file is read again, in nanoseconds of the machine's clock
)

func wall() time.Time {
	now := time.Now()
	if next := readNext.Load(); now.UnixNano() >= next && readNext.CompareAndSwap(next, now.UnixNano()+int64(rereadEvery)) {
		text, err := os.ReadFile(os.Getenv(StepFile))
		if micros, parsed := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && parsed == nil {
			step.Store(micros * int64(time.Microsecond))
		}
	}
	return now.Add(time.Duration(step.Load()))
}
