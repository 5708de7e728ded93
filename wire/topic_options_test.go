package wire

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResolveTopicOptions(t *testing.T) {
	defaults := DefaultTopicOptions()
	for _, c := range []struct {
		name       string
		sent       Options
		partitions uint32
		explicit   Options // in canonical kinds
		err        error
	}{
		{name: "nothing"},
		{name: "compression", sent: Options{{OptCompression, StringValue("GZip")}}, explicit: Options{{OptCompression, StringValue("gzip")}}},
		{name: "compression code", sent: Options{{OptCompression, Uint8Value(2)}}, explicit: Options{{OptCompression, StringValue("gzip")}}},
		{name: "compression unknown", sent: Options{{OptCompression, StringValue("zstd")}}, err: ErrInvalidOptionValue},
		{name: "compression code unknown", sent: Options{{OptCompression, Uint8Value(3)}}, err: ErrInvalidOptionValue},
		{name: "expiry", sent: Options{{OptMessageExpiry, Uint64Value(60)}}, explicit: Options{{OptMessageExpiry, Uint64Value(60)}}},
		{name: "expiry text", sent: Options{{OptMessageExpiry, StringValue("7 days")}}, explicit: Options{{OptMessageExpiry, Uint64Value(604_800_000_000)}}},
		{name: "expiry never", sent: Options{{OptMessageExpiry, StringValue("never_expire")}}, explicit: Options{{OptMessageExpiry, Uint64Value(Never)}}},
		{name: "expiry as if absent", sent: Options{{OptMessageExpiry, Uint64Value(0)}}},
		{name: "expiry default", sent: Options{{OptMessageExpiry, StringValue("server_default")}}},
		{name: "expiry kind", sent: Options{{OptMessageExpiry, Uint32Value(60)}}, err: ErrInvalidOptionValue},
		{name: "expiry size", sent: Options{{OptMessageExpiry, Value{KindUint64, []byte{1}}}}, err: ErrInvalidOptionValue},
		{name: "expiry too long a text", sent: Options{{OptMessageExpiry, StringValue("4294967296 s")}}, err: ErrInvalidOptionValue},
		{name: "topic size", sent: Options{{OptMaxTopicSize, StringValue("10 GiB")}}, explicit: Options{{OptMaxTopicSize, Uint64Value(10 << 30)}}},
		{name: "topic size below segment", sent: Options{{OptMaxTopicSize, StringValue("1 MiB")}}, err: ErrInvalidTopicSize},
		{
			name: "topic size of a segment", sent: Options{{OptMaxTopicSize, StringValue("1 MiB")}, {OptSegmentSize, StringValue("1 MiB")}},
			explicit: Options{{OptMaxTopicSize, Uint64Value(1 << 20)}, {OptSegmentSize, Uint64Value(1 << 20)}},
		},
		{name: "segment too small", sent: Options{{OptSegmentSize, Uint64Value(1<<20 - 512)}}, err: ErrInvalidOptionValue},
		{name: "segment too large", sent: Options{{OptSegmentSize, Uint64Value(1<<30 + 512)}}, err: ErrInvalidOptionValue},
		{name: "segment not a multiple", sent: Options{{OptSegmentSize, Uint64Value(1<<20 + 1)}}, err: ErrInvalidOptionValue},
		{name: "segment as if absent", sent: Options{{OptSegmentSize, Uint64Value(0)}}},
		{name: "durability", sent: Options{{OptDurability, StringValue("Persisted")}}, explicit: Options{{OptDurability, StringValue("persisted")}}},
		{name: "durability unknown", sent: Options{{OptDurability, StringValue("maybe")}}, err: ErrInvalidOptionValue},
		{name: "offset durability", sent: Options{{OptConsumerOffsetDurability, StringValue("persisted")}}, explicit: Options{{OptConsumerOffsetDurability, StringValue("persisted")}}},
		{name: "messages to save", sent: Options{{OptMessagesRequiredToSave, StringValue("5")}}, explicit: Options{{OptMessagesRequiredToSave, Uint32Value(5)}}},
		{name: "messages to save zero", sent: Options{{OptMessagesRequiredToSave, Uint32Value(0)}}, err: ErrInvalidOptionValue},
		{name: "messages to save too many", sent: Options{{OptMessagesRequiredToSave, Uint32Value(MaxMessagesRequiredToSave + 1)}}, err: ErrInvalidOptionValue},
		{name: "size to save", sent: Options{{OptSizeRequiredToSave, StringValue("2 MB")}}, explicit: Options{{OptSizeRequiredToSave, Uint64Value(2_000_000)}}},
		{name: "size to save too large", sent: Options{{OptSizeRequiredToSave, StringValue("2 GiB")}}, err: ErrInvalidOptionValue},
		{name: "preallocate", sent: Options{{OptPreallocateSegments, StringValue("true")}}, partitions: 64, explicit: Options{{OptPreallocateSegments, BoolValue(true)}}},
		{name: "preallocate too much", sent: Options{{OptPreallocateSegments, BoolValue(true)}}, partitions: 65, err: ErrInvalidOptionValue},
		{name: "preallocate odd", sent: Options{{OptPreallocateSegments, Value{KindBool, []byte{2}}}}, err: ErrInvalidOptionValue},
		{name: "unknown key", sent: Options{{"enforce_fsync", BoolValue(true)}}, err: ErrUnsupportedOptionKey},
		{name: "too many", sent: make(Options, MaxOptions+1), err: ErrOptionsBlockTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			sent := c.sent.Clone()
			r, err := ResolveTopicOptions(c.sent, c.partitions, defaults)
			if !errors.Is(err, c.err) {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			if d := cmp.Diff(c.explicit, r.Explicit); d != "" {
				t.Error(d)
			}
			if d := cmp.Diff(sent, c.sent); d != "" {
				t.Error("the argument was changed\n", d)
			}
			if len(r.Explicit)+len(r.Derived) != 9 || !slices.IsSortedFunc(r.Derived, compareOptions) {
				t.Errorf("derived %v", r.Derived)
			}
			if r.Values != TopicOptionsOf(r.Explicit, r.Derived) {
				t.Error("values differ from what is stored")
			}
			if r.Values.MessageExpiry == 0 || r.Values.MaxTopicSize == 0 {
				t.Error("a sentinel was not resolved")
			}
		})
	}
}

