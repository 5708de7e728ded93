package client

import (
	"context"
	"sync"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// maxLanes bounds the table of lanes; idle ones go first.
const maxLanes = 16384

// Client is a connection to a server with one session. It reconnects by itself.
// All methods may be called concurrently; all end by their context's deadline or
// by Options.RequestTimeout, whichever comes first.
//
// Methods return errors of the server as [wire.ErrorCode] in the chain, and the
// errors of this package.
type Client struct {
	o       Options
	h       *hooks
	session *session
	topics  topicCache
	router  *router
	buffers bufferPool

	ctx  context.Context //nolint:containedctx // the lifetime of lanes, producers and consumers, ended by Close
	stop context.CancelFunc

	goMu    sync.Mutex
	stopped bool
	wg      sync.WaitGroup // lanes and refreshes

	mu        sync.Mutex
	started   bool
	closed    bool
	lanes     map[laneKey]*lane
	producers map[*Producer]struct{}
}

// New makes a client without connecting; see [Client.Connect].
func New(o Options) (*Client, error) {
	o = o.withDefaults()
	for _, a := range o.Addresses {
		if err := checkDialAddress(a); err != nil {
			return nil, err
		}
	}
	if o.Dialer == nil {
		o.Dialer = &TCPDialer{TLS: o.TLS, Nagle: o.Nagle}
	}
	c := &Client{
		o: o, h: sortHooks(o.Hooks), lanes: make(map[laneKey]*lane), producers: make(map[*Producer]struct{}),
	}
	c.session = newSession(&c.o, c.h)
	c.topics.c = c
	c.router = newRouter(c)
	c.session.router = c.router
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Connect reads a connection string (see [ParseConnectionString]), applies the
// options and connects. It returns when the client is signed in. While the
// server cannot be reached it retries as Options.Reconnect says, until ctx ends.
func Connect(ctx context.Context, connection string, opts ...Option) (*Client, error) {
	o, err := ParseConnectionString(connection)
	if err != nil {
		return nil, err
	}
	for _, f := range opts {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := c.Connect(ctx); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// Connect connects and signs in, or waits until that has happened. After the
// client gave up (credentials refused, retries used up) it tries again.
func (c *Client) Connect(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	if !c.started {
		c.started = true
		c.session.start()
	} else {
		c.session.retry()
	}
	c.mu.Unlock()
	_, err := c.session.ready(ctx)
	return err
}

// Close ends the client: producers send what they hold (for at most 5 s), then
// everything else ends with ErrClosed. It waits for the client's goroutines.
func (c *Client) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return c.Shutdown(ctx)
}

// Shutdown is Close with a bound of the caller's: when ctx ends, what producers
// still hold fails. The error says that not everything was sent.
func (c *Client) Shutdown(ctx context.Context) error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	started := c.started
	producers := make([]*Producer, 0, len(c.producers))
	for p := range c.producers {
		producers = append(producers, p)
	}
	c.mu.Unlock()
	var err error
	for _, p := range producers {
		if e := p.Close(ctx); e != nil && err == nil {
			err = e
		}
	}
	c.stop()
	c.goMu.Lock()
	c.stopped = true
	c.goMu.Unlock()
	if started {
		c.session.close()
	} else {
		c.session.set(nil, ErrClosed)
	}
	c.wg.Wait()
	return err
}

// Capabilities is what the server declared beyond the 0.11.0 protocol.
type Capabilities struct {
	// Whippet: the server answered the capability query; else it is a released
	// 0.11.0 server and the rest is zero.
	Whippet                               bool
	Fence, Forwarding, SendRight, Tickets bool
	// MaxInFlight is the most writes to one partition in flight on a connection,
	// RememberedIDs how many request ids a partition remembers per client.
	MaxInFlight, RememberedIDs int
	MaxFrame                   int
	ClusterID                  wire.U128
	NodeName                   string
}

// Capabilities tells what the connected server can do.
func (c *Client) Capabilities(ctx context.Context) (Capabilities, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	l, err := c.session.ready(ctx)
	if err != nil {
		return Capabilities{}, err
	}
	k := &l.caps
	return Capabilities{
		Whippet: k.whippet, Fence: k.fence, Forwarding: k.forwarding, SendRight: k.sendRouting, Tickets: k.tickets,
		MaxInFlight: k.maxInFlight, RememberedIDs: k.remembered, MaxFrame: k.maxFrame,
		ClusterID: k.cluster, NodeName: k.node,
	}, nil
}

// SessionInfo is the identity of the connected session.
type SessionInfo struct {
	Address  string
	ClientID wire.U128 // kept over reconnections to a Whippet server
	Session  uint64    // 0 when not signed in; grows with every sign-in
	UserID   uint32
	// Generation counts the connections of this client.
	Generation uint64
}

// Session tells the identity of the connected session.
func (c *Client) Session(ctx context.Context) (SessionInfo, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	l, err := c.session.ready(ctx)
	if err != nil {
		return SessionInfo{}, err
	}
	return SessionInfo{Address: l.address, ClientID: l.ident.client, Session: l.session, UserID: l.user, Generation: l.gen}, nil
}

// Login signs in with user name and password and keeps them for reconnections. A
// session that is signed in already is logged out first, and the client gets a
// new client id.
func (c *Client) Login(ctx context.Context, username, password string) error {
	return c.login(ctx, credentials{username: username, password: password})
}

// LoginWithToken signs in with a personal access token, like Login.
func (c *Client) LoginWithToken(ctx context.Context, token string) error {
	return c.login(ctx, credentials{token: token})
}

func (c *Client) login(ctx context.Context, creds credentials) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if err := c.signOut(ctx); err != nil {
		return err
	}
	c.session.become(creds)
	return c.Connect(ctx)
}

// Logout ends the session on the server. The client stays connected without a
// session; see Login.
func (c *Client) Logout(ctx context.Context) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	if err := c.signOut(ctx); err != nil {
		return err
	}
	c.session.become(credentials{})
	return c.Connect(ctx)
}

// signOut sends a logout when there is a session to end. A session that is gone
// already is no error.
func (c *Client) signOut(ctx context.Context) error {
	l, _, _ := c.session.current()
	if l == nil || l.session == 0 {
		return nil
	}
	_, _, err := c.write(ctx, laneKey{kind: laneMetadata}, &wire.LogoutUser{})
	if classifyErr(err) == reactReconnect {
		return nil
	}
	return err
}

// run starts a goroutine that Shutdown waits for; false when it is too late.
func (c *Client) run(f func()) bool {
	c.goMu.Lock()
	defer c.goMu.Unlock()
	if c.stopped {
		return false
	}
	c.wg.Add(1)
	go func() {
		defer c.wg.Done()
		f()
	}()
	return true
}

// bound applies the request timeout.
func (c *Client) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.o.RequestTimeout)
}
