package wire

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// vector is an entry of testdata/vectors, see its README.
type vector struct {
	Name      string          `json:"name"`
	Code      Code            `json:"code"`
	Direction string          `json:"direction"`
	Decoder   string          `json:"decoder"`
	Error     string          `json:"error"`
	Fields    json.RawMessage `json:"fields"`
	Len       int             `json:"len"`
	Hex       string          `json:"hex"`
}

func (v vector) bytes(t testing.TB) []byte {
	t.Helper()
	b, err := hex.DecodeString(v.Hex)
	if err != nil {
		t.Fatalf("%s: %v", v.Name, err)
	}
	if len(b) != v.Len && v.Direction != "constant" {
		t.Fatalf("%s: %d bytes, the vector says %d", v.Name, len(b), v.Len)
	}
	return b
}

func loadVectors(t testing.TB, file string) []vector {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "vectors", file))
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(raw, &vs); err != nil {
		t.Fatal(err)
	}
	return vs
}

func vectorBytes(t testing.TB, file, name string) []byte {
	t.Helper()
	for _, v := range loadVectors(t, file) {
		if v.Name == name {
			return v.bytes(t)
		}
	}
	t.Fatalf("no vector %s in %s", name, file)
	return nil
}

// sameType reports whether a and b have the same dynamic type.
func sameType(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }
