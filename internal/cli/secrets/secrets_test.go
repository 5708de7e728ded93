package secrets

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestStore(t *testing.T) {
	s := Store{Dir: filepath.Join(t.TempDir(), "home")}
	if _, err := s.Get("service", "a"); !errors.Is(err, ErrMissing) {
		t.Errorf("an empty store: %v", err)
	}
	if err := s.Delete("service", "a"); err != nil {
		t.Errorf("deleting nothing: %v", err)
	}
	for _, v := range []string{"one", "two"} {
		if err := s.Set("iggy:127.0.0.1:8090", "a", v); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Get("iggy:127.0.0.1:8090", "a"); err != nil || got != v {
			t.Errorf("got %q, %v", got, err)
		}
	}
	st, err := os.Stat(filepath.Join(s.Dir, ".tokens.toml"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file: %v, %v", st.Mode(), err)
	}
	if err := s.Delete("iggy:127.0.0.1:8090", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("iggy:127.0.0.1:8090", "a"); !errors.Is(err, ErrMissing) {
		t.Errorf("after the deletion: %v", err)
	}
}

func TestBrokenFileTellsNoSecret(t *testing.T) {
	s := Store{Dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(s.Dir, ".tokens.toml"), []byte("secret-token ["), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get("a", "b"); err == nil || strings.Contains(err.Error(), "secret-token") {
		t.Errorf("a broken file gives %v", err)
	}
}
