package broker

import (
	"context"

	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/internal/metadata"
	"github.com/whippetmq/whippet/wire"
)

// login signs a client in (framing §4.2). bound is the present binding or nil; on
// a bound connection the credentials are checked and nothing changes (observed 4).
func (c *conn) login(h *wire.RequestHeader, bound *binding, body []byte) *Reply {
	var v wire.ClientVersion
	if v.Decode(body) != nil {
		return c.evict(h, wire.EvictMalformedLogin)
	}
	if !wire.CurrentVersion.Accepts(v.Protocol) {
		return c.evict(h, wire.EvictIncompatibleProtocol)
	}
	if !c.b.cfg.Metadata.Catalog().Bootstrapped() {
		return c.rejectFramed(h, wire.ErrTransientNotAccepted)
	}
	user, reason, err := c.authenticate(body)
	switch {
	case err != nil:
		// Overload, or the connection ends: nothing was decided.
		return c.rejectFramed(h, wire.ErrTransientNotAccepted)
	case reason != 0:
		return c.evict(h, reason)
	}
	if bound == nil {
		if bound, reason, err = c.register(h.Client, user); err != nil {
			return c.rejectFramed(h, wire.StatusOf(err))
		} else if reason != 0 {
			return c.evict(h, reason)
		}
		c.bind(bound)
	}
	c.raise(bound.session)
	r := newReply()
	r.cost = int(h.Size)
	r.frame = wire.AppendResultOK(r.frame)
	r.frame = (&wire.LoginReply{UserID: user.ID, Session: bound.session, ProtocolVersion: wire.CurrentVersion, ServerVersion: c.b.cfg.Version}).Append(r.frame)
	rh := h.Reply()
	rh.Op = bound.session
	rh.Commit = max(c.b.position(), bound.session)
	return r.finish(&rh)
}

// authenticate finds the user that a login body proves, in the order of framing
// §4.2, steps 3 to 5. An error means that nothing was decided.
func (c *conn) authenticate(body []byte) (*metadata.User, wire.EvictionReason, error) {
	cat := c.b.cfg.Metadata.Catalog()
	failed := wire.EvictMalformedLogin
	var pw wire.LoginRegister
	if pw.Decode(body) == nil {
		failed = wire.EvictInvalidCredentials
		user, err := c.verify(cat, pw.Username, pw.Password)
		if err != nil {
			return nil, 0, err
		}
		if user != nil {
			return user, 0, nil
		}
	}
	var pat wire.LoginRegisterWithPat
	if pat.Decode(body) != nil {
		return nil, failed, nil
	}
	if credential.IsTicket(pat.Token) {
		user := c.ticketOwner(cat, pat.Token)
		if user == nil {
			return nil, wire.EvictInvalidToken, nil
		}
		return user, 0, nil
	}
	token := cat.TokenByHash(credential.HashToken(pat.Token))
	if token == nil || token.Expired(c.b.cfg.Clock.Now()) {
		return nil, wire.EvictInvalidToken, nil
	}
	user := cat.UserByID(token.User)
	switch {
	case user == nil:
		return nil, wire.EvictInvalidToken, nil
	case !user.Active:
		return nil, wire.EvictUserInactive, nil
	}
	return user, 0, nil
}

// verify checks name and password at the same cost for every outcome; nil = no.
func (c *conn) verify(cat *metadata.Catalog, name, password string) (*metadata.User, error) {
	if !credential.ValidUsername(name) || !credential.ValidPassword(password) {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, loginWait)
	defer cancel()
	user := cat.UserByName(name)
	if user == nil {
		return nil, c.b.cfg.Hasher.VerifyUnknown(ctx, password)
	}
	ok, err := c.b.cfg.Hasher.Verify(ctx, user.PasswordHash, password)
	if err != nil || !ok || !user.Active {
		return nil, err
	}
	return user, nil
}

// register commits the session of a user under a client id.
func (c *conn) register(client wire.U128, user *metadata.User) (*binding, wire.EvictionReason, error) {
	res, err := c.commit(&metadata.Command{
		Client: client, User: user.ID, Operation: wire.OpRegister, Secret: metadata.Secret{Revision: user.Revision},
	})
	if err != nil {
		return nil, 0, err
	}
	if reason := evicted(res.Err); reason != 0 {
		return nil, reason, nil
	}
	if code := res.Code(); code != 0 {
		return nil, 0, code
	}
	return &binding{client: client, session: res.Session, user: res.User}, 0, nil
}

// logout ends the session (framing §4.6). Transient failures are a status.
func (c *conn) logout(h *wire.RequestHeader, bound *binding) *Reply {
	res, err := c.commit(&metadata.Command{
		Client: bound.client, Session: bound.session, Request: h.Request, Stamp: h.RequestChecksum, User: bound.user, Operation: wire.OpLogout,
	})
	if err != nil {
		return c.refuse(h, err)
	}
	if reason := evicted(res.Err); reason != 0 {
		c.unbind(bound)
		return c.evict(h, reason)
	}
	if code := res.Code(); code != 0 {
		return c.deny(h, code)
	}
	c.raise(res.Index)
	rh := c.header(h)
	c.unbind(bound)
	r := newReply()
	r.cost = int(h.Size)
	return r.finish(&rh)
}

// evicted gives the reason of an eviction, 0 for any other error.
func evicted(err error) wire.EvictionReason {
	if ev, ok := err.(*metadata.EvictionError); ok { //nolint:errorlint // results carry it bare
		return ev.Reason
	}
	return 0
}
