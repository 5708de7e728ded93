package floor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/whippetmq/whippet/wire"
)

// Server is a running floor.
type Server struct {
	listener net.Listener
	store    *store
	sessions atomic.Uint64

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

// Start listens on address (port 0 picks a free one) and keeps its files in dir, which must exist.
func Start(ctx context.Context, address, dir string) (*Server, error) {
	if st, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	} else if !st.IsDir() {
		return nil, fmt.Errorf("floor: %s is not a directory", dir)
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("floor: %w", err)
	}
	s := &Server{listener: l, store: &store{dir: dir}, conns: map[net.Conn]struct{}{}}
	s.wg.Add(1)
	go s.accept()
	return s, nil
}

// Address is where the floor listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.wg.Wait()
	s.store.close()
	return err
}

func (s *Server) accept() {
	defer s.wg.Done()
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return // closed
		}
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = c.Close()
			return
		}
		s.conns[c] = struct{}{}
		s.wg.Add(1)
		s.mu.Unlock()
		go s.serve(c)
	}
}

// Sizes of a connection's buffers. Replies are written out when so many bytes have gathered, or nothing more has been
// read.
const (
	readBuffer  = 256 << 10
	flushAbove  = 256 << 10
	maxPollSize = wire.DefaultMaxFrame - wire.HeaderSize - wire.PollReplyPrefix
)

// conn is one connection: the bytes read and not parsed, and the replies not written.
type conn struct {
	s   *Server
	c   net.Conn
	in  []byte // in[r:w] is unread
	r   int
	w   int
	out []byte

	send    wire.SendMessages // reused
	poll    wire.PollMessages
	session uint64
}

func (s *Server) serve(nc net.Conn) {
	defer s.wg.Done()
	c := &conn{s: s, c: nc, in: make([]byte, readBuffer)}
	_ = c.loop() // any error ends this connection and nothing else
	_ = nc.Close()
	s.mu.Lock()
	delete(s.conns, nc)
	s.mu.Unlock()
}

func (c *conn) loop() error {
	for {
		// Whole frames in the buffer are answered before more is read.
		for c.w-c.r >= wire.HeaderSize {
			size, err := wire.FrameSize(c.in[c.r:c.w])
			if err != nil {
				return err
			}
			if size > wire.DefaultMaxFrame {
				return errors.New("frame too large")
			}
			if c.w-c.r < int(size) {
				c.room(int(size))
				break
			}
			frame := c.in[c.r : c.r+int(size)]
			c.r += int(size)
			if err := c.handle(frame); err != nil {
				return err
			}
			if len(c.out) > flushAbove {
				if err := c.flush(); err != nil {
					return err
				}
			}
		}
		if err := c.flush(); err != nil {
			return err
		}
		c.room(wire.HeaderSize)
		n, err := c.c.Read(c.in[c.w:])
		if err != nil {
			return err
		}
		c.w += n
	}
}

// room makes sure that a frame of size fits behind what is unread, moving it to the front or growing the buffer.
func (c *conn) room(size int) {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if len(c.in)-c.r >= size && c.w < len(c.in) {
		return
	}
	if size > len(c.in) {
		grown := make([]byte, size+readBuffer)
		c.w = copy(grown, c.in[c.r:c.w])
		c.r, c.in = 0, grown
		return
	}
	c.w = copy(c.in, c.in[c.r:c.w])
	c.r = 0
}

func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	_, err := c.c.Write(c.out)
	c.out = c.out[:0]
	return err
}

func (c *conn) handle(frame []byte) error {
	var h wire.RequestHeader
	if err := h.Decode(frame); err != nil {
		return err
	}
	body := frame[wire.HeaderSize:]
	if h.Operation == wire.OpSendMessages {
		return c.handleSend(&h, body)
	}
	code, _ := h.Command()
	if code == wire.CodePollMessages {
		return c.handlePoll(&h, body)
	}
	return c.handleOther(&h, code, body)
}

