package partition

import (
	"github.com/whippetmq/whippet/internal/segment"
)

// Least time between two forget records, in µs: normally, and while the table is crowded or rows are left over. Without
// it a primary whose records do not commit would propose the same rows at every tick.
const (
	forgetEvery  = 60_000_000
	forgetUrgent = 1_000_000
)

// ticker holds what Tick returned until its next call: forget records are rare and may be large.
type ticker struct {
	out [1][]byte
}

// Tick returns control entries to propose: rows that may be forgotten. Only the primary decides; replicas follow the
// record. now is ignored in favour of the partition's own clock, which also stamps entries.
func (p *Replica) Tick(uint64) [][]byte {
	p.tick = ticker{} // what the last call returned is not used any more
	if !p.leading || p.dedup.kept == 0 {
		return nil
	}
	now := p.entryTime()
	if !p.dedup.expired(p.dedup.oldest, now) {
		return nil
	}
	pause := uint64(forgetEvery)
	if p.crowded || p.dedup.kept >= p.dedup.clients-p.dedup.clients/4 {
		pause = forgetUrgent
	}
	if p.forgotAt != 0 && now < p.forgotAt+pause {
		return nil
	}
	ids := p.dedup.idleRows(nil, now, maxForgetPerTick)
	p.tick.out[0] = segment.AppendControl(nil, segment.KindForget, appendForget(nil, now-p.forget, ids))
	p.forgotAt = now
	// A full record means that more rows may be waiting.
	p.crowded = len(ids) == maxForgetPerTick
	return p.tick.out[:]
}
