package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// outcomeOf is how one message of the model ended.
type outcomeOf struct {
	text string
	conf Confirmation
	err  error
	n    int // how often it was told
}

// TestRouterModel is E.2/24: the client against a cluster that gives every answer of
// routing D.6 at every step, whose primaries move, whose nodes die, hang and come
// back, and whose connections break, in virtual time. Whatever happened, every send
// has one outcome that is true, nothing is there twice, the order of a lane is kept,
// and no identity was on two connections at a time.
func TestRouterModel(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 15
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			bubble(t, 3, 4, func(t *testing.T, s *fakeCluster) { runModel(t, s, seed) })
		})
	}
}

// modelVerdict is the answer to one request while faults are on.
func modelVerdict(r *clusterRequest, dice int, wait <-chan struct{}) verdict {
	switch {
	case r.Operation == wire.OpRegister:
		switch dice {
		case 0:
			return verdict{kind: refuseBody, code: wire.ErrTransientNotAccepted}
		case 1:
			return verdict{kind: refuseBody, code: wire.ErrTransientNotCommitted}
		case 2:
			return verdict{kind: hangUp}
		case 3:
			return verdict{kind: cutReply, n: 100}
		}
	case r.Operation == wire.OpSendMessages, r.Operation == wire.OpStoreConsumerOffset:
		return writeVerdict(dice, wait)
	case r.command == wire.CodeGetPollRouting, r.command == wire.CodeAttachConsumerSession, r.command == wire.CodePollMessagesOnPrimary:
		switch dice {
		case 0, 1:
			return verdict{kind: refuse, code: wire.ErrTransientNotAccepted}
		case 2:
			return verdict{kind: refuse, code: wire.ErrTransientNotCommitted}
		case 3:
			return verdict{kind: hangUp}
		case 4:
			return verdict{kind: cutReply, n: 300}
		case 5:
			if r.conn.n.id != 0 { // 30 for an attachment
				return verdict{kind: refuse, code: wire.ErrStaleClient}
			}
		case 6:
			return verdict{kind: swallow}
		}
	case r.command == wire.CodeTicket && dice < 3:
		return verdict{kind: refuse, code: wire.ErrTransientNotAccepted}
	}
	return verdict{}
}

func writeVerdict(dice int, wait <-chan struct{}) verdict {
	switch dice {
	case 0, 1:
		return verdict{kind: refuse, code: wire.ErrTransientNotAccepted}
	case 2:
		return verdict{kind: execAs, code: wire.ErrTransientNotCommitted}
	case 3:
		return verdict{kind: refuse, code: wire.ErrTransientNotCommitted}
	case 4:
		return verdict{kind: execAs, code: wire.ErrRequestAlreadyApplied}
	case 5:
		return verdict{kind: refuse, code: wire.ErrUnauthenticated}
	case 6:
		return verdict{kind: refuse, code: wire.ErrResourceNotFound}
	case 7:
		return verdict{kind: evict, reason: wire.EvictNoSession}
	case 8:
		return verdict{kind: hangUp}
	case 9:
		return verdict{kind: cutReply, n: 10}
	case 10:
		return verdict{kind: swallow}
	case 11:
		return verdict{kind: ignore}
	case 12:
		return verdict{kind: after, wait: wait}
	case 13:
		return verdict{kind: refuse, code: wire.ErrUnauthorized}
	}
	return verdict{}
}

func runModel(t *testing.T, s *fakeCluster, seed uint64) {
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(seed, 24))
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rnd.IntN(n)
	}
	// executed 59 without a copy would be a lie of the server: the fake executes first.
	if seed%5 == 4 {
		s.mayPoll, s.whippet = false, false // a released cluster, and nobody tells who leads
	}
	c, w := s.connect(roll(3))
	defer s.close(c, w)

	wait := make(chan struct{})
	s.on(func(r *clusterRequest) verdict { return modelVerdict(r, roll(90), wait) })

	const parts, each = 4, 60
	outcomes := make([][]*outcomeOf, parts)
	var wg sync.WaitGroup
	for part := range parts {
		for range 1 + part%2 { // some lanes have two senders of their own
			break
		}
		wg.Go(func() { outcomes[part] = modelSender(t, c, part, each, roll) })
	}
	wg.Go(func() { modelProgress(t, c, roll) })
	stop := make(chan struct{})
	var faults sync.WaitGroup
	faults.Go(func() { modelFaults(s, roll, stop) })
	wg.Wait()
	close(stop)
	close(wait)
	faults.Wait()
	s.on(nil)
	for part := range parts {
		checkOutcomes(t, s, part, outcomes[part])
	}
	// It is well again: the next sends are quick.
	for part := range uint32(parts) {
		sendTo(t, c, part, "after")
	}
}

