package contexts

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestStore(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "home")}

	if names, err := s.Names(); err != nil || !slices.Equal(names, []string{"default"}) {
		t.Fatalf("names of a new store: %v, %v", names, err)
	}
	if o, err := s.Get("default"); err != nil || len(o) != 0 {
		t.Fatalf("default context: %v, %v", o, err)
	}
	if err := s.Create("prod", Options{"username": "u", "tcp_server_address": "10.0.0.1:8090"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Use("prod"); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Active(); err != nil || a != "prod" {
		t.Fatalf("active: %q, %v", a, err)
	}
	o, err := s.Get("prod")
	if err != nil || o["username"] != "u" {
		t.Fatalf("get: %v, %v", o, err)
	}
	st, err := os.Stat(filepath.Join(s.Dir, "contexts.toml"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode of the file: %v, %v", st.Mode(), err)
	}
	if err := s.Delete("prod"); err != nil {
		t.Fatal(err)
	}
	if a, err := s.Active(); err != nil || a != "default" {
		t.Fatalf("active after the deletion: %q, %v", a, err)
	}
}

func TestStoreRefusals(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"create default":  {s.Create("default", nil), ErrReserved},
		"delete default":  {s.Delete("default"), ErrReserved},
		"bad name":        {s.Create("a b", nil), ErrName},
		"empty name":      {s.Create("", nil), ErrName},
		"use a missing":   {s.Use("x"), ErrMissing},
		"delete missing":  {s.Delete("x"), ErrMissing},
		"name taken":      {errors.Join(s.Create("a", Options{"x": "y"}), s.Create("a", nil)), ErrExists},
		"path in a name":  {s.Create("../x", nil), ErrName},
		"use the default": {s.Use("default"), nil},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
}

func TestUnknownKeysAreKept(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	file := filepath.Join(s.Dir, "contexts.toml")
	if err := os.WriteFile(file, []byte("[old]\nfuture_key = 7\nusername = \"u\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Create("new", Options{"username": "v"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), "future_key = 7") {
		t.Errorf("after a write: %s, %v", b, err)
	}
}

func TestBrokenFile(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.Dir, "contexts.toml"), []byte("[["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Names(); err == nil || !strings.Contains(err.Error(), "contexts.toml") {
		t.Errorf("a broken file gives %v", err)
	}
}

func TestDir(t *testing.T) {
	env := map[string]string{"HOME": "/home/u"}
	get := func(k string) string { return env[k] }
	if d, err := Dir(get); err != nil || d != "/home/u/.iggy" {
		t.Errorf("dir = %q, %v", d, err)
	}
	env["IGGY_HOME"] = "/x"
	if d, _ := Dir(get); d != "/x" {
		t.Errorf("dir = %q", d)
	}
	if _, err := Dir(func(string) string { return "" }); err == nil {
		t.Error("no home directory is no error")
	}
}
