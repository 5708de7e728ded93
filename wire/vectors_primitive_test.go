package wire

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/zeebo/xxh3"
)

func TestVectorPrimitives(t *testing.T) {
	type coder struct {
		encode func() []byte
		decode func(*reader) any
		want   any
	}
	name := func(s string) coder {
		return coder{func() []byte { return appendName(nil, s) }, func(r *reader) any { return r.name("name") }, s}
	}
	ident := func(i Identifier) coder {
		return coder{func() []byte { return i.Append(nil) }, func(r *reader) any { return r.ident("id") }, i}
	}
	consumer := func(c Consumer) coder {
		return coder{func() []byte { return c.Append(nil) }, func(r *reader) any { return r.consumer() }, c}
	}
	partitioning := func(p Partitioning) coder {
		return coder{func() []byte { return p.Append(nil) }, func(r *reader) any { return r.partitioning() }, p}
	}
	strategy := func(p PollingStrategy) coder {
		return coder{func() []byte { return p.Append(nil) }, func(r *reader) any { return r.strategy() }, p}
	}
	permissions := func(p *Permissions) coder {
		return coder{func() []byte { return p.Append(nil) }, func(r *reader) any {
			q := new(Permissions)
			q.decode(r)
			return q
		}, p}
	}
	key, err := MessagesKey([]byte("key-1"))
	if err != nil {
		t.Fatal(err)
	}
	node := &Node{"node-0", "127.0.0.1", 8090, 8091, 8092, 8093, RoleLeader, StatusHealthy}
	version := ClientVersion{11264, "rust-sdk", "0.11.0"}
	x255 := string(bytes.Repeat([]byte("x"), 255))
	coders := map[string]coder{
		"name_short":                 name("a"),
		"name_utf8":                  name("żółw"),
		"name_max_255":               name(x255),
		"identifier_numeric_0":       ident(ID(0)),
		"identifier_numeric_max":     ident(ID(1<<32 - 1)),
		"identifier_string":          ident(Name("stream-1")),
		"consumer_numeric":           consumer(SingleConsumer(ID(7))),
		"consumer_group_named":       consumer(GroupConsumer(Name("group-1"))),
		"partitioning_balanced":      partitioning(Balanced()),
		"partitioning_partition_id":  partitioning(PartitionID(3)),
		"partitioning_messages_key":  partitioning(key),
		"polling_strategy_offset":    strategy(FromOffset(42)),
		"polling_strategy_timestamp": strategy(FromTimestamp(t0)),
		"polling_strategy_first":     strategy(FromFirst()),
		"polling_strategy_last":      strategy(FromLast()),
		"polling_strategy_next":      strategy(FromNext()),
		"user_headers_three": {
			func() []byte { return headersThree().Append(nil) },
			func(r *reader) any {
				var h Headers
				r.setErr(h.Decode(r.rest()))
				return h
			}, headersThree(),
		},
		"options_two": {
			func() []byte { return optionsTwo().Append(nil) },
			func(r *reader) any { return r.optionsRest() }, optionsTwo(),
		},
		"permissions_global_only": permissions(&Permissions{Global: vectorGlobal()}),
		"permissions_two_streams": permissions(vectorPermissions()),
		"client_version_info": {
			func() []byte { return version.Append(nil) },
			func(r *reader) any {
				var c ClientVersion
				c.decode(r)
				return c
			}, version,
		},
		"cluster_node": {
			func() []byte { return node.Append(nil) },
			func(r *reader) any {
				n := new(Node)
				n.decode(r)
				return n
			}, node,
		},
	}
	for _, v := range loadVectors(t, "primitives.json") {
		t.Run(v.Name, func(t *testing.T) {
			b := v.bytes(t)
			switch v.Direction {
			case "hash":
				var f struct {
					XXH3  string `json:"xxh3_64_hex"`
					XXH32 uint32 `json:"xxh32_seed0"`
				}
				if err := json.Unmarshal(v.Fields, &f); err != nil {
					t.Fatal(err)
				}
				if got := XXH32(b); got != f.XXH32 {
					t.Errorf("XXH32 %d, want %d", got, f.XXH32)
				}
				if got := (U128{Lo: xxh3.Hash(b)}).Hex()[16:]; got != f.XXH3 {
					t.Errorf("XXH3 %s, want %s", got, f.XXH3)
				}
			case "constant":
				testConstant(t, v, b)
			default:
				c, ok := coders[v.Name]
				if !ok {
					t.Fatal("no expected value")
				}
				if got := c.encode(); !bytes.Equal(got, b) {
					t.Errorf("encoded\n%x\nwant\n%x", got, b)
				}
				r := reader{b: b}
				got := c.decode(&r)
				if r.err() != nil || r.left() != 0 {
					t.Fatalf("error %v, %d bytes left", r.err(), r.left())
				}
				if d := cmp.Diff(c.want, got); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func testConstant(t *testing.T, v vector, b []byte) {
	var f struct {
		Current, Min Version
		Compatible   []struct {
			Packed   Version
			Accepted bool
		}
		Stream, Topic, Partition uint32
		Group                    number
	}
	if err := json.Unmarshal(v.Fields, &f); err != nil {
		t.Fatal(err)
	}
	switch v.Name {
	case "protocol_version":
		if CurrentVersion != f.Current || MinVersion != f.Min {
			t.Errorf("versions %d %d", CurrentVersion, MinVersion)
		}
		for _, c := range f.Compatible {
			if CurrentVersion.Accepts(c.Packed) != c.Accepted {
				t.Errorf("%d accepted: %v", c.Packed, !c.Accepted)
			}
		}
	case "group_id_metadata":
		if MetadataGroup != uint64(f.Group) || le.Uint64(b) != MetadataGroup {
			t.Errorf("metadata group %d", MetadataGroup)
		}
	default:
		g := PackPartition(f.Stream, f.Topic, f.Partition)
		if g != uint64(f.Group) || le.Uint64(b) != g {
			t.Errorf("packed %d, want %d", g, f.Group)
		}
		if s, tp, p := UnpackPartition(g); s != f.Stream || tp != f.Topic || p != f.Partition {
			t.Errorf("unpacked %d %d %d", s, tp, p)
		}
	}
}
