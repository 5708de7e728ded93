package credential

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// referenceHash is a vector of the Argon2 reference implementation (test.c: t=2, m=2^16, p=1, "password", "somesalt").
const referenceHash = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"

func TestVerifyReferenceVector(t *testing.T) {
	h := NewHasher(Config{})
	for _, tc := range []struct {
		name, password string
		want           bool
	}{
		{"wrong", "passwore", false},
		{"empty", "", false},
		{"right", "password", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := h.Verify(t.Context(), referenceHash, tc.password)
			if err != nil || got != tc.want {
				t.Fatalf("Verify = %v, %v; want %v", got, err, tc.want)
			}
		})
	}
}

func TestHashRoundTrip(t *testing.T) {
	h := NewHasher(Config{Rand: bytes.NewReader(bytes.Repeat([]byte{7}, 2*saltLength))})
	hash, err := h.Hash(t.Context(), "s3cret")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("hash %q does not carry the cost of security.md", hash)
	}
	if err := CheckHash(hash); err != nil {
		t.Fatal(err)
	}
	for password, want := range map[string]bool{"s3cret": true, "S3cret": false} {
		if got, err := h.Verify(t.Context(), hash, password); err != nil || got != want {
			t.Errorf("Verify(%q) = %v, %v", password, got, err)
		}
	}
	if err := h.VerifyUnknown(t.Context(), "s3cret"); err != nil {
		t.Error(err)
	}
	if _, err := h.Hash(t.Context(), "x"); err != nil {
		t.Error(err)
	}
	if _, err := h.Hash(t.Context(), "x"); err == nil {
		t.Error("a hash without randomness for its salt")
	}
}

func TestParseRefusesMalformed(t *testing.T) {
	good := "$argon2id$v=19$m=64,t=1,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc"
	if err := CheckHash(good); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":            "",
		"other function":   strings.Replace(good, "argon2id", "argon2i", 1),
		"other version":    strings.Replace(good, "v=19", "v=16", 1),
		"no cost":          strings.Replace(good, "m=64,t=1,p=1", "", 1),
		"zero memory":      strings.Replace(good, "m=64", "m=0", 1),
		"too much memory":  strings.Replace(good, "m=64", "m=1048577", 1),
		"memory overflow":  strings.Replace(good, "m=64", "m=99999999999999999999", 1),
		"negative passes":  strings.Replace(good, "t=1", "t=-1", 1),
		"too many lanes":   strings.Replace(good, "p=1", "p=17", 1),
		"memory for lanes": strings.Replace(good, "m=64,t=1,p=1", "m=8,t=1,p=2", 1),
		"short salt":       strings.Replace(good, "c29tZXNhbHQ", "c29t", 1),
		"line end":         strings.Replace(good, "c29tZXNhbHQ", "c29tZX\nNhbHQ", 1),
		"padded salt":      strings.Replace(good, "c29tZXNhbHQ", "c29tZXNhbHQ==", 1),
		"short key":        good[:len(good)-30],
		"more parts":       good + "$x",
		"huge":             good + strings.Repeat("A", maxHashText),
	} {
		t.Run(name, func(t *testing.T) {
			if err := CheckHash(text); !errors.Is(err, ErrMalformedHash) {
				t.Fatalf("CheckHash(%q) = %v", text, err)
			}
		})
	}
}

func TestOverloadIsBounded(t *testing.T) {
	h := NewHasher(Config{Workers: 1, Queue: 1, Wait: time.Millisecond})
	h.workers <- struct{}{} // the only worker is taken
	if _, err := h.Hash(t.Context(), "abc"); !errors.Is(err, ErrBusy) {
		t.Fatalf("a caller that waited too long got %v", err)
	}
	h.waiting.Add(1) // the only place in the queue is taken
	if err := h.VerifyUnknown(t.Context(), "abc"); !errors.Is(err, ErrBusy) {
		t.Fatalf("a caller beyond the queue got %v", err)
	}
	h.waiting.Add(-1)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := h.Verify(ctx, referenceHash, "abc"); !errors.Is(err, context.Canceled) {
		t.Fatalf("a cancelled caller got %v", err)
	}
	if h.waiting.Load() != 0 {
		t.Fatal("a caller is still counted as waiting")
	}
	h.release()
}

func TestLengths(t *testing.T) {
	for n, want := range map[int]bool{0: false, 2: false, 3: true, 50: true, 51: false, 100: false} {
		if got := ValidUsername(strings.Repeat("u", n)); got != want {
			t.Errorf("user name of %d bytes: %v", n, got)
		}
	}
	for n, want := range map[int]bool{0: false, 2: false, 3: true, 100: true, 101: false} {
		if got := ValidPassword(strings.Repeat("p", n)); got != want {
			t.Errorf("password of %d bytes: %v", n, got)
		}
	}
}

func FuzzParseHash(f *testing.F) {
	f.Add(referenceHash)
	f.Add("$argon2id$v=19$m=1,t=1,p=1$$")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePHC(text)
		if err != nil {
			if !errors.Is(err, ErrMalformedHash) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		again, err := parsePHC(p.String())
		if err != nil || again.String() != p.String() {
			t.Fatalf("%q does not survive a round trip: %v", text, err)
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	h := NewHasher(Config{})
	hash, err := h.Hash(b.Context(), "secret")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if ok, err := h.Verify(b.Context(), hash, "secret"); err != nil || !ok {
			b.Fatal(ok, err)
		}
	}
}
