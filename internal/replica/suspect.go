package replica

import (
	"fmt"
	"io"
	"math"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// A replica is suspect when it may have lost what it told others (engine §7): its machine lost power, its log was found
// damaged, its directory was emptied or replaced by an old copy. It neither votes nor campaigns until it has matched the
// log of a leader up to the leader's last index at their first contact: everything that it ever helped to commit is in
// there. What it acknowledges meanwhile it really has, so it counts. When its votes may be lost too, it does not even
// answer a leader before a number of other voters have confirmed that they know of no newer term.
//
// The leader is told at first contact. It then forgets what it knew of the replica, since raft's progress never goes back,
// and says where its log ends.
//
// When there are not enough sound voters for a quorum the suspects ask each other: only when all voters answer, and none
// knows a leader, the one with the longest log is elected. What was not on any disk is lost then, which is what the
// durability `replicated` allows.
//
// All of this travels as messages of raft's type MsgAppResp with a context of its own, which raft never sees.

// Side messages.
type sideKind uint8

const (
	sideSuspect   sideKind = iota + 1 // to the leader of a term: I am suspect
	sideGoal                          // its answer: be sound when you have matched up to index
	sideConfirm                       // a leader to the voters: do you know a newer term?
	sideConfirmed                     // no
	sideInquire                       // a suspect to all voters: what do you have?
	sideCensus                        // the answer
	sideCopying                       // to the leader: the copy goes on
	sideCopyEnded                     // it has failed
)

const (
	sideMagic  = "WPS1"
	sideLength = 16

	sideHasLeader = 1 << 7 // flag of a census
)

type side struct {
	kind  sideKind
	flags uint8
	nonce uint64
}

func sideOf(m *raftpb.Message) (side, bool) {
	c := m.GetContext()
	if m.GetType() != raftpb.MsgAppResp || len(c) != sideLength || string(c[:4]) != sideMagic {
		return side{}, false
	}
	return side{sideKind(c[4]), c[5], le.Uint64(c[8:])}, true
}

// sideSend queues a side message.
func (g *Group) sideSend(to uint64, s side, term, index, logTerm uint64) {
	c := append(make([]byte, 0, sideLength), sideMagic...)
	c = append(c, byte(s.kind), s.flags, 0, 0)
	c = le.AppendUint64(c, s.nonce)
	from := g.host.cfg.NodeID
	term = max(term, 1) // 0 would be dropped on the way
	g.shard.post(g, &raftpb.Message{
		Type: raftpb.MsgAppResp.Enum(), To: &to, From: &from, Term: &term, Index: &index, LogTerm: &logTerm, Context: c,
	})
}

// nobody is a node id that no node has. Nothing is ever sent to it.
const nobody = math.MaxUint64 - 16

// contact is what a suspect replica knows of the others.
type contact struct {
	nonce        uint64 // of this contact
	leader, term uint64
	asked        int    // ticks since the leader was asked
	known        bool   // the leader has said its goal
	goal         uint64 // index up to which the log has to match
	acked        uint64 // highest index up to which the log was said to match in this contact
	matched      bool
	clearing     bool // the end of the suspicion is being made durable
	silent       int  // ticks without a word of a leader

	round  int // ticks since the last census began
	heard  map[uint64]census
	winner uint64 // who may be voted for, 0 = nobody
	window int    // ticks that this holds
}

// census is what a voter says of its log.
type census struct {
	term, index uint64 // of its last entry
	suspicion   suspicion
	hasLeader   bool
}

// doubts is what a leader knows of suspect replicas.
type doubts struct {
	told    map[uint64]uint64 // nonce of the contact for which the progress was forgotten, by node
	confirm map[uint64]*confirmation
	unsound map[uint64]struct{} // nodes whose replica had no vote when it was last heard of that
}

// confirmation collects the word of other voters for the goal of one replica whose votes are lost.
type confirmation struct {
	nonce, goal uint64
	have        map[uint64]bool
}

// doubt makes the replica suspect, durably in the background: if the process ends before that, it finds the same reason
// again.
func (g *Group) doubt(more suspicion, why string) {
	if g.solo.Load() || g.suspicion&more == more {
		return
	}
	g.shard.log.Warn("a replica is suspect", "group", g.cfg.ID, "reason", why)
	g.suspicion |= more
	g.newContact(0, 0)
	g.host.suspects.add(g.cfg.ID, g.suspicion)
	g.host.suspects.notes.put(suspectNote{})
	if g.rn != nil && g.state == raft.StateLeader {
		g.stepDown()
	}
}

// stepDown ends the leadership by a newer term.
func (g *Group) stepDown() {
	for _, v := range g.conf.Voters {
		if v != g.host.cfg.NodeID {
			term := g.term.Load() + 1
			_ = g.rn.Step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum(), From: &v, To: &g.host.cfg.NodeID, Term: &term})
			g.shard.touch(g)
			return
		}
	}
}

