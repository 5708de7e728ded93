package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/whippetmq/whippet/wire"
)

func TestConnectErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	nobody := closed.Addr().String()
	t.Run("nobody listens, no retries", func(t *testing.T) {
		_, err := Connect(within(t, 5*time.Second), "iggy://a:b@"+nobody+"?reconnection_retries=0")
		var le *LinkError
		if !errors.Is(err, wire.ErrCannotEstablishConnection) || !errors.As(err, &le) || le.Op != "dial" {
			t.Fatalf("got %v", err)
		}
	})
	t.Run("nobody listens, some retries", func(t *testing.T) {
		dials := &dialHook{}
		_, err := Connect(within(t, 5*time.Second), "iggy://a:b@"+nobody+"?reconnection_retries=2&reconnection_interval=1ms", WithHooks(dials))
		if !errors.Is(err, wire.ErrCannotEstablishConnection) || dials.count() != 3 {
			t.Fatalf("got %v after %d dials", err, dials.count())
		}
	})
	t.Run("nobody listens, until the deadline", func(t *testing.T) {
		_, err := Connect(within(t, 50*time.Millisecond), "iggy://a:b@"+nobody)
		var le *LinkError
		if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &le) {
			t.Fatalf("got %v: want the deadline and the last reason", err)
		}
	})
	t.Run("the second address", func(t *testing.T) {
		s := newFake(t, 1)
		c := s.connect(t, WithAddresses(nobody, s.address()))
		if i, err := c.Session(within(t, time.Second)); err != nil || i.Address != s.address() {
			t.Fatalf("%+v %v", i, err)
		}
	})
	for _, tt := range []struct {
		reason wire.EvictionReason
		want   wire.ErrorCode
	}{
		{wire.EvictInvalidCredentials, wire.ErrInvalidCredentials},
		{wire.EvictInvalidToken, wire.ErrInvalidPersonalAccessToken},
		{wire.EvictMalformedLogin, wire.ErrInvalidFormat},
	} {
		t.Run(fmt.Sprint("sign-in refused: ", tt.reason), func(t *testing.T) {
			s := newFake(t, 1)
			s.on(func(r *fakeRequest) verdict {
				if r.Operation == wire.OpRegister {
					return verdict{kind: evict, reason: tt.reason}
				}
				return verdict{}
			})
			_, err := Connect(within(t, 5*time.Second), "iggy://a:b@"+s.address())
			if !errors.Is(err, tt.want) || len(s.registered()) != 0 || s.counted(wire.CodeLoginRegister) != 1 {
				t.Fatalf("got %v after %d logins", err, s.counted(wire.CodeLoginRegister))
			}
		})
	}
	t.Run("sign-in not committed yet", func(t *testing.T) {
		s := newFake(t, 1)
		s.on(func(r *fakeRequest) verdict {
			if r.Operation == wire.OpRegister && r.n < 2 {
				return verdict{kind: refuseBody, code: []wire.ErrorCode{wire.ErrTransientNotCommitted, wire.ErrTransientNotAccepted}[r.n]}
			}
			return verdict{}
		})
		s.connect(t)
		if n := s.counted(wire.CodeLoginRegister); n != 3 {
			t.Fatalf("%d logins", n)
		}
	})
	t.Run("client id taken by somebody else", func(t *testing.T) {
		s := newFake(t, 1)
		var mu sync.Mutex
		var ids []wire.U128
		s.on(func(r *fakeRequest) verdict {
			if r.Operation == wire.OpRegister {
				mu.Lock()
				defer mu.Unlock()
				if ids = append(ids, r.Client); len(ids) == 1 {
					return verdict{kind: evict, reason: wire.EvictSessionError}
				}
			}
			return verdict{}
		})
		s.connect(t)
		mu.Lock()
		defer mu.Unlock()
		if len(ids) != 2 || ids[0] == ids[1] {
			t.Fatalf("client ids %v", ids)
		}
	})
	t.Run("bad address", func(t *testing.T) {
		if _, err := New(Options{Addresses: []string{"nowhere"}}); !errors.Is(err, wire.ErrInvalidServerAddress) {
			t.Fatalf("got %v", err)
		}
	})
}

