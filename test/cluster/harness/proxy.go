package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/whippetmq/whippet/wire"
)

const (
	// chunkSize is the largest piece that travels at once, and queuedChunks how many wait in one direction of a
	// connection: what a proxy holds is bounded.
	chunkSize    = 32 << 10
	queuedChunks = 128
	// upstreamLimit bounds the dial to the node.
	upstreamLimit = 5 * time.Second
	// recentFrames is how many frames a proxy remembers for failures.
	recentFrames = 200
)

// Proxy is a TCP proxy in front of one listener. It understands the frames that pass, so that rules can cut a connection
// within a frame, swallow or delay one.
type Proxy struct {
	Name string

	listener net.Listener
	upstream string
	protocol Protocol
	ctx      context.Context //nolint:containedctx // the lifetime of the proxy, ended by Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	rules   []*ActiveRule
	conns   map[uint64]*proxied
	last    uint64 // number of the newest connection
	delay   [2]time.Duration
	gates   [2]chan struct{} // closed while bytes flow
	refuse  bool
	counts  Counts
	recent  [recentFrames]recentFrame
	written int // frames in recent, ever
}

type recentFrame struct {
	at    time.Time
	frame Frame // without its bytes
}

// proxied is one connection.
type proxied struct {
	number           uint64
	client, upstream *net.TCPConn
	done             chan struct{} // closed when the connection is cut
	once             sync.Once
}

// cut closes both sides.
func (c *proxied) cut(reset bool) {
	c.once.Do(func() {
		close(c.done)
		for _, side := range []*net.TCPConn{c.client, c.upstream} {
			if reset {
				_ = side.SetLinger(0) // without it the end is an orderly one, which is only less sharp
			}
			_ = side.Close() // the connection is to be lost
		}
	})
}

// NewProxy listens and passes on to upstream. Close ends it.
func NewProxy(name, listen, upstream string, protocol Protocol) (*Proxy, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", name, err)
	}
	p := &Proxy{Name: name, listener: l, upstream: upstream, protocol: protocol, conns: map[uint64]*proxied{}}
	p.counts = newCounts()
	for i := range p.gates {
		p.gates[i] = make(chan struct{})
		close(p.gates[i])
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where the proxy listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts everything and waits until nothing runs any more.
func (p *Proxy) Close() {
	p.cancel()
	_ = p.listener.Close() // nothing is lost by it
	p.CutAll()
	p.wg.Wait()
}

// CutAll closes all connections, in an orderly way of TCP.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.cut(false)
	}
}

// CutConn closes one connection.
func (p *Proxy) CutConn(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.conns[number]; c != nil {
		c.cut(false)
	}
}

// SetDelay has everything in a direction arrive so much later, without limiting how much is under way.
func (p *Proxy) SetDelay(dir Direction, d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay[dir] = d
}

// Stall stops all bytes in a direction, of new connections too. Nothing is lost: Resume lets them go on, like a network
// that loses every packet for a while.
func (p *Proxy) Stall(dirs ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, dir := range both(dirs) {
		select {
		case <-p.gates[dir]:
			p.gates[dir] = make(chan struct{})
		default: // stalled already
		}
	}
}

// Resume ends Stall.
func (p *Proxy) Resume(dirs ...Direction) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, dir := range both(dirs) {
		select {
		case <-p.gates[dir]:
		default:
			close(p.gates[dir])
		}
	}
}

func both(dirs []Direction) []Direction {
	if len(dirs) == 0 {
		return []Direction{ToServer, ToClient}
	}
	return dirs
}

// Refuse resets new connections at once while it is on.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Isolate cuts all connections and refuses new ones; Heal ends it.
func (p *Proxy) Isolate() {
	p.Refuse(true)
	p.CutAll()
}

// Heal lets everything pass again. Rules stay.
func (p *Proxy) Heal() {
	p.Refuse(false)
	p.Resume()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			if p.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			continue // the connection was gone before it was taken
		}
		p.wg.Go(func() { p.serve(conn.(*net.TCPConn)) })
	}
}