// weigh decides what of a suspicion matters to the group, when it joins its shard: what came up while its files were being
// opened is in the table by now, and of what comes up later outdatedControl tells it.
func (g *Group) weigh() {
	g.suspicion |= g.host.suspects.of(g.cfg.ID)
	g.newContact(0, 0)
	switch {
	case g.suspicion == 0:
		return
	case g.solo.Load():
		// Nobody has more than it has.
	case g.suspicion == tailLost && g.cfg.Persisted:
		// Everything that it acknowledged was flushed.
	default:
		return
	}
	known := g.suspicion
	g.suspicion = 0
	g.host.suspects.notes.put(suspectNote{g, known})
}

func (g *Group) newContact(leader, term uint64) {
	g.contacts++
	g.contact = contact{nonce: g.host.identity.Run + g.contacts, leader: leader, term: term, clearing: g.contact.clearing}
}

// suspectStep reports whether raft may see a message while the replica is suspect.
func (g *Group) suspectStep(m *raftpb.Message) bool {
	c := &g.contact
	switch m.GetType() {
	case raftpb.MsgTimeoutNow:
		return false
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return c.winner != 0 && c.winner == m.GetFrom()
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return c.winner == g.host.cfg.NodeID
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		if m.GetTerm() < g.term.Load() {
			return g.suspicion&votesLost == 0
		}
		if c.leader != m.GetFrom() || c.term != m.GetTerm() {
			g.newContact(m.GetFrom(), m.GetTerm())
			g.askGoal()
		}
		c.silent, c.winner, c.heard = 0, 0, nil
		return c.known || g.suspicion&votesLost == 0 || g.chose(c.leader, c.term)
	}
	return true
}

// chose reports whether this replica, as a suspect, has helped to elect the leader of a term. All voters were asked then, so
// that nobody else can lead.
func (g *Group) chose(leader, term uint64) bool { return g.granted == vote{term, leader} }

func (g *Group) askGoal() {
	c := &g.contact
	c.asked = 0
	flags := g.suspicion
	if g.chose(c.leader, c.term) {
		flags &^= votesLost
	}
	g.sideSend(c.leader, side{sideSuspect, uint8(flags), c.nonce}, c.term, g.log.LastIndex(), 0)
}

// suspectSends reports whether a message of a suspect replica may leave it. An acknowledgement up to the goal ends the
// suspicion.
func (g *Group) suspectSends(m *raftpb.Message) bool {
	c := &g.contact
	switch m.GetType() {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		return c.winner == g.host.cfg.NodeID
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		if m.GetReject() {
			return true
		}
		if c.winner == 0 || c.winner != m.GetTo() {
			return false
		}
		if m.GetType() == raftpb.MsgVoteResp {
			g.granted = vote{m.GetTerm(), c.winner}
		}
	case raftpb.MsgAppResp:
		if _, ok := sideOf(m); !ok && !m.GetReject() && m.GetTo() == c.leader && m.GetTerm() == c.term {
			c.acked = max(c.acked, m.GetIndex())
			if c.known && c.acked >= c.goal {
				g.matchedGoal()
			}
		}
	}
	return true
}

