package bench

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/bench/floor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func floorTarget(t *testing.T) Target {
	t.Helper()
	target, _ := mortalTarget(t)
	return target
}

// mortalTarget is a floor that kill ends early.
func mortalTarget(t *testing.T) (target Target, kill func()) {
	t.Helper()
	dir := t.TempDir()
	s, err := floor.Start(t.Context(), "127.0.0.1:0", dir)
	if err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() { _ = s.Close() })
	t.Cleanup(kill)
	return Target{
		Name: "floor", PID: os.Getpid(), Data: dir,
		Options: client.Options{Addresses: []string{s.Address()}, Username: "iggy", Password: "iggy"},
	}, kill
}

func plan(kind string) Plan {
	return Plan{
		Kind: kind, Stream: "bench", Topic: "t", Partitions: 2, Durability: "replicated", Producers: 2, Consumers: 2,
		BatchMessages: 10, MessageBytes: 100, InFlight: 2, API: APISend, PollMessages: 20,
	}
}

func TestCountedRuns(t *testing.T) {
	for _, api := range []string{APISend, APIProducer} {
		t.Run(api, func(t *testing.T) {
			target := floorTarget(t)
			p := plan(Produce)
			p.API, p.Messages = api, 1005
			res, err := Run(t.Context(), p, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.Produce.Messages != 1005 || res.Produce.Bytes != 100_500 || res.Produce.Failures != 0 || res.Consume != nil {
				t.Errorf("produced %+v", res.Produce.Counts)
			}
			if res.Produce.Latency.Count != res.Produce.Requests || res.Produce.Latency.P50 <= 0 {
				t.Errorf("latency %+v", res.Produce.Latency)
			}
			p = plan(Consume)
			p.Messages = 5000 // more than there are
			res, err = Run(t.Context(), p, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			if res.Consume.Messages != 1005 || res.Consume.Bytes != 100_500 {
				t.Errorf("consumed %+v", res.Consume.Counts)
			}
		})
	}
}

func TestTimedRuns(t *testing.T) {
	target := floorTarget(t)
	p := plan(Mixed)
	p.Rate, p.Duration, p.WarmUp = 2000, Seconds(400*time.Millisecond), Seconds(100*time.Millisecond)
	res, err := Run(t.Context(), p, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := res.Produce.Messages; n < 400 || n > 900 {
		t.Errorf("offered 800 messages, sent %d", n)
	}
	if res.Consume.Messages == 0 || res.EndToEnd == nil || res.EndToEnd.Count == 0 {
		t.Errorf("consumed %+v, end to end %+v", res.Consume, res.EndToEnd)
	}
	if len(res.Series) == 0 || res.Server == nil || res.Client == nil {
		t.Error("series or usage are missing")
	}
	p = plan(Consume)
	p.Topic, p.Fill, p.Duration = "full", 1000, Seconds(200*time.Millisecond)
	res, err = Run(t.Context(), p, target, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res.Consume.Messages <= 1000 {
		t.Errorf("a timed run reads the topic again and again; it read %d messages", res.Consume.Messages)
	}
}

func TestRunReportsWhatFails(t *testing.T) {
	target := floorTarget(t)
	p := plan(Consume)
	p.Messages = 10
	if _, err := Run(t.Context(), p, target, nil); err == nil {
		t.Error("reading an empty topic is no error")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	target.Options.Addresses = []string{"127.0.0.1:1"}
	p = plan(Produce)
	p.Messages = 10
	if _, err := Run(ctx, p, target, nil); err == nil {
		t.Error("no server is no error")
	}
}

// killer ends the server when so many requests were answered, while more are under way.
type killer struct {
	left atomic.Int32
	kill chan struct{}
}

func (k *killer) answered() {
	if k.left.Add(-1) == 0 {
		close(k.kill)
	}
}

// OnSend counts a send.
func (k *killer) OnSend(string, string, int, int, time.Duration) { k.answered() }

// OnPoll counts a poll.
func (k *killer) OnPoll(int, int, time.Duration, error) { k.answered() }

// What was measured before the server died is told, and so is that it died.
func TestServerDiesUnderLoad(t *testing.T) {
	for name, change := range map[string]func(*Plan){
		"send":     func(p *Plan) { p.Kind, p.API = Produce, APISend },
		"producer": func(p *Plan) { p.Kind, p.API = Produce, APIProducer },
		"rate":     func(p *Plan) { p.Kind, p.API, p.Rate = Produce, APIProducer, 10_000 },
		"consume":  func(p *Plan) { p.Kind, p.Fill = Consume, 1000 },
		"mixed":    func(p *Plan) { p.Kind = Mixed },
	} {
		t.Run(name, func(t *testing.T) {
			target, kill := mortalTarget(t)
			k := &killer{kill: make(chan struct{})}
			k.left.Store(300) // more than fill the topic
			target.Options.Hooks = []client.Hook{k}
			target.Options.Reconnect.Disabled = true
			go func() {
				<-k.kill
				kill()
			}()
			p := plan("")
			p.Duration = Seconds(time.Second)
			change(&p)
			res, err := Run(t.Context(), p, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			c := res.counts()
			if err := res.Err(); c.Messages == 0 || c.Failures == 0 || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d of %d requests failed, the first: ", c.Failures, c.Requests+c.Failures)) {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// Requests that end because the run was told to stop have not failed.
func TestStoppedRunHasNoFailures(t *testing.T) {
	for _, api := range []string{APISend, APIProducer} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		target, _ := mortalTarget(t)
		k := &killer{kill: make(chan struct{})}
		k.left.Store(100)
		target.Options.Hooks = []client.Hook{k}
		go func() {
			<-k.kill
			cancel()
		}()
		p := plan(Mixed)
		p.API, p.Duration = api, Seconds(time.Minute)
		res, err := Run(ctx, p, target, nil)
		if err != nil || res.Err() != nil || res.Produce.Messages == 0 {
			t.Errorf("%s: %v, %+v", api, err, res)
		}
	}
}

func TestPlanCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Plan)
		want   string
	}{
		"fine":           {func(*Plan) {}, ""},
		"no producers":   {func(p *Plan) { p.Producers = 0 }, "producers"},
		"no end":         {func(p *Plan) { p.Duration = 0 }, "duration"},
		"negative rate":  {func(p *Plan) { p.Rate = -1 }, "rate"},
		"batch too big":  {func(p *Plan) { p.MessageBytes, p.BatchMessages = 1<<20, 64 }, "frame"},
		"too many parts": {func(p *Plan) { p.Partitions = 1001 }, "partitions"},
		"in flight":      {func(p *Plan) { p.InFlight = 17 }, "in flight"},
	} {
		t.Run(name, func(t *testing.T) {
			p := plan(Produce)
			p.Duration = Seconds(time.Second)
			c.change(&p)
			err := p.Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("check: %v", err)
			}
		})
	}
}
