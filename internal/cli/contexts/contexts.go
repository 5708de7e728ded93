package contexts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Default is the name of the context that always exists.
const Default = "default"

const (
	contextsFile = "contexts.toml"
	activeFile   = ".active_context"
)

// Errors that callers tell apart.
var (
	// ErrMissing: no context of that name.
	ErrMissing = errors.New("context does not exist")
	// ErrExists: the name is taken.
	ErrExists = errors.New("context exists already")
	// ErrReserved: the default context can be neither created nor deleted.
	ErrReserved = errors.New("the context \"" + Default + "\" always exists and cannot be created or deleted")
	// ErrName: a name with other characters than letters, digits, "-" and "_".
	ErrName = errors.New("a context name consists of letters, digits, - and _")
)

// Options are the values of one context: option names with underscores, as in the file.
type Options map[string]any

// Store reads and writes the contexts of one directory. It keeps nothing in memory between calls.
type Store struct {
	// Dir is the directory of the files; it is made on the first write.
	Dir string
}

// Dir gives the directory of the contexts: IGGY_HOME, else .iggy in the home directory.
func Dir(getenv func(string) string) (string, error) {
	if dir := getenv("IGGY_HOME"); dir != "" {
		return dir, nil
	}
	if home := getenv("HOME"); home != "" {
		return filepath.Join(home, ".iggy"), nil
	}
	return "", errors.New("there is no home directory for contexts: set IGGY_HOME")
}

// Names lists all contexts in order, the default one first.
func (s Store) Names() ([]string, error) {
	all, err := s.load()
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(all)+1)
	for name := range all {
		if name != Default {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return append([]string{Default}, names...), nil
}

// Active is the name of the context in use. It need not exist (any more).
func (s Store) Active() (string, error) {
	b, err := os.ReadFile(filepath.Join(s.Dir, activeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Default, nil
	}
	if err != nil {
		return "", fmt.Errorf("read the active context: %w", err)
	}
	if name := strings.TrimSpace(string(b)); name != "" {
		return name, nil
	}
	return Default, nil
}

// Get reads one context.
func (s Store) Get(name string) (Options, error) {
	all, err := s.load()
	if err != nil {
		return nil, err
	}
	if o, ok := all[name]; ok {
		return o, nil
	}
	if name == Default {
		return Options{}, nil
	}
	return nil, fmt.Errorf("%q: %w", name, ErrMissing)
}

// Create adds a context.
func (s Store) Create(name string, o Options) error {
	if name == Default {
		return ErrReserved
	}
	if !validName(name) {
		return fmt.Errorf("%q: %w", name, ErrName)
	}
	all, err := s.load()
	if err != nil {
		return err
	}
	if _, ok := all[name]; ok {
		return fmt.Errorf("%q: %w", name, ErrExists)
	}
	all[name] = o
	return s.save(all)
}

// Delete removes a context; when it was the active one, the default becomes active.
func (s Store) Delete(name string) error {
	if name == Default {
		return ErrReserved
	}
	all, err := s.load()
	if err != nil {
		return err
	}
	if _, ok := all[name]; !ok {
		return fmt.Errorf("%q: %w", name, ErrMissing)
	}
	delete(all, name)
	if err := s.save(all); err != nil {
		return err
	}
	active, err := s.Active()
	if err != nil || active != name {
		return err
	}
	return s.setActive(Default)
}

// Use makes a context the active one.
func (s Store) Use(name string) error {
	if _, err := s.Get(name); err != nil {
		return err
	}
	return s.setActive(name)
}

func (s Store) setActive(name string) error {
	if name == Default {
		err := os.Remove(filepath.Join(s.Dir, activeFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reset the active context: %w", err)
		}
		return nil
	}
	return s.write(activeFile, []byte(name))
}

func (s Store) load() (map[string]Options, error) {
	b, err := os.ReadFile(filepath.Join(s.Dir, contextsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]Options{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read contexts: %w", err)
	}
	all := map[string]Options{}
	if err := toml.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("read %s: %w", filepath.Join(s.Dir, contextsFile), err)
	}
	return all, nil
}

func (s Store) save(all map[string]Options) error {
	b, err := toml.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode contexts: %w", err)
	}
	return s.write(contextsFile, b)
}

func (s Store) write(name string, b []byte) error {
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of contexts: %w", err)
	}
	f, err := os.CreateTemp(s.Dir, name+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when the rename succeeded
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.Dir, name))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func validName(name string) bool {
	if name == "" {
		return false
	}
	for _, r := range name {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
		default:
			return false
		}
	}
	return true
}
