package wire

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestCommandTable(t *testing.T) {
	list := Commands()
	if len(list) != 55+4 {
		t.Fatalf("%d commands", len(list))
	}
	if !slices.IsSortedFunc(list, func(a, b CommandInfo) int { return int(a.Code) - int(b.Code) }) {
		t.Error("the table is not sorted by code")
	}
	for _, c := range list {
		req, ok := NewRequest(c.Code)
		if !ok || req.Code() != c.Code {
			t.Errorf("%v: request type of another command", c.Code)
		}
		if got := fmt.Sprintf("%T", req); got != "*wire."+c.Name {
			t.Errorf("%v: request type %s", c.Code, got)
		}
		if c.Code.String() != c.Name {
			t.Errorf("%d: name %s", c.Code, c.Code)
		}
		if OperationFor(c.Code) != c.Operation || !c.Operation.Known() || c.Operation.Internal() {
			t.Errorf("%v: operation %v", c.Code, c.Operation)
		}
		if c.Operation != OpNonReplicated && c.Operation != OpRegister {
			if back, ok := CodeFor(c.Operation); !ok || back != c.Code || c.Operation.String() != c.Name && c.Code != CodeLogoutUser {
				t.Errorf("%v: operation %v stands for %v", c.Code, c.Operation, back)
			}
		}
		want := ReplicationNone
		switch {
		case c.Operation == OpRegister || c.Operation == OpLogout:
			want = ReplicationSession
		case c.Operation.Metadata() || c.Operation == OpDeleteSegments:
			want = ReplicationMetadata
		case c.Operation.Partition():
			want = ReplicationPartition
		}
		if c.Replication != want {
			t.Errorf("%v: replication %v, want %v", c.Code, c.Replication, want)
		}
		if c.Code.Extension() != (c.Code >= 9000) {
			t.Errorf("%v: extension", c.Code)
		}
	}
	for _, c := range []struct {
		code        Code
		registry    string
		auth        Auth
		operation   Operation
		self        bool
		replication Replication
	}{
		{CodePing, "ping", AuthNone, OpNonReplicated, false, ReplicationNone},
		{CodeGetClusterMetadata, "cluster.metadata", AuthSession, OpNonReplicated, false, ReplicationNone},
		{CodeGetUser, "user.get", AuthPermission, OpNonReplicated, true, ReplicationNone},
		{CodeChangePassword, "user.password", AuthPermission, OpChangePassword, true, ReplicationMetadata},
		{CodeLogoutUser, "user.logout", AuthSession, OpLogout, false, ReplicationSession},
		{CodeLoginRegister, "user.login_register", AuthNone, OpRegister, false, ReplicationSession},
		{CodeLoginRegisterWithPat, "user.login_register_with_pat", AuthNone, OpRegister, false, ReplicationSession},
		{CodeSendMessages, "message.send", AuthPermission, OpSendMessages, false, ReplicationPartition},
		{CodeSyncConsumerGroup, "consumer_group.sync", AuthSession, OpNonReplicated, false, ReplicationNone},
		{CodeUpdateUser, "user.update", AuthPermission, 142, false, ReplicationMetadata},
		{CodeDeleteUser, "user.delete", AuthPermission, 143, false, ReplicationMetadata},
		{CodeCapabilities, "whippet.capabilities", AuthSession, OpNonReplicated, false, ReplicationNone},
		{CodeTransferLeader, "whippet.leader.transfer", AuthPermission, OpNonReplicated, false, ReplicationNone},
	} {
		i, ok := c.code.Info()
		if !ok || i.Registry != c.registry || i.Auth != c.auth || i.Operation != c.operation || i.Self != c.self || i.Replication != c.replication {
			t.Errorf("%v: %+v", c.code, i)
		}
	}
	if OperationFor(7777) != OpNonReplicated {
		t.Error("an unknown code must travel as NonReplicated")
	}
	if _, ok := Code(7777).Info(); ok || Code(7777).String() != "Code(7777)" {
		t.Error("unknown code")
	}
	if c, ok := CodeFor(OpRegister); !ok || c != CodeLoginRegister {
		t.Error("register")
	}
	if _, ok := CodeFor(OpNonReplicated); ok {
		t.Error("NonReplicated has no code")
	}
}

