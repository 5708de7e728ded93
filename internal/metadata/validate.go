package metadata

import (
	"errors"

	"github.com/whippetmq/whippet/wire"
)

// Validate decodes a client's request for the metadata log and checks everything that does not depend on the state: what comes after
// can be refused, but can break nothing (observed.md 8). It must be called before a [Command] is submitted. nil means: propose it.
//
// The error is a [*StatusError] or, for an operation that no client may send, an [*EvictionError] (observed.md 10, 11). Codes:
//
//   - 3: the body does not decode, or the operation does not belong to the metadata log;
//   - 5: known and not offered yet: consumer groups, users, tokens, purges, delete-segments;
//   - 2015: too many partitions in one request, or none where some are needed;
//   - 4041, 4042, 4043, 1019: an option that does not exist or may not be updated, a bad value, too large a block, a topic that is
//     smaller than its segments.
func Validate(op wire.Operation, body []byte) error {
	_, err := parse(op, body, wire.DefaultTopicOptions())
	return err
}

// parse is Validate under the defaults that a proposal will carry. It gives nil for Register and Logout, which have no body.
func parse(op wire.Operation, body []byte, defaults wire.TopicOptions) (operation, error) {
	switch {
	case op.Internal(), serverOperation(op):
		return nil, &EvictionError{Reason: wire.EvictInvalidRequestOperation}
	case op == wire.OpRegister, op == wire.OpLogout:
		return nil, nil
	}
	o, err := decode(op, body, defaults)
	switch {
	case err != nil:
		return nil, err
	case !offered(op):
		return nil, &StatusError{Code: wire.ErrFeatureUnavailable}
	}
	return o, nil
}

// offered lists what clients may use. The rest of the operations is complete in the log and in the state (see the apply files) except
// for joining and leaving groups, and is switched on here when everything around it is there.
func offered(op wire.Operation) bool {
	switch op {
	case wire.OpRegister, wire.OpLogout,
		wire.OpCreateStream, wire.OpUpdateStream, wire.OpDeleteStream,
		wire.OpCreateTopic, wire.OpUpdateTopic, wire.OpDeleteTopic,
		wire.OpCreatePartitions, wire.OpDeletePartitions:
		return true
	}
	return false
}

// decode reads a client's body and translates it as far as the body alone allows: candidates and secrets are added by translate.
// It gives nil for the operations that are not in the log format yet.
func decode(op wire.Operation, body []byte, defaults wire.TopicOptions) (operation, error) {
	code, ok := wire.CodeFor(op)
	if !ok || !op.Metadata() && op != wire.OpDeleteSegments {
		return nil, &StatusError{Code: wire.ErrInvalidCommand}
	}
	req, ok := wire.NewRequest(code)
	if !ok {
		return nil, &StatusError{Code: wire.ErrInvalidCommand}
	}
	if err := req.Decode(body); err != nil {
		return nil, refuse(err)
	}
	switch q := req.(type) {
	case *wire.CreateStream:
		return &createStream{name: keep(q.Name)}, noOptions(q.Options)
	case *wire.UpdateStream:
		return &updateStream{stream: q.Stream.Clone(), name: keep(q.Name)}, noOptions(q.Options)
	case *wire.DeleteStream:
		return &deleteStream{streamTarget{q.Stream.Clone()}}, nil
	case *wire.PurgeStream:
		return &purgeStream{streamTarget{q.Stream.Clone()}}, nil
	case *wire.CreateTopic:
		return decodeCreateTopic(q, defaults)
	case *wire.UpdateTopic:
		patch, err := newPatch(q.Options, defaults)
		return &updateTopic{target(q.Stream, q.Topic), keep(q.Name), patch}, err
	case *wire.DeleteTopic:
		return &deleteTopic{target(q.Stream, q.Topic)}, nil
	case *wire.PurgeTopic:
		return &purgeTopic{target(q.Stream, q.Topic)}, nil
	case *wire.CreatePartitions:
		return &createPartitions{topicTarget: target(q.Stream, q.Topic), count: q.PartitionsCount}, perRequest(q.PartitionsCount, 1)
	case *wire.DeletePartitions:
		return &deletePartitions{target(q.Stream, q.Topic), q.PartitionsCount}, perRequest(q.PartitionsCount, 1)
	case *wire.CreateUser:
		return &createUser{name: keep(q.Username), active: q.Status != wire.UserInactive, permissions: packPermissions(q.Permissions)},
			noOptions(q.Options)
	case *wire.UpdateUser:
		o := &updateUser{user: q.User.Clone()}
		if q.Username != nil {
			o.hasName, o.name = true, keep(*q.Username)
		}
		if q.Status != nil && (*q.Status == wire.UserActive || *q.Status == wire.UserInactive) { // others are ignored (security.md §2)
			o.hasActive, o.active = true, *q.Status == wire.UserActive
		}
		return o, noOptions(q.Options)
	case *wire.DeleteUser:
		return &deleteUser{q.User.Clone()}, nil
	case *wire.UpdatePermissions:
		return &updatePermissions{q.User.Clone(), packPermissions(q.Permissions)}, nil
	case *wire.ChangePassword:
		return &changePassword{user: q.User.Clone()}, nil
	case *wire.CreatePersonalAccessToken:
		return &createToken{name: keep(q.Name), expiry: q.Expiry}, nil
	case *wire.DeletePersonalAccessToken:
		return &deleteToken{keep(q.Name)}, nil
	case *wire.CreateConsumerGroup:
		return &createGroup{target(q.Stream, q.Topic), keep(q.Name)}, nil
	case *wire.DeleteConsumerGroup:
		return &deleteGroup{target(q.Stream, q.Topic), q.Group.Clone()}, nil
	case *wire.DeleteSegments, *wire.JoinConsumerGroup, *wire.LeaveConsumerGroup:
		return nil, nil
	}
	return nil, &StatusError{Code: wire.ErrInvalidCommand}
}