// TestWithoutCredentials: such a client may ping, and sign in later.
func TestWithoutCredentials(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t, WithCredentials("", ""))
	ctx := within(t, 5*time.Second)
	if _, err := c.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Streams(ctx); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Fatalf("got %v", err)
	}
	if _, err := c.CreateStream(ctx, "x"); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Fatalf("got %v", err)
	}
	if err := c.Login(ctx, "iggy", "iggy"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateStream(ctx, "x"); err != nil {
		t.Fatal(err)
	}
	before, err := c.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.LoginWithToken(ctx, "token"); err != nil {
		t.Fatal(err)
	}
	after, err := c.Session(ctx)
	if err != nil || after.ClientID == before.ClientID {
		t.Fatalf("a new sign-in is a new client: %+v %+v %v", before, after, err)
	}
	if err := c.Logout(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CreateStream(ctx, "y"); !errors.Is(err, wire.ErrUnauthenticated) {
		t.Fatalf("got %v", err)
	}
}

// TestReconnectDisabled: a lost connection stays lost until Connect is called.
func TestReconnectDisabled(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t, WithReconnect(Reconnect{Disabled: true}))
	ctx := within(t, 5*time.Second)
	s.kill()
	waitFor(t, "the loss", func() bool { _, err := c.Ping(ctx); return err != nil })
	if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("x")); err == nil {
		t.Fatal("sent without a connection")
	}
	if err := c.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("x")); err != nil {
		t.Fatal(err)
	}
}

// TestHeartbeat: pings go out by themselves, and a server that stops answering is
// left.
func TestHeartbeat(t *testing.T) {
	s := newFake(t, 1)
	c := s.connect(t, With(func(o *Options) {
		o.HeartbeatInterval, o.RequestTimeout = 5*time.Millisecond, 100*time.Millisecond
	}))
	waitFor(t, "three pings", func() bool { return s.counted(wire.CodePing) >= 3 })
	s.on(func(r *fakeRequest) verdict {
		if r.command == wire.CodePing {
			return verdict{kind: ignore}
		}
		return verdict{}
	})
	waitFor(t, "another connection", func() bool { return len(s.registered()) >= 2 })
	if ids := s.registered(); ids[0] != ids[1] {
		t.Fatal("the client id changed")
	}
	_ = c
}

// TestReconnectBackoff: a server that drops every connection at once is not
// hammered.
func TestReconnectBackoff(t *testing.T) {
	var last time.Duration
	for n := range 30 {
		d := backoff(n, firstReconnect, time.Second)
		if d < 40*time.Millisecond || d > 1200*time.Millisecond {
			t.Fatalf("pause %d: %v", n, d)
		}
		last = d
	}
	if last < 800*time.Millisecond {
		t.Fatalf("the last pause is %v", last)
	}
}

// TestRetryPause: a pause is short beside what was waited already, and is bounded.
func TestRetryPause(t *testing.T) {
	var waited time.Duration
	for n := range 1000 {
		d := retryPause(n)
		if low := firstRetry * 8 / 10; d < low || d > maxRetryPause*12/10 {
			t.Fatalf("pause %d: %v", n, d)
		}
		if waited > time.Second && d > waited/4 {
			t.Fatalf("pause %d: %v after %v", n, d, waited)
		}
		waited += d
	}
	if waited < 1000*maxRetryPause*9/10 {
		t.Errorf("a thousand refusals are over in %v", waited)
	}
}

