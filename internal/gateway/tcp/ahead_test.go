package tcp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/whippetmq/whippet/internal/broker"
	"github.com/whippetmq/whippet/wire"
)

// TestFramesOfAllSizesInPieces: whatever the sizes of bodies that follow each other, and wherever the stream of bytes is
// cut, the frames come out as they were sent. The memory taken ahead for a body is right, too large, too small, or beside
// the point.
func TestFramesOfAllSizesInPieces(t *testing.T) {
	f := &fake{bound: true}
	g := serve(t, f, Config{})
	sizes := []int{0, 1, readBuffer - 1, readBuffer, readBuffer + 1, 2000, 2000, 10_500, 10_500, 10_501, 10_499, smallBody, smallBody + 1, 300_000}
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c := dial(t, g)
		var stream []byte
		var bodies []string
		for i := range 60 {
			n := sizes[rng.IntN(len(sizes))]
			if rng.IntN(2) == 0 && i > 0 {
				n = len(bodies[i-1]) // the client that sends one size
			}
			body := fmt.Sprintf("%d of seed %d ", i, seed)
			body = strings.Repeat(body, n/len(body)+1)[:n]
			bodies = append(bodies, body)
			stream = append(stream, request(uint64(2*i+2), body)...)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for rest := stream; len(rest) > 0; {
				n := min(len(rest), 1+rng.IntN([]int{100, 5000, 40_000, 400_000}[rng.IntN(4)]))
				if _, err := c.Write(rest[:n]); err != nil {
					t.Error(err)
					return
				}
				rest = rest[n:]
			}
		})
		for i, body := range bodies {
			number, got, err := c.read()
			if err != nil || number != uint64(2*i+2) || got != body {
				t.Fatalf("seed %d, frame %d: number %d, %d bytes instead of %d, %v", seed, i, number, len(got), len(body), err)
			}
		}
		wg.Wait()
		_ = c.Close()
	}
}

// holder answers a request through its sink before Handle returns, as a broker does that had the outcome at once.
type holder struct{ fake }

type holderConn struct {
	fakeConn
	n int
}

func (f *holder) Connect(_ broker.Peer, s broker.Sink) broker.Conn {
	return &holderConn{fakeConn: fakeConn{&f.fake, s}}
}

func (c *holderConn) Handle(h *wire.RequestHeader, body *broker.Buffer) *broker.Reply {
	r := broker.Echo(h, body.Bytes())
	body.Release()
	c.n++
	switch c.n % 4 {
	case 0:
		return r
	case 1:
		c.s.Hold(true)
		c.s.Reply(r)
	case 2:
		c.s.Hold(true)
		c.s.Reply(r)
		c.s.Hold(false)
	case 3:
		c.s.Hold(true)
		c.f.wg.Go(func() { c.s.Reply(r) })
	}
	return nil
}

// TestHeldReplies: replies that were held back are written when Handle returns, those that come later all the same.
func TestHeldReplies(t *testing.T) {
	f := &holder{fake{bound: true}}
	g := serve(t, &f.fake, Config{Handler: f})
	c := dial(t, g)
	for round := range uint64(100) {
		seen := map[uint64]bool{}
		for i := range uint64(8) {
			c.send(request(8*round+i+2, "body"))
		}
		for range 8 {
			number, body, err := c.read()
			if err != nil || body != "body" || seen[number] || number < 8*round+2 || number > 8*round+9 {
				t.Fatalf("round %d: reply %d %q, %v", round, number, body, err)
			}
			seen[number] = true
		}
	}
}
