package client

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// fill sends n numbered messages to a partition, a few to a batch.
func fill(t testing.TB, c *Client, partition uint32, from, n int) {
	t.Helper()
	ctx := within(t, 10*time.Second)
	for i := from; i < from+n; {
		var list []Message
		for ; len(list) < 1+i%4 && i < from+n; i++ {
			list = append(list, text(fmt.Sprint(i)))
		}
		if _, err := c.Send(ctx, stream, topic, wire.PartitionID(partition), list...); err != nil {
			t.Fatal(err)
		}
	}
}

// take reads n messages.
func take(t testing.TB, k *Consumer, n int) []Received {
	t.Helper()
	var got []Received
	for m, err := range k.Messages(within(t, 10*time.Second)) {
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, m); len(got) == n {
			break
		}
	}
	if len(got) != n {
		t.Fatalf("%d messages, want %d", len(got), n)
	}
	return got
}

func storedOffset(s *fakeServer, partition int, name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, ok := s.parts[partition].offsets[name]; ok {
		return int(o)
	}
	return -1
}

func TestConsumerStart(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	fill(t, c, 0, 0, 30)
	s.set(func() { s.parts[0].offsets["stored"] = 11 })
	for _, tt := range []struct {
		name string
		cfg  ConsumerConfig
		want uint64
	}{
		{"default: behind the stored offset", ConsumerConfig{Name: "stored"}, 12},
		{"nothing stored", ConsumerConfig{Name: "new"}, 0},
		{"first", ConsumerConfig{Name: "stored", Start: wire.FromFirst()}, 0},
		{"offset", ConsumerConfig{Start: wire.FromOffset(7)}, 7},
		{"last", ConsumerConfig{Start: wire.FromLast(), BatchMessages: 10}, 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.cfg.PollInterval = time.Millisecond
			k := c.Consumer(stream, topic, tt.cfg)
			got := take(t, k, 8)
			for i, m := range got {
				if m.Offset != tt.want+uint64(i) || string(m.Payload) != fmt.Sprint(m.Offset) {
					t.Fatalf("message %d: offset %d, %q; want %d", i, m.Offset, m.Payload, tt.want+uint64(i))
				}
			}
			if next := take(t, k, 1); next[0].Offset != tt.want+7 {
				t.Fatalf("the second iteration starts at %d, want %d", next[0].Offset, tt.want+7)
			}
			k.Seek(0, 3)
			if next := take(t, k, 1); next[0].Offset != 3 {
				t.Fatalf("after Seek: %d", next[0].Offset)
			}
		})
	}
}

func TestConsumerAllPartitions(t *testing.T) {
	s := newFake(t, 3)
	c := s.connect(t)
	for p := range uint32(3) {
		fill(t, c, p, 0, 50)
	}
	k := c.Consumer(stream, topic, ConsumerConfig{BatchMessages: 7, PollInterval: time.Millisecond})
	next := map[uint32]uint64{}
	for _, m := range take(t, k, 150) {
		if m.Offset != next[m.Partition] {
			t.Fatalf("partition %d: offset %d, want %d", m.Partition, m.Offset, next[m.Partition])
		}
		next[m.Partition]++
	}
	some := c.Consumer(stream, topic, ConsumerConfig{Partitions: []uint32{2}, PollInterval: time.Millisecond})
	for _, m := range take(t, some, 50) {
		if m.Partition != 2 {
			t.Fatalf("partition %d", m.Partition)
		}
	}
}

