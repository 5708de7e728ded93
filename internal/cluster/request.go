package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
	"github.com/whippetmq/whippet/wire"
)

var le = binary.LittleEndian

// Codes of what only nodes ask of each other; they travel with
// wire.OpNonReplicated.
const (
	// CodeCommitted asks the leader of a group for the index that is committed
	// there: commit of the reply.
	CodeCommitted wire.Code = 9100
	// CodeTransfer asks the leader of a group to hand it over; body: node id
	// u64, 0 = whichever has most of the log. The reply's op is the node that
	// leads now, its commit the term.
	CodeTransfer wire.Code = 9101
	// CodeGroups asks for the partitions' groups that a node leads; the payload
	// is a list of GroupReport.
	CodeGroups wire.Code = 9102
)

// Request is what one node asks of another.
type Request struct {
	// Wait is how long the asker waits for the reply.
	Wait      time.Duration
	Operation wire.Operation
	Code      wire.Code // with wire.OpNonReplicated
	// Client, User, Session and Request are the identity of a forwarded request.
	Client                   wire.U128
	User                     uint32
	Session, Request         uint64
	Position                 uint64 // of the metadata, which has to be applied first
	Stream, Topic, Partition uint32
	Group                    replica.GroupID
	// Body must not change until the call has ended.
	Body []byte
}

const (
	requestHeader = 74
	replyHeader   = 32
	firstHop      = 1
)

var errMalformed = errors.New("cluster: malformed request between nodes")

// header encodes everything but the body.
func (r *Request) header() []byte {
	b := make([]byte, 0, requestHeader)
	b = le.AppendUint32(b, uint32(min(max(0, r.Wait.Microseconds()), math.MaxUint32)))
	b = append(b, firstHop, byte(r.Operation))
	b = le.AppendUint32(b, uint32(r.Code))
	b = wire.AppendU128(b, r.Client)
	b = le.AppendUint32(b, r.User)
	b = le.AppendUint64(b, r.Session)
	b = le.AppendUint64(b, r.Request)
	b = le.AppendUint64(b, r.Position)
	b = le.AppendUint32(b, r.Stream)
	b = le.AppendUint32(b, r.Topic)
	b = le.AppendUint32(b, r.Partition)
	return le.AppendUint64(b, uint64(r.Group))
}

// decode reads a request; its body is a part of b.
func (r *Request) decode(b []byte) error {
	if len(b) < requestHeader {
		return fmt.Errorf("%w: %d bytes", errMalformed, len(b))
	}
	if b[4] != firstHop {
		return fmt.Errorf("%w: hop %d", errMalformed, b[4])
	}
	*r = Request{
		Wait:      time.Duration(le.Uint32(b)) * time.Microsecond,
		Operation: wire.Operation(b[5]),
		Code:      wire.Code(le.Uint32(b[6:])),
		Client:    wire.GetU128(b[10:]),
		User:      le.Uint32(b[26:]),
		Session:   le.Uint64(b[30:]),
		Request:   le.Uint64(b[38:]),
		Position:  le.Uint64(b[46:]),
		Stream:    le.Uint32(b[54:]),
		Topic:     le.Uint32(b[58:]),
		Partition: le.Uint32(b[62:]),
		Group:     replica.GroupID(le.Uint64(b[66:])),
		Body:      b[requestHeader:],
	}
	return nil
}

// Reply answers a Request.
type Reply struct {
	Status                wire.ErrorCode
	Op, Commit, Timestamp uint64
	View                  uint32
	Payload               []byte
	// Written is called once when the reply is written to the node that asked, or given up; nil = nobody has to know.
	Written func()
}

func (r *Reply) append(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(r.Status))
	dst = le.AppendUint64(dst, r.Op)
	dst = le.AppendUint64(dst, r.Commit)
	dst = le.AppendUint64(dst, r.Timestamp)
	dst = le.AppendUint32(dst, r.View)
	return append(dst, r.Payload...)
}

func (r *Reply) decode(b []byte) error {
	if len(b) < replyHeader {
		return fmt.Errorf("%w: reply of %d bytes", errMalformed, len(b))
	}
	*r = Reply{
		Status:    wire.ErrorCode(le.Uint32(b)),
		Op:        le.Uint64(b[4:]),
		Commit:    le.Uint64(b[12:]),
		Timestamp: le.Uint64(b[20:]),
		View:      le.Uint32(b[28:]),
		Payload:   b[replyHeader:],
	}
	return nil
}

// Hint is what a node that refused a request knows of the group's leader.
type Hint struct {
	Leader uint64 // node id, 0 = none
	Term   uint64
}

// Refusal is a reply with status 58 and a hint.
func Refusal(h Hint) *Reply {
	return &Reply{Status: wire.ErrTransientNotAccepted, Payload: le.AppendUint64(le.AppendUint64(nil, h.Leader), h.Term)}
}

// Hint is that of a refusal; zero when there is none.
func (r *Reply) Hint() Hint {
	if r.Status != wire.ErrTransientNotAccepted || len(r.Payload) < 16 {
		return Hint{}
	}
	return Hint{Leader: le.Uint64(r.Payload), Term: le.Uint64(r.Payload[8:])}
}

// GroupReport is a partition's group as its primary knows it.
type GroupReport struct {
	Group        replica.GroupID
	Term, Commit uint64
	Followers    []wire.FollowerState
}

// AppendReports encodes the payload of a reply to CodeGroups.
func AppendReports(dst []byte, reports []GroupReport) []byte {
	dst = le.AppendUint32(dst, uint32(len(reports)))
	for i := range reports {
		g := &reports[i]
		dst = le.AppendUint64(dst, uint64(g.Group))
		dst = le.AppendUint64(dst, g.Term)
		dst = le.AppendUint64(dst, g.Commit)
		dst = le.AppendUint32(dst, uint32(len(g.Followers)))
		for _, f := range g.Followers {
			dst = le.AppendUint64(le.AppendUint32(dst, f.Node), f.Match)
		}
	}
	return dst
}

// DecodeReports reads what AppendReports wrote.
func DecodeReports(b []byte) ([]GroupReport, error) {
	const reportSize, followerSize = 28, 12
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: reports of %d bytes", errMalformed, len(b))
	}
	n := le.Uint32(b)
	b = b[4:]
	if uint64(n)*reportSize > uint64(len(b)) {
		return nil, fmt.Errorf("%w: %d reports in %d bytes", errMalformed, n, len(b))
	}
	reports := make([]GroupReport, n)
	for i := range reports {
		if len(b) < reportSize {
			return nil, fmt.Errorf("%w: report %d of %d", errMalformed, i, n)
		}
		g := &reports[i]
		*g = GroupReport{Group: replica.GroupID(le.Uint64(b)), Term: le.Uint64(b[8:]), Commit: le.Uint64(b[16:])}
		count := le.Uint32(b[24:])
		b = b[reportSize:]
		if uint64(count)*followerSize > uint64(len(b)) {
			return nil, fmt.Errorf("%w: %d followers in %d bytes", errMalformed, count, len(b))
		}
		for range count {
			g.Followers = append(g.Followers, wire.FollowerState{Node: le.Uint32(b), Match: le.Uint64(b[4:])})
			b = b[followerSize:]
		}
	}
	return reports, nil
}