// serve runs one connection until it ends.
func (p *Proxy) serve(client *net.TCPConn) {
	defer client.Close()
	p.mu.Lock()
	refused := p.refuse
	p.counts.Accepted++
	p.mu.Unlock()
	if refused {
		_ = client.SetLinger(0) // without it the refusal is an orderly end
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, upstreamLimit)
	up, err := new(net.Dialer).DialContext(ctx, "tcp", p.upstream)
	cancel()
	if err != nil {
		_ = client.SetLinger(0) // as above: the node is not there
		return
	}
	c := &proxied{client: client, upstream: up.(*net.TCPConn), done: make(chan struct{})}
	defer c.cut(false)
	if !p.track(c) {
		return
	}
	defer p.untrack(c)
	// What the two directions must know of each other.
	codes, greets := newPendingCodes(), &greeting{}
	frames := func(dir Direction) framer {
		switch p.protocol {
		case ClientProtocol:
			return &clientFrames{dir: dir, codes: codes}
		case PeerProtocol:
			return &peerFrames{dir: dir, shared: greets}
		case Bytes:
		}
		return nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { p.pump(c, ToServer, c.client, c.upstream, frames(ToServer)) })
	wg.Go(func() { p.pump(c, ToClient, c.upstream, c.client, frames(ToClient)) })
	wg.Wait()
}

// track takes a connection in, unless the proxy was closed or isolated since it was accepted.
func (p *Proxy) track(c *proxied) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil || p.refuse {
		return false
	}
	p.last++
	c.number = p.last
	p.conns[c.number] = c
	p.counts.Open++
	return true
}

func (p *Proxy) untrack(c *proxied) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c.number)
	p.counts.Open--
}

// chunk is a piece of the stream on its way.
type chunk struct {
	data  []byte
	due   time.Time
	gate  <-chan struct{} // nil = none
	cut   bool            // behind data
	reset bool
}

// pump carries one direction of a connection until it ends.
func (p *Proxy) pump(c *proxied, dir Direction, from, to *net.TCPConn, frames framer) {
	queue := make(chan chunk, queuedChunks)
	var wg sync.WaitGroup
	wg.Go(func() { p.deliver(c, dir, to, queue) })
	err := p.collect(c, dir, &quick{TCPConn: from}, queue, frames)
	close(queue)
	wg.Wait()
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		_ = to.CloseWrite() // the other direction may go on
		return
	}
	c.cut(!errors.Is(err, net.ErrClosed))
}

// collect reads frames, asks the rules, and queues what passes.
func (p *Proxy) collect(c *proxied, dir Direction, from io.Reader, queue chan<- chunk, frames framer) error {
	for frames != nil {
		f, prefix, rest, ok, err := frames.next(from, make([]byte, prefixSize))
		f.Conn = c.number
		if err != nil || !ok {
			if !p.queue(c, queue, p.piece(dir, prefix)) {
				return net.ErrClosed
			}
			if err != nil {
				return err
			}
			break // bytes from here on
		}
		if err := p.carry(c, &f, prefix, rest, from, queue); err != nil {
			return err
		}
	}
	for {
		buf := make([]byte, chunkSize)
		n, err := from.Read(buf)
		if n > 0 && !p.queue(c, queue, p.piece(dir, buf[:n])) {
			return net.ErrClosed
		}
		if err != nil {
			return err
		}
	}
}

// piece is a chunk that no rule judged.
func (p *Proxy) piece(dir Direction, data []byte) chunk {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.counts.Bytes[dir] += int64(len(data))
	return chunk{data: data, due: due(p.delay[dir])}
}

func due(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return time.Now().Add(d)
}

