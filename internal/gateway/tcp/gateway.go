package tcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/internal/broker"
)

// Config of a gateway. Zero limits take the defaults in parentheses.
type Config struct {
	Handler broker.Handler
	Logger  *slog.Logger

	MaxFrame        int           // largest frame, header included (64 MiB)
	MaxConnections  int           // further ones are closed at accept; 0 = no limit
	MaxRequests     int           // of one connection in work (256)
	MaxRequestBytes int           // of one connection in work; one larger request is let through alone (32 MiB)
	MaxBodyBytes    int           // of all connections in bodies being read (512 MiB)
	MaxWorkBytes    int           // of all connections in requests in work (1 GiB)
	HeaderTimeout   time.Duration // from the first byte of a header to its last (10 s)
	BodyTimeout     time.Duration // of a body, besides a second for each 64 KiB (30 s)
	UnboundIdle     time.Duration // silence after which a connection that is not signed in is closed (2 min)
	DrainTimeout    time.Duration // how long a closing connection waits for its replies (10 s)
}

func (c *Config) setDefaults() {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	defd := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.MaxFrame, 64<<20)
	def(&c.MaxRequests, 256)
	def(&c.MaxRequestBytes, 32<<20)
	def(&c.MaxWorkBytes, 1<<30)
	def(&c.MaxBodyBytes, 512<<20)
	c.MaxBodyBytes = max(c.MaxBodyBytes, c.MaxFrame)
	defd(&c.HeaderTimeout, 10*time.Second)
	defd(&c.BodyTimeout, 30*time.Second)
	defd(&c.UnboundIdle, 2*time.Minute)
	defd(&c.DrainTimeout, 10*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
}

// Stats are counters since the start; Active is the present number.
type Stats struct {
	Accepted, Refused, Malformed, Slow, Frames, BytesIn, BytesOut, Panics atomic.Uint64
	Active                                                                atomic.Int64
}

// Gateway is a running listener with its connections.
type Gateway struct {
	cfg    Config
	ln     net.Listener
	stats  Stats
	budget budget
	work   work
	epoch  time.Time

	wg   sync.WaitGroup // every goroutine of the gateway
	stop chan struct{}  // closed by Close

	mu      sync.Mutex
	conns   map[*conn]struct{}
	closing bool
	empty   chan struct{} // closed when closing and the last connection is gone
}

// Serve accepts connections on a listener, which it takes over, until Close.
func Serve(ln net.Listener, cfg Config) *Gateway {
	cfg.setDefaults()
	g := &Gateway{cfg: cfg, ln: ln, epoch: time.Now(), stop: make(chan struct{}), conns: map[*conn]struct{}{}, empty: make(chan struct{})}
	g.budget.limit = cfg.MaxBodyBytes
	g.work.limit = int64(cfg.MaxWorkBytes)
	g.wg.Add(2)
	go g.accept()
	go g.janitor()
	return g
}

// Addr is the address that is listened on.
func (g *Gateway) Addr() net.Addr { return g.ln.Addr() }

// Stats of the gateway.
func (g *Gateway) Stats() *Stats { return &g.stats }

func (g *Gateway) accept() {
	defer g.wg.Done()
	backoff := 5 * time.Millisecond
	for {
		nc, err := g.ln.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors or memory: the next connection may find some.
			g.cfg.Logger.Warn("accept failed", "error", err)
			t := time.NewTimer(backoff)
			select {
			case <-t.C:
			case <-g.stop:
				t.Stop()
				return
			}
			backoff = min(2*backoff, time.Second)
			continue
		}
		backoff = 5 * time.Millisecond
		g.admit(nc)
	}
}

