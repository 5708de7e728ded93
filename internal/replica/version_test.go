package replica

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/segment"
	"github.com/whippetmq/whippet/internal/vfs"
)

// TestUnknownVersionIsRefused gives each file of a node another format version, in a group of three, where what is damaged is
// set aside and filled again: a newer file is not damage. The start fails and names the file and the version, and the file is
// still there afterwards.
func TestUnknownVersionIsRefused(t *testing.T) {
	const newer = 9
	// whole writes the version, and the checksum of the header that goes with it.
	whole := func(b []byte) []byte {
		b[7] = newer
		le.PutUint64(b[56:], xxh3.Hash(b[:56]))
		return b
	}
	plain := func(b []byte) []byte { b[7] = newer; return b }
	for _, tt := range []struct {
		name   string
		file   string // below the node's directory; * = the first that fits
		change func(b []byte) []byte
	}{
		{"identity", NodeMetaName, plain},
		{"longer identity", NodeMetaName, func(b []byte) []byte { return append(plain(b), 0, 0, 0, 0) }},
		{"votes", votesName, plain},
		{"votes behind known ones", votesName, func(b []byte) []byte {
			return append(b, plain(appendVotes(nil, 99, []voteChange{{5, vote{7, 1}}}))...)
		}},
		{"suspects", suspectsName, plain},
		{"peers", peersName, plain},
		{"segment", "g/0/*.log", whole},
		{"checkpoint", "g/state-*.ckpt", whole},
		{"state in a checkpoint", "g/state-*.ckpt", func(b []byte) []byte {
			b[64] = newer
			le.PutUint64(b[32:], xxh3.Hash(b[64:]))
			le.PutUint64(b[56:], xxh3.Hash(b[:56]))
			return b
		}},
		{"files that stay", "g/install/keep", plain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fs := usedDirectory(t)
			dir := filepath.Join("/n", filepath.Dir(tt.file))
			path := filepath.Join("/n", tt.file)
			if strings.Contains(path, "*") {
				names, err := fs.List(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range names {
					if ok, _ := filepath.Match(filepath.Base(tt.file), n.Name); ok {
						path = filepath.Join(dir, n.Name)
					}
				}
			}
			b, err := vfs.ReadFile(fs, path, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			want := tt.change(b)
			if f, _, err := replaceFile(fs, dir, path, want); err != nil {
				t.Fatal(err)
			} else if err := f.Close(); err != nil {
				t.Fatal(err)
			}

			err = startOn(t, fs)
			var version *segment.VersionError
			if !errors.As(err, &version) || version.Version != newer || version.Known != 1 || !strings.Contains(err.Error(), path) {
				t.Errorf("error %v, want one that names %s and version %d", err, path, newer)
			}
			if b, err := vfs.ReadFile(fs, path, 1<<20); err != nil || string(b) != string(want) {
				t.Errorf("the file was changed: %v", err)
			}
		})
	}
}

// usedDirectory is the disk of a node with one of each file.
func usedDirectory(t *testing.T) *vfs.Mem {
	fs := vfs.NewMem(1)
	cfg := testConfig(fs)
	cfg.Dir = "/n"
	h := openHost(t, cfg)
	gc := groupConfig(5, &listMachine{t: t})
	gc.Dir = "/n/g"
	g, err := h.StartGroup(t.Context(), gc)
	if err != nil {
		t.Fatal(err)
	}
	waitReady(t, g)
	for v := range uint64(20) {
		if err := submit(t, g, v+1).wait(t); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.peers.admit(Peer{Node: 2, Directory: [16]byte{1}, Starts: 1, Run: 1}); err != nil {
		t.Fatal(err)
	}
	h.suspects.add(6, tailLost)
	if err := h.suspects.save(); err != nil {
		t.Fatal(err)
	}
	closeHost(t, h)
	if _, err := fs.Stat("/n/g/0"); err != nil {
		t.Fatal(err)
	}
	if err := fs.MkdirAll("/n/g/install"); err != nil {
		t.Fatal(err)
	}
	if err := writeKeep(fs, "/n/g/install", []string{"0/00000000000000000000.log"}); err != nil {
		t.Fatal(err)
	}
	return fs
}

// startOn starts the node, and its group as one of three.
func startOn(t *testing.T, fs *vfs.Mem) error {
	if b, err := vfs.ReadFile(fs, "/n/g/install/keep", 1<<20); err != nil || b[7] == 1 {
		// Only the case that is about it begins in the middle of an installation.
		if err := fs.RemoveAll("/n/g/install"); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	cfg := testConfig(fs)
	cfg.Dir = "/n"
	h, err := Open(t.Context(), cfg)
	if err != nil {
		return err
	}
	defer func() { _ = h.Close(t.Context()) }()
	gc := groupConfig(5, &listMachine{t: t})
	gc.Dir, gc.Voters = "/n/g", []uint64{1, 2, 3}
	_, err = h.StartGroup(t.Context(), gc)
	return err
}
