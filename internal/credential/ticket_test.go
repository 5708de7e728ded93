package credential

import (
	"bytes"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
)

func TestTicket(t *testing.T) {
	key, other := &TicketKey{1, 2, 3}, &TicketKey{1, 2, 4}
	want := Ticket{User: 7, Revision: 99, Expiry: 1000, Nonce: [16]byte{5}}
	text := IssueTicket(key, want)
	if !IsTicket(text) || len(text) > 255 {
		t.Fatalf("%q cannot be the token of a login", text)
	}
	flip := func(i int) string {
		b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(text, ticketPrefix))
		if err != nil {
			t.Fatal(err)
		}
		b[i] ^= 1
		return ticketPrefix + base64.RawURLEncoding.EncodeToString(b)
	}
	for _, tc := range []struct {
		name, token string
		key         *TicketKey
		now         uint64
		want        error
	}{
		{"empty", "", key, 1, ErrMalformedTicket},
		{"prefix only", "wt1.", key, 1, ErrMalformedTicket},
		{"another prefix", "wt2." + text[4:], key, 1, ErrMalformedTicket},
		{"cut", text[:len(text)-1], key, 1, ErrMalformedTicket},
		{"not base64", text[:len(text)-1] + "*", key, 1, ErrMalformedTicket},
		{"line ends", "wt1." + strings.Repeat("\n", len(text)-4), key, 1, ErrMalformedTicket},
		{"a line end", text[:len(text)-1] + "\n", key, 1, ErrMalformedTicket},
		{"another key", text, other, 1, ErrForgedTicket},
		{"another user", flip(0), key, 1, ErrForgedTicket},
		{"another revision", flip(4), key, 1, ErrForgedTicket},
		{"longer life", flip(14), key, 1, ErrForgedTicket},
		{"another nonce", flip(20), key, 1, ErrForgedTicket},
		{"another MAC", flip(ticketSize - 1), key, 1, ErrForgedTicket},
		{"at its end", text, key, 1000, ErrExpiredTicket},
		{"forged and expired", text, other, 1000, ErrForgedTicket},
		{"good", text, key, 999, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := VerifyTicket(tc.key, tc.token, tc.now)
			if !errors.Is(err, tc.want) {
				t.Fatalf("error %v, want %v", err, tc.want)
			}
			if tc.want == nil && got != want {
				t.Fatalf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestToken(t *testing.T) {
	text, hash, err := NewToken(bytes.NewReader(bytes.Repeat([]byte{0xFF}, tokenBytes)))
	if err != nil {
		t.Fatal(err)
	}
	if raw, err := base64.StdEncoding.DecodeString(text); err != nil || len(raw) != 50 || IsTicket(text) {
		t.Fatalf("token %q", text)
	}
	if hash != HashToken(text) || len(hash) != 64 {
		t.Fatalf("hash %q", hash)
	}
	// Test vector of the BLAKE3 specification: the empty input.
	if got := HashToken(""); got != "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262" {
		t.Fatalf("hash of nothing is %s", got)
	}
	if _, _, err := NewToken(strings.NewReader("short")); err == nil {
		t.Fatal("a token without randomness")
	}
}

func FuzzVerifyTicket(f *testing.F) {
	key := &TicketKey{9}
	f.Add(IssueTicket(key, Ticket{User: 1, Expiry: 1}))
	f.Add("wt1.")
	f.Fuzz(func(t *testing.T, token string) {
		if ticket, err := VerifyTicket(key, token, 0); err == nil && IssueTicket(key, ticket) != token {
			t.Fatalf("%q was accepted and is not what is issued", token)
		}
	})
}