func TestCommitPolicies(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy CommitPolicy
		take   int
		want   int // stored after leaving the loop at the last of take messages
	}{
		{"none", CommitNone(), 10, -1},
		{"each", CommitEach(), 10, 8},
		{"every 4", CommitEvery(4), 10, 8},
		{"interval, long", CommitInterval(time.Hour), 10, 8},
		{"batch", CommitBatch(), 10, 8},
		{"batch, nothing handled", CommitBatch(), 1, -1},
		{"on poll", CommitOnPoll(), 3, 6}, // polls of 7
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newFake(t, 1)
			c := s.connect(t)
			fill(t, c, 0, 0, 40)
			k := c.Consumer(stream, topic, ConsumerConfig{Name: "me", Commit: tt.policy, BatchMessages: 7})
			take(t, k, tt.take)
			if got := storedOffset(s, 0, "me"); got != tt.want {
				t.Fatalf("stored %d, want %d", got, tt.want)
			}
		})
	}
	t.Run("interval, while nothing comes", func(t *testing.T) {
		s := newFake(t, 1)
		c := s.connect(t)
		fill(t, c, 0, 0, 5)
		k := c.Consumer(stream, topic, ConsumerConfig{Name: "me", Commit: CommitInterval(5 * time.Millisecond), PollInterval: time.Millisecond})
		ctx, cancel := context.WithCancel(within(t, 10*time.Second))
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			waitFor(t, "the commit", func() bool { return storedOffset(s, 0, "me") == 4 })
			cancel()
		}()
		for _, err := range k.Messages(ctx) {
			if err != nil {
				t.Error(err)
			}
		}
		<-done
	})
	t.Run("explicit", func(t *testing.T) {
		s := newFake(t, 1)
		c := s.connect(t)
		fill(t, c, 0, 0, 5)
		k := c.Consumer(stream, topic, ConsumerConfig{Name: "me"})
		got := take(t, k, 4)
		if err := k.Commit(within(t, time.Second), got[2]); err != nil {
			t.Fatal(err)
		}
		if n := storedOffset(s, 0, "me"); n != 2 {
			t.Fatalf("stored %d", n)
		}
	})
	t.Run("explicit, then left", func(t *testing.T) {
		s := newFake(t, 1)
		c := s.connect(t)
		fill(t, c, 0, 0, 5)
		k := c.Consumer(stream, topic, ConsumerConfig{Name: "me"})
		for m, err := range k.Messages(within(t, 10*time.Second)) {
			if err != nil {
				t.Fatal(err)
			}
			if m.Offset == 2 {
				if err := k.Commit(within(t, time.Second), m); err != nil {
					t.Fatal(err)
				}
				break
			}
		}
		if next := take(t, k, 1); next[0].Offset != 3 {
			t.Fatalf("goes on at %d", next[0].Offset)
		}
	})
	t.Run("refused", func(t *testing.T) {
		s := newFake(t, 1)
		c := s.connect(t)
		fill(t, c, 0, 0, 5)
		s.on(func(r *fakeRequest) verdict {
			if r.command == wire.CodeStoreConsumerOffset && r.n == 0 {
				return verdict{kind: refuse, code: wire.ErrTooManyConsumerOffsets}
			}
			return verdict{}
		})
		k := c.Consumer(stream, topic, ConsumerConfig{Name: "me", Commit: CommitEach()})
		messages, errs := 0, 0
		for _, err := range k.Messages(within(t, 5*time.Second)) {
			if err != nil {
				if !errors.Is(err, wire.ErrTooManyConsumerOffsets) {
					t.Fatal(err)
				}
				errs++
			} else if messages++; messages == 4 {
				break
			}
		}
		if errs != 1 || storedOffset(s, 0, "me") != 2 {
			t.Fatalf("%d errors, stored %d", errs, storedOffset(s, 0, "me"))
		}
	})
}

// TestConsumerLeft: the message at which a loop is left comes again, and is not
// stored before it is handled, however the loop is left and whatever the policy.
func TestConsumerLeft(t *testing.T) {
	for _, tt := range []struct {
		name   string
		policy CommitPolicy
		stored int // after the loop was left at message 3
	}{
		{"none", CommitNone(), -1},
		{"each", CommitEach(), 2},
		{"every 2", CommitEvery(2), 2},
		{"interval", CommitInterval(time.Hour), 2},
		{"batch", CommitBatch(), 2},
		{"on poll", CommitOnPoll(), 6},
	} {
		for how, leave := range map[string]func(){
			"break": func() {},
			"panic": func() { panic("left") },
			"exit":  runtime.Goexit,
		} {
			t.Run(tt.name+", "+how, func(t *testing.T) {
				s := newFake(t, 1)
				c := s.connect(t)
				fill(t, c, 0, 0, 12)
				k := c.Consumer(stream, topic, ConsumerConfig{Name: "me", Commit: tt.policy, BatchMessages: 7, Start: wire.FromNext()})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { _ = recover() }()
					for m, err := range k.Messages(within(t, 10*time.Second)) {
						if err != nil {
							t.Error(err)
						}
						if m.Offset == 3 {
							leave()
							break
						}
					}
				}()
				<-ended
				if n := storedOffset(s, 0, "me"); n != tt.stored {
					t.Errorf("stored %d, want %d", n, tt.stored)
				}
				for i, m := range take(t, k, 9) {
					if m.Offset != uint64(3+i) {
						t.Fatalf("message %d of the next iteration has offset %d", i, m.Offset)
					}
				}
			})
		}
	}
}

