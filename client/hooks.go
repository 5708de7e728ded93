package client

import "time"

// Hook is implemented by observers of the client. A value is asked for each of
// the small interfaces below and called for those it has. Calls come from the
// client's goroutines, sometimes with locks held: a hook must return quickly and
// must not call the client.
//
// The comments name the metric that each hook feeds.
type Hook any

// HookLinkDial: links_open, link_dials_total, registrations_total{role}.
type HookLinkDial interface {
	// OnLinkDial is called after a connection was made and signed in, or was not.
	// role is "coordinator", or that of a data link: "write", "read" or "recovery".
	OnLinkDial(address, role string, took time.Duration, err error)
}

// HookLinkClose: link_failures_total{reason}.
type HookLinkClose interface {
	// OnLinkClose is called when a connection ended; err says why.
	OnLinkClose(address, role string, err error)
}

// HookSessionMove: session_moves_total{cause}.
type HookSessionMove interface {
	// OnSessionMove is called when the session was signed in again on another
	// connection. cause is "coordinator_lost" or "leader_change"; "partition" would
	// be a bug.
	OnSessionMove(cause string)
}

// HookRefusal: route_refusals_total{code}.
type HookRefusal interface {
	// OnRefusal is called for every refused partition write.
	OnRefusal(address string, code uint32)
}

// HookSend: sends_total{outcome}, send_seconds{path}.
type HookSend interface {
	// OnSend is called when a send has its outcome: "ok", "duplicate",
	// "not_admitted", "unknown" or "error". path is "warm", "cold" (it waited for a
	// route or a link), "rerouted" or "recovered".
	OnSend(outcome, path string, messages, bytes int, took time.Duration)
}

// HookLane: lanes_ambiguous. The depth of lanes is in [Client.RouterStats].
type HookLane interface {
	// OnLaneAmbiguous is called when a lane starts (+1) and stops (-1) holding
	// writes of unknown outcome.
	OnLaneAmbiguous(delta int)
}

// HookLaneBlocked: lane_blocked_seconds.
type HookLaneBlocked interface {
	// OnLaneBlocked is called when a lane holds no writes of unknown outcome any
	// more: for so long it did.
	OnLaneBlocked(took time.Duration)
}

// HookBackpressure: link_backpressure_seconds, hol_wait_seconds{cause}.
type HookBackpressure interface {
	// OnBackpressure is called when somebody had to wait: cause is "link", "pool"
	// or "producer".
	OnBackpressure(cause string, took time.Duration)
}

// HookRouteLookup: route_lookups_total{source,result}.
type HookRouteLookup interface {
	// OnRouteLookup is called after somebody was asked for a partition's primary:
	// source is "coordinator" or "peer", result "ok", "not_now", "not_found",
	// "unauthorized", "lost" or "error".
	OnRouteLookup(source, result string, took time.Duration)
}

// HookRouteConfirm: route_confirm_seconds.
type HookRouteConfirm interface {
	// OnRouteConfirm is called when a node admitted a request for a partition whose
	// primary was not known for sure: so long ago it was known last.
	OnRouteConfirm(took time.Duration)
}

// HookAttach: attach_total{result}, attach_seconds.
type HookAttach interface {
	// OnAttach is called after a data link was attached to the session, or was not;
	// results are those of OnRouteLookup.
	OnAttach(address, result string, took time.Duration)
}

// HookLateReply counts replies that came after their request was given up.
type HookLateReply interface {
	OnLateReply(address string)
}

// HookPoll counts what was polled.
type HookPoll interface {
	OnPoll(messages, bytes int, took time.Duration, err error)
}

// hooks is the sorted list of observers. The zero value observes nothing.
type hooks struct {
	dial         []HookLinkDial
	linkClose    []HookLinkClose
	move         []HookSessionMove
	refusal      []HookRefusal
	send         []HookSend
	lane         []HookLane
	backpressure []HookBackpressure
	late         []HookLateReply
	poll         []HookPoll
	lookup       []HookRouteLookup
	confirm      []HookRouteConfirm
	attach       []HookAttach
	blocked      []HookLaneBlocked
}

func sortHooks(list []Hook) *hooks {
	h := new(hooks)
	for _, v := range list {
		keep(&h.dial, v)
		keep(&h.linkClose, v)
		keep(&h.move, v)
		keep(&h.refusal, v)
		keep(&h.send, v)
		keep(&h.lane, v)
		keep(&h.backpressure, v)
		keep(&h.late, v)
		keep(&h.poll, v)
		keep(&h.lookup, v)
		keep(&h.confirm, v)
		keep(&h.attach, v)
		keep(&h.blocked, v)
	}
	return h
}

func keep[T any](list *[]T, v Hook) {
	if t, ok := v.(T); ok {
		*list = append(*list, t)
	}
}

func (h *hooks) onDial(address, role string, took time.Duration, err error) {
	for _, v := range h.dial {
		v.OnLinkDial(address, role, took, err)
	}
}

func (h *hooks) onClose(address, role string, err error) {
	for _, v := range h.linkClose {
		v.OnLinkClose(address, role, err)
	}
}

func (h *hooks) onMove(cause string) {
	for _, v := range h.move {
		v.OnSessionMove(cause)
	}
}

func (h *hooks) onRefusal(address string, code uint32) {
	for _, v := range h.refusal {
		v.OnRefusal(address, code)
	}
}

func (h *hooks) onSend(outcome, path string, messages, bytes int, took time.Duration) {
	for _, v := range h.send {
		v.OnSend(outcome, path, messages, bytes, took)
	}
}

func (h *hooks) onAmbiguous(delta int) {
	for _, v := range h.lane {
		v.OnLaneAmbiguous(delta)
	}
}

func (h *hooks) onBackpressure(cause string, took time.Duration) {
	for _, v := range h.backpressure {
		v.OnBackpressure(cause, took)
	}
}

func (h *hooks) onLate(address string) {
	for _, v := range h.late {
		v.OnLateReply(address)
	}
}

func (h *hooks) onPoll(messages, bytes int, took time.Duration, err error) {
	for _, v := range h.poll {
		v.OnPoll(messages, bytes, took, err)
	}
}

func (h *hooks) onLookup(source, result string, took time.Duration) {
	for _, v := range h.lookup {
		v.OnRouteLookup(source, result, took)
	}
}

func (h *hooks) onRouteConfirm(took time.Duration) {
	for _, v := range h.confirm {
		v.OnRouteConfirm(took)
	}
}

func (h *hooks) onAttach(address, result string, took time.Duration) {
	for _, v := range h.attach {
		v.OnAttach(address, result, took)
	}
}

func (h *hooks) onBlocked(took time.Duration) {
	for _, v := range h.blocked {
		v.OnLaneBlocked(took)
	}
}
