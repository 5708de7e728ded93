package replica

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Peer is what another node says of itself when a link from it comes up.
type Peer struct {
	Node      uint64
	Directory [16]byte // Identity of its data directory
	Starts    uint64
	Suspect   bool   // it may have lost what it acknowledged
	Shards    int    // its Host.Shards
	Run       uint64 // Identity.Run
}

// Controls is what a Transport implements besides Send when it carries control frames: heartbeats of many groups in one
// frame, pings, their answers, and the goodbye of a node that stops. Without it groups work, but every group beats for
// itself, none ever sleeps, and every ReadBarrier costs a round trip.
type Controls interface {
	// Control queues a frame for a node, in order behind everything that was sent to it before. A full queue does not drop
	// it. body is copied. False = no link is up, and the frame is dropped. Must not block.
	Control(to uint64, kind uint8, shard uint16, body []byte) bool
	// Received is a number that grows while a large frame of a node arrives.
	Received(node uint64) uint64
}

// others is the part of a Host that concerns the other nodes.
type others struct {
	controls   Controls      // nil = the transport has none
	quietUntil time.Duration // no votes before, see lease.go
	leaving    atomic.Bool
	left       atomic.Int64 // shards that noticed

	alive struct {
		sync.Mutex
		answered map[uint64]time.Duration // by node: when the newest ping of the metadata's shard was sent that it answered
	}
}

func (h *Host) openOthers() {
	h.controls, _ = h.cfg.Transport.(Controls)
	h.alive.answered = map[uint64]time.Duration{}
	if h.identity.Starts > 1 && h.cfg.Transport != nil {
		h.quietUntil = h.cfg.Clock.Mono() + h.promiseTime()
	}
}

// Shards is the number of shards for partitions.
func (h *Host) Shards() int { return h.cfg.Shards }

// Control takes a control frame of another node. body is only read during the call. Frames and messages of one node must be
// handed over in the order in which they arrived.
func (h *Host) Control(from uint64, kind uint8, shard uint16, body []byte) {
	if h.controls == nil || int(shard) >= len(h.shards) || from == h.cfg.NodeID {
		return
	}
	s := h.shards[shard]
	var err error
	switch kind {
	case controlBeats:
		c := &beatsControl{from: from}
		if c.shard, c.sent, c.beats, err = decodeBeats(body); err == nil {
			s.inbox.putControl(c, len(c.beats) > 0)
		}
	case controlAnswer:
		c := &answerControl{from: from}
		if c.shard, c.sent, c.excepts, err = decodeAnswer(body); err == nil {
			s.inbox.putControl(c, len(c.excepts) > 0 || body[answerUrgent] != 0)
		}
	case controlGoodbye:
		h.cfg.Logger.Info("a node leaves", "node", from)
		for _, s := range h.shards {
			s.inbox.post(item{ctl: &goodbyeControl{from}})
		}
	}
	if err != nil {
		h.cfg.Logger.Warn("control frame dropped", "node", from, "kind", kind, "bytes", len(body), "error", err)
	}
}

// Connected says that a link from a node came up, before anything that arrives on it is handed over.
func (h *Host) Connected(p Peer) {
	if p.Node == h.cfg.NodeID || p.Shards <= 0 {
		return
	}
	h.peerConnected(p.Node)
	for _, s := range h.shards {
		s.inbox.post(item{ctl: &peerControl{p}})
	}
}

// Lost says that messages to a node were or may have been lost, so that the leaders here send them again. It is no sign that
// the node is dead.
func (h *Host) Lost(node uint64) {
	for _, s := range h.shards {
		s.inbox.post(item{ctl: &unreachableControl{node}})
	}
}

// Alive reports whether a node has answered within the last election timeout; always true for this one.
func (h *Host) Alive(node uint64) bool {
	if node == h.cfg.NodeID {
		return true
	}
	h.alive.Lock()
	at, ever := h.alive.answered[node]
	h.alive.Unlock()
	return ever && h.cfg.Clock.Mono()-at < time.Duration(h.cfg.ElectionTicks)*h.cfg.Tick
}

func (h *Host) answered(node uint64, sent time.Duration) {
	h.alive.Lock()
	defer h.alive.Unlock()
	h.alive.answered[node] = max(sent, h.alive.answered[node])
}

// leave hands over before the host closes, if nobody did so before.
func (h *Host) leave(ctx context.Context) {
	if h.controls == nil || h.cfg.Manual || h.leaving.Load() || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Duration(h.cfg.ElectionTicks)*h.cfg.Tick)
	defer cancel()
	if left, err := h.HandOver(ctx); err != nil {
		h.cfg.Logger.Warn("some groups keep no leader", "groups", left, "error", err)
	}
}
