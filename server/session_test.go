package server

import (
	"fmt"
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// bare sends a frame with a body that need not be one of the command's.
func (r *raw) bare(h wire.RequestHeader, body []byte) answer {
	r.t.Helper()
	r.write(wire.AppendRequest(nil, h, body))
	return r.read()
}

// nonReplicated is the header of a read with any code.
func (r *raw) nonReplicated(code wire.Code) wire.RequestHeader {
	return wire.RequestHeader{Client: r.client, Session: r.session, Request: r.request + 1, Operation: wire.OpNonReplicated, Code: code}
}

// replicated is the header of a replicated request; without a session it carries one all the same.
func (r *raw) replicated(op wire.Operation) wire.RequestHeader {
	r.request++
	return wire.RequestHeader{Client: r.client, Session: max(r.session, 1), Request: r.request, Operation: op}
}

func TestWithoutSession(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := dial(t, s)
	// All on one connection: none of the answers may end it.
	a := r.must(&wire.Ping{}, nil)
	if len(a.body) != 0 || a.h.Operation != wire.OpNonReplicated || a.h.Commit != 0 {
		t.Fatalf("ping: %+v", a.h)
	}
	for _, code := range []wire.Code{10, 11, 12, 13, 14, 20, 21, 22, 31, 32, 41, 100, 102, 103, 104, 120, 123, 200, 201, 300, 301, 600, 601, 606, 9000, 9003, 5555, 202, 101} {
		a := r.bare(r.nonReplicated(code), nil)
		if a.h.Status != wire.ErrUnauthenticated || len(a.body) != 0 || a.h.Commit != 0 || a.h.Op != 0 || a.h.Client != r.client {
			t.Errorf("code %d: %+v", code, a.h)
		}
	}
	for _, code := range []wire.Code{38, 44} {
		if a := r.bare(r.nonReplicated(code), nil); a.eviction != wire.EvictMalformedLogin {
			t.Errorf("code %d: %v", code, a.eviction)
		}
	}
	for op := wire.Operation(128); op <= 162; op++ {
		if !op.Known() {
			continue
		}
		a := r.bare(r.replicated(op), []byte("anything"))
		if a.eviction != wire.EvictNoSession || a.ev.Client != r.client || a.ev.VersionMax != 0 {
			t.Errorf("operation %d: %+v", op, a.ev)
		}
	}
	if a := r.bare(r.replicated(wire.OpLogout), nil); a.code() != 0 || len(a.body) != 0 || a.h.Operation != wire.OpLogout {
		t.Errorf("logout: %+v", a.h)
	}
	for op := wire.Operation(64); op < 128; op++ {
		if a := r.bare(r.replicated(op), nil); a.eviction != wire.EvictInvalidRequestOperation {
			t.Errorf("operation %d: %v", op, a.eviction)
		}
	}
	h := r.nonReplicated(wire.CodePing)
	h.RequestChecksum = wire.U128{Lo: 1}
	if a := r.bare(h, nil); a.h.Status != wire.ErrInvalidFormat {
		t.Errorf("wrong stamp: %+v", a.h)
	}
	r.login("iggy", "iggy")
	r.must(&wire.GetStreams{}, nil)
}

func TestSignInRefusals(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := dial(t, s)
	version := func(v wire.Version) wire.ClientVersion {
		return wire.ClientVersion{Protocol: v, SDKName: "raw", SDKVersion: "1"}
	}
	ok := version(wire.CurrentVersion)
	long := make([]byte, 101)
	for i := range long {
		long[i] = 'x'
	}
	tests := []struct {
		name   string
		body   []byte
		reason wire.EvictionReason
	}{
		{"nothing", nil, wire.EvictMalformedLogin},
		{"no version", []byte{1, 2, 3}, wire.EvictMalformedLogin},
		{"version alone", ok.Append(nil), wire.EvictMalformedLogin},
		{"empty sdk name", []byte{0, 0x2c, 0, 0, 0}, wire.EvictMalformedLogin},
		{"newer minor", (&wire.LoginRegister{Version: version(wire.PackVersion(0, 12, 0)), Username: "iggy", Password: "iggy"}).Append(nil), wire.EvictIncompatibleProtocol},
		{"older minor", (&wire.LoginRegister{Version: version(wire.PackVersion(0, 10, 9)), Username: "iggy", Password: "iggy"}).Append(nil), wire.EvictIncompatibleProtocol},
		{"wrong password", loginBody("iggy", "wrong").Append(nil), wire.EvictInvalidCredentials},
		{"unknown user", loginBody("nobody", "iggy").Append(nil), wire.EvictInvalidCredentials},
		{"short user", loginBody("ab", "iggy").Append(nil), wire.EvictInvalidCredentials},
		{"short password", loginBody("iggy", "ab").Append(nil), wire.EvictInvalidCredentials},
		{"long password", loginBody("iggy", string(long)).Append(nil), wire.EvictInvalidCredentials},
		{"empty password is a token", loginBody("iggy", "").Append(nil), wire.EvictInvalidToken},
		{"unknown token", (&wire.LoginRegisterWithPat{Version: ok, Token: "nonsense"}).Append(nil), wire.EvictInvalidToken},
		{"empty token", (&wire.LoginRegisterWithPat{Version: ok}).Append(nil), wire.EvictInvalidToken},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := wire.RequestHeader{Client: r.client, Operation: wire.OpRegister, RequestChecksum: wire.BodyStamp(tt.body)}
			a := r.bare(h, tt.body)
			if a.eviction != tt.reason || a.ev.Client != r.client {
				t.Fatalf("%v, want %v", a.eviction, tt.reason)
			}
			if tt.reason == wire.EvictIncompatibleProtocol && (a.ev.VersionMax != wire.CurrentVersion || a.ev.VersionMin != wire.MinVersion) {
				t.Fatalf("window %v..%v", a.ev.VersionMin, a.ev.VersionMax)
			}
		})
	}
	// A failed sign-in leaves the connection open (security.md §3), and a patch release is let in.
	body := loginBody("iggy", "iggy")
	body.Version.Protocol = wire.PackVersion(0, 11, 7)
	var lr wire.LoginReply
	a := r.must(body, &lr)
	if lr.UserID != 0 || lr.Session == 0 || lr.ProtocolVersion != wire.CurrentVersion || lr.ServerVersion == "" {
		t.Fatalf("%+v", lr)
	}
	if a.h.Op != lr.Session || a.h.Commit < lr.Session || a.h.Operation != wire.OpRegister {
		t.Fatalf("%+v", a.h)
	}
}

