package metadata

import (
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// The operations in this file are complete in the log and in the state; clients are still refused with 5.

func TestUsers(t *testing.T) {
	r, root := newRig(t, Config{})
	bobs := func() *User { return r.m.Catalog().UserByName("bob") }
	manage := &permissions{global: globalManageUsers}
	check(t, root.later(wire.OpCreateUser, &createUser{name: "bo", hash: "x"}), "committed 43")
	res := root.later(wire.OpCreateUser, &createUser{name: "bob", hash: "x", active: true, permissions: manage})
	check(t, res, "")
	var details wire.UserDetails
	if err := details.Decode(res.Payload); err != nil || details.ID != 1 || details.Username != "bob" || details.Status != wire.UserActive ||
		details.Permissions == nil || !details.Permissions.Global.ManageUsers || details.Permissions.Global.ReadUsers {
		t.Errorf("details %+v, %v", details, err)
	}
	check(t, root.later(wire.OpCreateUser, &createUser{name: "bob", hash: "x"}), "committed 46")
	check(t, root.later(wire.OpCreateUser, &createUser{name: "eve", hash: "x"}), "")
	bob := r.login(2, 1)
	check(t, bob.later(wire.OpUpdateUser, &updateUser{user: wire.Name("eve"), hasName: true, name: "bob"}), "committed 46")
	check(t, bob.later(wire.OpUpdateUser, &updateUser{user: wire.Name("none")}), "committed 20")
	check(t, bob.later(wire.OpUpdateUser, &updateUser{user: wire.Name("eve"), hasName: true, name: "ev"}), "committed 43")
	check(t, bob.later(wire.OpUpdatePermissions, &updatePermissions{user: wire.ID(0)}), "committed 49")
	check(t, bob.later(wire.OpDeleteUser, &deleteUser{wire.ID(0)}), "committed 48")
	check(t, bob.later(wire.OpDeleteUser, &deleteUser{wire.ID(9)}), "committed 20")

	was := bobs().Revision
	check(t, bob.later(wire.OpChangePassword, &changePassword{user: wire.ID(1), hash: "y", revision: was}), "committed 42")
	check(t, bob.later(wire.OpChangePassword, &changePassword{user: wire.ID(1), hash: "y", revision: was - 1, verified: true}), "committed 42")
	check(t, bob.later(wire.OpChangePassword, &changePassword{user: wire.ID(1), hash: "y", revision: was, verified: true}), "")
	if bobs().Revision <= was || bobs().PasswordHash != "y" {
		t.Errorf("user %+v", bobs())
	}
	check(t, bob.later(wire.OpUpdatePermissions, &updatePermissions{user: wire.ID(1)}), "")
	check(t, bob.later(wire.OpDeleteUser, &deleteUser{wire.Name("eve")}), "committed 41")
	check(t, bob.later(wire.OpUpdateUser, &updateUser{user: wire.Name("eve")}), "committed 41")
	check(t, bob.later(wire.OpUpdatePermissions, &updatePermissions{user: wire.Name("eve")}), "committed 41")
	check(t, bob.later(wire.OpCreateUser, &createUser{name: "sue"}), "committed 41")
	check(t, bob.later(wire.OpChangePassword, &changePassword{user: wire.Name("eve"), verified: true}), "committed 41")
	check(t, bob.later(wire.OpChangePassword, &changePassword{user: wire.ID(1), hash: "z", revision: bobs().Revision, verified: true}), "")

	// A session of a deleted user lives on without rights, also when a user with more rights gets the same id.
	check(t, root.later(wire.OpDeleteUser, &deleteUser{wire.ID(1)}), "")
	check(t, root.later(wire.OpCreateUser, &createUser{name: "sue", hash: "x", active: true, permissions: &permissions{global: globalFlags}}), "")
	if sue := r.m.Catalog().UserByName("sue"); sue.ID != 1 || r.m.Catalog().UserByName("bob") != nil {
		t.Errorf("sue has id %d", sue.ID)
	}
	check(t, bob.do(&wire.CreateStream{Name: "a"}), "committed 41")
	check(t, bob.later(wire.OpCreatePersonalAccessToken, &createToken{name: "t", hash: "h"}), "committed 41")
	if s, _ := r.m.Session(bob.id); s.User != NoUser {
		t.Errorf("session %+v", s)
	}
}

func TestTokens(t *testing.T) {
	r, root := newRig(t, Config{})
	check(t, root.later(wire.OpCreateUser, &createUser{name: "bob", hash: "x", active: true}), "")
	bob := r.login(2, 1)
	check(t, bob.later(wire.OpCreatePersonalAccessToken, &createToken{name: "b", hash: "h1"}), "")
	check(t, bob.later(wire.OpCreatePersonalAccessToken, &createToken{name: "a", hash: "h2", expiry: 100}), "")
	check(t, bob.later(wire.OpCreatePersonalAccessToken, &createToken{name: "a", hash: "h3"}), "committed 51")
	check(t, bob.later(wire.OpCreatePersonalAccessToken, &createToken{name: "c", hash: "h3", expiry: wire.Never - 1}), "committed 56")
	check(t, root.later(wire.OpCreatePersonalAccessToken, &createToken{name: "a", hash: "h4"}), "")
	tokens := r.m.Catalog().UserByID(1).Tokens()
	if len(tokens) != 2 || tokens[0].Name != "a" || tokens[1].ExpiryAt != 0 {
		t.Errorf("tokens %+v", tokens)
	}
	a := r.m.Catalog().TokenByHash("h2")
	if a == nil || a.User != 1 || a.Expired(a.ExpiryAt-1) || !a.Expired(a.ExpiryAt) || tokens[1].Expired(wire.Never) {
		t.Errorf("token %+v", a)
	}
	check(t, bob.later(wire.OpDeletePersonalAccessToken, &deleteToken{"c"}), "committed 20")
	check(t, bob.later(wire.OpDeletePersonalAccessToken, &deleteToken{"a"}), "")
	if r.m.Catalog().TokenByHash("h2") != nil || r.m.Catalog().TokenByHash("h4") == nil {
		t.Error("the wrong token is gone")
	}
	check(t, root.later(wire.OpDeleteUser, &deleteUser{wire.ID(1)}), "")
	if r.m.Catalog().TokenByHash("h1") != nil {
		t.Error("a token outlived its user")
	}
}

func TestGroupsPurgesAndFrontiers(t *testing.T) {
	r, root := newRig(t, Config{})
	root.must(&wire.CreateStream{Name: "s"})
	root.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t", PartitionsCount: 2})
	at := target(wire.ID(0), wire.Name("t"))
	topic := func() *Topic { _, tp := r.m.Catalog().Topic(at.stream, at.topic); return tp }

	res := root.later(wire.OpCreateConsumerGroup, &createGroup{at, "g"})
	check(t, res, "")
	var details wire.GroupDetails
	if err := details.Decode(res.Payload); err != nil || details.ID != 0 || details.Name != "g" || details.PartitionsCount != 2 || details.MembersCount != 0 {
		t.Errorf("details %+v, %v", details, err)
	}
	check(t, root.later(wire.OpCreateConsumerGroup, &createGroup{at, "g"}), "committed 5004")
	check(t, root.later(wire.OpCreateConsumerGroup, &createGroup{target(wire.ID(0), wire.ID(8)), "g"}), "committed 2010")
	check(t, root.later(wire.OpDeleteConsumerGroup, &deleteGroup{at, wire.ID(1)}), "committed 5000")
	check(t, root.later(wire.OpDeleteConsumerGroup, &deleteGroup{at, wire.Name("g")}), "")
	check(t, root.later(wire.OpCreateConsumerGroup, &createGroup{at, "g"}), "")
	if g := topic().Group(wire.Name("g")); g == nil || g.ID != 1 || topic().Group(wire.ID(1)) != g || r.m.Catalog().GroupCount() != 1 || g.MemberCount() != 0 {
		t.Errorf("group %+v: an id must never come back", g)
	}

	check(t, root.later(wire.OpTruncatePartition, &truncatePartition{at, 2, 5}), "committed 3007")
	check(t, root.later(wire.OpTruncatePartition, &truncatePartition{at, 1, 50}), "")
	check(t, root.later(wire.OpTruncatePartition, &truncatePartition{at, 1, 20}), "")
	if p, _ := r.m.Catalog().Partition(0, 0, 1); p.Frontier != 50 {
		t.Errorf("partition %+v", p)
	}
	check(t, root.later(wire.OpPurgeTopic, &purgeTopic{at}), "")
	if topic().Purged != r.index || topic().Partitions[1].Frontier != 0 || len(topic().Groups()) != 1 {
		t.Errorf("topic %+v", topic())
	}
	check(t, root.later(wire.OpPurgeStream, &purgeStream{streamTarget{wire.Name("s")}}), "")
	if topic().Purged != r.index {
		t.Errorf("topic %+v", topic())
	}
	check(t, root.later(wire.OpPurgeTopic, &purgeTopic{target(wire.ID(0), wire.ID(8))}), "committed 2010")
	check(t, root.later(wire.OpPurgeStream, &purgeStream{streamTarget{wire.Name("x")}}), "committed 1009")
	root.must(&wire.DeleteTopic{Stream: wire.ID(0), Topic: wire.ID(0)})
	if c := r.m.Catalog(); c.GroupCount() != 0 || c.TopicCount() != 0 || c.PartitionCount() != 0 || c.StreamCount() != 1 {
		t.Errorf("counts %d %d %d %d", c.GroupCount(), c.TopicCount(), c.PartitionCount(), c.StreamCount())
	}
}

func TestServerOperations(t *testing.T) {
	r := bareRig(t, Config{})
	if r.m.Catalog().Bootstrapped() {
		t.Fatal("bootstrapped out of nothing")
	}
	boot := Bootstrap{Username: "iggy", PasswordHash: rootHash, TicketKey: [32]byte{7}}
	check(t, r.do(&Command{Operation: OpBootstrap, Body: boot.Append(nil)[:20]}), "status 3")
	check(t, r.do(&Command{Operation: OpBootstrap, Body: boot.Append(nil)}), "")
	c := r.m.Catalog()
	root := c.UserByName("iggy")
	if !c.Bootstrapped() || c.TicketKey()[0] != 7 || root == nil || root.ID != 0 || root.CreatedAt != 1 || !root.Active || root.PasswordHash != rootHash ||
		root.Revision != r.index {
		t.Errorf("root %+v", root)
	}
	check(t, r.do(&Command{Operation: OpBootstrap, Body: (&Bootstrap{Username: "other", PasswordHash: rootHash}).Append(nil)}), "committed 46")
	if r.m.Catalog() != c {
		t.Error("a second bootstrap changed something")
	}
	for _, n := range []NodeStart{{Replica: 2, Counter: 1}, {Replica: 0, Counter: 5}, {Replica: 1, Counter: 1}, {Replica: 1, Counter: 2}} {
		check(t, r.do(&Command{Operation: OpNodeStarted, Body: n.Append(nil)}), "")
	}
	if n := r.m.Catalog().Nodes(); len(n) != 3 || n[0].Counter != 5 || n[1].Counter != 2 || n[2].Replica != 2 {
		t.Errorf("nodes %+v", n)
	}
	check(t, r.do(&Command{Operation: OpNodeStarted, Client: wire.U128{Lo: 1}, Body: (&NodeStart{}).Append(nil)}), "status 3")
	for _, op := range []wire.Operation{64, 65, 66, 67, 68, 69, 127, OpBootstrap, OpNodeStarted, OpSetPreferred} {
		check(t, Result{Err: Validate(op, nil)}, "evicted 4")
	}
	for _, op := range []wire.Operation{0, 2, 160, 161, 163, 200, 255} {
		check(t, Result{Err: Validate(op, nil)}, "status 3")
	}
}

// TestPrechecks: what only the state can tell and still belongs into the status field.
func TestPrechecks(t *testing.T) {
	r, root := newRig(t, Config{TokensMax: 2})
	cmd := &Command{Client: root.id}
	for i, want := range []string{"", "", "status 52"} {
		body := &createToken{name: number(wire.ErrorCode(i)), hash: number(wire.ErrorCode(i))}
		got := Result{Err: r.m.precheck(cmd, body)}
		check(t, got, want)
		if want == "" {
			check(t, root.later(wire.OpCreatePersonalAccessToken, body), "")
		}
	}
	// Decided again at apply, where the topic may be another one than at admission.
	root.must(&wire.CreateStream{Name: "s"})
	root.must(&wire.CreateTopic{Stream: wire.ID(0), Name: "t"})
	patch, err := newPatch(opt("max_topic_size", 1<<29), wire.DefaultTopicOptions())
	if err != nil {
		t.Fatal(err)
	}
	o := &updateTopic{target(wire.ID(0), wire.ID(0)), "t", patch}
	check(t, Result{Err: r.m.precheck(cmd, o)}, "status 1019")
	check(t, root.later(wire.OpUpdateTopic, o), "committed 1019")
	o.topic = wire.ID(4)
	check(t, Result{Err: r.m.precheck(cmd, o)}, "")
}