func TestServerDefaults(t *testing.T) {
	d := DefaultTopicOptions()
	d.MessageExpiry, d.MaxTopicSize = 5_000_000, 1 // a server default below the segment size is no error
	r, err := ResolveTopicOptions(Options{{OptMessageExpiry, Uint64Value(0)}}, 1, d)
	if err != nil || r.Values.MessageExpiry != 5_000_000 || len(r.Explicit) != 0 {
		t.Fatal(err, r)
	}
	if v, ok := r.Derived.Get(OptMessageExpiry); !ok || !v.Equal(Uint64Value(5_000_000)) {
		t.Error("the derived option must hold the resolved default", v)
	}
}

func TestUpdateTopicOptions(t *testing.T) {
	defaults := DefaultTopicOptions()
	made, err := ResolveTopicOptions(Options{{OptMessageExpiry, Uint64Value(60)}, {OptSegmentSize, Uint64Value(2 << 20)}}, 1, defaults)
	if err != nil {
		t.Fatal(err)
	}
	made.Explicit = append(made.Explicit, Option{"of a later version", BoolValue(true)})
	before := made.Explicit.Clone()
	r, err := UpdateTopicOptions(made.Explicit, made.Derived, Options{{OptMaxTopicSize, StringValue("4 MiB")}}, defaults)
	if err != nil {
		t.Fatal(err)
	}
	if r.Values.MaxTopicSize != 4<<20 || r.Values.MessageExpiry != 60 || r.Values.SegmentSize != 2<<20 {
		t.Errorf("%+v", r.Values)
	}
	if v, _ := r.Explicit.Get(OptMaxTopicSize); !v.Equal(StringValue("4 MiB")) {
		t.Error("the kind that was sent is kept", v)
	}
	if _, ok := r.Derived.Get(OptMaxTopicSize); ok {
		t.Error("explicit and derived at once")
	}
	if _, ok := r.Explicit.Get("of a later version"); !ok {
		t.Error("an unknown stored key was lost")
	}
	if d := cmp.Diff(before, made.Explicit); d != "" {
		t.Error("the argument was changed\n", d)
	}
	back, err := UpdateTopicOptions(r.Explicit, r.Derived, Options{{OptMessageExpiry, Uint64Value(0)}}, defaults)
	if err != nil || back.Values.MessageExpiry != Never {
		t.Fatal(err, back.Values)
	}
	if _, ok := back.Explicit.Get(OptMessageExpiry); ok {
		t.Error("back to the default is not explicit")
	}
	for _, c := range []struct {
		patch Options
		err   error
	}{
		{Options{{OptSegmentSize, Uint64Value(4 << 20)}}, ErrUnsupportedOptionKey},
		{Options{{"x", BoolValue(true)}}, ErrUnsupportedOptionKey},
		{Options{{OptCompression, StringValue("lz4")}}, ErrInvalidOptionValue},
		{Options{{OptMaxTopicSize, Uint64Value(1 << 20)}}, ErrInvalidTopicSize},
	} {
		if _, err := UpdateTopicOptions(made.Explicit, made.Derived, c.patch, defaults); !errors.Is(err, c.err) {
			t.Errorf("%v: %v, want %v", c.patch, err, c.err)
		}
	}
}

