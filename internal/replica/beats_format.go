package replica

import (
	"errors"
	"time"
)

// Kinds of control frames. 16 to 31 belong to catching up.
const (
	controlBeats   = 1 // heartbeats of all groups that a shard leads, and a ping
	controlAnswer  = 2 // what came of them
	controlGoodbye = 3 // the sender leaves; empty body
)

// A frame of heartbeats goes from one shard to one shard of another node, on every tick, also when it names no group. It is
// one frame, so that whoever answers it has seen all of it.
//
//	0  2  sending shard
//	2  8  when it was sent, on the sender's monotonic clock in ns; answered as it is
//	10 .. 21 bytes a group: group u64, term u32, commit u64, flags u8
const (
	beatsHeader = 10
	beatSize    = 21

	beatSleep = 1 << 0 // the group has nothing to do: sleep
)

// beat is a leader's heartbeat to one replica.
type beat struct {
	group  GroupID
	term   uint64 // below 1 << 32, others travel alone
	commit uint64
	flags  byte
}

// The answer names only the groups that the plain answer is not true for.
//
//	0  2  answering shard
//	2  8  the ping's own time
//	10 1  1 = the frame named groups: the answer is looked at before the next tick
//	11 .. 9 bytes a group: group u64, what is different u8
const (
	answerHeader = 11
	answerUrgent = 10
	exceptSize   = 9

	exceptOther = 1 // this replica does not follow the sender in that term
	exceptAwake = 2 // it follows, but does not sleep
)

// except is one group that the plain answer is not true for.
type except struct {
	group GroupID
	what  byte
}

var errControl = errors.New("replica: malformed control frame")

func appendBeatsHeader(dst []byte, shard int, sent time.Duration) []byte {
	dst = le.AppendUint16(dst, uint16(shard))
	return le.AppendUint64(dst, uint64(sent))
}

func appendBeat(dst []byte, b beat) []byte {
	dst = le.AppendUint64(dst, uint64(b.group))
	dst = le.AppendUint32(dst, uint32(b.term))
	dst = le.AppendUint64(dst, b.commit)
	return append(dst, b.flags)
}

func decodeBeats(body []byte) (shard int, sent time.Duration, beats []beat, err error) {
	if len(body) < beatsHeader || (len(body)-beatsHeader)%beatSize != 0 {
		return 0, 0, nil, errControl
	}
	shard, sent = int(le.Uint16(body)), time.Duration(le.Uint64(body[2:]))
	body = body[beatsHeader:]
	if len(body) > 0 {
		beats = make([]beat, 0, len(body)/beatSize)
	}
	for ; len(body) > 0; body = body[beatSize:] {
		beats = append(beats, beat{GroupID(le.Uint64(body)), uint64(le.Uint32(body[8:])), le.Uint64(body[12:]), body[20]})
	}
	return shard, sent, beats, nil
}

func appendAnswerHeader(dst []byte, shard int, sent time.Duration, urgent bool) []byte {
	dst = appendBeatsHeader(dst, shard, sent)
	if urgent {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func appendExcept(dst []byte, e except) []byte {
	return append(le.AppendUint64(dst, uint64(e.group)), e.what)
}

func decodeAnswer(body []byte) (shard int, sent time.Duration, excepts []except, err error) {
	if len(body) < answerHeader || (len(body)-answerHeader)%exceptSize != 0 {
		return 0, 0, nil, errControl
	}
	shard, sent = int(le.Uint16(body)), time.Duration(le.Uint64(body[2:]))
	body = body[answerHeader:]
	if len(body) > 0 {
		excepts = make([]except, 0, len(body)/exceptSize)
	}
	for ; len(body) > 0; body = body[exceptSize:] {
		excepts = append(excepts, except{GroupID(le.Uint64(body)), body[8]})
	}
	return shard, sent, excepts, nil
}