// TestConsumerPrefetch: one poll is under way while a chunk is being handled, not
// more; without prefetch none is.
func TestConsumerPrefetch(t *testing.T) {
	for _, tt := range []struct {
		name string
		cfg  ConsumerConfig
		want int
	}{
		{"one ahead", ConsumerConfig{}, 2},
		{"switched off", ConsumerConfig{NoPrefetch: true}, 1},
		{"auto-commit", ConsumerConfig{Commit: CommitOnPoll()}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newFake(t, 1)
			c := s.connect(t)
			fill(t, c, 0, 0, 40)
			tt.cfg.BatchMessages = 5
			k := c.Consumer(stream, topic, tt.cfg)
			for _, err := range k.Messages(within(t, 5*time.Second)) {
				if err != nil {
					t.Fatal(err)
				}
				waitFor(t, "the poll ahead", func() bool { return s.counted(wire.CodePollMessages) >= tt.want })
				if _, err := c.Ping(within(t, time.Second)); err != nil {
					t.Fatal(err)
				}
				if n := s.counted(wire.CodePollMessages); n != tt.want {
					t.Fatalf("%d polls, want %d", n, tt.want)
				}
				break
			}
		})
	}
}

// TestConsumerOverReconnects: connections break in the middle of polls; nothing
// is skipped and nothing comes twice.
func TestConsumerOverReconnects(t *testing.T) {
	s := newFake(t, 2)
	c := s.connect(t, WithReconnect(Reconnect{Interval: time.Millisecond}))
	fill(t, c, 0, 0, 120)
	fill(t, c, 1, 0, 120)
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodePollMessages && r.n%5 == 2 {
			return []verdict{{kind: hangUp}, {kind: cutReply, n: 300}, {kind: evict, reason: wire.EvictNoSession}, {kind: refuse, code: wire.ErrTransientNotAccepted}}[r.n/5%4]
		}
		return verdict{}
	})
	for _, views := range []bool{true, false} {
		k := c.Consumer(stream, topic, ConsumerConfig{BatchMessages: 9, PollInterval: time.Millisecond, Views: views})
		next := map[uint32]uint64{}
		for m, err := range k.Messages(within(t, 10*time.Second)) {
			if err != nil {
				t.Fatal(err)
			}
			if m.Offset != next[m.Partition] || string(m.Payload) != fmt.Sprint(m.Offset) {
				t.Fatalf("partition %d: offset %d %q, want %d", m.Partition, m.Offset, m.Payload, next[m.Partition])
			}
			if next[m.Partition]++; next[0]+next[1] == 240 {
				break
			}
		}
	}
}

// TestAutoCommitIsNotRepeated: a lost reply to a poll with auto-commit is told,
// and the next poll starts behind what was received, not behind what was stored.
func TestAutoCommitIsNotRepeated(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	fill(t, c, 0, 0, 20)
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodePollMessages && r.n == 1 {
			return verdict{kind: cutReply, n: 100}
		}
		return verdict{}
	})
	k := c.Consumer(stream, topic, ConsumerConfig{Commit: CommitOnPoll(), BatchMessages: 5, PollInterval: time.Millisecond})
	var got []uint64
	lost := 0
	for m, err := range k.Messages(within(t, 5*time.Second)) {
		if err != nil {
			if !errors.Is(err, ErrAutoCommitLost) {
				t.Fatal(err)
			}
			lost++
			continue
		}
		if got = append(got, m.Offset); len(got) == 20 {
			break
		}
	}
	if lost != 1 || !slices.IsSorted(got) || got[0] != 0 || got[19] != 19 {
		t.Fatalf("%d lost, offsets %v", lost, got)
	}
	for _, code := range []wire.ErrorCode{wire.ErrTransientNotCommitted} {
		s.on(func(r *fakeRequest) verdict {
			if r.command == wire.CodePollMessages {
				return verdict{kind: refuse, code: code}
			}
			return verdict{}
		})
		before := s.counted(wire.CodePollMessages)
		_, err := c.Poll(within(t, time.Second), PollRequest{Stream: stream, Topic: topic, AutoCommit: true})
		if !errors.Is(err, ErrAutoCommitLost) || s.counted(wire.CodePollMessages) != before+1 {
			t.Fatalf("got %v after %d polls", err, s.counted(wire.CodePollMessages)-before)
		}
	}
}

