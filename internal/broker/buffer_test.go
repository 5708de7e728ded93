package broker

import (
	"sync"
	"sync/atomic"
	"testing"
)

// TestBufferUses: a buffer is used again after the last of its users has released it, whoever that is.
func TestBufferUses(t *testing.T) {
	for range 200 {
		b := GetBuffer(1000)
		for i := range b.B {
			b.B[i] = 7
		}
		const users = 4
		for range users - 1 {
			b.Retain()
		}
		var wg sync.WaitGroup
		var left atomic.Int32
		left.Store(users)
		for range users {
			wg.Go(func() {
				for _, v := range b.B {
					if v != 7 {
						t.Error("changed under a user")
						break
					}
				}
				left.Add(-1)
				b.Release()
			})
		}
		wg.Wait()
		if n := b.more.Load(); n != 0 {
			t.Fatalf("%d users are left", n)
		}
	}
	var none *Buffer
	none.Release()
}
