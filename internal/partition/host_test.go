package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/internal/clock"
	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/internal/vfs"
	"github.com/whippetmq/whippet/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a real host with one partition, in a file system in memory.
type node struct {
	t    testing.TB
	fs   *vfs.Mem
	host *replica.Host
	g    *replica.Group
	p    *Replica
}

func startNode(t testing.TB, fs *vfs.Mem) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c := clock.System(nil)
	host, err := replica.Open(ctx, replica.Config{FS: fs, Dir: "node", NodeID: 1, BootID: "boot", Clock: c, Shards: 1, BallastBytes: -1, ReserveBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{t: t, fs: fs, host: host, p: New(Config{Stream: 1, Topic: 2, Partition: 3, Clock: c})}
	n.g, err = host.StartGroup(ctx, replica.GroupConfig{
		ID: replica.PartitionGroup(5, 3), Dir: "node/part", Voters: []uint64{1}, SegmentBytes: 20_000, Machine: n.p,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.g.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) stop() {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := n.host.Close(ctx); err != nil {
		n.t.Error(err)
	}
}

// send submits one send and waits for its end; a failed Submit means not admitted.
func (n *node) send(client, request uint64, b wire.Batch) *Send {
	done := make(chan struct{})
	s := &Send{Client: wire.U128{Lo: client}, Request: request, Batch: b, Done: func(*Send) { close(done) }}
	if err := n.g.Submit(n.t.Context(), s); err != nil {
		s.Err = fmt.Errorf("%w: %w", replica.ErrNotAdmitted, err)
		return s
	}
	<-done
	return s
}

// Clients with several sends in flight, offset writes among them, while the process is killed again and again: nothing
// acknowledged is lost, nothing is there twice, offsets stay dense. Replays of lost answers decide what happened.
func TestKilledHost(t *testing.T) {
	const clients, rounds = 4, 5
	type fact struct{ base, client, request uint64 }
	var (
		mu    sync.Mutex
		facts []fact
	)
	fs := vfs.NewMem(1)
	next := make([]uint64, clients)
	for round := range rounds {
		n := startNode(t, fs)
		kill := make(chan *vfs.Mem, 1)
		var wg sync.WaitGroup
		var once sync.Once
		for c := range clients {
			wg.Go(func() {
				for i := range 60 {
					next[c]++
					id := next[c]
					s := n.send(uint64(c+1), id, rawBatch(1+int(id)%3, id, []byte("payload")))
					if s.Err != nil {
						t.Errorf("client %d request %d: %v", c, id, s.Err)
						return
					}
					mu.Lock()
					facts = append(facts, fact{s.BaseOffset, uint64(c + 1), id})
					mu.Unlock()
					if i%5 == 0 {
						next[c]++ // one numbering for all of a client's requests
						w := &OffsetWrite{Client: wire.U128{Lo: uint64(c + 1)}, Request: next[c], Kind: wire.ConsumerSingle, Key: uint32(c), Offset: s.BaseOffset}
						done := make(chan struct{})
						w.Done = func(*OffsetWrite) { close(done) }
						if err := n.g.Submit(t.Context(), w); err != nil {
							t.Error(err)
							return
						}
						<-done
						if w.Err != nil {
							t.Errorf("store: %v", w.Err)
						}
					}
					// Everything acknowledged up to here must be in this copy of the disk.
					if i == 30+round {
						once.Do(func() {
							mu.Lock()
							kill <- fs.KillClone()
							facts = append(facts, fact{client: 0}) // mark: what follows may be lost
							mu.Unlock()
						})
					}
				}
			})
		}
		wg.Wait()
		n.stop()
		fs = <-kill
		cut := slices.IndexFunc(facts, func(f fact) bool { return f.client == 0 })
		acknowledged, open := facts[:cut:cut], facts[cut+1:]
		n = startNode(t, fs)
		// Replays: what was acknowledged before the kill is remembered with its offset (as far as 64 ids reach), what came
		// later is done now or was done then, once.
		for _, f := range acknowledged[max(0, len(acknowledged)-50):] {
			s := n.send(f.client, f.request, rawBatch(1+int(f.request)%3, f.request, []byte("payload")))
			if s.Err != nil || !s.Duplicate || s.BaseOffset != f.base {
				t.Fatalf("replay of %+v: %v, duplicate %v at %d", f, s.Err, s.Duplicate, s.BaseOffset)
			}
		}
		for _, f := range open {
			s := n.send(f.client, f.request, rawBatch(1+int(f.request)%3, f.request, []byte("payload")))
			if s.Err != nil {
				t.Fatalf("replay of %+v: %v", f, s.Err)
			}
			acknowledged = append(acknowledged, fact{s.BaseOffset, f.client, f.request})
		}
		facts = acknowledged
		checkLog(t, n.p, len(facts), func(base, mark uint64) bool {
			return slices.ContainsFunc(facts, func(f fact) bool { return f.base == base && f.request == mark })
		})
		n.stop()
	}
}

// checkLog polls everything and compares it with what was acknowledged.
func checkLog(t *testing.T, p *Replica, batches int, known func(base, mark uint64) bool) {
	t.Helper()
	var r PollResult
	defer r.Release()
	if err := p.Poll(PollQuery{Strategy: wire.FromFirst(), Count: 1 << 30}, &r); err != nil {
		t.Fatal(err)
	}
	var m wire.PolledMessages
	body := wire.AppendPollPrefix(nil, 3, r.CurrentOffset, r.Count)
	for _, b := range r.Records() {
		body = append(body, b...)
	}
	if err := m.Decode(body); err != nil {
		t.Fatal(err)
	}
	next, n := uint64(0), 0
	for b := range m.Batches() {
		if b.BaseOffset() != next {
			t.Fatalf("batch at %d, want %d", b.BaseOffset(), next)
		}
		if !known(next, b.OriginTimestamp()) {
			t.Fatalf("batch %d at %d was never acknowledged there", b.OriginTimestamp(), next)
		}
		next += uint64(b.Count())
		n++
	}
	if n != batches || p.CurrentOffset() != next-1 {
		t.Fatalf("%d batches in the log, %d acknowledged; current offset %d, next %d", n, batches, p.CurrentOffset(), next)
	}
}

// Pipelined sends of one goroutine keep their order, and the objects come back for reuse.
func TestPipelinedOnAHost(t *testing.T) {
	n := startNode(t, vfs.NewMem(2))
	defer n.stop()
	const inflight, total = 16, 2000
	free := make(chan *Send, inflight)
	var bad error
	want := uint64(0)
	for range inflight {
		free <- &Send{Done: func(s *Send) {
			// On the shard's goroutine, so in order.
			if s.Err != nil || s.BaseOffset != want || s.Duplicate {
				bad = errors.Join(bad, fmt.Errorf("request %d: %v at %d, want %d", s.Request, s.Err, s.BaseOffset, want))
			}
			want += 2
			free <- s
		}}
	}
	for i := range uint64(total) {
		s := <-free
		s.Reset()
		s.Client, s.Request, s.Batch = wire.U128{Lo: 1}, i+1, rawBatch(2, i, []byte("x"))
		if err := s.Verify(); err != nil {
			t.Fatal(err)
		}
		if err := n.g.Submit(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	for range inflight {
		<-free
	}
	if bad != nil || n.p.Stats().Messages != 2*total {
		t.Errorf("%v, %+v", bad, n.p.Stats())
	}
}