func TestOperations(t *testing.T) {
	// Columns of framing §1.6, and §2 for the stamp.
	known, framed, metadata, partition, stamped := 0, 0, 0, 0, 0
	for i := range 256 {
		o := Operation(i)
		count := func(n *int, is bool) {
			if is {
				*n++
			}
		}
		count(&known, o.Known())
		count(&framed, o.Framed())
		count(&metadata, o.Metadata())
		count(&partition, o.Partition())
		count(&stamped, o.Stamped())
		if o.Internal() != (i >= 64 && i < 128) {
			t.Errorf("%v internal", o)
		}
		if !o.Known() && (o.Framed() || o.Metadata() || o.Partition() || o.Stamped() || o.Replicated()) {
			t.Errorf("%v has properties", o)
		}
		if o.Known() && strings.Contains(o.String(), "(") {
			t.Errorf("%d has no name", i)
		}
	}
	if known != 3+5+22+3 || framed != 1+5+21+2 || metadata != 5+21 || partition != 3 || stamped != 2+26+1 {
		t.Error(known, framed, metadata, partition, stamped)
	}
	for o, want := range map[Operation]bool{
		OpRegister: true, OpNonReplicated: false, OpLogout: false, OpTruncatePartition: true, OpCreateStream: true,
		OpDeleteSegments: false, OpSendMessages: false, OpStoreConsumerOffset: true, OpDeleteConsumerOffset: true,
	} {
		if o.Framed() != want {
			t.Errorf("%v framed: %v", o, !want)
		}
	}
	for o, want := range map[Operation]bool{
		OpRegister: true, OpLogout: true, OpNonReplicated: false, OpSendMessages: false, OpStoreConsumerOffset: false,
		OpDeleteSegments: true, OpCreateStream: true, OpTruncatePartition: true,
	} {
		if o.Watermark() != want {
			t.Errorf("%v watermark: %v", o, !want)
		}
	}
}

func TestErrorTable(t *testing.T) {
	if len(errorTable) != 240 {
		t.Fatalf("%d codes", len(errorTable))
	}
	classes := map[Class][]ErrorCode{}
	for i, r := range errorTable {
		if i > 0 && errorTable[i-1].code >= r.code {
			t.Errorf("%d out of order", r.code)
		}
		if r.code.Name() != r.name || r.code.Snake() != r.snake || !r.code.Known() || r.code.Surface() != r.code {
			t.Errorf("%d: lookup", r.code)
		}
		if got := snake(r.name); got != r.snake {
			t.Errorf("%s: snake case %s, want %s", r.name, r.snake, got)
		}
		text := r.code.Text()
		if text == "" || strings.HasSuffix(text, ".") || strings.Contains(text, "_") && errorText(r.code) == "" {
			t.Errorf("%s: text %q", r.name, text)
		}
		if !errors.Is(fmt.Errorf("create stream: %w", r.code), r.code) || errors.Is(r.code, r.code+1) {
			t.Errorf("%s: errors.Is", r.name)
		}
		if StatusOf(fmt.Errorf("create stream: %w", r.code)) != r.code {
			t.Errorf("%s: StatusOf", r.name)
		}
		if c := r.code.Class(); c != ClassTerminal {
			classes[c] = append(classes[c], r.code)
		}
	}
	// Marks of the reference, errors "Retriability".
	for c, want := range map[Class][]ErrorCode{
		ClassOutcomeUnknown: {57},
		ClassNotAdmitted:    {58},
		ClassApplied:        {59},
		ClassSessionLost:    {8, 9, 30, 31, 32, 40, 61, 206, 304, 403, 404},
	} {
		if !slices.Equal(classes[c], want) {
			t.Errorf("class %v: %v, want %v", c, classes[c], want)
		}
	}
	for _, c := range []struct {
		code  ErrorCode
		want  uint32
		snake string
	}{
		{ErrError, 1, "error"},
		{ErrInvalidCommand, 3, "invalid_command"},
		{ErrUnauthenticated, 40, "unauthenticated"},
		{ErrTransientNotAccepted, 58, "transient_not_accepted"},
		{ErrStreamIdNotFound, 1009, "stream_id_not_found"},
		{ErrPartitionNotFound, 3007, "partition_not_found"},
		{ErrInvalidBatchChecksum, 4039, "invalid_batch_checksum"},
		{ErrConsumerGroupPartitionNotOwned, 5009, "consumer_group_partition_not_owned"},
		{ErrIncompatibleProtocolVersion, 14003, "incompatible_protocol_version"},
	} {
		if uint32(c.code) != c.want || c.code.Snake() != c.snake {
			t.Errorf("%v: %d %s", c.code, uint32(c.code), c.code.Snake())
		}
	}
	for _, c := range []ErrorCode{9, 40, 58, 61} {
		if !c.NothingWritten() {
			t.Errorf("%v proves that nothing was written", c)
		}
	}
	if ErrTransientNotCommitted.NothingWritten() || ErrDisconnected.NothingWritten() {
		t.Error("57 and 8 prove nothing")
	}
	if ErrorCode(77777).Surface() != ErrError || ErrorCode(77777).Known() || ErrorCode(77777).Error() == "" {
		t.Error("unknown code")
	}
	if StatusOf(nil) != 0 || StatusOf(errors.New("x")) != ErrError {
		t.Error("StatusOf")
	}
}