// matchedGoal notes that the log has everything. A replica that may have forgotten a vote waits until no election can be
// under way any more in which that vote counts.
func (g *Group) matchedGoal() {
	if !g.contact.matched {
		g.contact.matched = true
		if g.suspicion&votesLost != 0 && g.embargo == 0 {
			g.embargo = 2 * g.host.cfg.ElectionTicks
		}
	}
	g.trySound()
}

func (g *Group) trySound() {
	c := &g.contact
	switch {
	case g.suspicion == 0 || c.clearing:
		return
	case g.state == raft.StateLeader:
		// All voters were asked, and this log is the longest: it is what counts from now on.
		c.goal = g.lastIndex()
	case !c.matched || g.embargo > 0:
		return
	}
	if stored := g.host.votes.log.get(g.cfg.ID); stored.term < g.vote.term {
		g.storeVote()
		return
	}
	c.clearing = true
	if g.cfg.ID == MetadataGroup {
		g.host.suspects.limit(c.goal)
	}
	g.host.suspects.notes.put(suspectNote{g, g.suspicion})
}

// storeVote has the group's term and vote stored, when it began with some that were not.
func (g *Group) storeVote() {
	if g.jobs.len() == 0 {
		g.jobs.push(g.shard.newJob(job{g: g, m: &raftpb.Message{}, vote: g.vote, needVote: true}))
		g.pump()
	}
}

// lostVotes makes the replica suspect when its log is of a term that its votes do not know. Durable when it returns nil.
func (g *Group) lostVotes(term uint64) error {
	g.host.cfg.Logger.Error("the votes of a group are lost: it has none until it has matched the others", "group", g.cfg.ID,
		"term of the log", term, "term of the votes", g.vote.term)
	g.suspicion |= tailLost | votesLost | logLost
	g.host.suspects.add(g.cfg.ID, g.suspicion)
	return g.host.suspects.save()
}

// soundControl brings the end of a suspicion back when it is durable.
type soundControl struct {
	g   *Group
	err error
}

func (c *soundControl) run(s *shard) {
	g := c.g
	g.contact.clearing = false
	switch {
	case c.err != nil:
		s.log.Warn("the end of a suspicion cannot be stored", "group", g.cfg.ID, "error", c.err)
	case g.suspicion == 0:
	case g.contact.matched || g.state == raft.StateLeader:
		g.suspicion, g.embargo = 0, 0
		g.contact = contact{}
		s.log.Info("a replica is not suspect any more", "group", g.cfg.ID)
		g.tell()
	default:
		// Something new came up meanwhile.
		g.host.suspects.add(g.cfg.ID, g.suspicion)
		g.host.suspects.notes.put(suspectNote{})
	}
}

// suspectTick is the tick of a suspect replica: it does not campaign, unless the census has chosen it.
func (g *Group) suspectTick() {
	c, ticks := &g.contact, g.host.cfg.ElectionTicks
	if g.state == raft.StateLeader {
		g.rn.Tick()
		g.trySound()
		return
	}
	c.silent++
	c.asked++
	c.round++
	if c.matched && g.embargo > 0 {
		g.embargo--
	}
	g.trySound()
	if c.window > 0 {
		if c.window--; c.window == 0 {
			c.winner = 0
		}
	}
	if c.leader != 0 && c.silent >= ticks {
		c.leader, c.term, c.known, c.matched, c.acked = 0, 0, false, false, 0
		_ = g.rn.ForgetLeader()
	}
	if c.leader != 0 {
		if !c.known && c.asked >= 2 {
			g.askGoal()
		}
		return
	}
	if c.silent >= ticks && c.round >= max(2, ticks/2) {
		g.takeCensus()
	}
}

