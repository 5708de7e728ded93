package transport

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// Whoever connects without a word takes a bounded number of descriptors, and nodes still get in.
func TestStrangersAreBounded(t *testing.T) {
	la, lb := listen(t), listen(t)
	addresses := []string{la.Addr().String(), lb.Addr().String()}
	a := start(t, 1, addresses, la, nil)
	silent := make([]net.Conn, 2*maxStrangers)
	for i := range silent {
		conn, err := net.Dial("tcp", addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		silent[i] = conn
	}
	for _, conn := range silent[:maxStrangers] {
		_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second)) // half of what a handshake may take
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
			t.Fatalf("an old connection is kept: %v", err)
		}
	}
	b := start(t, 2, addresses, lb, nil)
	waitUp(t, a, 2)
	waitUp(t, b, 1)
	eventually(t, "the bound", func() bool {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.incoming) <= maxStrangers+1
	})
	if n := strings.Count(a.log.String(), "peer link: refused"); n == 0 || n > 2*refusalLines {
		t.Errorf("%d lines about %d connections", n, maxStrangers)
	}
}

func isReset(err error) bool { return err != nil && strings.Contains(err.Error(), "reset") }

func TestRefusalsAreLoggedNowAndThen(t *testing.T) {
	var r refusals
	now := time.Unix(1000, 0)
	stranger, proof := &RefusedError{Reason: ReasonStranger}, &RefusedError{Reason: ReasonProof}
	for i := range 1000 {
		if log, left := r.of(stranger).Note(now); log != (i < refusalLines) || left != 0 {
			t.Fatalf("%d: logged %v, left %d", i, log, left)
		}
	}
	// One reason does not hide another.
	if log, _ := r.of(proof).Note(now); !log {
		t.Error("the first of another reason is not logged")
	}
	if log, left := r.of(stranger).Note(now.Add(refusalPeriod)); !log || left != 1000-refusalLines {
		t.Errorf("after the period: logged %v, %d left out", log, left)
	}
}
