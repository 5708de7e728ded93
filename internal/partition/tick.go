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

// ticker is the memory of Tick, empty until there is something to forget.
type ticker struct {
	body, record []byte
	out          [1][]byte
	ids          []identity
}

// Tick returns control entries to propose: rows that may be forgotten. Only the primary decides; replicas follow the
// record. now is ignored in favour of the partition's own clock, which also stamps entries.
func (p *Replica) Tick(uint64) [][]byte {
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
	t := &p.tick
	t.ids = p.dedup.idleRows(t.ids[:0], now, maxForgetPerTick)
	cutoff := now - p.forget
	t.body = appendForget(t.body[:0], cutoff, t.ids)
	t.record = segment.AppendControl(t.record[:0], segment.KindForget, t.body)
	t.out[0] = t.record
	p.forgotAt = now
	// A full record means that more rows may be waiting.
	p.crowded = len(t.ids) == maxForgetPerTick
	return t.out[:]
}
