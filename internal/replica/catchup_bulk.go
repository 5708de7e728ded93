package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/segment"
)

// Bulk opens connections for copying to other nodes, which hand them to Host.ServeBulk.
type Bulk interface {
	DialBulk(ctx context.Context, to uint64) (net.Conn, error)
}

// The protocol on a connection for copying: the dialler asks, the other side answers, as often as the dialler likes.
//
//	question (48): 0  4  magic "WPB1"
//	               4  1  what: 1 = checkpoint, 2 = segment
//	               5  3  zero
//	               8  8  group
//	              16  8  index of the checkpoint, or first index of the segment
//	              24  8  purge generation of the segment
//	              32  8  first byte wanted
//	              40  8  end of what is wanted (first byte not wanted)
//	answer (16):   0  4  magic "WPB1"
//	               4  1  0 = it follows, 1 = not here, 2 = busy
//	               5  3  zero
//	               8  8  number of bytes that follow
//	chunk  (16+n): 0  4  length of the chunk, at most 64 KiB
//	               4  4  zero
//	               8  8  XXH3-64 of its bytes
//	              16  n  bytes
//
// Chunks follow until the announced bytes are complete. A side that has nothing more to say closes the connection.
const (
	bulkMagic    = 'W' | 'P'<<8 | 'B'<<16 | '1'<<24
	bulkQuestion = 48
	bulkAnswer   = 16
	bulkChunk    = 16
	bulkBytes    = 64 << 10

	bulkCheckpoint = 1
	bulkSegment    = 2

	bulkFollows = 0
	bulkNotHere = 1
	bulkBusy    = 2

	// bulkIdle is how long a connection may be silent between two questions, and a chunk under way.
	bulkIdle = 10 * time.Second
)

var (
	errBulk    = errors.New("replica: malformed copying protocol")
	errNotHere = errors.New("replica: the other node does not have it")
	errBusy    = errors.New("replica: the other node serves too many copies")
)

type question struct {
	what       byte
	group      GroupID
	index      uint64
	generation uint64
	from, to   int64
}

func (q *question) append(b []byte) []byte {
	b = le.AppendUint32(b, bulkMagic)
	b = append(b, q.what, 0, 0, 0)
	b = le.AppendUint64(b, uint64(q.group))
	b = le.AppendUint64(b, q.index)
	b = le.AppendUint64(b, q.generation)
	b = le.AppendUint64(b, uint64(q.from))
	return le.AppendUint64(b, uint64(q.to))
}

func decodeQuestion(b []byte) (question, error) {
	q := question{
		what: b[4], group: GroupID(le.Uint64(b[8:])), index: le.Uint64(b[16:]), generation: le.Uint64(b[24:]),
		from: int64(le.Uint64(b[32:])), to: int64(le.Uint64(b[40:])),
	}
	if le.Uint32(b) != bulkMagic || q.what != bulkCheckpoint && q.what != bulkSegment || q.from < 0 || q.to < q.from || q.to > maxPieceBytes {
		return q, errBulk
	}
	return q, nil
}

// ServeBulk answers what a node asks over a connection for copying, until that node closes it, is silent for long, or ctx
// ends. The connection stays the caller's.
func (h *Host) ServeBulk(ctx context.Context, from uint64, conn net.Conn) {
	h.mu.RLock()
	closed := h.closed
	if !closed {
		h.serving.Add(1)
	}
	h.mu.RUnlock()
	if closed {
		return
	}
	defer h.serving.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	defer context.AfterFunc(h.life, cancel)()
	b := make([]byte, bulkChunk+bulkBytes)
	for {
		if err := h.serveQuestion(ctx, conn, b); err != nil {
			if !errors.Is(err, io.EOF) && ctx.Err() == nil {
				h.cfg.Logger.Debug("copying to a node ended", "node", from, "error", err)
			}
			return
		}
	}
}

