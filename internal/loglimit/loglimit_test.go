package loglimit

import (
	"fmt"
	"testing"
	"time"
)

func TestLinesAreLoggedNowAndThen(t *testing.T) {
	const lines, period = 10, time.Minute
	l := New(lines, period)
	now := time.Unix(1000, 0)
	for i := range 5000 {
		if log, left := l.Note(now); log != (i < lines) || left != 0 {
			t.Fatalf("%d: logged %v, %d left out", i, log, left)
		}
	}
	if log, left := l.Note(now.Add(period)); !log || left != 5000-lines {
		t.Fatalf("after the period: logged %v, %d left out", log, left)
	}
}

func TestLogTellsWhatWasLeftOut(t *testing.T) {
	var got []string
	log := func(msg string, args ...any) { got = append(got, fmt.Sprint(msg, args)) }
	l := New(2, time.Hour)
	for range 5 {
		l.Log(log, "failed", "id", 7)
	}
	l.since = l.since.Add(-time.Hour)
	l.Log(log, "failed", "id", 7)
	want := []string{"failed[id 7]", "failed[id 7]", "failed[id 7 not_logged 3]"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("logged %v, want %v", got, want)
	}
}