// modelSender sends to one partition, with a producer or one by one.
func modelSender(t *testing.T, c *Client, part, n int, roll func(int) int) []*outcomeOf {
	list := make([]*outcomeOf, n)
	for i := range list {
		list[i] = &outcomeOf{text: fmt.Sprintf("%d-%d", part, i)}
	}
	if part%2 == 0 {
		p := c.Producer(stream, topic, ProducerConfig{Partitioner: FixedPartition(uint32(part)), BatchMessages: 2, OnUnknown: UnknownContinue})
		for _, o := range list {
			err := p.Enqueue(context.Background(), text(o.text), func(conf Confirmation, err error) { o.conf, o.err, o.n = conf, err, o.n+1 })
			if err != nil {
				t.Errorf("enqueue: %v", err)
			}
			time.Sleep(time.Duration(roll(100)) * time.Millisecond)
		}
		if err := p.Flush(context.Background()); err != nil {
			t.Errorf("flush: %v", err)
		}
		return list
	}
	for _, o := range list {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if roll(10) == 0 {
			ctx, cancel = context.WithTimeout(ctx, time.Duration(roll(300))*time.Millisecond)
		}
		o.conf, o.err = c.Send(ctx, stream, topic, wire.PartitionID(uint32(part)), text(o.text))
		o.n++
		cancel()
		time.Sleep(time.Duration(roll(100)) * time.Millisecond)
	}
	return list
}

// modelProgress polls and stores offsets meanwhile: what it stored last and was
// acknowledged is there in the end, or something later.
func modelProgress(t *testing.T, c *Client, roll func(int) int) {
	ctx := context.Background()
	me := wire.SingleConsumer(wire.Name("me"))
	for i := range 60 {
		err := c.StoreConsumerOffset(ctx, me, stream, topic, uint32(i%4), uint64(i))
		if err == nil || errors.Is(err, ErrOutcomeUnknown) || errors.Is(err, ErrNotAdmitted) || errors.Is(err, ErrNotFound) || codeOf(err) != 0 {
			time.Sleep(time.Duration(roll(100)) * time.Millisecond)
		} else {
			t.Errorf("store: %v", err)
		}
		_, err = c.Poll(ctx, PollRequest{Stream: stream, Topic: topic, Partition: uint32(i % 4), Consumer: me, Count: 1, AutoCommit: i%2 == 0})
		if err != nil && !errors.Is(err, ErrAutoCommitLost) && codeOf(err) == 0 {
			t.Errorf("poll: %v", err)
		}
	}
}

// modelFaults moves primaries, breaks, hangs and restarts nodes until told to stop,
// and leaves everything well.
func modelFaults(s *fakeCluster, roll func(int) int, stop <-chan struct{}) {
	var heal []func()
	for {
		select {
		case <-stop:
			for _, f := range heal {
				f()
			}
			return
		case <-time.After(time.Duration(20+roll(400)) * time.Millisecond):
		}
		node, part := roll(3), roll(4)
		switch roll(8) {
		case 0, 1:
			s.move(part, roll(3))
		case 2:
			s.move(part, -1)
			heal = append(heal, func() { s.set(func() { s.parts[part].primary = max(s.parts[part].primary, 0) }) })
		case 3:
			s.cut(node)
		case 4:
			s.kill(node)
			heal = append(heal, func() { s.restart(node) })
			for p := range 4 { // elections
				s.set(func() {
					if s.parts[p].primary == node {
						s.parts[p].primary = (node + 1) % 3
					}
				})
			}
		case 5:
			if len(heal) > 3 {
				heal[0]()
				heal = heal[1:]
			}
			heal = append(heal, s.hang(node))
		case 6:
			s.set(func() { s.nodes[node].says[uint32(part)] = roll(3) })
			heal = append(heal, func() { s.set(func() { delete(s.nodes[node].says, uint32(part)) }) })
		case 7:
			for _, f := range heal {
				f()
			}
			heal = nil
		}
	}
}

// checkOutcomes compares what was told with what is there.
func checkOutcomes(t *testing.T, s *fakeCluster, part int, list []*outcomeOf) {
	t.Helper()
	log := s.payloads(part)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := map[string]int{}
	for i, text := range log {
		if j, twice := at[text]; twice {
			t.Errorf("%q is there twice, at %d and %d: written as %v", text, j, i, s.parts[part].by[text])
		}
		at[text] = i
	}
	last := -1
	ok := 0
	for _, o := range list {
		i, there := at[o.text]
		switch {
		case o.n != 1:
			t.Errorf("%q has %d outcomes", o.text, o.n)
		case o.err == nil && !there:
			t.Errorf("%q was confirmed and is not there: %v", o.text, slices.Sorted(slices.Values(log)))
		case o.err == nil && o.conf.Known && int(o.conf.Offset) != i:
			t.Errorf("%q was confirmed at %d and is at %d", o.text, o.conf.Offset, i)
		case o.err != nil && there && !errors.Is(o.err, ErrOutcomeUnknown):
			t.Errorf("%q is there, but: %v", o.text, o.err)
		}
		if o.err == nil {
			ok++
			if i < last {
				t.Errorf("%q is at %d, behind what was sent before it", o.text, i)
			}
			last = i
		}
	}
	if ok < len(list)/2 && s.whippet {
		t.Errorf("partition %d: only %d of %d came through; the last error: %v", part, ok, len(list), list[len(list)-1].err)
	}
}
