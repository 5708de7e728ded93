package broker

import (
	"testing"
	"time"
)

func TestFailuresAreLoggedNowAndThen(t *testing.T) {
	var f failures
	now := time.Unix(1000, 0)
	for i := range 5000 {
		if log, left := f.note(now); log != (i < failureLines) || left != 0 {
			t.Fatalf("%d: logged %v, %d left out", i, log, left)
		}
	}
	if log, left := f.note(now.Add(failurePeriod)); !log || left != 5000-failureLines {
		t.Fatalf("after the period: logged %v, %d left out", log, left)
	}
}
