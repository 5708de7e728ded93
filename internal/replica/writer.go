package replica

import (
	"errors"
	"slices"
	"sync"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// flushParallel is how many files one flush round flushes at a time.
const flushParallel = 16

// errSkipped is the outcome of a write that was not tried because an earlier one of its group failed.
var errSkipped = errors.New("replica: an earlier write failed")

// backlog is a queue of work for one goroutine, which takes all of it at a time. It is bounded by what its users have in
// flight: every job holds entries that count against their group's bound.
type backlog[T any] struct {
	mu    sync.Mutex
	items []T
	wake  chan struct{}
}

func newBacklog[T any]() *backlog[T] { return &backlog[T]{wake: make(chan struct{}, 1)} }

func (b *backlog[T]) put(items ...T) {
	if len(items) == 0 {
		return
	}
	b.mu.Lock()
	b.items = append(b.items, items...)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *backlog[T]) take(empty []T) []T {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items = empty
	return items
}

// work runs round whenever there is something, until stop is closed and nothing is left.
func (b *backlog[T]) work(stop <-chan struct{}, round func([]T)) {
	var spare []T
	for {
		items := b.take(spare[:0])
		if len(items) > 0 {
			round(items)
			clear(items)
			spare = items
			continue
		}
		spare = items
		select {
		case <-b.wake:
		case <-stop:
			select {
			case <-b.wake: // put before stop
			default:
				return
			}
		}
	}
}

// writer writes and flushes what has to be durable before it is acknowledged: one per shard. All jobs that wait are one
// round, in which every file is flushed once.
type writer struct {
	shard *shard
	jobs  *backlog[*job]

	writes []*segment.Write
	round  []*job
}

func newWriter(s *shard) *writer { return &writer{shard: s, jobs: newBacklog[*job]()} }

func (w *writer) run(jobs []*job) {
	w.writes, w.round = w.writes[:0], w.round[:0]
	for _, j := range jobs {
		j.err = nil
		if j.g.writerFailed.Load() {
			j.err = errSkipped
			continue
		}
		w.writes = append(w.writes, j.write)
		w.round = append(w.round, j)
	}
	if len(w.writes) > 0 {
		_ = segment.Flush(w.writes, flushParallel) // each write has its own outcome
		w.withBallast()
		for _, j := range w.round {
			if j.err = j.write.Err(); j.err != nil {
				j.g.writerFailed.Store(true)
			}
		}
		clear(w.writes)
		clear(w.round)
	}
	w.shard.inbox.postJobs(jobs)
}

// withBallast does the writes that found no room once more, with the room of the ballast.
func (w *writer) withBallast() {
	short := slices.DeleteFunc(w.writes, func(x *segment.Write) bool { return !isDiskFull(x.Err()) })
	if len(short) > 0 && w.shard.host.space.failed() {
		_ = segment.Flush(short, flushParallel)
	}
}

// votesWriter makes terms and votes durable for all shards: what waits is one flush.
type votesWriter struct {
	log   *votesLog
	space *space
	turns *backlog[votesTurn]

	changes []voteChange
}

// votesTurn is what one turn of a shard wants durable.
type votesTurn struct {
	shard *shard
	jobs  []*job
}

func newVotesWriter(log *votesLog, space *space) *votesWriter {
	return &votesWriter{log: log, space: space, turns: newBacklog[votesTurn]()}
}

func (w *votesWriter) run(turns []votesTurn) {
	w.changes = w.changes[:0]
	for _, t := range turns {
		for _, j := range t.jobs {
			w.changes = append(w.changes, voteChange{j.g.cfg.ID, j.vote})
		}
	}
	err := w.log.save(w.changes)
	if vfs.IsDiskFull(err) && w.space.failed() {
		err = w.log.save(w.changes)
	}
	for _, t := range turns {
		for _, j := range t.jobs {
			j.err = err
		}
		t.shard.inbox.postJobs(t.jobs)
	}
}