// carry passes one frame on as the rules say.
func (p *Proxy) carry(c *proxied, f *Frame, prefix []byte, rest int, from io.Reader, queue chan<- chunk) error {
	p.mu.Lock()
	p.note(f)
	act, gate := p.judge(f)
	wait := p.delay[f.Dir]
	p.mu.Unlock()
	if act.kind != actHold {
		gate = nil
	}
	if act.kind == actDelay {
		wait += act.delay
	}
	left := f.Size // bytes of the frame that pass
	switch {
	case act.kind == actCut:
		left = min(left, max(act.after, 0))
	case act.kind == actSwallow:
		left = 0
	}
	at := due(wait)
	data := prefix
	for {
		n := min(left, len(data))
		last := act.kind == actCut && left == n
		left -= n
		if (n > 0 || last) && !p.queue(c, queue, chunk{data: data[:n], due: at, gate: gate, cut: last, reset: act.reset}) {
			return net.ErrClosed
		}
		gate = nil // what follows waits behind it
		if last {
			return p.drain(c, from)
		}
		if rest == 0 {
			return nil
		}
		buf := make([]byte, min(rest, chunkSize))
		n, err := from.Read(buf)
		rest -= n
		data = buf[:n]
		if err != nil && rest > 0 {
			_ = p.queue(c, queue, chunk{data: data[:min(left, n)], due: at}) // the end is on its way already
			return err
		}
	}
}

// drain reads on until the cut is carried out: unread bytes would turn the end into a reset, which takes away what was
// delivered before.
func (p *Proxy) drain(c *proxied, from io.Reader) error {
	for {
		select {
		case <-c.done:
			return net.ErrClosed
		default:
		}
		if _, err := io.CopyN(io.Discard, from, chunkSize); err != nil {
			<-c.done
			return net.ErrClosed
		}
	}
}

// queue hands a chunk to the other goroutine; false when the connection was cut.
func (p *Proxy) queue(c *proxied, queue chan<- chunk, k chunk) bool {
	select {
	case queue <- k:
		return true
	case <-c.done:
		return false
	}
}

// deliver writes what was queued, each piece when it is due.
func (p *Proxy) deliver(c *proxied, dir Direction, to *net.TCPConn, queue <-chan chunk) {
	for k := range queue {
		if !p.hold(c, dir, k) {
			continue // cut: the reader notices and closes the queue
		}
		if len(k.data) > 0 {
			if _, err := to.Write(k.data); err != nil {
				c.cut(true)
			}
		}
		if k.cut {
			c.cut(k.reset)
		}
	}
}

// hold waits until a chunk may go; false when the connection was cut.
func (p *Proxy) hold(c *proxied, dir Direction, k chunk) bool {
	if !k.due.IsZero() {
		if d := time.Until(k.due); d > 0 {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-c.done:
				return false
			}
		}
	}
	for {
		p.mu.Lock()
		gate := p.gates[dir]
		p.mu.Unlock()
		for _, g := range []<-chan struct{}{gate, k.gate} {
			if g == nil {
				continue
			}
			select {
			case <-g:
			case <-c.done:
				return false
			}
		}
		p.mu.Lock()
		same := gate == p.gates[dir]
		p.mu.Unlock()
		if same { // it was not stalled again while the chunk was held
			return true
		}
	}
}

// note counts a frame and remembers it. Caller holds mu.
func (p *Proxy) note(f *Frame) {
	p.counts.Bytes[f.Dir] += int64(f.Size)
	seen := *f
	seen.Prefix = nil
	p.recent[p.written%recentFrames] = recentFrame{time.Now(), seen}
	p.written++
	switch {
	case f.PeerKind != 0 || f.Kind == 0:
		p.counts.PeerFrames++
	case f.Kind == wire.FrameRequest:
		p.counts.Requests[f.Code]++
		if f.Code == wire.CodeLoginRegister {
			p.counts.registered(f.Conn)
		}
	case f.Kind == wire.FrameEviction:
		p.counts.Evictions++
	case f.Status != 0:
		p.counts.Statuses[Status{f.Code, f.Status}]++
	}
}
