package tcp

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/broker"
)

const (
	// writeChunk is how much one writev takes at most; each gets its own time.
	writeChunk = 4 << 20
	// writePatience is how long a client may take to receive one chunk.
	writePatience = 30 * time.Second
)

// outbox holds the replies of one connection until they are written. One
// goroutine writes at a time: the reader for a reply that is ready at once, else
// the writer, which is started when needed and ends when it had nothing to do
// between two looks of the janitor.
type outbox struct {
	c *conn

	mu      sync.Mutex
	queue   []*broker.Reply
	spare   []*broker.Reply
	running bool // the writer goroutine exists
	writing bool // somebody writes
	used    bool // since the janitor's last look
	retire  bool // the writer shall end when it is idle
	broken  bool // a write failed or the connection is closed: replies are dropped
	held    bool // the reader writes what is queued, soon

	wake chan struct{} // capacity 1, for the writer

	writeUntil atomic.Int64 // when the present chunk has to be written; 0 = none is

	segments [][]byte    // of the writer's turn
	buffers  net.Buffers // the part handed to writev
}

// put queues a reply. It never blocks.
func (o *outbox) put(r *broker.Reply) {
	o.mu.Lock()
	if o.broken {
		o.mu.Unlock()
		o.c.answered(r)
		r.Release()
		return
	}
	o.queue = append(o.queue, r)
	if o.held {
		o.mu.Unlock()
		return
	}
	wake := o.rouse(len(o.queue) == 1)
	o.mu.Unlock()
	if wake {
		o.signal()
	}
}

// rouse starts the writer, or reports that it has to be signalled; idle says
// that it may be waiting. The mutex is held.
func (o *outbox) rouse(idle bool) (signal bool) {
	o.used = true
	if !o.running {
		o.running = true
		o.c.g.wg.Add(1)
		go o.run()
		return false
	}
	return idle
}

// hold lets replies wait for flush.
func (o *outbox) hold() {
	o.mu.Lock()
	o.held = true
	o.mu.Unlock()
}

// release ends hold without writing.
func (o *outbox) release() {
	o.mu.Lock()
	o.held = false
	wake := len(o.queue) > 0 && o.rouse(true)
	o.mu.Unlock()
	if wake {
		o.signal()
	}
}

// flush ends hold and writes what is queued on the caller's goroutine, unless
// somebody is writing, who goes on with it then.
func (o *outbox) flush() {
	o.mu.Lock()
	o.held = false
	if o.broken || o.writing || len(o.queue) == 0 {
		o.mu.Unlock()
		return
	}
	batch := o.begin()
	o.mu.Unlock()
	err := o.write(batch...)
	o.mu.Lock()
	o.end(batch, err)
	wake := len(o.queue) > 0 && o.rouse(true)
	o.mu.Unlock()
	if wake {
		o.signal()
	}
}

// begin takes the queue to be written. The mutex is held.
func (o *outbox) begin() []*broker.Reply {
	batch := o.queue
	o.queue, o.spare = o.spare[:0], nil
	o.writing = true
	return batch
}

// end takes back what begin gave. The mutex is held.
func (o *outbox) end(batch []*broker.Reply, err error) {
	clear(batch)
	o.spare = batch[:0]
	o.done(err)
}

func (o *outbox) signal() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// direct writes a reply on the caller's goroutine when nothing is before it,
// else queues it.
func (o *outbox) direct(r *broker.Reply) {
	o.mu.Lock()
	if o.broken || o.writing || len(o.queue) > 0 {
		o.mu.Unlock()
		o.put(r)
		return
	}
	o.writing = true
	o.mu.Unlock()
	err := o.write(r)
	o.mu.Lock()
	o.done(err)
	wake := len(o.queue) > 0 && o.rouse(true)
	o.mu.Unlock()
	if wake {
		o.signal()
	}
}

// done ends a turn of writing. The mutex is held.
func (o *outbox) done(err error) {
	o.writing = false
	if err != nil && !o.broken {
		o.broken = true
		o.c.abort()
	}
	if o.broken {
		for i, r := range o.queue {
			o.c.answered(r)
			r.Release()
			o.queue[i] = nil
		}
		o.queue = o.queue[:0]
	}
}

// run is the writer.
func (o *outbox) run() {
	defer o.c.g.wg.Done()
	for {
		o.mu.Lock()
		if o.writing || len(o.queue) == 0 {
			if !o.writing && (o.retire || o.broken) {
				o.running, o.retire = false, false
				o.segments, o.buffers, o.spare = nil, nil, nil
				o.mu.Unlock()
				return
			}
			o.mu.Unlock()
			<-o.wake
			continue
		}
		batch := o.begin()
		o.mu.Unlock()
		err := o.write(batch...)
		o.mu.Lock()
		o.end(batch, err)
		o.mu.Unlock()
	}
}

// write sends frames and releases them.
func (o *outbox) write(rs ...*broker.Reply) error {
	o.segments = o.segments[:0]
	for _, r := range rs {
		o.segments = r.Segments(o.segments)
	}
	var err error
	for rest := o.segments; len(rest) > 0 && err == nil; {
		n, bytes := 0, 0
		for n < len(rest) && (n == 0 || bytes+len(rest[n]) <= writeChunk) {
			bytes += len(rest[n])
			n++
		}
		o.writeUntil.Store(o.c.g.now() + int64(writePatience))
		// WriteTo consumes the slice it is called on; the segments stay.
		o.buffers = append(o.buffers[:0], rest[:n]...)
		all := o.buffers
		var sent int64
		sent, err = o.buffers.WriteTo(o.c.nc)
		o.c.g.stats.BytesOut.Add(uint64(sent))
		clear(all)
		o.buffers = all[:0]
		rest = rest[n:]
	}
	o.writeUntil.Store(0)
	clear(o.segments)
	for _, r := range rs {
		o.c.answered(r)
		r.Release()
	}
	return err
}

// close drops what is queued and everything that comes.
func (o *outbox) close() {
	o.mu.Lock()
	o.broken = true
	if !o.writing {
		o.done(nil)
	}
	o.mu.Unlock()
	o.signal()
}

// retireIdle lets a writer end that was not used since the last call.
func (o *outbox) retireIdle() {
	o.mu.Lock()
	unused := o.running && !o.used && len(o.queue) == 0
	o.used = false
	if unused {
		o.retire = true
	}
	o.mu.Unlock()
	if unused {
		o.signal()
	}
}