// TestConsumerErrors: errors are handed out and do not end the iteration, but a
// closed client does; the end of the context is none.
func TestConsumerErrors(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	fill(t, c, 0, 0, 3)
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodePollMessages && r.n < 2 {
			return verdict{kind: refuse, code: wire.ErrUnauthorized}
		}
		return verdict{}
	})
	k := c.Consumer(stream, topic, ConsumerConfig{PollInterval: time.Millisecond})
	errs, messages := 0, 0
	for _, err := range k.Messages(within(t, 5*time.Second)) {
		if err != nil {
			if !errors.Is(err, wire.ErrUnauthorized) {
				t.Fatal(err)
			}
			errs++
			continue
		}
		if messages++; messages == 3 {
			break
		}
	}
	if errs != 2 {
		t.Fatalf("%d errors", errs)
	}
	for m, err := range k.Messages(within(t, 20*time.Millisecond)) {
		if err != nil || m.Offset != 2 { // where the loop was left
			t.Fatalf("offset %d, %v", m.Offset, err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		var last error
		for _, err := range k.Messages(context.Background()) {
			last = err
		}
		ended <- last
	}()
	waitFor(t, "an empty poll", func() bool { return s.counted(wire.CodePollMessages) > 5 })
	_ = c.Close()
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Fatalf("got %v", err)
	}
	bad := c.Consumer(stream, topic, ConsumerConfig{Name: string(make([]byte, 300))})
	for _, err := range bad.Messages(context.Background()) {
		if err == nil {
			t.Fatal("no error for a bad name")
		}
	}
}

// TestConsumerRecreated: the topic, or its partition, is made anew and is soon longer
// than the old one was. The consumer starts over, and nothing that it handled of the
// old one is stored in the new one.
func TestConsumerRecreated(t *testing.T) {
	for _, tt := range []struct {
		name       string
		cfg        ConsumerConfig
		partition  bool // only the partition is made anew
		untold     bool // the server tells no metadata positions
		stored     int  // in the new topic, at once; -1 = nothing
		messages   int  // of the new topic
		first      int  // of the new topic that is due
		wantStored int
	}{
		{name: "topic", stored: -1, messages: 15, wantStored: -1},
		{name: "partition", partition: true, stored: -1, messages: 15, wantStored: -1},
		{name: "commit each", cfg: ConsumerConfig{Commit: CommitEach()}, stored: -1, messages: 15, wantStored: 13},
		{name: "commit at the end", cfg: ConsumerConfig{Commit: CommitEvery(1000)}, stored: -1, messages: 15, wantStored: 13},
		{name: "commit on poll", cfg: ConsumerConfig{Commit: CommitOnPoll()}, stored: -1, messages: 15, wantStored: 14},
		{name: "stored offset", stored: 3, messages: 15, first: 4, wantStored: 3},
		{name: "start", cfg: ConsumerConfig{Start: wire.FromOffset(6)}, stored: 3, messages: 15, first: 6, wantStored: 3},
		{name: "partitions", cfg: ConsumerConfig{Partitions: []uint32{0}}, stored: -1, messages: 15, wantStored: -1},
		{name: "group", cfg: ConsumerConfig{Group: "me", Commit: CommitEach()}, stored: -1, messages: 15, wantStored: 13},
		{name: "the offsets alone tell", cfg: ConsumerConfig{Commit: CommitEach()}, untold: true, stored: -1, messages: 7, wantStored: 5},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newFake(t, 1)
			s.remake(false)
			s.set(func() { s.untold, s.assigned, s.generation = tt.untold, []uint32{0}, 1 })
			c, other := s.connect(t), s.connect(t)
			fill(t, other, 0, 0, 10)
			cfg := tt.cfg
			cfg.Name, cfg.NoPrefetch, cfg.PollInterval = "me", true, time.Microsecond
			var want, got []string
			for i := int(cfg.Start.Value); i < 10; i++ {
				want = append(want, fmt.Sprint(i))
			}
			old := len(want)
			for i := tt.first; i < tt.messages; i++ {
				want = append(want, fmt.Sprint(100+i))
			}
			for m, err := range c.Consumer(stream, topic, cfg).Messages(within(t, 10*time.Second)) {
				if err != nil {
					t.Fatal(err)
				}
				if got = append(got, string(m.Payload)); len(got) == old {
					s.remake(tt.partition)
					if tt.stored >= 0 {
						s.set(func() { s.parts[0].offsets["me"] = uint64(tt.stored) })
					}
					fill(t, other, 0, 100, tt.messages)
				}
				if len(got) == len(want) {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if n := storedOffset(s, 0, "me"); n != tt.wantStored {
				t.Errorf("stored %d, want %d", n, tt.wantStored)
			}
		})
	}
	t.Run("left at once", func(t *testing.T) {
		s := newFake(t, 1)
		s.remake(false)
		c, other := s.connect(t), s.connect(t)
		fill(t, other, 0, 0, 10)
		k := c.Consumer(stream, topic, ConsumerConfig{Name: "me", Commit: CommitEvery(1000)})
		var last Received
		for m := range k.Messages(within(t, 10*time.Second)) {
			if last = m; m.Offset == 9 {
				s.remake(false)
				fill(t, other, 0, 100, 15)
				break
			}
		}
		if n := storedOffset(s, 0, "me"); n != -1 {
			t.Errorf("stored %d in a topic of which nothing was read", n)
		}
		if err := k.Commit(within(t, time.Second), last); !errors.Is(err, ErrNotFound) {
			t.Errorf("commit of a message of the old topic: %v", err)
		}
		got := take(t, k, 15)
		if string(got[0].Payload) != "100" {
			t.Errorf("goes on at %q", got[0].Payload)
		}
		if err := k.Commit(within(t, time.Second), got[14]); err != nil {
			t.Error(err)
		}
	})
}

