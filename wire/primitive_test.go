package wire

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestXXH32(t *testing.T) {
	// Values of messages §4.2.
	for key, want := range map[string]uint32{
		"a": 0x550d7456, "key": 0xb3d93ae0, "order-1": 0xc209e3e8, "user-123": 0x0cc9ec8c, "hello world": 0xcebb6622,
		"\x01\x00\x00\x00": 0xf3bb7693, "\x01\x00\x00\x00\x00\x00\x00\x00": 0x08ed6331,
	} {
		if got := XXH32([]byte(key)); got != want {
			t.Errorf("%q: %#x, want %#x", key, got, want)
		}
		if got := xxh32String(key); got != want {
			t.Errorf("%q as a string: %#x, want %#x", key, got, want)
		}
	}
	for key, want := range map[string][2]uint32{"order-1": {2, 2}, "user-123": {1, 4}} {
		if a, b := KeyPartition([]byte(key), 3), KeyPartition([]byte(key), 6); a != want[0] || b != want[1] {
			t.Errorf("%s: partitions %d of 3, %d of 6", key, a, b)
		}
	}
}

func TestPartitioning(t *testing.T) {
	key, err := MessagesKey([]byte("order-1"))
	if err != nil {
		t.Fatal(err)
	}
	next := func() uint32 { return 7 }
	for _, c := range []struct {
		p     Partitioning
		count uint32
		want  uint32
		ok    bool
	}{
		{PartitionID(9), 3, 9, true},
		{PartitionID(9), 0, 9, true},
		{Balanced(), 3, 1, true},
		{Balanced(), 0, 0, false},
		{key, 3, 2, true},
		{key, 0, 0, false},
		{Partitioning{}, 3, 0, false},
	} {
		if got, ok := c.p.Resolve(c.count, next); got != c.want || ok != c.ok {
			t.Errorf("%+v of %d: %d %v", c.p, c.count, got, ok)
		}
	}
	for _, n := range []int{0, 256} {
		if _, err := MessagesKey(make([]byte, n)); !errors.Is(err, ErrInvalidCommand) {
			t.Errorf("key of %d bytes: %v", n, err)
		}
	}
}