// admit starts a connection, or closes it when there are too many.
func (g *Gateway) admit(nc net.Conn) {
	g.mu.Lock()
	if g.closing || g.cfg.MaxConnections > 0 && len(g.conns) >= g.cfg.MaxConnections {
		closing := g.closing
		g.mu.Unlock()
		_ = nc.Close()
		if !closing && g.stats.Refused.Add(1) == 1 {
			g.cfg.Logger.Warn("connection refused: message_bus.connections_max reached", "limit", g.cfg.MaxConnections)
		}
		return
	}
	c := &conn{g: g, nc: nc, room: make(chan struct{}, 1), gone: make(chan struct{})}
	c.in.init(nc)
	c.out.c = c
	c.out.wake = make(chan struct{}, 1)
	g.wg.Add(1)
	g.mu.Unlock()
	g.stats.Accepted.Add(1)
	g.stats.Active.Add(1)
	var remote netip.AddrPort
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		remote = a.AddrPort()
	}
	if t, ok := nc.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true) // the default of the library; said here because latency depends on it
	}
	c.touch()
	c.h = g.cfg.Handler.Connect(broker.Peer{Transport: broker.TCP, Address: remote}, c)
	// Visible to the janitor and to Close only when complete. Only accept calls this, so the limit holds.
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		c.h.Close()
		c.abort()
		g.stats.Active.Add(-1)
		g.wg.Done()
		return
	}
	g.conns[c] = struct{}{}
	g.mu.Unlock()
	go c.serve()
}

func (g *Gateway) forget(c *conn) {
	g.stats.Active.Add(-1)
	g.mu.Lock()
	delete(g.conns, c)
	if g.closing && len(g.conns) == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
}

// janitor retires idle writers and cuts off who does not finish a frame, does
// not take its replies, or never signs in.
func (g *Gateway) janitor() {
	defer g.wg.Done()
	every := max(time.Millisecond, min(time.Second, g.cfg.HeaderTimeout/4, g.cfg.BodyTimeout/4, g.cfg.UnboundIdle/4))
	t := time.NewTicker(every)
	defer t.Stop()
	for turn := 1; ; turn++ {
		select {
		case <-g.stop:
			return
		case <-t.C:
		}
		now := g.now()
		late := func(t *atomic.Int64) bool { until := t.Load(); return until != 0 && now > until }
		g.mu.Lock()
		for c := range g.conns {
			switch {
			case late(&c.readUntil), late(&c.out.writeUntil):
				g.stats.Slow.Add(1)
				c.abort()
			case now-c.activity.Load() > int64(g.cfg.UnboundIdle) && c.readUntil.Load() == 0 && !c.h.Bound():
				c.abort()
			}
			if turn%10 == 0 {
				c.out.retireIdle()
			}
		}
		g.mu.Unlock()
	}
}

// now is the time since the epoch in ns.
func (g *Gateway) now() int64 { return int64(time.Since(g.epoch)) }

// StopAccepting closes the listener. Connections go on.
func (g *Gateway) StopAccepting() { _ = g.ln.Close() }

// Close stops accepting, lets every connection answer what it has read, and
// ends them. When ctx ends first the rest is cut off. It waits for all
// goroutines of the gateway.
func (g *Gateway) Close(ctx context.Context) error {
	_ = g.ln.Close()
	g.mu.Lock()
	if g.closing {
		g.mu.Unlock()
		g.wg.Wait()
		return nil
	}
	g.closing = true
	n := len(g.conns)
	for c := range g.conns {
		c.draining.Store(true)
		// Wakes a reader that waits for the next frame. What it is in the middle of is dropped.
		_ = c.nc.SetReadDeadline(time.Now())
	}
	if n == 0 {
		close(g.empty)
	}
	g.mu.Unlock()
	close(g.stop)
	var err error
	select {
	case <-g.empty:
	case <-ctx.Done():
		g.mu.Lock()
		left := len(g.conns)
		for c := range g.conns {
			c.abort()
		}
		g.mu.Unlock()
		if left > 0 {
			err = fmt.Errorf("close gateway: %d of %d connections cut off: %w", left, n, context.Cause(ctx))
		}
	}
	g.wg.Wait()
	return err
}