// TestMoveIsToldOnce: hooks see dials, moves and closes.
func TestHooks(t *testing.T) {
	s := newFake(t, 1)
	h := &dialHook{}
	c := s.connect(t, WithHooks(h))
	ctx := within(t, 5*time.Second)
	scriptSends(s, verdict{kind: refuse, code: wire.ErrTransientNotAccepted}, verdict{kind: cutReply})
	if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("y")); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dials != 2 || h.closes != 2 || h.moves != 1 || !slices.Equal(h.refusals, []uint32{58}) || h.ambiguous != 0 || h.most != 1 {
		t.Fatalf("%+v", h)
	}
	if !slices.Equal(h.sends, []string{"ok/recovered", "ok/warm"}) {
		t.Fatalf("sends %v", h.sends)
	}
}

type dialHook struct {
	mu                   sync.Mutex
	dials, closes, moves int
	refusals             []uint32
	sends                []string
	ambiguous, most      int
}

func (h *dialHook) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dials
}

func (h *dialHook) OnLinkDial(_, role string, _ time.Duration, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dials++
}

func (h *dialHook) OnLinkClose(_, _ string, _ error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closes++
}

func (h *dialHook) OnSessionMove(cause string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if cause == "coordinator_lost" {
		h.moves++
	}
}

func (h *dialHook) OnRefusal(_ string, code uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refusals = append(h.refusals, code)
}

func (h *dialHook) OnSend(outcome, path string, _, _ int, _ time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sends = append(h.sends, outcome+"/"+path)
}

func (h *dialHook) OnLaneAmbiguous(delta int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ambiguous += delta
	h.most = max(h.most, h.ambiguous)
}

// tlsFront puts TLS in front of a fake server and counts bytes towards it, so
// that a test can cut in the middle of a record.
func tlsFront(t *testing.T, s *fakeServer) (address, ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "node"}, DNSNames: []string{"node.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	ca = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	ln, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		_ = ln.Close()
		s.kill()
		wg.Wait()
	})
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", s.address())
			if err != nil {
				_ = near.Close()
				continue
			}
			wg.Add(2)
			pump := func(to, from net.Conn) {
				defer wg.Done()
				_, _ = io.Copy(to, from)
				_ = to.Close()
				_ = from.Close()
			}
			go pump(near, far)
			go pump(far, near)
		}
	}()
	return ln.Addr().String(), ca
}

func TestTLS(t *testing.T) {
	s := newFake(t, 1)
	address, ca := tlsFront(t, s)
	ctx := within(t, 10*time.Second)
	connect := func(query string) (*Client, error) {
		c, err := Connect(ctx, "iggy://iggy:iggy@"+address+"?reconnection_retries=0&tls=true"+query)
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return c, err
	}
	if _, err := connect(""); err == nil {
		t.Fatal("an unknown certificate was accepted")
	}
	if _, err := connect("&tls_ca_file=" + ca); err == nil {
		t.Fatal("a certificate for another name was accepted")
	}
	if _, err := connect("&tls_ca_file=/does/not/exist"); !errors.Is(err, wire.ErrInvalidTlsCertificatePath) {
		t.Fatalf("got %v", err)
	}
	c, err := connect("&tls_ca_file=" + ca + "&tls_domain=node.example")
	if err != nil {
		t.Fatal(err)
	}
	if conf, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text("x")); err != nil || !conf.Known {
		t.Fatalf("%+v %v", conf, err)
	}
	want := []string{"x"}
	c, err = Connect(ctx, "iggy://iggy:iggy@"+address, With(func(o *Options) {
		o.TLS = &TLSOptions{Domain: "node.example", CAFile: ca}
		o.Reconnect.Interval = time.Millisecond
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	for _, n := range []int{0, 1, 255, 256, 300, 500, 560} {
		s.cutAt(n)
		name := fmt.Sprint("cut ", n)
		if _, err := c.Send(ctx, stream, topic, wire.PartitionID(0), text(name)); err != nil {
			t.Fatal(err)
		}
		want = append(want, name)
	}
	if got := s.payloads(0); !slices.Equal(got, want) {
		t.Fatalf("log %v", got)
	}
}
