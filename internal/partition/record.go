package partition

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/whippetmq/whippet/wire"
)

// Bodies of the control records that a partition writes (engine §2.3). All integers are little-endian. The version is
// the record's, so a body has none of its own; trailing bytes are an error.
//
//	commands: [entry time µs:8][count:4] then count times
//	          [op:1][kind:1][flags:1][0:1][key:4][offset:8] and, when flags has commandIdentity,
//	          [client:16][user:4][request:8]
//	trim:     [lowest offset to keep:8]
//	purge:    [generation:8]
//	forget:   [cutoff µs:8][count:4] then count times [client:16][user:4]
const (
	commandsHeader   = 12
	commandLen       = 16
	commandIdentity  = 1 // flag
	identityLen      = 28
	forgetHeader     = 12
	forgetKeyLen     = 20
	trimLen          = 8
	purgeLen         = 8
	maxForgetPerTick = 1024
)

// ErrCorruptRecord says that bytes of a control record or a checkpoint do not decode. Match with errors.Is.
var ErrCorruptRecord = errors.New("partition: corrupt record")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorruptRecord, fmt.Sprintf(format, args...))
}

type commandOp uint8

const (
	opStore  commandOp = 1
	opDelete commandOp = 2
	opRaise  commandOp = 3 // auto-commit: never backwards (observed 3)
)

// command is one offset write as it stands in the log.
type command struct {
	op      commandOp
	target  offsetKey
	offset  uint64
	from    identity
	request uint64 // 0 = the write carries no identity
}

func appendCommand(dst []byte, c command) []byte {
	var flags byte
	if c.request != 0 {
		flags = commandIdentity
	}
	dst = append(dst, byte(c.op), byte(c.target.kind), flags, 0)
	dst = binary.LittleEndian.AppendUint32(dst, c.target.key)
	dst = binary.LittleEndian.AppendUint64(dst, c.offset)
	if c.request != 0 {
		dst = wire.AppendU128(dst, c.from.client)
		dst = binary.LittleEndian.AppendUint32(dst, c.from.user)
		dst = binary.LittleEndian.AppendUint64(dst, c.request)
	}
	return dst
}

func appendCommands(dst []byte, at uint64, commands []command) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, at)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(commands)))
	for _, c := range commands {
		dst = appendCommand(dst, c)
	}
	return dst
}

// commandReader walks a commands body without allocating. Use: openCommands, then next until it reports false, then err.
type commandReader struct {
	at    uint64 // entry time
	left  uint32
	bytes []byte
	err   error
}

func openCommands(body []byte) (commandReader, error) {
	if len(body) < commandsHeader {
		return commandReader{}, corrupt("commands of %d bytes", len(body))
	}
	r := commandReader{
		at:    binary.LittleEndian.Uint64(body),
		left:  binary.LittleEndian.Uint32(body[8:]),
		bytes: body[commandsHeader:],
	}
	if uint64(r.left)*commandLen > uint64(len(r.bytes)) {
		return commandReader{}, corrupt("%d commands in %d bytes", r.left, len(body))
	}
	return r, nil
}

func (r *commandReader) next() (command, bool) {
	if r.err != nil {
		return command{}, false
	}
	if r.left == 0 {
		if len(r.bytes) != 0 {
			r.err = corrupt("%d bytes after the last command", len(r.bytes))
		}
		return command{}, false
	}
	b := r.bytes
	if len(b) < commandLen {
		r.err = corrupt("command of %d bytes", len(b))
		return command{}, false
	}
	c := command{
		op:     commandOp(b[0]),
		target: offsetKey{wire.ConsumerKind(b[1]), binary.LittleEndian.Uint32(b[4:])},
		offset: binary.LittleEndian.Uint64(b[8:]),
	}
	flags := b[2]
	switch {
	case c.op < opStore || c.op > opRaise:
		r.err = corrupt("command operation %d", c.op)
	case !validKind(c.target.kind):
		r.err = corrupt("offset kind %d", c.target.kind)
	case flags&^commandIdentity != 0 || b[3] != 0:
		r.err = corrupt("command flags %#x", flags)
	case flags != 0 && len(b) < commandLen+identityLen:
		r.err = corrupt("command identity of %d bytes", len(b)-commandLen)
	}
	if r.err != nil {
		return command{}, false
	}
	b = b[commandLen:]
	if flags != 0 {
		c.from = identity{wire.GetU128(b), binary.LittleEndian.Uint32(b[16:])}
		c.request = binary.LittleEndian.Uint64(b[20:])
		if c.request == 0 {
			r.err = corrupt("command identity with request 0")
			return command{}, false
		}
		b = b[identityLen:]
	}
	r.bytes = b
	r.left--
	return c, true
}

func appendTrim(dst []byte, keep uint64) []byte {
	return binary.LittleEndian.AppendUint64(dst, keep)
}

func decodeTrim(body []byte) (keep uint64, err error) {
	if len(body) != trimLen {
		return 0, corrupt("trim of %d bytes", len(body))
	}
	return binary.LittleEndian.Uint64(body), nil
}

func appendPurge(dst []byte, generation uint64) []byte {
	return binary.LittleEndian.AppendUint64(dst, generation)
}

func decodePurge(body []byte) (generation uint64, err error) {
	if len(body) != purgeLen {
		return 0, corrupt("purge of %d bytes", len(body))
	}
	return binary.LittleEndian.Uint64(body), nil
}

func appendForget(dst []byte, cutoff uint64, ids []identity) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, cutoff)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(ids)))
	for _, id := range ids {
		dst = wire.AppendU128(dst, id.client)
		dst = binary.LittleEndian.AppendUint32(dst, id.user)
	}
	return dst
}

func decodeForget(body []byte) (cutoff uint64, ids []identity, err error) {
	if len(body) < forgetHeader {
		return 0, nil, corrupt("forget of %d bytes", len(body))
	}
	cutoff = binary.LittleEndian.Uint64(body)
	n := binary.LittleEndian.Uint32(body[8:])
	body = body[forgetHeader:]
	if uint64(n)*forgetKeyLen != uint64(len(body)) {
		return 0, nil, corrupt("forget of %d rows in %d bytes", n, len(body))
	}
	ids = make([]identity, n)
	for i := range ids {
		ids[i] = identity{wire.GetU128(body), binary.LittleEndian.Uint32(body[16:])}
		body = body[forgetKeyLen:]
	}
	return cutoff, ids, nil
}
