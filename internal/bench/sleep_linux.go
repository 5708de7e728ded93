package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// preciseSleep blocks the thread in the kernel for d, at most a few milliseconds.
func preciseSleep(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil) // an interrupted sleep is resumed by the caller's loop
}