func snake(name string) string {
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

func TestEvictionErrors(t *testing.T) {
	// errors "Mapping of eviction reasons".
	want := []ErrorCode{3, 40, 3, 3, 3, 3, 3, 40, 40, 42, 53, 40, 40, 30, 14003, 4, 40}
	for i, code := range want {
		if err := EvictionReason(i).Err(CurrentVersion, 11264, 11264); StatusOf(err) != code {
			t.Errorf("reason %d: %v, want %d", i, err, code)
		}
	}
	for _, w := range [][2]Version{{0, 5}, {6, 5}, {0, 0}} {
		if err := EvictIncompatibleProtocol.Err(1, w[0], w[1]); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("window %v: %v", w, err)
		}
	}
	var v *IncompatibleVersionError
	if err := EvictIncompatibleProtocol.Err(PackVersion(0, 12, 2), 11264, 11264); !errors.As(err, &v) || v.Client != 12290 || v.Min != 11264 {
		t.Errorf("%v", err)
	}
}

func TestInternalOperations(t *testing.T) {
	for _, op := range []Operation{64, 68, 69, 127} {
		h := RequestHeader{Client: U128{Lo: 9}, Request: 7, Session: 1, Operation: op}
		frame := AppendRequest(nil, h, nil)
		var got RequestHeader
		if err := got.Decode(frame); !errors.Is(err, ErrInternalOperation) {
			t.Errorf("%d: %v", op, err)
		}
		if got.Client != h.Client || got.Request != 7 {
			t.Errorf("%d: the fields to answer with are missing", op)
		}
	}
}

func TestReplyPayload(t *testing.T) {
	h := ReplyHeader{Operation: OpRegister}
	if p, err := h.Payload(nil); err != nil || len(p) != 0 {
		t.Error("an empty register reply has no result section", err)
	}
	h.Operation = OpCreateStream
	if _, err := h.Payload(nil); !errors.Is(err, ErrInvalidCommand) || !errors.Is(err, ErrMalformedResult) {
		t.Error(err)
	}
	if _, err := h.Payload(AppendResultError(nil, 0)); !errors.Is(err, ErrMalformedResult) {
		t.Error("a rejection with code 0 is not a success", err)
	}
	h.Operation = OpSendMessages
	if p, err := h.Payload([]byte{1}); err != nil || len(p) != 1 {
		t.Error("a send reply has no result section", err)
	}
	h.Status = ErrUnauthorized
	if _, err := h.Payload(nil); !errors.Is(err, ErrUnauthorized) {
		t.Error(err)
	}
	var got ReplyHeader
	frame := AppendStatus(nil, h, ErrTransientNotAccepted)
	frame[offRepOperation] = 200
	if err := got.Decode(frame); !errors.Is(err, ErrInvalidCommand) {
		t.Error("unknown operation in a reply", err)
	}
}