func (h *Host) serveQuestion(ctx context.Context, conn net.Conn, b []byte) error {
	if err := extend(ctx, conn); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, b[:bulkQuestion]); err != nil {
		return err
	}
	q, err := decodeQuestion(b)
	if err != nil {
		return err
	}
	answer := func(status byte, bytes int64) error {
		a := append(le.AppendUint32(b[:0], bulkMagic), status, 0, 0, 0)
		_, err := conn.Write(le.AppendUint64(a, uint64(bytes)))
		return err
	}
	if !h.bulkSlots.tryAcquire() {
		return answer(bulkBusy, 0)
	}
	defer h.bulkSlots.release()
	source, done, err := h.find(q)
	if err != nil {
		h.cfg.Logger.Debug("asked for a copy that is not here", "group", q.group, "index", q.index, "error", err)
		return answer(bulkNotHere, 0)
	}
	defer done()
	if err := answer(bulkFollows, q.to-q.from); err != nil {
		return err
	}
	for at := q.from; at < q.to; {
		n := min(q.to-at, bulkBytes)
		chunk := b[bulkChunk : bulkChunk+n]
		if got, err := source.ReadAt(chunk, at); int64(got) < n {
			return fmt.Errorf("replica: read what is copied: %w", err)
		}
		le.PutUint32(b, uint32(n))
		le.PutUint32(b[4:], 0)
		le.PutUint64(b[8:], xxh3.Hash(chunk))
		if err := extend(ctx, conn); err != nil {
			return err
		}
		if _, err := conn.Write(b[:bulkChunk+n]); err != nil {
			return err
		}
		at += n
	}
	return nil
}

// extend gives the other side time for its next step.
func extend(ctx context.Context, conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(bulkIdle)); err != nil {
		return err
	}
	return ctx.Err() // in this order: the end of ctx sets a deadline too
}

// find gives access to what is asked for; segments are pinned until done.
func (h *Host) find(q question) (source io.ReaderAt, done func(), err error) {
	g := h.Group(q.group)
	if g == nil || g.fenced.Load() != nil {
		return nil, nil, ErrUnknownGroup
	}
	if q.what == bulkCheckpoint {
		body := h.transfers.checkpoint(q.group, q.index)
		if body == nil || q.to > int64(len(body)) {
			return nil, nil, errNotHere
		}
		return memory(body), func() {}, nil
	}
	log := g.readable.Load()
	if log == nil {
		return nil, nil, errNotHere
	}
	unpin := log.Pin()
	for _, s := range log.Segments() {
		if s.FirstIndex != q.index || s.Generation != q.generation {
			continue
		}
		f, err := h.cfg.FS.OpenFile(s.File, os.O_RDONLY)
		if err != nil {
			unpin()
			return nil, nil, err
		}
		// What is not written yet, or not the same as in the log of the one who made the manifest, is noticed there.
		if size, err := f.Size(); err != nil || size < q.to {
			_ = f.Close()
			unpin()
			return nil, nil, errNotHere
		}
		return f, func() {
			_ = f.Close()
			unpin()
		}, nil
	}
	unpin()
	return nil, nil, errNotHere
}

// memory is a byte slice to be read like a file.
type memory []byte

func (m memory) ReadAt(p []byte, at int64) (int, error) {
	if at > int64(len(m)) {
		return 0, io.EOF
	}
	n := copy(p, m[at:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// fetch asks for a part of something and passes it on in order, chunk by chunk, each verified.
func fetch(ctx context.Context, conn net.Conn, q question, take func(chunk []byte) error) error {
	if err := extend(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Write(q.append(make([]byte, 0, bulkQuestion))); err != nil {
		return fmt.Errorf("replica: ask for a copy: %w", err)
	}
	var head [bulkAnswer]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return fmt.Errorf("replica: read a copy: %w", err)
	}
	switch {
	case le.Uint32(head[:]) != bulkMagic:
		return errBulk
	case head[4] == bulkNotHere:
		return errNotHere
	case head[4] == bulkBusy:
		return errBusy
	case head[4] != bulkFollows || le.Uint64(head[8:]) != uint64(q.to-q.from):
		return errBulk
	}
	buf := make([]byte, min(q.to-q.from, bulkBytes))
	for left := q.to - q.from; left > 0; {
		if err := extend(ctx, conn); err != nil {
			return err
		}
		if _, err := io.ReadFull(conn, head[:bulkChunk]); err != nil {
			return fmt.Errorf("replica: read a copy: %w", err)
		}
		n := int64(le.Uint32(head[:]))
		if n == 0 || n > min(left, bulkBytes) {
			return errBulk
		}
		chunk := buf[:n]
		if _, err := io.ReadFull(conn, chunk); err != nil {
			return fmt.Errorf("replica: read a copy: %w", err)
		}
		if xxh3.Hash(chunk) != le.Uint64(head[8:]) {
			return fmt.Errorf("%w: a chunk does not match its checksum", errBulk)
		}
		if err := take(chunk); err != nil {
			return err
		}
		left -= n
	}
	return nil
}

// pieceQuestion asks for a segment from a position on.
func pieceQuestion(id GroupID, p *segment.Piece, from int64) question {
	return question{what: bulkSegment, group: id, index: p.First, generation: p.Generation, from: from, to: p.Length}
}

// slots is a semaphore that also works without waiting.
type slots chan struct{}

func (s slots) tryAcquire() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s slots) release() { <-s }