// TestStoreRecreated: a store whose reply was lost with the connection is not sent
// again into a topic that was made anew meanwhile.
func TestStoreRecreated(t *testing.T) {
	s := newFake(t, 1)
	s.remake(false)
	c := s.connect(t)
	fill(t, c, 0, 0, 10)
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeStoreConsumerOffset && r.n == 0 {
			s.remake(false)
			return verdict{kind: hangUp}
		}
		return verdict{}
	})
	err := c.StoreConsumerOffset(within(t, 10*time.Second), wire.SingleConsumer(wire.Name("me")), stream, topic, 0, 5)
	if n := storedOffset(s, 0, "me"); !errors.Is(err, ErrOutcomeUnknown) || n != -1 {
		t.Errorf("%v, stored %d", err, n)
	}
}

// TestConsumerRecreatedCost: polls do not read the topic while metadata stays, and
// do it once when somebody changed some.
func TestConsumerRecreatedCost(t *testing.T) {
	s := newFake(t, 1)
	s.remake(false)
	c := s.connect(t)
	ctx, cancel := context.WithCancel(within(t, 10*time.Second))
	done := make(chan struct{})
	go func() {
		defer close(done)
		k := c.Consumer(stream, topic, ConsumerConfig{PollInterval: 10 * time.Microsecond})
		for _, err := range k.Messages(ctx) {
			t.Error(err)
		}
	}()
	polls := func(n int) {
		n += s.counted(wire.CodePollMessages)
		waitFor(t, "polls", func() bool { return s.counted(wire.CodePollMessages) >= n })
	}
	polls(10)
	before := s.counted(wire.CodeGetTopic)
	polls(100)
	if n := s.counted(wire.CodeGetTopic); n != before {
		t.Errorf("the topic was read %d times", n-before)
	}
	s.set(func() { s.commit++ })
	polls(100)
	if n := s.counted(wire.CodeGetTopic); n != before+1 {
		t.Errorf("after a change the topic was read %d times", n-before)
	}
	cancel()
	<-done
}

// lateContext ends later than its deadline says, as one does whose timer is late.
type lateContext struct {
	context.Context
	deadline time.Time
}

func (c lateContext) Deadline() (time.Time, bool) { return c.deadline, true }

