package segment

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/whippetmq/whippet/internal/vfs"
)

const (
	checkpointHeaderSize = 64
	checkpointMagic      = "WPCKPT\x00"
	checkpointVersion    = 1
	checkpointPrefix     = "state-"
	checkpointSuffix     = ".ckpt"
	checkpointTemp       = ".tmp"
	// checkpointsKept is how many stay: the newest, and the one before it in
	// case that the newest turns out damaged.
	checkpointsKept = 2
)

// CheckpointName is the file name of the checkpoint at an index.
func CheckpointName(index uint64) string {
	return checkpointPrefix + strconv.FormatUint(index, 10) + checkpointSuffix
}

// WriteCheckpoint stores the applied state of a group at an index durably in
// dir and deletes all but the newest two. The log must be durable up to index
// before (Log.Sync), since recovery relies on it. It may run on any goroutine,
// one at a time for a directory.
func WriteCheckpoint(fs vfs.FS, dir string, group, index uint64, body []byte) error {
	if err := writeCheckpoint(fs, dir, group, index, body); err != nil {
		if vfs.IsDiskFull(err) {
			err = fmt.Errorf("%w: %w", ErrDiskFull, err)
		}
		return fmt.Errorf("write checkpoint %d of group %d: %w", index, group, err)
	}
	return nil
}

func writeCheckpoint(fs vfs.FS, dir string, group, index uint64, body []byte) error {
	dirs, err := vfs.MakeDirs(fs, dir)
	if err != nil {
		return err
	}
	h := make([]byte, checkpointHeaderSize)
	copy(h, checkpointMagic)
	h[7] = checkpointVersion
	le.PutUint64(h[8:], group)
	le.PutUint64(h[16:], index)
	le.PutUint64(h[24:], uint64(len(body)))
	le.PutUint64(h[32:], xxh3.Hash(body))
	le.PutUint64(h[56:], xxh3.Hash(h[:56]))
	name := filepath.Join(dir, CheckpointName(index))
	temp := name + checkpointTemp
	f, err := fs.Create(temp)
	if err != nil {
		return err
	}
	if _, err = f.WritevAt([][]byte{h, body}, 0); err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(temp, name)
	}
	if err != nil {
		_ = fs.Remove(temp)
		return err
	}
	for _, d := range append(dirs, dir) {
		if err := fs.SyncDir(d); err != nil {
			return err
		}
	}
	// The old ones go only now, when the new one is certain to stay. A
	// leftover costs space, nothing else.
	list, err := listCheckpoints(fs, dir)
	if err != nil {
		return err
	}
	kept := 0
	for _, old := range list {
		if old <= index {
			kept++
		}
		if old <= index && kept > checkpointsKept {
			_ = fs.Remove(filepath.Join(dir, CheckpointName(old)))
		}
	}
	return nil
}

// listCheckpoints returns the indexes of the checkpoints in dir, newest first.
func listCheckpoints(fs vfs.FS, dir string) ([]uint64, error) {
	files, err := fs.List(dir)
	if vfs.IsNotExist(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []uint64
	for _, f := range files {
		n, ok := strings.CutPrefix(f.Name, checkpointPrefix)
		if !ok || f.Dir {
			continue
		}
		n, ok = strings.CutSuffix(n, checkpointSuffix)
		index, err := strconv.ParseUint(n, 10, 64)
		if ok && err == nil && strconv.FormatUint(index, 10) == n {
			out = append(out, index)
		}
	}
	slices.Sort(out)
	slices.Reverse(out)
	return out, nil
}

// LoadCheckpoint returns the newest valid checkpoint in dir, or
// ErrNoCheckpoint. Invalid newer ones are passed over, but not one of another
// format version, which is a *VersionError.
func LoadCheckpoint(fs vfs.FS, dir string, group uint64) (index uint64, body []byte, err error) {
	list, err := listCheckpoints(fs, dir)
	if err != nil {
		return 0, nil, err
	}
	for _, index := range list {
		body, ok, err := readCheckpoint(fs, filepath.Join(dir, CheckpointName(index)), group, index)
		if err != nil {
			return 0, nil, err
		}
		if ok {
			return index, body, nil
		}
	}
	return 0, nil, ErrNoCheckpoint
}

// readCheckpoint reads one checkpoint and tells whether it is whole.
func readCheckpoint(fs vfs.FS, name string, group, index uint64) (body []byte, ok bool, err error) {
	f, err := fs.OpenFile(name, os.O_RDONLY)
	if err != nil {
		return nil, false, err
	}
	defer f.Close() //nolint:errcheck // nothing was written
	size, err := f.Size()
	if err != nil {
		return nil, false, err
	}
	if size < checkpointHeaderSize {
		return nil, false, nil
	}
	b := make([]byte, size)
	if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	} else if int64(n) < size {
		return nil, false, nil
	}
	h, body := b[:checkpointHeaderSize], b[checkpointHeaderSize:]
	if otherVersion(h, checkpointMagic, checkpointVersion) {
		return nil, false, &VersionError{File: name, Version: h[7], Known: checkpointVersion}
	}
	return body, string(h[:7]) == checkpointMagic && h[7] == checkpointVersion &&
		le.Uint64(h[56:]) == xxh3.Hash(h[:56]) &&
		le.Uint64(h[8:]) == group && le.Uint64(h[16:]) == index &&
		le.Uint64(h[24:]) == uint64(len(body)) && le.Uint64(h[32:]) == xxh3.Hash(body), nil
}
