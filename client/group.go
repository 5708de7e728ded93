package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// membership is a consumer's part in a consumer group (messages §7). Membership
// belongs to the session: a new session must join again. The assignment is read
// again at every heartbeat interval and whenever the server refused a partition.
type membership struct {
	k  *Consumer
	id wire.Identifier

	mu         sync.Mutex
	joined     uint64 // generation of the link it was joined on, 0 = not a member
	valid      bool   // partitions is what the server said last
	generation uint64
	partitions []uint32
	synced     time.Time
}

// assignment gives the partitions to poll, joining and syncing as needed.
// changed means that the list may differ from the one given before.
func (m *membership) assignment(ctx context.Context) (list []uint32, changed bool, err error) {
	c := m.k.c
	for range 3 {
		l, err := c.session.ready(ctx)
		if err != nil {
			return nil, false, err
		}
		m.mu.Lock()
		joined, fresh := m.joined == l.gen, m.valid && time.Since(m.synced) < c.o.HeartbeatInterval
		list := m.partitions
		m.mu.Unlock()
		switch {
		case !joined:
			if err := m.join(ctx, l.gen); err != nil {
				return nil, false, err
			}
		case fresh:
			return list, false, nil
		}
		a, err := c.SyncConsumerGroup(ctx, m.k.stream, m.k.topic, m.id)
		m.mu.Lock()
		switch {
		case err == nil:
			changed = changed || !m.valid || a.Generation != m.generation
			m.valid, m.generation, m.partitions, m.synced = true, a.Generation, a.Partitions, time.Now()
			m.mu.Unlock()
			return a.Partitions, changed, nil
		case errors.Is(err, ErrNotFound):
			m.joined, m.valid, changed = 0, false, true // not a member any more: join again
			m.mu.Unlock()
		default:
			m.mu.Unlock()
			return nil, false, err
		}
	}
	return nil, changed, fmt.Errorf("consumer group %v: %w", m.id, wire.ErrConsumerGroupMemberNotFound)
}

func (m *membership) join(ctx context.Context, gen uint64) error {
	c, k := m.k.c, m.k
	err := c.JoinConsumerGroup(ctx, k.stream, k.topic, m.id)
	if name, named := m.id.Text(); named && k.cfg.CreateGroup && isMissingGroup(err) {
		_, err = c.CreateConsumerGroup(ctx, k.stream, k.topic, name)
		if err == nil || errors.Is(err, wire.ErrConsumerGroupNameAlreadyExists) {
			err = c.JoinConsumerGroup(ctx, k.stream, k.topic, m.id)
		}
	}
	if err != nil {
		return fmt.Errorf("join consumer group %v: %w", m.id, err)
	}
	m.mu.Lock()
	m.joined, m.valid = gen, false
	m.mu.Unlock()
	return nil
}

func isMissingGroup(err error) bool {
	return errors.Is(err, wire.ErrConsumerGroupIdNotFound) || errors.Is(err, wire.ErrConsumerGroupNameNotFound)
}

// fenced is called when the server refused a partition: the assignment is read
// again at once, and after a second refusal in a row with a pause, which is
// returned.
func (m *membership) fenced(pause time.Duration) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	first := m.valid && time.Since(m.synced) > pause
	m.valid = false
	if first {
		return 0
	}
	return pause
}

// leave ends the membership.
func (m *membership) leave(ctx context.Context) error {
	m.mu.Lock()
	joined := m.joined
	m.joined, m.valid = 0, false
	m.mu.Unlock()
	if joined == 0 {
		return nil
	}
	err := m.k.c.LeaveConsumerGroup(ctx, m.k.stream, m.k.topic, m.id)
	if errors.Is(err, wire.ErrConsumerGroupMemberNotFound) || isMissingGroup(err) {
		return nil
	}
	return err
}
