//go:build !linux

package bench

import "time"

// preciseSleep waits for d, as precisely as the runtime's timers are.
func preciseSleep(d time.Duration) {
	t := time.NewTimer(d)
	<-t.C
}
