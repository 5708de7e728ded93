package floor

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// file is one partition: a file of records, and where each starts, in memory. Writers take their places in order and
// write side by side; readers see records up to the first one that is not written yet.
type file struct {
	f *os.File

	mu      sync.Mutex
	next    uint64   // offset of the next message to be placed
	end     int64    // where it will be written
	records []record // in order of offset
	visible int      // how many of them readers may see
}

type record struct {
	offset  uint64
	at      int64
	size    int64
	count   uint32
	written bool
}

// append stamps the record, takes its place, and writes it with one pwrite.
func (p *file) append(partition uint32, batch wire.Batch) (base uint64, err error) {
	p.mu.Lock()
	base = p.next
	at := p.end
	i := len(p.records)
	p.records = append(p.records, record{offset: base, at: at, size: int64(len(batch)), count: batch.Count()})
	p.next += uint64(batch.Count())
	p.end += int64(len(batch))
	p.mu.Unlock()

	le := binary.LittleEndian
	le.PutUint64(batch[0:], uint64(partition))
	le.PutUint64(batch[8:], base)
	le.PutUint64(batch[16:], uint64(time.Now().UnixMicro()))
	if _, err := p.f.WriteAt(batch, at); err != nil {
		return 0, fmt.Errorf("append: %w", err)
	}

	p.mu.Lock()
	p.records[i].written = true
	for p.visible < len(p.records) && p.records[p.visible].written {
		p.visible++
	}
	p.mu.Unlock()
	return base, nil
}

// span is what a poll serves: bytes of the file that are whole records.
type span struct {
	at, size int64
	messages uint32
	current  uint64 // offset of the last message that readers may see
	exact    bool   // the records hold exactly what was asked for
}

// find looks up the records that hold up to count messages from an offset on: at least one record, and at most limit
// bytes unless the first one is larger.
func (p *file) find(offset uint64, count uint32, limit int64) span {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.visible == 0 {
		return span{}
	}
	seen := p.records[:p.visible]
	last := seen[len(seen)-1]
	s := span{current: last.offset + uint64(last.count) - 1, exact: true}
	if offset > s.current || count == 0 {
		return s
	}
	first := sort.Search(len(seen), func(i int) bool { return seen[i].offset > offset }) - 1
	s.at = seen[first].at
	s.exact = seen[first].offset == offset
	skipped := uint32(offset - seen[first].offset)
	for i, r := range seen[first:] {
		if i > 0 && (s.messages-skipped >= count || s.size+r.size > limit) {
			break
		}
		s.messages += r.count
		s.size += r.size
	}
	s.exact = s.exact && s.messages <= count
	return s
}

// topic of the floor.
type topic struct {
	id         uint32
	name       string
	partitions []*file
	options    wire.Options
}

// stream of the floor.
type stream struct {
	id     uint32
	name   string
	topics []*topic
}

// store holds everything.
type store struct {
	dir string

	mu      sync.RWMutex
	streams []*stream
}

func find[T any](list []T, id wire.Identifier, of func(T) (uint32, string)) (T, bool) {
	for _, v := range list {
		number, name := of(v)
		if n, ok := id.Number(); ok && n == number {
			return v, true
		}
		if text, ok := id.Text(); ok && text == name {
			return v, true
		}
	}
	var none T
	return none, false
}

func (s *store) stream(id wire.Identifier) (*stream, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return find(s.streams, id, func(s *stream) (uint32, string) { return s.id, s.name })
}

func (s *store) topic(streamID, topicID wire.Identifier) (*stream, *topic, bool) {
	st, ok := s.stream(streamID)
	if !ok {
		return nil, nil, false
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := find(st.topics, topicID, func(t *topic) (uint32, string) { return t.id, t.name })
	return st, t, ok
}

func (s *store) createStream(name string) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		if st.name == name {
			return nil, wire.ErrStreamNameAlreadyExists
		}
	}
	st := &stream{id: uint32(len(s.streams)), name: name}
	s.streams = append(s.streams, st)
	return st, nil
}

func (s *store) createTopic(st *stream, name string, partitions uint32, options wire.Options) (*topic, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range st.topics {
		if t.name == name {
			return nil, wire.ErrTopicNameAlreadyExists
		}
	}
	if partitions > wire.MaxPartitionsPerRequest {
		return nil, wire.ErrTooManyPartitions
	}
	t := &topic{id: uint32(len(st.topics)), name: name, options: options}
	for i := range partitions {
		f, err := os.Create(filepath.Join(s.dir, fmt.Sprintf("%d-%d-%d.log", st.id, t.id, i)))
		if err != nil {
			return nil, err
		}
		t.partitions = append(t.partitions, &file{f: f})
	}
	st.topics = append(st.topics, t)
	return t, nil
}

func (s *store) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		for _, t := range st.topics {
			for _, p := range t.partitions {
				_ = p.f.Close() // a benchmark's scratch
			}
		}
	}
}
