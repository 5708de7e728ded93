package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// votes.log holds the newest term and vote of every group of the node, as batches. A batch is what one flush made
// durable: all groups whose term or vote changed in one turn.
//
//	 0  8  magic "WPVOTE\0\1" (last byte = format version)
//	 8  8  sequence number, from 1, without a gap
//	16  4  number of records
//	20  4  zero
//	24  8  XXH3-64 of bytes 0..23 and the records
//	32  n  records of 24: group, term, vote (8 each); term 0 = the group was deleted
//
// The crash argument: a batch is written by one write at the end of the file and flushed before the next one is written.
// So after a crash at most the last batch is torn, in any of its sectors, and nobody depends on it. A batch that does not
// verify while a later one does was durable once: that is damage, and the node must not start, since it could vote twice.
const (
	votesMagic      = 0x01_00_45_54_4f_56_50_57 // "WPVOTE\0\1" read little-endian
	votesHeaderLen  = 32
	votesRecordLen  = 24
	votesBatchLimit = 1 << 20 // records; more is never written
)

// vote is the durable part of a group's raft state.
type vote struct {
	term, vote uint64
}

// voteChange is one record of a batch.
type voteChange struct {
	group GroupID
	vote
}

// appendVotes appends the batch to dst.
func appendVotes(dst []byte, seq uint64, changes []voteChange) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint64(dst, votesMagic)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(changes)))
	dst = append(dst, make([]byte, 12)...)
	for _, c := range changes {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(c.group))
		dst = binary.LittleEndian.AppendUint64(dst, c.term)
		dst = binary.LittleEndian.AppendUint64(dst, c.vote.vote)
	}
	binary.LittleEndian.PutUint64(dst[start+24:], votesSum(dst[start:]))
	return dst
}

func votesSum(batch []byte) uint64 {
	var h xxh3.Hasher
	_, _ = h.Write(batch[:24])
	_, _ = h.Write(batch[votesHeaderLen:])
	return h.Sum64()
}

// cutVotes returns the batch at the start of b, nil when there is none that verifies.
func cutVotes(b []byte) (batch []byte, seq uint64) {
	if len(b) < votesHeaderLen || binary.LittleEndian.Uint64(b) != votesMagic {
		return nil, 0
	}
	count := binary.LittleEndian.Uint32(b[16:])
	if count > votesBatchLimit || int(count)*votesRecordLen > len(b)-votesHeaderLen || binary.LittleEndian.Uint32(b[20:]) != 0 {
		return nil, 0
	}
	batch = b[:votesHeaderLen+int(count)*votesRecordLen]
	if binary.LittleEndian.Uint64(batch[24:]) != votesSum(batch) {
		return nil, 0
	}
	return batch, binary.LittleEndian.Uint64(batch[8:])
}

// readVotes plays the file's contents into the table. good is the length of what verifies, from its start; seq is the
// number of the last batch. reason is not empty when the file cannot be trusted.
func readVotes(b []byte, into map[GroupID]vote) (good int, seq uint64, reason string) {
	for good < len(b) {
		batch, n := cutVotes(b[good:])
		if batch == nil || (seq != 0 && n != seq+1) || n == 0 {
			break
		}
		seq = n
		for rec := batch[votesHeaderLen:]; len(rec) > 0; rec = rec[votesRecordLen:] {
			id := GroupID(binary.LittleEndian.Uint64(rec))
			v := vote{binary.LittleEndian.Uint64(rec[8:]), binary.LittleEndian.Uint64(rec[16:])}
			if v.term == 0 {
				delete(into, id)
			} else {
				into[id] = v
			}
		}
		good += len(batch)
	}
	// Batches are multiples of 8, so a later one can only begin at one.
	for at := good + 8; at+votesHeaderLen <= len(b); at += 8 {
		if batch, n := cutVotes(b[at:]); batch != nil && n > seq {
			return good, seq, fmt.Sprintf("no valid batch at %d, but batch %d at %d", good, n, at)
		}
	}
	return good, seq, ""
}