// handleSend checks the batch, appends it with one pwrite, and confirms.
func (c *conn) handleSend(h *wire.RequestHeader, body []byte) error {
	reply := h.Reply()
	if err := c.send.Decode(body); err != nil {
		c.out = wire.AppendStatus(c.out, reply, wire.ErrInvalidCommand)
		return nil
	}
	if err := c.send.Batch.Verify(); err != nil {
		c.out = wire.AppendStatus(c.out, reply, wire.ErrInvalidBatchChecksum)
		return nil
	}
	st, t, ok := c.s.store.topic(c.send.Stream, c.send.Topic)
	partition := c.send.Partitioning.ID
	if !ok || c.send.Partitioning.Kind != wire.PartitioningPartitionID || int(partition) >= len(t.partitions) {
		c.out = wire.AppendStatus(c.out, reply, wire.ErrResourceNotFound)
		return nil
	}
	base, err := t.partitions[partition].append(partition, c.send.Batch)
	if err != nil {
		return err
	}
	frame, start := wire.BeginFrame(c.out)
	frame = wire.AppendConfirmation(frame, wire.SendConfirmation{StreamID: st.id, TopicID: t.id, PartitionID: partition, BaseOffset: base})
	wire.FinishReply(frame, start, reply)
	c.out = frame
	return nil
}

// handlePoll answers with one pread.
func (c *conn) handlePoll(h *wire.RequestHeader, body []byte) error {
	reply := h.Reply()
	if err := c.poll.Decode(body); err != nil {
		c.out = wire.AppendStatus(c.out, reply, wire.ErrInvalidCommand)
		return nil
	}
	_, t, ok := c.s.store.topic(c.poll.Stream, c.poll.Topic)
	if !ok || int(c.poll.Partition.ID) >= len(t.partitions) {
		c.out = wire.AppendStatus(c.out, reply, wire.ErrPartitionNotFound)
		return nil
	}
	p := t.partitions[c.poll.Partition.ID]
	offset := c.poll.Strategy.Value
	switch c.poll.Strategy.Kind {
	case wire.StrategyOffset:
	case wire.StrategyFirst, wire.StrategyNext:
		offset = 0
	default:
		c.out = wire.AppendStatus(c.out, reply, wire.ErrFeatureUnavailable)
		return nil
	}
	s := p.find(offset, c.poll.Count, maxPollSize)
	frame, start := wire.BeginFrame(c.out)
	frame = wire.AppendPollPrefix(frame, c.poll.Partition.ID, s.current, s.messages)
	if s.size > 0 {
		records := len(frame)
		frame = slices.Grow(frame, int(s.size))[:records+int(s.size)] // every byte is read over
		if _, err := p.f.ReadAt(frame[records:], s.at); err != nil {
			return fmt.Errorf("read: %w", err)
		}
		if !s.exact {
			frame = cut(frame, start, records, &c.poll, offset, s.current)
		}
	}
	wire.FinishReply(frame, start, reply)
	c.out = frame
	return nil
}

// cut keeps of the records behind frame[records:] only the messages that were asked for.
func cut(frame []byte, start, records int, q *wire.PollMessages, offset, current uint64) []byte {
	rest := append([]byte(nil), frame[records:]...)
	frame = frame[:start+wire.HeaderSize]
	frame = wire.AppendPollPrefix(frame, q.Partition.ID, current, 0)
	var n uint32
	for len(rest) > 0 && n < q.Count {
		b, after, err := wire.ParseBatch(rest)
		if err != nil {
			break // we wrote it ourselves
		}
		rest = after
		if b = wire.Slice(b, offset, q.Count-n); b != nil {
			n += b.Count()
			frame = append(frame, b...)
		}
	}
	copy(frame[start+wire.HeaderSize:], wire.AppendPollPrefix(nil, q.Partition.ID, current, n))
	return frame
}
