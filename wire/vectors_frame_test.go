package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
)

// number is a JSON number or a string with a decimal or 0x number.
type number uint64

func (n *number) UnmarshalJSON(b []byte) error {
	s := strings.Trim(string(b), `"`)
	if s == "null" {
		*n = 0
		return nil
	}
	if rest, ok := strings.CutPrefix(s, "0x"); ok && len(rest) > 16 {
		s = "0x" + rest[len(rest)-16:] // the low half is enough to tell
	}
	v, err := strconv.ParseUint(s, 0, 64)
	*n = number(v)
	return err
}

type frameFields struct {
	Command, Operation, Size, Client, Request, Session number
	RequestChecksum                                    number `json:"request_checksum"`
	NonReplicatedCode                                  number `json:"nonreplicated_code"`
	BodyLen                                            number `json:"body_len"`
	Cluster, View, Replica, Op, Commit, Timestamp      number
	Status, Reason                                     number
	ErrorCode                                          number `json:"sdk_error_code"`
	Max                                                number `json:"server_protocol_version"`
	Min                                                number `json:"server_protocol_version_min"`
}

func TestVectorFrames(t *testing.T) {
	for _, v := range loadVectors(t, "frames.json") {
		t.Run(v.Name, func(t *testing.T) {
			b := v.bytes(t)
			var f frameFields
			if err := json.Unmarshal(v.Fields, &f); err != nil {
				t.Fatal(err)
			}
			if KindOf(b) != FrameKind(f.Command) {
				t.Fatalf("kind %v", KindOf(b))
			}
			if size, err := FrameSize(b); err != nil || int(size) != v.Len {
				t.Fatalf("size %d, %v", size, err)
			}
			switch v.Direction {
			case "request_frame":
				testRequestFrame(t, v, f, b)
			case "reply_frame":
				testReplyFrame(t, v, f, b)
			case "eviction_frame":
				testEvictionFrame(t, f, b)
			default:
				t.Fatalf("direction %q", v.Direction)
			}
		})
	}
}

func testRequestFrame(t *testing.T, v vector, f frameFields, b []byte) {
	var h RequestHeader
	if err := h.Decode(b); err != nil {
		t.Fatal(err)
	}
	want := RequestHeader{
		Size: uint32(f.Size), Kind: FrameRequest, Client: vectorClient, RequestChecksum: U128{Lo: uint64(f.RequestChecksum)},
		Request: uint64(f.Request), Operation: Operation(f.Operation), Session: uint64(f.Session), Code: Code(f.NonReplicatedCode),
	}
	if h != want {
		t.Errorf("decoded\n%+v\nwant\n%+v", h, want)
	}
	body := b[HeaderSize:]
	if len(body) != int(f.BodyLen) {
		t.Errorf("body of %d bytes", len(body))
	}
	if got := AppendRequest(nil, want, body); !bytes.Equal(got, b) {
		t.Errorf("encoded\n%x\nwant\n%x", got, b)
	}
	if err := h.VerifyBody(body); err != nil {
		t.Error(err)
	}
	code, ok := h.Command()
	if !ok || code != v.Code && h.Operation != OpRegister {
		t.Errorf("command %v, want %v", code, v.Code)
	}
	// The frame that a client builds from the decoded command is the same,
	// stamp and operation included.
	req, _ := NewRequest(v.Code)
	if err := req.Decode(body); err != nil {
		t.Fatal(err)
	}
	bare := RequestHeader{Client: h.Client, Request: h.Request, Session: h.Session}
	if got := AppendCommand(nil, bare, req); !bytes.Equal(got, b) {
		t.Errorf("built\n%x\nwant\n%x", got, b)
	}
	if h.Operation.Stamped() {
		bad := append([]byte{1}, body...)
		if err := h.VerifyBody(bad); !errors.Is(err, ErrInvalidFormat) {
			t.Errorf("changed body: %v", err)
		}
	}
}

func testReplyFrame(t *testing.T, v vector, f frameFields, b []byte) {
	var h ReplyHeader
	if err := h.Decode(b); err != nil {
		t.Fatal(err)
	}
	want := ReplyHeader{
		Size: uint32(f.Size), Kind: FrameReply, Cluster: U128{Lo: uint64(f.Cluster)}, View: uint32(f.View), Replica: uint8(f.Replica),
		RequestChecksum: U128{Lo: uint64(f.RequestChecksum)}, Client: vectorClient, Op: uint64(f.Op), Commit: uint64(f.Commit),
		Timestamp: uint64(f.Timestamp), Request: uint64(f.Request), Operation: Operation(f.Operation), Status: ErrorCode(f.Status),
	}
	if h != want {
		t.Errorf("decoded\n%+v\nwant\n%+v", h, want)
	}
	body := b[HeaderSize:]
	if got := AppendReply(nil, want, body); !bytes.Equal(got, b) {
		t.Errorf("encoded\n%x\nwant\n%x", got, b)
	}
	payload, err := h.Payload(body)
	switch {
	case f.Status != 0:
		if !errors.Is(err, ErrorCode(f.Status)) {
			t.Errorf("payload error %v", err)
		}
	case strings.Contains(v.Name, "rejected"), strings.Contains(v.Name, "transient"), strings.Contains(v.Name, "not_accepted"):
		var c ErrorCode
		if !errors.As(err, &c) || !c.Known() {
			t.Fatalf("payload error %v", err)
		}
		if got := AppendRejection(nil, want, c); !bytes.Equal(got, b) {
			t.Errorf("rejection\n%x\nwant\n%x", got, b)
		}
	case err != nil:
		t.Error(err)
	default:
		raw := &Snapshot{ZIP: payload}
		if got := AppendSuccess(nil, want, raw); !bytes.Equal(got, b) {
			t.Errorf("success\n%x\nwant\n%x", got, b)
		}
	}
}

func testEvictionFrame(t *testing.T, f frameFields, b []byte) {
	var h EvictionHeader
	if err := h.Decode(b); err != nil {
		t.Fatal(err)
	}
	want := EvictionHeader{
		Size: HeaderSize, Kind: FrameEviction, Cluster: U128{Lo: uint64(f.Cluster)}, View: uint32(f.View), Replica: uint8(f.Replica),
		Client: vectorClient, VersionMax: Version(f.Max), VersionMin: Version(f.Min), Reason: EvictionReason(f.Reason),
	}
	if h != want {
		t.Errorf("decoded\n%+v\nwant\n%+v", h, want)
	}
	if got := AppendEviction(nil, want); !bytes.Equal(got, b) {
		t.Errorf("encoded\n%x\nwant\n%x", got, b)
	}
	if err := h.Err(CurrentVersion); !errors.Is(err, ErrorCode(f.ErrorCode)) || StatusOf(err) != ErrorCode(f.ErrorCode) {
		t.Errorf("error %v, want code %d", err, f.ErrorCode)
	}
}