func TestIdentifier(t *testing.T) {
	for text, want := range map[string]Identifier{
		"0": ID(0), "7": ID(7), "007": ID(7), "4294967295": ID(math.MaxUint32), "4294967296": Name("4294967296"),
		"orders": Name("orders"), "-1": Name("-1"), "+1": Name("+1"), "1a": Name("1a"),
	} {
		got, err := ParseIdentifier(text)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", strings.Repeat("x", 256), "\xff"} {
		if _, err := ParseIdentifier(text); !errors.Is(err, ErrInvalidIdentifier) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if ID(3).String() != "3" || Name("3").String() != "3" || ID(3) == Name("3") {
		t.Error("a name that looks like a number is still a name")
	}
	// A name that does not fit is refused by every decoder, never cut.
	long := CreateStream{Name: strings.Repeat("x", 256)}
	if err := Validate(&long); !errors.Is(err, ErrValidation) {
		t.Error(err)
	}
	if err := Validate(&GetStream{Name(strings.Repeat("x", 256))}); !errors.Is(err, ErrValidation) {
		t.Error(err)
	}
}

func TestOffsetKey(t *testing.T) {
	for _, c := range []struct {
		c    Consumer
		want uint32
		ok   bool
	}{
		{SingleConsumer(ID(7)), 7, true},
		{SingleConsumer(Name("key")), 0xb3d93ae0, true},
		{GroupConsumer(ID(7)), 7, true},
		{GroupConsumer(Name("key")), 0, false},
	} {
		if got, ok := c.c.OffsetKey(); got != c.want || ok != c.ok {
			t.Errorf("%+v: %d %v", c.c, got, ok)
		}
	}
}

func TestBorrowedNames(t *testing.T) {
	body := (&PollMessages{SingleConsumer(Name("c")), Name("stream"), Name("topic"), NoPartition(), FromFirst(), 1, false}).Append(nil)
	var p PollMessages
	if err := p.Decode(body); err != nil {
		t.Fatal(err)
	}
	kept := p.Stream.Clone()
	clear(body)
	if kept != Name("stream") || p.Stream == Name("stream") {
		t.Error("Clone must copy, decoding must borrow")
	}
	body = (&CreateStream{Name: "stream", Options: Options{{"a", StringValue("b")}}}).Append(nil)
	var c CreateStream
	if err := c.Decode(body); err != nil {
		t.Fatal(err)
	}
	clear(body)
	if d := cmp.Diff(CreateStream{Name: "stream", Options: Options{{"a", StringValue("b")}}}, c); d != "" {
		t.Error("metadata commands must copy\n", d)
	}
}

func TestU128(t *testing.T) {
	big := U128{Lo: math.MaxUint64, Hi: math.MaxUint64}
	if big.String() != "340282366920938463463374607431768211455" || (U128{Lo: 12}).String() != "12" || !(U128{}).IsZero() {
		t.Error("text")
	}
	if got, ok := ParseU128(big.String()); !ok || got != big {
		t.Error("parse")
	}
	for _, s := range []string{"", "-1", "x", big.String() + "0"} {
		if _, ok := ParseU128(s); ok {
			t.Errorf("%q parsed", s)
		}
	}
	if vectorClient.Hex() != "0f0e0d0c0b0a09080706050403020100" {
		t.Error(vectorClient.Hex())
	}
	if (U128{Lo: 1}).Compare(U128{Hi: 1}) != -1 || big.Compare(big) != 0 || big.Compare(U128{}) != 1 {
		t.Error("order")
	}
	a, b := NewID(), NewID()
	if a == b || a.Hex()[12] != '4' || !strings.ContainsRune("89ab", rune(a.Hex()[16])) {
		t.Errorf("ids %s %s", a.Hex(), b.Hex())
	}
	// The wire order is little-endian: the vector's client id is 00 01 02 ... 0f.
	buf := make([]byte, 16)
	PutU128(buf, vectorClient)
	for i := range buf {
		if int(buf[i]) != i {
			t.Fatalf("bytes %x", buf)
		}
	}
}

func TestVersion(t *testing.T) {
	if CurrentVersion != 11264 || CurrentVersion.String() != "0.11.0" || CurrentVersion.Semver() != 11000 || PackVersion(0, 12, 2) != 12290 {
		t.Error(CurrentVersion, CurrentVersion.Semver(), PackVersion(0, 12, 2))
	}
	// The window of a later server: its own minor only, any patch.
	for client, want := range map[Version]bool{12287: false, 12288: true, 12290: true, 13311: true, 13312: false} {
		if Version(12290).Accepts(client) != want {
			t.Errorf("%v accepted: %v", client, !want)
		}
	}
}

func TestValues(t *testing.T) {
	neg := U128{Lo: math.MaxUint64 - 4, Hi: math.MaxUint64}
	for _, c := range []struct {
		v    Value
		kind Kind
		text string
	}{
		{RawValue([]byte{0xca, 0xfe}), KindRaw, "cafe"},
		{StringValue("żółw"), KindString, "żółw"},
		{BoolValue(true), KindBool, "true"},
		{Int8Value(-5), KindInt8, "-5"},
		{Int16Value(-500), KindInt16, "-500"},
		{Int32Value(math.MinInt32), KindInt32, "-2147483648"},
		{Int64Value(math.MinInt64), KindInt64, "-9223372036854775808"},
		{Int128Value(neg), KindInt128, "-5"},
		{Int128Value(U128{Lo: 5}), KindInt128, "5"},
		{Uint8Value(255), KindUint8, "255"},
		{Uint16Value(65535), KindUint16, "65535"},
		{Uint32Value(math.MaxUint32), KindUint32, "4294967295"},
		{Uint64Value(math.MaxUint64), KindUint64, "18446744073709551615"},
		{Uint128Value(U128{Hi: 1}), KindUint128, "18446744073709551616"},
		{Float32Value(1.5), KindFloat32, "1.5"},
		{Float64Value(-0.25), KindFloat64, "-0.25"},
		{Value{99, []byte{1}}, 99, "01"},
		{Value{KindUint32, []byte{1}}, KindUint32, "01"},
	} {
		if c.v.Kind != c.kind || c.v.String() != c.text {
			t.Errorf("%v %q, want %v %q", c.v.Kind, c.v, c.kind, c.text)
		}
		if k, ok := ParseKind(c.kind.String()); c.kind.Known() && (!ok || k != c.kind) {
			t.Errorf("kind %v does not parse", c.kind)
		}
	}
	if v, err := Int64Value(-7).AsInt64(); v != -7 || err != nil {
		t.Error(v, err)
	}
	if v, err := Float64Value(2.5).AsFloat64(); v != 2.5 || err != nil {
		t.Error(v, err)
	}
	if v, err := Int128Value(neg).AsInt128(); v != neg || err != nil {
		t.Error(v, err)
	}
	if _, err := StringValue("x").AsUint32(); !errors.Is(err, ErrInvalidHeaderKind) {
		t.Error(err)
	}
	if _, err := (Value{KindUint32, []byte{1}}).AsUint32(); !errors.Is(err, ErrInvalidHeaderValue) {
		t.Error(err)
	}
	if _, err := (Value{KindBool, []byte{2}}).AsBool(); !errors.Is(err, ErrInvalidHeaderValue) {
		t.Error(err)
	}
	if _, err := (Value{KindString, []byte{0xff}}).AsString(); !errors.Is(err, ErrInvalidHeaderValue) {
		t.Error(err)
	}
}

func TestHeaderOrder(t *testing.T) {
	// The canonical order is by key kind, then key bytes.
	h := Headers{
		Header("k1", StringValue("v1")), {Uint8Value(1), BoolValue(true)}, Header("b", BoolValue(true)), {RawValue([]byte("z")), BoolValue(false)},
	}
	var got Headers
	if err := got.Decode(h.AppendSorted(nil)); err != nil {
		t.Fatal(err)
	}
	want := Headers{h[3], h[2], h[0], h[1]}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if string(h[0].Key.Data) != "k1" {
		t.Error("AppendSorted changed its receiver")
	}
	if v, ok := h.Get("b"); !ok || v.String() != "true" {
		t.Error("Get")
	}
	// Unknown kinds are carried.
	odd := Headers{{Value{200, []byte("x")}, Value{16, []byte("y")}}}
	if err := got.Decode(odd.Append(nil)); err != nil || !got[0].Key.Equal(odd[0].Key) {
		t.Error(err, got)
	}
}

func TestPermissionsAreSorted(t *testing.T) {
	p := vectorPermissions()
	want := p.Append(nil)
	p.Streams[0], p.Streams[1] = p.Streams[1], p.Streams[0]
	s := p.Stream(1)
	s.Topics[0], s.Topics[1] = s.Topics[1], s.Topics[0]
	if d := cmp.Diff(want, p.Append(nil)); d != "" {
		t.Error(d)
	}
	c := p.Clone()
	c.Streams[1].Topics[0].ReadTopic = !c.Streams[1].Topics[0].ReadTopic
	if cmp.Equal(p, c) || p.Stream(9) != nil || s.Topic(11).TopicID != 11 || s.Topic(99) != nil {
		t.Error("Clone or lookup")
	}
}

func TestExtensionCommands(t *testing.T) {
	for _, req := range []Request{
		&Capabilities{ExtensionVersion, WantRoutingLink | WantFence},
		&Ticket{},
		&TransferLeader{TransferPartition, ID(1), Name("t"), 3, "node-2", true},
		&ClusterStatus{ClusterStatusGroups},
	} {
		got, _ := NewRequest(req.Code())
		// Fields may be appended later: trailing bytes are ignored.
		if err := got.Decode(append(req.Append(nil), 1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(req, got); d != "" {
			t.Error(d)
		}
	}
	for _, reply := range []Reply{
		&CapabilitiesReply{1, CanFence | CanTicket, 64, 64, DefaultMaxFrame, U128{1, 2}, "node-1"},
		&TicketReply{"wt1.abc", 60_000_000},
		&TransferLeaderReply{7, "node-2"},
		&ClusterStatusReply{
			Nodes:  []NodeState{{"node-1", RoleLeader, true, 5}, {"node-2", RoleFollower, false, 1}},
			Groups: []GroupState{{1, 2, 3, 0, NoNode, 9, 100, []FollowerState{{1, 99}}}},
		},
	} {
		got := freshReply(reply)
		if err := got.Decode(append(reply.Append(nil), 1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(reply, got); d != "" {
			t.Error(d)
		}
	}
	// The layout, byte by byte.
	if got, want := (&Capabilities{1, 3}).Append(nil), unhex(t, "01000000 0300000000000000"); !cmp.Equal(got, want) {
		t.Errorf("%x", got)
	}
	transfer := TransferLeader{TransferPartition, ID(1), Name("t"), 3, "n", true}
	if got, want := transfer.Append(nil), unhex(t, "01 010401000000 020174 03000000 010000006e 01"); !cmp.Equal(got, want) {
		t.Errorf("%x", got)
	}
}