// takeCensus asks all voters for what they have.
func (g *Group) takeCensus() {
	c := &g.contact
	if g.state == raft.StateFollower && g.leader.Load() != 0 {
		_ = g.rn.ForgetLeader() // else the votes that follow are refused for its sake
	}
	g.contacts++
	c.nonce = g.host.identity.Run + g.contacts
	c.round, c.heard = 0, map[uint64]census{}
	for _, v := range g.conf.Voters {
		if v != g.host.cfg.NodeID {
			g.sideSend(v, side{sideInquire, uint8(g.suspicion), c.nonce}, g.term.Load(), 0, 0)
		}
	}
}

// answerCensus is a voter's answer.
func (g *Group) answerCensus(to uint64, nonce uint64) {
	own, err := g.ownCensus()
	if err != nil {
		return
	}
	flags := uint8(own.suspicion)
	if own.hasLeader {
		flags |= sideHasLeader
	}
	g.sideSend(to, side{sideCensus, flags, nonce}, g.term.Load(), own.index, own.term)
}

func (g *Group) ownCensus() (census, error) {
	index := g.log.LastIndex()
	term, err := g.store.Term(index)
	has := g.leader.Load() != 0
	if g.suspicion != 0 && g.state != raft.StateLeader {
		has = g.contact.leader != 0
	}
	return census{term: term, index: index, suspicion: g.suspicion, hasLeader: has}, err
}

// counted decides when all voters have answered: without a leader and without enough sound voters the longest log wins.
func (g *Group) counted() {
	c := &g.contact
	own, err := g.ownCensus()
	if err != nil || own.hasLeader {
		return
	}
	sound, winner := 0, g.host.cfg.NodeID
	best := own
	for _, v := range g.conf.Voters {
		if v == g.host.cfg.NodeID {
			continue
		}
		x, there := c.heard[v]
		if !there || x.hasLeader {
			return
		}
		if x.suspicion == 0 {
			sound++
		}
		if x.term > best.term || x.term == best.term && (x.index > best.index || x.index == best.index && v < winner) {
			best, winner = x, v
		}
	}
	if sound > len(g.conf.Voters)/2 {
		return // they need no help
	}
	c.winner, c.window = winner, 3*g.host.cfg.ElectionTicks
	if winner == g.host.cfg.NodeID && g.state != raft.StateCandidate && g.jobs.len() == 0 && g.mayCampaign() {
		_ = g.rn.Campaign()
	}
}

// stepSide takes a side message.
func (g *Group) stepSide(s side, m *raftpb.Message) {
	from, leads := m.GetFrom(), g.state == raft.StateLeader && g.leadTerm != 0
	if !slices.Contains(g.conf.Voters, from) && !slices.Contains(g.conf.Learners, from) {
		return
	}
	switch s.kind {
	case sideSuspect:
		if leads && m.GetTerm() == g.leadTerm {
			g.meetSuspect(from, s)
		}
	case sideConfirm:
		if g.suspicion&votesLost == 0 && max(g.term.Load(), g.vote.term) <= m.GetTerm() {
			g.sideSend(from, side{sideConfirmed, 0, s.nonce}, m.GetTerm(), 0, 0)
		}
	case sideConfirmed:
		if leads && m.GetTerm() == g.leadTerm {
			g.confirmed(from, s)
		}
	case sideGoal:
		c := &g.contact
		if g.suspicion != 0 && from == c.leader && m.GetTerm() == c.term && s.nonce == c.nonce && !c.known {
			c.known, c.goal = true, m.GetIndex()
			// The goal was lost on its way at first, and the log matched meanwhile: an idle group has nothing more to
			// acknowledge.
			if c.acked >= c.goal {
				g.matchedGoal()
			}
		}
	case sideInquire:
		g.answerCensus(from, s.nonce)
	case sideCensus:
		if leads {
			g.vouched(from, s)
			return
		}
		c := &g.contact
		if g.suspicion == 0 || c.heard == nil || s.nonce != c.nonce {
			return
		}
		c.heard[from] = census{
			term: m.GetLogTerm(), index: m.GetIndex(), suspicion: suspicion(s.flags &^ sideHasLeader), hasLeader: s.flags&sideHasLeader != 0,
		}
		if len(c.heard) == len(g.conf.Voters)-1 {
			g.counted()
		}
	case sideCopying, sideCopyEnded:
		if leads {
			g.copyNews(from, s)
		}
	}
}