func TestBoundConnection(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	session := r.session

	t.Run("second login keeps the session", func(t *testing.T) {
		var lr wire.LoginReply
		r.must(loginBody("iggy", "iggy"), &lr)
		if lr.Session != session {
			t.Fatalf("session %d, was %d", lr.Session, session)
		}
		if a := r.do(loginBody("iggy", "wrong")); a.eviction != wire.EvictInvalidCredentials {
			t.Fatal(a.eviction)
		}
		r.must(&wire.GetStreams{}, nil)
	})
	t.Run("identity of the header is not looked at", func(t *testing.T) {
		h := r.header(wire.CodeCreateStream)
		h.Client, h.Session, h.UserID = wire.NewID(), session+1000, 77
		frame := wire.AppendCommand(nil, h, &wire.CreateStream{Name: "a"})
		r.write(frame)
		a := r.read()
		if a.code() != 0 || a.h.Client != h.Client {
			t.Fatalf("%+v", a)
		}
	})
	t.Run("codes", func(t *testing.T) {
		for code, want := range map[wire.Code]wire.ErrorCode{
			2: wire.ErrInvalidCommand, 999: wire.ErrInvalidCommand, 8999: wire.ErrInvalidCommand, 9999: wire.ErrInvalidCommand,
			202: wire.ErrFeatureUnavailable, 101: wire.ErrFeatureUnavailable, 121: wire.ErrFeatureUnavailable, 39: wire.ErrFeatureUnavailable, 40: wire.ErrFeatureUnavailable,
			102: wire.ErrFeatureUnavailable, 11: wire.ErrFeatureUnavailable, 31: wire.ErrFeatureUnavailable, 32: wire.ErrFeatureUnavailable, 41: wire.ErrFeatureUnavailable,
			600: wire.ErrFeatureUnavailable, 601: wire.ErrFeatureUnavailable, 606: wire.ErrFeatureUnavailable,
		} {
			if a := r.bare(r.nonReplicated(code), nil); a.h.Status != want || len(a.body) != 0 {
				t.Errorf("code %d: %v, want %v", code, a.h.Status, want)
			}
		}
		for _, code := range []wire.Code{38, 44} {
			if a := r.bare(r.nonReplicated(code), nil); a.eviction != wire.EvictMalformedLogin {
				t.Errorf("code %d: %v", code, a.eviction)
			}
		}
	})
	t.Run("operations not offered yet", func(t *testing.T) {
		id := wire.ID(0)
		for _, req := range []wire.Request{
			&wire.CreateUser{Username: "user", Password: "password"}, &wire.DeleteUser{User: id}, &wire.ChangePassword{User: id, CurrentPassword: "x", NewPassword: "y"},
			&wire.CreatePersonalAccessToken{Name: "t"}, &wire.DeletePersonalAccessToken{Name: "t"},
			&wire.PurgeStream{Stream: id}, &wire.PurgeTopic{Stream: id, Topic: id}, &wire.DeleteSegments{Stream: id, Topic: id},
			&wire.CreateConsumerGroup{Stream: id, Topic: id, Name: "g"}, &wire.JoinConsumerGroup{Stream: id, Topic: id, Group: id}, &wire.LeaveConsumerGroup{Stream: id, Topic: id, Group: id},
		} {
			a := r.want(req, wire.ErrFeatureUnavailable)
			if a.h.Status != wire.ErrFeatureUnavailable {
				t.Errorf("%s: not in the status", req.Code())
			}
		}
	})
	t.Run("stamp", func(t *testing.T) {
		h := r.header(wire.CodeCreateStream)
		body := (&wire.CreateStream{Name: "never"}).Append(nil)
		h.SetCommand(wire.CodeCreateStream, body)
		h.RequestChecksum.Hi = 1
		if a := r.bare(h, body); a.h.Status != wire.ErrInvalidFormat {
			t.Fatalf("%+v", a.h)
		}
		r.want(&wire.GetStream{Stream: wire.Name("never")}, 0)
		if a := r.do(&wire.GetStream{Stream: wire.Name("never")}); len(a.body) != 0 {
			t.Fatal("executed")
		}
	})
	t.Run("internal operations", func(t *testing.T) {
		for op := wire.Operation(64); op < 128; op++ {
			if a := r.bare(r.replicated(op), nil); a.eviction != wire.EvictInvalidRequestOperation {
				t.Errorf("operation %d: %v", op, a.eviction)
			}
		}
	})
	t.Run("logout", func(t *testing.T) {
		a := r.must(&wire.LogoutUser{}, nil)
		if a.h.Operation != wire.OpLogout || len(a.body) != 0 || a.h.Commit <= session {
			t.Fatalf("%+v", a.h)
		}
		r.want(&wire.GetStreams{}, wire.ErrUnauthenticated)
		if a := r.do(&wire.CreateStream{Name: "b"}); a.eviction != wire.EvictNoSession {
			t.Fatal(a.eviction)
		}
		r.client = wire.NewID()
		r.login("iggy", "iggy")
		if r.session <= session {
			t.Fatalf("session %d after %d", r.session, session)
		}
	})
}

