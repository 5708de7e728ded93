package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Pauses (routing A.2, D.4).
const (
	replayPause    = 50 * time.Millisecond  // between replays of 57
	firstRetry     = 25 * time.Millisecond  // after the second refusal in a row
	maxRetryPause  = 500 * time.Millisecond // between refusals
	firstReconnect = 50 * time.Millisecond  // between passes, doubling to Reconnect.Interval
)

const roleCoordinator = "coordinator"

// credentials sign a session in.
type credentials struct{ username, password, token string }

func (c credentials) empty() bool { return c == credentials{} }

// session keeps one link to the server alive: it dials, signs in, asks for the
// capabilities, pings, and starts again when the link is lost.
//
// One goroutine (run) owns all that. What others see is the pair (link, fault)
// under mu and the channel changed, closed at every change of the pair.
//
// The identity survives reconnections as long as the server is a Whippet server,
// where registering a known client id again is legal and keeps the memory of
// duplicates (routing D.4, G8). A released server is given a new client id each
// time, as released clients do.
type session struct {
	o *Options
	h *hooks

	watermark atomic.Uint64        // metadata position, framing §6.1
	pipelined atomic.Bool          // the server has the fence: several writes per partition in flight
	now       atomic.Pointer[link] // the published link, which may have ended
	credsNow  atomic.Int64         // wanted
	router    *router
	refusedAt atomic.Int64 // since when a released cluster refuses metadata operations, in ns; 0 = it does not

	mu      sync.Mutex
	link    *link // usable and signed in, or nil
	fault   error // why there is no link and nobody tries; nil while trying
	gen     uint64
	creds   credentials
	wanted  int // counts changes of creds
	ident   *identity
	changed chan struct{}
	lastErr error // of the last attempt to connect
	// Where the leader of a released cluster is, and how often in a row the session
	// was sent elsewhere.
	redirect  string
	redirects int

	// Owned by run.
	lastCaps    capabilities
	tried       bool // ident was used in a sign-in
	lastAddress string
	lastStart   time.Time

	kick chan struct{} // wakes run out of a fault
	stop context.CancelFunc
	ctx  context.Context //nolint:containedctx // the lifetime of run, ended by close
	done chan struct{}
}