func TestCatalog(t *testing.T) {
	c := TopicCatalog(DefaultTopicOptions())
	want := []string{
		"compression_algorithm", "message_expiry", "max_topic_size", "segment_size", "durability", "consumer_offset_durability",
		"messages_required_to_save", "size_of_messages_required_to_save", "preallocate_segments",
	}
	kinds := []Kind{2, 12, 12, 12, 2, 2, 11, 12, 3}
	for i, e := range c.Entries {
		if e.Key != want[i] || e.Kind != kinds[i] || e.Description == "" || (Value{e.Kind, e.Default}).Check() != nil {
			t.Errorf("%+v", e)
		}
	}
	if len(c.Entries) != len(want) || CheckNoOptions(nil) != nil || !errors.Is(CheckNoOptions(optionsTwo()), ErrUnsupportedOptionKey) {
		t.Error("catalog")
	}
}

func TestOptionsBlockTooLarge(t *testing.T) {
	var o Options
	for i := range MaxOptions + 1 {
		o = append(o, Option{"k" + utoa(uint64(i)), BoolValue(true)})
	}
	var got Options
	if err := got.Decode(o[:MaxOptions].Append(nil)); err != nil || len(got) != MaxOptions {
		t.Error(err)
	}
	if err := got.Decode(o.Append(nil)); StatusOf(err) != ErrOptionsBlockTooLarge {
		t.Error(err)
	}
	o = append(o[:MaxOptions-1:MaxOptions-1], o[40])
	if err := got.Decode(o.Append(nil)); !errors.Is(err, ErrValidation) || StatusOf(err) != ErrInvalidCommand {
		t.Error("duplicate key", err)
	}
	o = nil
	for i := range 400 {
		o = append(o, Option{"k" + utoa(uint64(i)), RawValue(make([]byte, 255))})
	}
	if err := got.Decode(o.Append(nil)); StatusOf(err) != ErrOptionsBlockTooLarge {
		t.Error(err)
	}
}

func TestUnits(t *testing.T) {
	const second = 1_000_000
	for text, want := range map[string]uint64{
		"7 days": 604_800 * second, "1h 30m": 5_400 * second, "1h30m": 5_400 * second, "500ms": 500_000, "10 s": 10 * second,
		"2 weeks": 1_209_600 * second, "1m": 60 * second, "1M": 2_630_016 * second, "1year": 31_557_600 * second, "0": 0, "3us": 3,
		"none": Never, "Unlimited": Never, "never_expire": Never, "default": 0, "server_default": 0, "4294967295s": 4294967295 * second,
	} {
		if got, err := ParseExpiry(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "7", "days", "7 dayz", "-1s", "1.5h", "99999999999999999999s", "9999999999999999999y", "4294967296s"} {
		if got, err := ParseExpiry(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
	for text, want := range map[string]uint64{
		"128 MiB": 128 << 20, "1GB": 1e9, "1 GiB": 1 << 30, "512": 512, "512 B": 512, "1.5 KiB": 1536, "0.5 kb": 500, "10mib": 10 << 20,
		"unlimited": Unlimited, "server_default": 0, "0": 0, "1.000000001 GB": 1e9 + 1,
	} {
		if got, err := ParseLimit(text); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1 XB", "-1", "1.5.5 MB", ".", "1. MB", "99999999999 PiB", "1e9"} {
		if got, err := ParseLimit(text); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}