func decodeCreateTopic(q *wire.CreateTopic, defaults wire.TopicOptions) (operation, error) {
	o := &createTopic{stream: q.Stream.Clone(), name: keep(q.Name), partitions: q.PartitionsCount}
	if err := perRequest(q.PartitionsCount, 0); err != nil {
		return nil, err
	}
	var err error
	o.options, err = resolveOptions(q.Options, q.PartitionsCount, defaults)
	return o, err
}

func target(stream, topic wire.Identifier) topicTarget {
	return topicTarget{stream: stream.Clone(), topic: topic.Clone()}
}

// perRequest checks a number of partitions against the bounds of one request.
func perRequest(n, low uint32) error {
	if n < low || n > maxPartitionsPerRequest {
		return &StatusError{Code: wire.ErrTooManyPartitions}
	}
	return nil
}

// noOptions refuses options where the catalog is empty: streams and users.
func noOptions(o wire.Options) error {
	if len(o) > 0 {
		return &StatusError{Code: wire.ErrUnsupportedOptionKey, Cause: errors.New(o[0].Key)}
	}
	return nil
}

// refuse turns a decoder's error into what a client is told.
func refuse(err error) error {
	return &StatusError{Code: wire.StatusOf(err), Cause: err}
}

// translate makes the body of the entry from a command that passed Validate.
func (m *Machine) translate(cmd *Command) (operation, error) {
	switch cmd.Operation {
	case OpBootstrap, OpNodeStarted, OpSetPreferred:
		body := newOperation(cmd.Operation)
		r := &reader{b: cmd.Body}
		body.decode(r)
		r.end()
		if !r.ok() {
			return nil, &StatusError{Code: wire.ErrInvalidCommand, Cause: r.err(0)}
		}
		return body, nil
	case wire.OpRegister:
		return &register{revision: cmd.Secret.Revision, limit: uint32(m.cfg.ClientsMax)}, nil
	case wire.OpLogout:
		return new(logout), nil
	}
	body, err := parse(cmd.Operation, cmd.Body, m.defaults)
	if err != nil {
		return nil, err
	}
	switch o := body.(type) {
	case *createTopic:
		o.candidates, o.members = m.candidates, m.members
	case *createPartitions:
		o.candidates, o.members = m.candidates, m.members
	case *createUser:
		o.hash = cmd.Secret.Hash
	case *changePassword:
		o.hash, o.verified, o.revision = cmd.Secret.Hash, cmd.Secret.Verified, cmd.Secret.Revision
	case *createToken:
		o.hash = cmd.Secret.Hash
	}
	return body, nil
}

// precheck refuses before the log what the protocol wants in the status field and only the state can tell. It is decided again when
// the entry is applied.
func (m *Machine) precheck(cmd *Command, body operation) error {
	switch o := body.(type) {
	case *updateTopic:
		if _, t := m.current.Topic(o.stream, o.topic); t != nil && !o.patch.fits(t) {
			return &StatusError{Code: wire.ErrInvalidTopicSize}
		}
	case *createToken:
		s := m.sessions.find(cmd.Client)
		if u := m.current.users.get(s.User); u != nil && len(u.tokens) >= m.cfg.TokensMax {
			return &StatusError{Code: wire.ErrPersonalAccessTokensLimitReached}
		}
	}
	return nil
}
