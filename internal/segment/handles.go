package segment

import (
	"container/list"
	"os"
	"sync"

	"github.com/whippetmq/whippet/internal/vfs"
)

// Defaults for logs that get no shared Handles or Cache.
const (
	defaultMaxFiles   = 1024
	defaultIndexBytes = 64 << 20
	defaultCacheBytes = 64 << 20
)

// Handles holds open segment files and the sparse indexes of sealed segments,
// both up to a limit, and closes or drops the least recently used ones. It is
// shared by the logs of a node.
type Handles struct {
	maxFiles   int
	indexLimit int64

	mu         sync.Mutex
	pinned     int // files with unflushed bytes
	files      map[*seg]*handle
	fileLRU    list.List // of *handle, most recently used first
	indexes    map[*seg]*list.Element
	indexLRU   list.List // of *sealedIndex
	indexBytes int64
}

// handle is an open file with its users counted. A handle without users stays
// open until it is the least recently used one above the limit. Guarded by
// Handles.mu.
type handle struct {
	f    vfs.File
	s    *seg
	refs int
	dead bool // close with the last user
	elem *list.Element
	pin  *Log // whose unflushed bytes are in the file, nil = none
}

type sealedIndex struct {
	s       *seg
	entries []indexEntry
}

// NewHandles returns an empty set. A file that has unflushed bytes stays open,
// so that no write error is lost; when all that may be open have some, a log
// that opens one more has another log's flushed first.
func NewHandles(maxFiles int, indexBytes int64) *Handles {
	return &Handles{
		maxFiles: maxFiles, indexLimit: indexBytes,
		files: map[*seg]*handle{}, indexes: map[*seg]*list.Element{},
	}
}

// acquire returns the open file of a segment for one more user. With create
// the file is made anew.
func (h *Handles) acquire(fs vfs.FS, s *seg, create bool) (*handle, error) {
	if create {
		h.drop(s)
	} else if hd := h.lookup(s); hd != nil {
		return hd, nil
	}
	flag := os.O_RDWR
	if create {
		flag |= os.O_CREATE | os.O_TRUNC
	}
	f, err := fs.OpenFile(s.path+logSuffix, flag)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if hd := h.files[s]; hd != nil {
		// Another reader was faster.
		hd.refs++
		h.mu.Unlock()
		_ = f.Close()
		return hd, nil
	}
	hd := &handle{f: f, s: s, refs: 1}
	hd.elem = h.fileLRU.PushFront(hd)
	h.files[s] = hd
	idle := h.excess()
	h.mu.Unlock()
	closeAll(idle)
	return hd, nil
}

func (h *Handles) lookup(s *seg) *handle {
	h.mu.Lock()
	defer h.mu.Unlock()
	hd := h.files[s]
	if hd != nil {
		hd.refs++
		h.fileLRU.MoveToFront(hd.elem)
	}
	return hd
}

// retain adds a user to a handle that the caller holds already.
func (h *Handles) retain(hd *handle) {
	h.mu.Lock()
	hd.refs++
	h.mu.Unlock()
}

// release ends one use.
func (h *Handles) release(hd *handle) {
	h.mu.Lock()
	hd.refs--
	var idle []vfs.File
	if hd.refs == 0 && hd.dead {
		idle = append(idle, hd.f)
	} else {
		idle = h.excess()
	}
	h.mu.Unlock()
	closeAll(idle)
}

// pin keeps a file open until unpin, for a log whose unflushed bytes are in it.
func (h *Handles) pin(hd *handle, l *Log) {
	h.mu.Lock()
	defer h.mu.Unlock()
	hd.refs++
	hd.pin = l
	h.pinned++
}

func (h *Handles) unpin(hd *handle) {
	h.mu.Lock()
	hd.pin = nil
	h.pinned--
	h.mu.Unlock()
	h.release(hd)
}

// crowd gives the log, other than l, whose unflushed bytes have been in an open file for the longest time without a
// use of the file, when there are as many such files as may be open; else nil. A call later gives another one.
func (h *Handles) crowd(l *Log) *Log {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pinned < h.maxFiles {
		return nil
	}
	for e := h.fileLRU.Back(); e != nil; e = e.Prev() {
		if hd := e.Value.(*handle); hd.pin != nil && hd.pin != l {
			h.fileLRU.MoveToFront(e) // one that cannot be flushed is not found again and again
			return hd.pin
		}
	}
	return nil
}

// drop forgets a segment: its file is closed once nobody uses it.
func (h *Handles) drop(s *seg) {
	h.mu.Lock()
	h.dropIndexLocked(s)
	hd := h.files[s]
	var idle []vfs.File
	if hd != nil {
		delete(h.files, s)
		h.fileLRU.Remove(hd.elem)
		hd.dead = true
		if hd.refs == 0 {
			idle = append(idle, hd.f)
		}
	}
	h.mu.Unlock()
	closeAll(idle)
}

// excess takes out unused files above the limit; h.mu is held. The caller
// closes them without the lock.
func (h *Handles) excess() []vfs.File {
	var idle []vfs.File
	for e := h.fileLRU.Back(); e != nil && h.fileLRU.Len() > h.maxFiles; {
		hd, prev := e.Value.(*handle), e.Prev()
		if hd.refs == 0 {
			h.fileLRU.Remove(e)
			delete(h.files, hd.s)
			idle = append(idle, hd.f)
		}
		e = prev
	}
	return idle
}

// closeAll closes files that were only read or are already flushed, so that an
// error of close says nothing about data.
func closeAll(files []vfs.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// Open returns the number of open files.
func (h *Handles) Open() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.fileLRU.Len()
}

// Close closes all files that are not in use and forgets the indexes.
func (h *Handles) Close() error {
	h.mu.Lock()
	limit := h.maxFiles
	h.maxFiles = 0
	idle := h.excess()
	h.maxFiles = limit
	h.indexLRU.Init()
	clear(h.indexes)
	h.indexBytes = 0
	h.mu.Unlock()
	var err error
	for _, f := range idle {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// index returns the index of a sealed segment when it is in memory.
func (h *Handles) index(s *seg) ([]indexEntry, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.indexes[s]
	if e == nil {
		return nil, false
	}
	h.indexLRU.MoveToFront(e)
	return e.Value.(*sealedIndex).entries, true
}

// putIndex keeps the index of a sealed segment; it must not be changed any
// more.
func (h *Handles) putIndex(s *seg, entries []indexEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropIndexLocked(s)
	h.indexes[s] = h.indexLRU.PushFront(&sealedIndex{s, entries})
	h.indexBytes += indexCost(entries)
	for h.indexBytes > h.indexLimit && h.indexLRU.Len() > 1 {
		h.dropIndexLocked(h.indexLRU.Back().Value.(*sealedIndex).s)
	}
}

func (h *Handles) dropIndex(s *seg) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropIndexLocked(s)
}

func (h *Handles) dropIndexLocked(s *seg) {
	e := h.indexes[s]
	if e == nil {
		return
	}
	h.indexBytes -= indexCost(e.Value.(*sealedIndex).entries)
	h.indexLRU.Remove(e)
	delete(h.indexes, s)
}

func indexCost(entries []indexEntry) int64 { return int64(cap(entries))*24 + 128 }