// Registering a client id again takes the session over: the older connection is
// told at its next frame (routing G8).
func TestClientIDRegisteredAgain(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	old := login(t, s)
	stream, topic := old.topic(1)
	old.send(stream, topic, wire.PartitionID(0), "a")
	again := dial(t, s)
	again.client = old.client
	again.login("iggy", "iggy")
	again.request = old.request
	if again.session <= old.session {
		t.Fatal("session does not grow")
	}
	a := old.do(&wire.SendMessages{Stream: stream, Topic: topic, Partitioning: wire.PartitionID(0), Batch: batch(t, "b")})
	if a.eviction != wire.EvictSessionTooLow {
		t.Fatalf("%v, status %v", a.eviction, a.h.Status)
	}
	old.want(&wire.GetStreams{}, wire.ErrUnauthenticated)
	// The old connection's end must not end the new session.
	_ = old.nc.Close()
	for i := range 20 {
		again.send(stream, topic, wire.PartitionID(0), fmt.Sprint(i))
	}
}

func TestDisconnectLogsOut(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	before := s.machine.SessionCount()
	_ = r.nc.Close()
	eventually(t, func() bool { return s.machine.SessionCount() == before-1 })
}

func TestMetadataRequestsOnce(t *testing.T) {
	t.Parallel()
	s := start(t, nil)
	r := login(t, s)
	frame := r.frame(&wire.CreateStream{Name: "once"})
	r.write(frame)
	first := r.read()
	r.write(frame)
	second := r.read()
	if first.code() != 0 || second.code() != 0 || string(first.body) != string(second.body) || first.h.Commit != second.h.Commit {
		t.Fatalf("%+v\n%+v", first, second)
	}
	// A rejection is committed and repeated, too.
	r.want(&wire.CreateStream{Name: "once"}, wire.ErrStreamNameAlreadyExists)
	// The same number with another body is refused, an older one is known to be done.
	h := r.header(wire.CodeCreateStream)
	h.Request = r.request - 1
	r.request--
	r.write(wire.AppendCommand(nil, h, &wire.CreateStream{Name: "other"}))
	if a := r.read(); a.code() != wire.ErrInvalidCommand {
		t.Fatalf("%v", a.code())
	}
	for i := range 10 {
		r.must(&wire.CreateStream{Name: fmt.Sprint("n", i)}, nil)
	}
	r.write(frame)
	if a := r.read(); a.code() != wire.ErrRequestAlreadyApplied {
		t.Fatalf("%v", a.code())
	}
}