func newSession(o *Options, h *hooks) *session {
	s := &session{
		o: o, h: h, ident: newIdentity(), changed: make(chan struct{}), kick: make(chan struct{}, 1),
		creds: credentials{o.Username, o.Password, o.Token}, done: make(chan struct{}),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// start begins connecting. close ends it.
func (s *session) start() { go s.run() }

// close ends the session's goroutine and link and waits for both.
func (s *session) close() {
	s.stop()
	<-s.done
}

// set publishes a new pair.
func (s *session) set(l *link, fault error) {
	s.mu.Lock()
	s.link, s.fault = l, fault
	s.now.Store(l)
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// current gives the link, or the fault, or neither while a link is being made;
// then changed closes at the next change.
func (s *session) current() (l *link, changed <-chan struct{}, fault error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link != nil && !s.link.usable() {
		// It is dead and run has not noticed yet. Nobody may use the next link
		// before run published it, which it does after this one has settled.
		return nil, s.changed, nil
	}
	return s.link, s.changed, s.fault
}

// ready waits for a link.
func (s *session) ready(ctx context.Context) (*link, error) {
	for {
		l, changed, fault := s.current()
		if fault != nil {
			return nil, fault
		}
		if l != nil {
			return l, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			s.mu.Lock()
			last := s.lastErr
			s.mu.Unlock()
			return nil, joinCause(context.Cause(ctx), last)
		}
	}
}

// renew drops a link whose session the server no longer knows (40, 30); run
// signs in again under the same client id.
func (s *session) renew(l *link, cause error) { l.fail("session lost", cause) }

// retry wakes run when it gave up.
func (s *session) retry() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == nil || errors.Is(s.fault, ErrClosed) {
		return
	}
	s.fault = nil
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// become takes other credentials and a new client id, and drops the link.
func (s *session) become(creds credentials) {
	s.mu.Lock()
	s.creds, s.ident = creds, newIdentity()
	s.wanted++
	s.credsNow.Store(int64(s.wanted))
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.fail("sign out", errSignedOut)
	}
}

var errSignedOut = errors.New("signed out")

// credentials are what signs in now, and their number.
func (s *session) credentials() (credentials, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.creds, s.wanted
}

// rememberPassword keeps a changed password of the session's own user.
func (s *session) rememberPassword(user wire.Identifier, password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.creds.username == "" || s.link == nil {
		return
	}
	id, numeric := user.Number()
	if numeric && id == s.link.user || user == wire.Name(s.creds.username) {
		s.creds.password = password
	}
}

func (s *session) run() {
	defer close(s.done)
	attempt, first, cause := 0, true, "coordinator_lost"
	for s.ctx.Err() == nil {
		l, err := s.sweep(&attempt)
		if err != nil {
			if s.ctx.Err() != nil {
				break
			}
			s.set(nil, err)
			select {
			case <-s.kick:
				attempt = 0
				s.set(nil, nil)
				continue
			case <-s.ctx.Done():
			}
			break
		}
		if !first {
			s.h.onMove(cause)
		}
		first = false
		s.serve(l)
		s.h.onClose(l.address, roleCoordinator, l.reason())
		cause = "coordinator_lost"
		if errors.Is(l.reason(), errRedirect) {
			cause, attempt = "leader_change", 0
		}
		if errors.Is(l.reason(), errNoReply) {
			s.lastAddress = "" // it may accept connections and say nothing: others first
		}
		if time.Since(l.started) >= s.o.Reconnect.Interval {
			attempt = 0 // it worked for a while: try again at once
		}
		if s.o.Reconnect.Disabled && s.ctx.Err() == nil {
			s.set(nil, l.reason())
			select {
			case <-s.kick:
				attempt = 0
			case <-s.ctx.Done():
			}
		}
		s.set(nil, nil)
	}
	s.set(nil, ErrClosed)
}

// serve publishes a link and pings on it until it ends.
func (s *session) serve(l *link) {
	s.mu.Lock()
	if l.wanted != s.wanted {
		// Somebody signed in or out meanwhile: this is not the session they want.
		s.mu.Unlock()
		l.fail("sign out", errSignedOut)
		<-l.done
		return
	}
	s.router.adopt(l)
	s.gen++
	l.gen, s.lastErr = s.gen, nil
	s.link, s.fault = l, nil
	s.now.Store(l)
	close(s.changed)
	s.changed = make(chan struct{})
	s.pipelined.Store(l.caps.fence)
	s.mu.Unlock()
	tick := time.NewTicker(s.o.HeartbeatInterval)
	defer tick.Stop()
	var pong atomic.Bool
	pong.Store(true)
	for {
		select {
		case <-tick.C:
			if pong.CompareAndSwap(true, false) {
				s.ping(l, &pong)
			}
			continue
		case <-l.closed:
		case <-s.ctx.Done():
			l.fail("close", ErrClosed)
		}
		break
	}
	<-l.done
}

type pingCall struct {
	call
	pong *atomic.Bool
}

func (p *pingCall) complete(*call) { p.pong.Store(true) }

// ping sends a heartbeat. A server that does not answer it within the request
// timeout is taken for dead.
func (s *session) ping(l *link, pong *atomic.Bool) {
	p := &pingCall{pong: pong}
	p.op, p.code, p.inline, p.hard, p.to = wire.OpNonReplicated, wire.CodePing, true, true, p
	p.deadline = time.Now().Add(s.o.RequestTimeout)
	if s.router.on.Load() {
		// Others are there to take over.
		p.deadline = time.Now().Add(min(s.o.RequestTimeout, s.o.AttemptTimeout))
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.o.HeartbeatInterval)
	defer cancel()
	if l.submit(ctx, &p.call) != nil {
		pong.Store(true) // the link is full: its traffic is the sign of life
	}
}

// sweep tries the addresses until one gives a link (framing §3.1).
func (s *session) sweep(attempt *int) (*link, error) {
	start := time.Now()
	for pass := 0; ; pass++ {
		if *attempt > 0 {
			if err := s.pause(backoff(*attempt-1, firstReconnect, s.o.Reconnect.Interval)); err != nil {
				return nil, err
			}
		}
		*attempt++
		var last error
		redirected := false
		for _, address := range s.candidates() {
			if err := s.reestablish(address); err != nil {
				return nil, err
			}
			l, err := s.connect(address)
			if err == nil {
				return l, nil
			}
			if errors.Is(err, errRedirect) {
				*attempt, redirected = 0, true
				break
			}
			last = err
			s.mu.Lock()
			s.lastErr = err
			s.mu.Unlock()
			if s.ctx.Err() != nil {
				return nil, ErrClosed
			}
			if rejectsLogin(err) {
				return nil, err
			}
		}
		if redirected {
			continue
		}
		retries := s.o.Reconnect.Retries
		if s.o.Reconnect.Disabled {
			retries = -1
		}
		if retries < 0 || retries > 0 && pass >= retries && time.Since(start) >= time.Duration(retries)*s.o.Reconnect.Interval {
			return nil, fmt.Errorf("%w: %w", wire.ErrCannotEstablishConnection, last)
		}
	}
}

// candidates are the addresses in the order to try: the one of the last link
// first.
func (s *session) candidates() []string {
	list := make([]string, 0, len(s.o.Addresses)+1)
	add := func(addresses ...string) {
		for _, a := range addresses {
			if a != "" && !slices.Contains(list, a) {
				list = append(list, a)
			}
		}
	}
	s.mu.Lock()
	add(s.redirect)
	s.mu.Unlock()
	add(s.lastAddress)
	add(s.o.Addresses...)
	add(s.router.topology.addresses()...)
	return list
}

// reestablish holds an address back that was connected too short a time ago.
func (s *session) reestablish(address string) error {
	after := s.o.Reconnect.ReestablishAfter
	if after <= 0 || address != s.lastAddress {
		return nil
	}
	return s.pause(after - time.Since(s.lastStart))
}

func (s *session) pause(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-s.ctx.Done():
		return ErrClosed
	}
}

// connect dials one address and signs in.
func (s *session) connect(address string) (l *link, err error) {
	start := time.Now()
	defer func() { s.h.onDial(address, roleCoordinator, time.Since(start), err) }()
	timeout := s.o.DialTimeout
	if len(s.o.Addresses) > 1 || s.router.on.Load() {
		timeout = min(timeout, failoverDialTimeout)
	}
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	conn, err := s.o.Dialer.Dial(ctx, address)
	cancel()
	if err != nil {
		return nil, &LinkError{Address: address, Op: "dial", Err: err}
	}
	s.mu.Lock()
	creds, wanted := s.creds, s.wanted
	if !s.lastCaps.whippet && s.tried {
		s.ident = newIdentity()
	}
	ident := s.ident
	s.mu.Unlock()
	l = newLink(s.o, s.h, conn, address, ident, &s.watermark)
	l.wanted = wanted
	l.start()
	if creds.empty() {
		s.lastAddress, s.lastStart = address, start
		return l, nil
	}
	s.tried = true
	err = s.signIn(s.ctx, l, creds, wire.WantFence)
	if err == nil {
		err = s.readRoster(l)
	}
	if err != nil {
		l.fail("sign in", err)
		<-l.done
		var ev *evictedError
		if errors.As(err, &ev) && !rejectsLogin(err) {
			// The client id belongs to somebody else or cannot be registered: what
			// was written under it stays unknown.
			s.forget(ident)
		}
		return nil, err
	}
	s.lastAddress, s.lastStart, s.lastCaps = address, start, l.caps
	return l, nil
}

// forget gives up an identity.
func (s *session) forget(old *identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ident == old {
		s.ident = newIdentity()
	}
}

// signIn registers on a link and asks for the server's capabilities. The link is
// not shared yet.
func (s *session) signIn(ctx context.Context, l *link, creds credentials, flags uint64) error {
	limit := s.o.RequestTimeout
	if s.router.on.Load() {
		limit = min(limit, s.o.AttemptTimeout) // there are others to go to
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	version := wire.ClientVersion{Protocol: wire.CurrentVersion, SDKName: s.o.Name, SDKVersion: s.o.Version}
	var req wire.Request = &wire.LoginRegister{Version: version, Username: creds.username, Password: creds.password}
	if creds.token != "" {
		req = &wire.LoginRegisterWithPat{Version: version, Token: creds.token}
	}
	body := req.Append(nil)
	payload, err := replayUntil(ctx, l, call{op: wire.OpRegister, stamp: wire.BodyStamp(body), meta: body})
	if err != nil {
		return fmt.Errorf("sign in: %w", err)
	}
	var reply wire.LoginReply
	if err := reply.Decode(payload); err != nil {
		return fmt.Errorf("sign in: reply: %w: %w", wire.ErrInvalidFormat, err)
	}
	if reply.Session == 0 {
		return fmt.Errorf("sign in: %w", wire.ErrInvalidSession)
	}
	l.mu.Lock()
	l.session, l.user = reply.Session, reply.UserID
	l.mu.Unlock()
	return s.discover(ctx, l, flags)
}

// discover asks for the capabilities; any refusal means a released server.
func (s *session) discover(ctx context.Context, l *link, flags uint64) error {
	req := wire.Capabilities{Version: wire.ExtensionVersion, Flags: flags}
	payload, err := replayUntil(ctx, l, call{op: wire.OpNonReplicated, code: wire.CodeCapabilities, meta: req.Append(nil)})
	var code wire.ErrorCode
	if errors.As(err, &code) && l.usable() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	var reply wire.CapabilitiesReply
	if reply.Decode(payload) != nil {
		return nil
	}
	l.caps = capabilitiesOf(&reply)
	l.pipeline()
	return nil
}

// errRedirect says that the session belongs to another node.
var errRedirect = errors.New("the leader is elsewhere")

// maxRedirects in a row; then the session stays where it is.
const maxRedirects = 3

// readRoster asks for the nodes. A server that does not say is taken for one node.
// On a released cluster only the leader commits metadata operations, so the session
// goes there (framing §3.1); on ours any node will do.
func (s *session) readRoster(l *link) error {
	if s.o.NoRouting {
		return nil
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.o.RequestTimeout)
	defer cancel()
	req := &wire.GetClusterMetadata{}
	payload, err := replayUntil(ctx, l, call{op: wire.OpNonReplicated, code: req.Code(), meta: req.Append(nil)})
	if codeOf(err) != 0 && l.usable() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("roster: %w", err)
	}
	roster := new(wire.Roster)
	if roster.Decode(payload) != nil || len(roster.Nodes) == 0 {
		return nil
	}
	l.roster = roster
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redirect = ""
	if a := leaderElsewhere(l, roster); a != "" && s.redirects < maxRedirects {
		s.redirect = a
		s.redirects++
		return errRedirect
	}
	s.redirects = 0
	return nil
}

// leaderElsewhere is the address of the leader of a released cluster, when it is
// not where the link goes.
func leaderElsewhere(l *link, roster *wire.Roster) string {
	leader := roster.Leader()
	if l.caps.whippet || len(roster.Nodes) < 2 || leader == nil {
		return ""
	}
	if a := addressOf(leader); a != l.address {
		return a
	}
	return ""
}

// leaderCheckAfter is how long a node of a released cluster may refuse metadata
// operations before the session looks for the leader.
const leaderCheckAfter = 2 * time.Second

// refused: a metadata operation was not accepted. On a released cluster only the
// leader accepts them, and it may be another node now.
func (s *session) refused(l *link) {
	if l.caps.whippet || !s.router.on.Load() {
		return
	}
	now := time.Now().UnixNano()
	if s.refusedAt.CompareAndSwap(0, now) || time.Duration(now-s.refusedAt.Load()) < leaderCheckAfter {
		return
	}
	s.refusedAt.Store(now)
	s.router.c.run(func() {
		ctx, cancel := context.WithTimeout(s.ctx, lookupTimeout)
		defer cancel()
		roster, err := askRoster(ctx, l)
		if err != nil {
			return
		}
		if a := leaderElsewhere(l, roster); a != "" {
			s.mu.Lock()
			s.redirect, s.redirects = a, 0
			s.mu.Unlock()
			l.fail("redirect", errRedirect)
		}
	})
}

func capabilitiesOf(r *wire.CapabilitiesReply) capabilities {
	return capabilities{
		whippet:     true,
		fence:       r.Flags&wire.CanFence != 0,
		forwarding:  r.Flags&wire.CanForward != 0,
		sendRouting: r.Flags&wire.CanRouteBySendRight != 0,
		tickets:     r.Flags&wire.CanTicket != 0,
		maxInFlight: int(r.MaxInFlight), remembered: int(r.RememberedIDs), maxFrame: int(r.MaxFrame),
		cluster: r.ClusterID, node: r.NodeName,
	}
}

// replayUntil repeats a request on one link while it answers 57 or 58 (framing
// §6.3; sign-in stays on its connection for the whole budget).
func replayUntil(ctx context.Context, l *link, req call) ([]byte, error) {
	req.deadline, _ = ctx.Deadline()
	req.hard = true
	for {
		got, err := l.roundTrip(ctx, req)
		if err == errLinkClosed {
			return nil, l.reason()
		}
		if err != nil {
			return nil, err
		}
		payload, err := got.reply.Payload(got.body)
		if !errors.Is(err, wire.ErrTransientNotAccepted) && !errors.Is(err, wire.ErrTransientNotCommitted) {
			return payload, err
		}
		t := time.NewTimer(replayPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, err
		}
	}
}

// retryPause is the pause after n+1 refusals in a row, from firstRetry to maxRetryPause with ±20 % jitter. It grows by an
// eighth each time: whoever waits for an election hears of its end soon, compared to how long it took.
func retryPause(n int) time.Duration {
	d := float64(firstRetry) * math.Pow(1.125, float64(min(n, 100)))
	return jitter(min(time.Duration(d), maxRetryPause))
}

// backoff is first·2^n, at most limit, with ±20 % jitter.
func backoff(n int, first, limit time.Duration) time.Duration {
	d := limit
	if n < 20 {
		d = min(first<<n, limit)
	}
	return jitter(d)
}

func jitter(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)*0.4*float64(d))
}