// meetSuspect is a leader's first contact with a suspect replica.
func (g *Group) meetSuspect(from uint64, s side) {
	if g.doubts.told == nil {
		g.doubts.told = map[uint64]uint64{}
	}
	if g.doubts.told[from] != s.nonce {
		g.doubts.told[from] = s.nonce
		g.forgetProgress(from)
	}
	if g.doubts.unsound == nil {
		g.doubts.unsound = map[uint64]struct{}{}
	}
	g.doubts.unsound[from] = struct{}{}
	if suspicion(s.flags)&votesLost == 0 {
		g.sideSend(from, side{sideGoal, 0, s.nonce}, g.leadTerm, g.lastIndex(), 0)
		return
	}
	// That this node still leads must be certain without the word of that replica, which may have helped to elect
	// another leader: so many of the others must know no newer term that every majority has one of them.
	c := g.doubts.confirm[from]
	if c == nil || c.nonce != s.nonce {
		c = &confirmation{nonce: s.nonce, goal: g.lastIndex(), have: map[uint64]bool{g.host.cfg.NodeID: true}}
		if g.doubts.confirm == nil {
			g.doubts.confirm = map[uint64]*confirmation{}
		}
		g.doubts.confirm[from] = c
	}
	for _, v := range g.conf.Voters {
		if v != from && !c.have[v] {
			g.sideSend(v, side{sideConfirm, 0, s.nonce}, g.leadTerm, 0, 0)
		}
	}
	g.tellGoal(from, c)
}

// doubted reports whether a leader knows of a replica that it is suspect: it would not take leadership over, while requests
// wait for it. A replica becomes sound on its own, without a word to the leader; who wants to choose it asks it first.
func (g *Group) doubted(node uint64) bool {
	_, there := g.doubts.unsound[node]
	return there
}

// ask has a replica that is doubted say whether it still is suspect.
func (g *Group) ask(node uint64) {
	if g.doubted(node) {
		g.sideSend(node, side{sideInquire, uint8(g.suspicion), g.doubts.told[node]}, g.leadTerm, 0, 0)
	}
}

// vouched takes the answer. One that was given before the replica's newest contact says nothing of what it is now.
func (g *Group) vouched(by uint64, s side) {
	if s.nonce == g.doubts.told[by] && suspicion(s.flags&^sideHasLeader) == 0 {
		delete(g.doubts.unsound, by)
		g.shard.touch(g) // a transfer may wait for it
	}
}

func (g *Group) confirmed(by uint64, s side) {
	for node, c := range g.doubts.confirm {
		if c.nonce == s.nonce && node != by {
			c.have[by] = true
			g.tellGoal(node, c)
		}
	}
}

func (g *Group) tellGoal(to uint64, c *confirmation) {
	n := len(g.conf.Voters)
	if quorum := n/2 + 1; len(c.have) >= n-quorum+1 {
		g.sideSend(to, side{sideGoal, 0, c.nonce}, g.leadTerm, c.goal, 0)
	}
}

