package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Patience is the bound of waits that have no reason for another one: long, because a slow machine is no failure.
const Patience = 20 * time.Second

// step is the pause between two looks at a condition.
const step = 5 * time.Millisecond

// ErrNotYet says that a condition does not hold yet, when there is nothing more to say.
var ErrNotYet = errors.New("not yet")

// Until looks at a condition until it gives nil. When limit or ctx ends first, the error names what was waited for and
// what the condition said last. The condition gets a context that ends with the wait.
func Until(ctx context.Context, limit time.Duration, what string, condition func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(step)
	defer tick.Stop()
	var last error
	for {
		err := condition(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // what it says when it is cut off by the limit is worth less than what it said before
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v for %s: %w", limit, what, last)
		case <-tick.C:
		}
	}
}

// Eventually is Until for a test: it fails the test at once.
func Eventually(t testing.TB, limit time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	if err := Until(t.Context(), limit, what, condition); err != nil {
		t.Fatal(err)
	}
}

// Await receives from a channel, or fails the test.
func Await[T any](t testing.TB, limit time.Duration, what string, from <-chan T) T {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-from:
		return v
	case <-timer.C:
		t.Fatalf("waited %v for %s", limit, what)
		panic("unreachable")
	}
}
