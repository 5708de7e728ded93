package tcp

import (
	"net"
	"testing"
	"time"
)

// Released clients write a frame in pieces with Nagle's algorithm on. Without the
// early acknowledgement each of these requests takes 40 ms.
func TestFrameInPiecesIsNotHeldBack(t *testing.T) {
	f := &fake{bound: true}
	g := serve(t, f, Config{})
	for _, first := range []int{100, 256, 8192} {
		c := dial(t, g)
		if err := c.Conn.(*net.TCPConn).SetNoDelay(false); err != nil {
			t.Fatal(err)
		}
		const n = 20
		body := string(make([]byte, 30_000))
		began := time.Now()
		for i := range uint64(n) {
			frame := request(2*i+2, body)
			c.send(frame[:first])
			c.send(frame[first:])
			c.expect(2*i+2, body)
		}
		if d := time.Since(began); d > n*25*time.Millisecond {
			t.Errorf("pieces of %d bytes and the rest: %v per request", first, d/n)
		}
	}
}