// forgetProgress makes raft forget what it knew of a replica: its progress only goes up within a term. Raft has no call
// for it, but makes a new progress for a member that is added. So the replica is taken out and put in again, locally and
// between two messages, in steps that never let fewer voters commit than before: while it is out, a node that does not
// exist stands in for it.
func (g *Group) forgetProgress(node uint64) {
	if len(g.conf.VotersOutgoing) > 0 || g.rn == nil || node == g.host.cfg.NodeID {
		return
	}
	change := func(transition raftpb.ConfChangeTransition, changes ...*raftpb.ConfChangeSingle) {
		g.rn.ApplyConfChange(&raftpb.ConfChangeV2{Transition: transition.Enum(), Changes: changes})
	}
	one := func(kind raftpb.ConfChangeType, id uint64) *raftpb.ConfChangeSingle {
		return &raftpb.ConfChangeSingle{Type: kind.Enum(), NodeId: &id}
	}
	leave := func() { g.rn.ApplyConfChange(&raftpb.ConfChangeV2{}) }
	if slices.Contains(g.conf.Learners, node) {
		change(raftpb.ConfChangeTransitionAuto, one(raftpb.ConfChangeRemoveNode, node))
		change(raftpb.ConfChangeTransitionAuto, one(raftpb.ConfChangeAddLearnerNode, node))
		return
	}
	if !slices.Contains(g.conf.Voters, node) {
		return
	}
	explicit := raftpb.ConfChangeTransitionJointExplicit
	change(explicit, one(raftpb.ConfChangeRemoveNode, node), one(raftpb.ConfChangeAddNode, nobody))
	leave()
	change(explicit, one(raftpb.ConfChangeRemoveNode, nobody), one(raftpb.ConfChangeAddNode, node))
	leave()
	g.shard.log.Info("a suspect replica is asked anew for what it has", "group", g.cfg.ID, "node", node)
}

// Suspect reports whether this node may have lost something of what it told others, and knows it: what it says in its
// hello.
func (h *Host) Suspect() bool { return h.suspects.any() }

// Suspect reports whether the replica is suspect: it follows, but has no vote yet.
func (g *Group) Suspect() bool { return g.host.suspects.of(g.cfg.ID) != 0 }

// Outdated is called when another node refused this one's hello, with the given directory id, with ErrOutdated: this
// directory was emptied or is an old copy. From now on all replicas of the node are suspect and have lost their votes, and
// the node presents itself under a new directory id (Self), which the others accept. Durable when it returns nil.
func (h *Host) Outdated(directory [16]byte) error {
	h.identityMu.Lock()
	defer h.identityMu.Unlock()
	if directory != h.identity.Directory {
		return nil // said of what this node is not any more
	}
	h.cfg.Logger.Error("this node's data directory is not the newest that the other nodes have seen of it: it is filled again from them",
		"directory", h.cfg.Dir)
	h.suspects.addAll(tailLost | votesLost | logLost)
	if err := h.suspects.save(); err != nil {
		return err
	}
	meta := h.meta
	if _, err := io.ReadFull(h.cfg.Rand, meta.directory[:]); err != nil {
		return fmt.Errorf("replica: mint a directory id: %w", err)
	}
	meta.starts = 1
	if err := meta.save(&h.cfg); err != nil {
		return err
	}
	h.meta = meta
	h.identity.Directory, h.identity.Starts = meta.directory, meta.starts
	for _, s := range h.shards {
		s.inbox.post(item{ctl: &outdatedControl{}})
	}
	return nil
}

// outdatedControl makes all groups of a shard suspect.
type outdatedControl struct{}

func (c *outdatedControl) run(s *shard) {
	for _, g := range s.groups {
		if g.fenced.Load() == nil {
			g.guard((*Group).outdated)
		}
	}
}

func (g *Group) outdated() {
	g.doubt(tailLost|votesLost|logLost, "the other nodes have seen a newer directory of this node")
}

// peerConnected lets leaders here look again at what a node needs, when a link from it has come up.
func (h *Host) peerConnected(node uint64) {
	for _, s := range h.shards {
		s.inbox.post(item{ctl: &connectedControl{node}})
	}
}

type connectedControl struct{ node uint64 }

func (c *connectedControl) run(s *shard) {
	for _, g := range s.groups {
		if _, there := g.filling[c.node]; there && !g.gone() {
			// The copy that it may have been making went with its process; when it did not, it goes on.
			g.guard(func(g *Group) { g.copyFailed(c.node) })
		}
	}
}
