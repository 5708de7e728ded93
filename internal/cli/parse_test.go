package cli

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/whippetmq/whippet/wire"
)

func TestParseHeaders(t *testing.T) {
	got, err := parseHeaders([]string{`a:string:x:y,b:int16:-2`, `c:bool:true,d:raw:p\,q,e:uint128:340282366920938463463374607431768211455,f:float64:1.5`})
	if err != nil {
		t.Fatal(err)
	}
	want := wire.Headers{
		wire.Header("a", wire.StringValue("x:y")), wire.Header("b", wire.Int16Value(-2)), wire.Header("c", wire.BoolValue(true)),
		wire.Header("d", wire.RawValue([]byte("p,q"))), wire.Header("e", wire.Uint128Value(wire.U128{Hi: 1<<64 - 1, Lo: 1<<64 - 1})),
		wire.Header("f", wire.Float64Value(1.5)),
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, bad := range []string{"a", "a:string", ":string:x", "a:colour:x", "a:int8:128", "a:int8:-129", "a:uint8:-1", "a:int64:x", "a:bool:perhaps", "a:float32:x", "a:string:x,a:string:y"} {
		if _, err := parseHeaders([]string{bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestParseBoolHeader(t *testing.T) {
	_, err := parseHeaders([]string{"a:bool:maybe"})
	if err == nil || !strings.Contains(err.Error(), `"maybe" is neither true nor false`) {
		t.Error(err)
	}
}

func TestParsePermissions(t *testing.T) {
	got, err := parsePermissions("m_srv,read_streams", []string{"1:m_str,p_msg#2:r_top#3", "4"})
	if err != nil {
		t.Fatal(err)
	}
	want := &wire.Permissions{
		Global: wire.GlobalPermissions{ManageServers: true, ReadStreams: true},
		Streams: []wire.StreamPermissions{
			{StreamID: 1, ManageStream: true, PollMessages: true, Topics: []wire.TopicPermissions{{TopicID: 2, ReadTopic: true}, {TopicID: 3}}},
			{StreamID: 4},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if p, err := parsePermissions("", nil); p != nil || err != nil {
		t.Errorf("no rules give %v, %v", p, err)
	}
	for _, c := range []struct {
		global, stream, want string
	}{
		{"m_srv,xx,yy", "", `"xx", "yy"`}, {"", "x:p_msg", "stream's id"}, {"", "1:m_srv", `"m_srv"`}, {"", "1#x:p_msg", "topic's id"}, {"", "1#2#2", "two rules"},
	} {
		var streams []string
		if c.stream != "" {
			streams = []string{c.stream}
		}
		if _, err := parsePermissions(c.global, streams); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q %q: %v", c.global, c.stream, err)
		}
	}
}

func TestMessageFile(t *testing.T) {
	headers := wire.Headers{wire.Header("k", wire.StringValue("v"))}.AppendSorted(nil)
	in := []wire.MessageView{
		{Offset: 7, Timestamp: 9, OriginTimestamp: 8, ID: wire.U128{Hi: 1, Lo: 2}, Checksum: 3, Payload: []byte("hello"), HeadersBytes: headers},
		{ID: wire.U128{Lo: 5}, Payload: []byte("x")},
	}
	var file []byte
	for _, m := range in {
		file = appendMessageFile(file, m)
	}
	r := bytes.NewReader(file)
	for i, want := range in {
		m, n, err := readMessageFile(r)
		if err != nil || m.ID != want.ID || string(m.Payload) != string(want.Payload) || string(m.HeadersBytes) != string(want.HeadersBytes) || m.OriginTimestamp != want.OriginTimestamp {
			t.Errorf("message %d: %+v (%d bytes), %v", i, m, n, err)
		}
	}
	if _, _, err := readMessageFile(r); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	for cut := 1; cut < 70; cut++ {
		if _, _, err := readMessageFile(bytes.NewReader(file[:cut])); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	if _, _, err := readMessageFile(strings.NewReader(strings.Repeat("plain text ", 20))); err == nil {
		t.Error("a text file is read as messages")
	}
}

func TestSealer(t *testing.T) {
	s, err := newSealer("MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=")
	if err != nil {
		t.Fatal(err)
	}
	sealed := s.seal([]byte("secret"))
	if bytes.Contains(sealed, []byte("secret")) || len(sealed) != 12+6+16 {
		t.Errorf("sealed: %x", sealed)
	}
	if plain, err := s.open(sealed); err != nil || string(plain) != "secret" {
		t.Errorf("opened: %q, %v", plain, err)
	}
	sealed[13] ^= 1
	if _, err := s.open(sealed); !errors.Is(err, wire.ErrCannotDecryptData) {
		t.Errorf("a changed message: %v", err)
	}
	if _, err := s.open([]byte("short")); !errors.Is(err, wire.ErrCannotDecryptData) {
		t.Errorf("a message without encryption: %v", err)
	}
	if _, err := newSealer("c2hvcnQ="); !errors.Is(err, wire.ErrInvalidEncryptionKey) {
		t.Errorf("a short key: %v", err)
	}
}

func TestPayloadText(t *testing.T) {
	for in, want := range map[string]string{"text": "text", "grüße": "grüße", "\xff\x00ok": `\xff` + "\x00ok"} {
		if got := payloadText([]byte(in)); got != want {
			t.Errorf("%q shows as %q", in, got)
		}
	}
}

func TestCommandLineHidesSecrets(t *testing.T) {
	got := commandLine([]string{"-p", "pw", "--token=tok", "--connect", "iggy://a:b@c:1", "bench", "produce"})
	if got != "whippet -p ******** --token=******** --connect ******** bench produce" {
		t.Error(got)
	}
}