// TestConsumerDeadline: a commit that gives up at the deadline of the iteration,
// before its context has ended, is no error.
func TestConsumerDeadline(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	fill(t, c, 0, 0, 10)
	answer := make(chan struct{})
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeStoreConsumerOffset {
			return verdict{kind: after, wait: answer}
		}
		return verdict{}
	})
	k := c.Consumer(stream, topic, ConsumerConfig{Commit: CommitEach()})
	deadline := time.Now().Add(50 * time.Millisecond)
	time.AfterFunc(100*time.Millisecond, func() { close(answer) })
	for m, err := range k.Messages(lateContext{within(t, 10*time.Second), deadline}) {
		if err != nil || m.Offset > 0 {
			t.Errorf("offset %d, %v", m.Offset, err)
			break
		}
	}
	if late := time.Since(deadline); late > 4*time.Second {
		t.Errorf("the iteration ended %v after its deadline", late)
	}
}

// TestConsumerGroup: join, assignment, rebalance, fence, lost membership.
func TestConsumerGroup(t *testing.T) {
	s := newFake(t, 4)
	c := s.connect(t, With(func(o *Options) { o.HeartbeatInterval = 20 * time.Millisecond }))
	for p := range uint32(4) {
		fill(t, c, p, 0, 10)
	}
	s.set(func() { s.assigned, s.generation = []uint32{0, 2}, 1 })
	k := c.Consumer(stream, topic, ConsumerConfig{Group: "g", Commit: CommitEach(), PollInterval: time.Millisecond, BatchMessages: 5})
	per := map[uint32]int{}
	phase := 0
	for m, err := range k.Messages(within(t, 10*time.Second)) {
		if err != nil {
			t.Fatal(err)
		}
		if int(m.Offset) != per[m.Partition] {
			t.Fatalf("partition %d: offset %d, want %d", m.Partition, m.Offset, per[m.Partition])
		}
		per[m.Partition]++
		switch {
		case phase == 0 && per[0] == 10 && per[2] == 10:
			phase = 1 // partition 2 goes, 3 comes
			s.set(func() { s.assigned, s.generation = []uint32{0, 3}, 2 })
		case phase == 1 && per[3] == 10:
			phase = 2 // the session is lost, with the membership: join again
			s.set(func() { s.assigned, s.generation = []uint32{1}, 3; s.members = map[wire.U128]bool{} })
			s.kill()
		case phase == 2 && per[1] == 10:
			phase = 3
		}
		if phase == 3 {
			break
		}
	}
	if phase != 3 || per[0] != 10 || per[1] != 10 || per[2] != 10 || per[3] != 10 {
		t.Fatalf("phase %d, messages %v", phase, per)
	}
	if n := s.counted(wire.CodeJoinConsumerGroup); n < 2 {
		t.Fatalf("%d joins", n)
	}
	if err := k.Close(within(t, time.Second)); err != nil {
		t.Fatal(err)
	}
	if n := s.counted(wire.CodeLeaveConsumerGroup); n != 1 {
		t.Fatalf("%d leaves", n)
	}
}

// TestConsumerGroupUnavailable: a server that has no groups says so.
func TestConsumerGroupUnavailable(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodeJoinConsumerGroup {
			return verdict{kind: refuse, code: wire.ErrFeatureUnavailable}
		}
		return verdict{}
	})
	for _, err := range c.Consumer(stream, topic, ConsumerConfig{Group: "g"}).Messages(within(t, 5*time.Second)) {
		if !errors.Is(err, wire.ErrFeatureUnavailable) {
			t.Fatalf("got %v", err)
		}
		break
	}
}

// TestConsumerAllocations: with views a message costs no allocation.
func TestConsumerAllocations(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t)
	ctx := within(t, 10*time.Second)
	p := c.Producer(stream, topic, ProducerConfig{Linger: time.Hour})
	for range 20_000 {
		if err := p.Enqueue(ctx, text("0123456789"), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	polled, err := c.Poll(ctx, PollRequest{Stream: stream, Topic: topic, Strategy: wire.FromFirst(), Count: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(10, func() {
		for m := range polled.Messages() {
			_ = m.Payload
		}
	})
	if n > 4 {
		t.Errorf("%v allocations to walk %d messages", n, polled.Count)
	}
}
