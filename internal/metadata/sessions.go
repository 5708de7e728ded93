package metadata

import (
	"sync"
	"sync/atomic"

	"github.com/whippetmq/whippet/wire"
)

const (
	// keptReplies is how many replies a session keeps for repeated requests (framing §5.1).
	keptReplies = 5
	// maxKeptPayload bounds what one kept reply holds, so that a full table stays bounded in bytes too. The reply to a request that
	// was answered with more is not kept; its repetition gets 59. Only the details of a user with very many permissions are so long:
	// a new topic's details are kept without their partition entries, which are rebuilt.
	maxKeptPayload = 16 << 10
	// NoUser is the user of a session whose user was deleted. It has no permissions.
	NoUser = ^uint32(0)
)

// Session is what the replicated table knows of a client id (framing §5.1).
type Session struct {
	// Client is the id that the client minted.
	Client wire.U128
	// User is the owner, [NoUser] after the user was deleted.
	User uint32
	// ID is the session number: the log index of the latest register.
	ID uint64
	// Watermark is the highest request number that was committed.
	Watermark uint64
	// Node is the replica id of the node that took the register.
	Node uint8
}

// reply is a kept outcome. What the payload would repeat for each partition is only counted.
type reply struct {
	request    uint64
	stamp      wire.U128
	operation  wire.Operation // of the reply
	code       wire.ErrorCode // 0 = success
	index      uint64
	time       uint64
	partitions uint32 // entries of fresh partitions behind payload
	dropped    bool   // the payload was too long to keep
	payload    []byte
}

// result is what the requester gets, for the first and for every repeated request alike.
func (r *reply) result() Result {
	res := Result{Index: r.index, Timestamp: r.time, ReplyOperation: r.operation}
	if r.code != 0 {
		res.Err = r.code
		return res
	}
	res.Payload = r.payload
	if r.partitions > 0 {
		res.Payload = appendFreshPartitions(append(make([]byte, 0, len(r.payload)+int(r.partitions)*partitionEntryLength), r.payload...), r.partitions, r.time)
	}
	return res
}

type session struct {
	Session
	replies []reply // oldest first
	// latest is the log index of the newest reply, a register included. Where the table is full, the lowest goes.
	latest     uint64
	prev, next *session // in order of latest, oldest first
}

// cached finds the kept reply to a request.
func (s *session) cached(request uint64) *reply {
	for i := range s.replies {
		if s.replies[i].request == request {
			return &s.replies[i]
		}
	}
	return nil
}

// check decides about a request by the rules of framing §5.1, in their order from "no entry" on. proceed means: execute it; otherwise
// the result is the answer. s may be nil.
func (s *session) check(sessionID, request uint64, stamp wire.U128) (res Result, proceed bool) {
	switch {
	case s == nil:
		return Result{Err: &EvictionError{Reason: wire.EvictNoSession}}, false
	case sessionID < s.ID:
		return Result{Err: &EvictionError{Reason: wire.EvictSessionTooLow}}, false
	case sessionID > s.ID:
		// No node hands out a session before it is committed, so this is a broken caller. Silence would cost it 30 s.
		return Result{Err: &StatusError{Code: wire.ErrInvalidCommand}}, false
	case request > s.Watermark:
		return Result{}, true
	}
	kept := s.cached(request)
	switch {
	case kept == nil:
		return Result{Err: wire.ErrRequestAlreadyApplied}, false
	case !stamp.IsZero() && !kept.stamp.IsZero() && stamp != kept.stamp:
		return Result{Err: &StatusError{Code: wire.ErrInvalidCommand}}, false
	case kept.dropped:
		return Result{Err: wire.ErrRequestAlreadyApplied}, false
	}
	return kept.result(), false
}

// sessions is the client table. The machine alone changes it, in Apply and Restore; mu makes it readable for everyone else.
type sessions struct {
	// epoch rises after a session ended or was replaced, see Machine.SessionEpoch.
	epoch atomic.Uint64

	mu             sync.RWMutex
	byClient       map[wire.U128]*session // never walked where order could show
	oldest, newest *session
}

func newSessions() *sessions { return &sessions{byClient: make(map[wire.U128]*session)} }

// find is for the machine's own goroutine: what it gives may only be read there.
func (t *sessions) find(client wire.U128) *session { return t.byClient[client] }

// lookup is for any goroutine.
func (t *sessions) lookup(client wire.U128) (Session, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := t.byClient[client]
	if s == nil {
		return Session{}, false
	}
	return s.Session, true
}

func (t *sessions) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.byClient)
}

// list copies the whole table, oldest latest reply first.
func (t *sessions) list() []Session {
	t.mu.RLock()
	defer t.mu.RUnlock()
	all := make([]Session, 0, len(t.byClient))
	for s := t.oldest; s != nil; s = s.next {
		all = append(all, s.Session)
	}
	return all
}

// register binds a client id anew. Its watermark and replies stay (framing §5.1). It gives the sessions that had to go
// for the table to stay within its limit.
func (t *sessions) register(client wire.U128, user uint32, node uint8, index uint64, limit int) (gone []Session) {
	ended := false
	defer func() { // runs after the lock is gone
		if ended {
			t.epoch.Add(1)
		}
	}()
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byClient[client]
	if s == nil {
		for len(t.byClient) >= limit {
			gone = append(gone, t.oldest.Session)
			t.drop(t.oldest)
			ended = true
		}
		s = &session{Session: Session{Client: client}}
		t.byClient[client] = s
	} else {
		t.unlink(s)
		ended = true
	}
	s.User, s.ID, s.Node, s.latest = user, index, node, index
	t.link(s)
	return gone
}

// remove takes a client id out.
func (t *sessions) remove(client wire.U128) {
	defer t.epoch.Add(1) // after the lock is gone
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.byClient[client]; s != nil {
		t.drop(s)
	}
}

// answered keeps the reply to a request that was executed.
func (t *sessions) answered(s *session, r reply) {
	if len(r.payload) > maxKeptPayload {
		r.payload, r.partitions, r.dropped = nil, 0, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(s.replies) == keptReplies {
		copy(s.replies, s.replies[1:])
		s.replies = s.replies[:keptReplies-1]
	}
	s.replies = append(s.replies, r)
	s.Watermark = r.request
	s.latest = r.index
	t.unlink(s)
	t.link(s)
}

// orphan takes a deleted user out of its sessions, so that they never act for a later user of the same number.
func (t *sessions) orphan(user uint32) {
	defer t.epoch.Add(1) // after the lock is gone
	t.mu.Lock()
	defer t.mu.Unlock()
	for s := t.oldest; s != nil; s = s.next {
		if s.User == user {
			s.User = NoUser
		}
	}
}

func (t *sessions) drop(s *session) {
	t.unlink(s)
	delete(t.byClient, s.Client)
}

// link appends at the newest end: log indexes only grow, so the list stays in order.
func (t *sessions) link(s *session) {
	s.prev, s.next = t.newest, nil
	if t.newest == nil {
		t.oldest = s
	} else {
		t.newest.next = s
	}
	t.newest = s
}

func (t *sessions) unlink(s *session) {
	if s.prev == nil {
		t.oldest = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next == nil {
		t.newest = s.prev
	} else {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
}

// replace takes over the content of another table, which is not used any more.
func (t *sessions) replace(other *sessions) {
	defer t.epoch.Add(1) // after the lock is gone
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byClient, t.oldest, t.newest = other.byClient, other.oldest, other.newest
}
