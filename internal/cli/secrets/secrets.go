// Package secrets keeps tokens of the command line between its runs, under the names that the reference's tool uses in
// a keyring: a service and an account.
//
// They are kept in one file of mode 0600 beside the contexts, which works on servers without a keyring, too. The file is
// replaced whole (temporary file, rename); values never appear in errors.
package secrets

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pelletier/go-toml/v2"
)

const file = ".tokens.toml"

// ErrMissing says that nothing is kept under a name.
var ErrMissing = errors.New("no token is kept under this name")

// Store reads and writes the tokens of one directory.
type Store struct {
	// Dir is the directory of the file; it is made on the first write.
	Dir string
}

// Get reads a token, or ErrMissing.
func (s Store) Get(service, account string) (string, error) {
	all, err := s.load()
	if err != nil {
		return "", err
	}
	if v, ok := all[service][account]; ok {
		return v, nil
	}
	return "", ErrMissing
}

// Set keeps a token; one under the same name is replaced.
func (s Store) Set(service, account, token string) error {
	all, err := s.load()
	if err != nil {
		return err
	}
	if all[service] == nil {
		all[service] = map[string]string{}
	}
	all[service][account] = token
	return s.save(all)
}

// Delete forgets a token. It is no error when there is none.
func (s Store) Delete(service, account string) error {
	all, err := s.load()
	if err != nil {
		return err
	}
	if _, ok := all[service][account]; !ok {
		return nil
	}
	delete(all[service], account)
	if len(all[service]) == 0 {
		delete(all, service)
	}
	return s.save(all)
}

func (s Store) load() (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	path := filepath.Join(s.Dir, file)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read kept tokens: %w", err)
	}
	if toml.Unmarshal(b, &all) != nil { // its error would quote the file
		return nil, fmt.Errorf("read kept tokens: %s is not as this program writes it; delete it and log in again", path)
	}
	return all, nil
}

func (s Store) save(all map[string]map[string]string) error {
	b, err := toml.Marshal(all)
	if err != nil {
		return fmt.Errorf("keep a token: %w", err)
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return fmt.Errorf("keep a token: %w", err)
	}
	f, err := os.CreateTemp(s.Dir, file+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("keep a token: %w", err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already after the rename
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(s.Dir, file))
	}
	if err != nil {
		return fmt.Errorf("keep a token: %w", err)
	}
	return nil
}
