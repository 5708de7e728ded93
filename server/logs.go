package server

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// logFiles writes the log to the standard output and, when configured, to files
// with rotation.
type logFiles struct {
	logger *slog.Logger
	file   *rotating
}

func (l *logFiles) close() {
	if l != nil && l.file != nil {
		_ = l.file.Close()
	}
}

// openLogs sets the log up as [logging] says.
func openLogs(c *Config) (*logFiles, error) {
	if c.Logging.Level == "off" {
		return &logFiles{logger: slog.New(slog.DiscardHandler)}, nil
	}
	level := map[string]slog.Level{"trace": slog.LevelDebug - 4, "debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[c.Logging.Level]
	l := &logFiles{}
	var w io.Writer = os.Stdout
	if c.Logging.FileEnabled {
		// The logs are the first thing that is made in the data directory; that it cannot be made is not their fault.
		if err := os.MkdirAll(c.Path, 0o750); err != nil {
			return nil, fmt.Errorf("path: %w", err)
		}
		dir := c.Logging.Path
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(c.Path, dir)
		}
		f, err := openRotating(dir, int64(c.Logging.MaxFileSize), int64(c.Logging.MaxTotalSize), c.Logging.Retention)
		if err != nil {
			return nil, fmt.Errorf("logging.path: %w", err)
		}
		l.file = f
		w = io.MultiWriter(os.Stdout, f)
	}
	l.logger = slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
	return l, nil
}

const (
	logName   = "whippet.log"
	logPrefix = "whippet-"
)

// rotating is the log file. A write that would make it too large renames it
// first; old files go by age and by the size of all. A write that fails is
// dropped: the log must not stop the node.
type rotating struct {
	dir       string
	maxFile   int64 // 0 = no rotation
	maxTotal  int64 // 0 = no limit
	retention time.Duration

	mu   sync.Mutex
	f    *os.File
	size int64
}

func openRotating(dir string, maxFile, maxTotal int64, retention time.Duration) (*rotating, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	r := &rotating{dir: dir, maxFile: maxFile, maxTotal: maxTotal, retention: retention}
	return r, r.open()
}

func (r *rotating) open() error {
	f, err := os.OpenFile(filepath.Join(r.dir, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	r.f, r.size = f, st.Size()
	r.prune()
	return nil
}

// Write implements io.Writer.
func (r *rotating) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f == nil {
		return len(p), nil
	}
	if r.maxFile > 0 && r.size > 0 && r.size+int64(len(p)) > r.maxFile {
		r.rotate()
	}
	if r.f != nil {
		n, _ := r.f.Write(p)
		r.size += int64(n)
	}
	return len(p), nil
}

func (r *rotating) rotate() {
	_ = r.f.Close()
	r.f = nil
	name := logPrefix + time.Now().UTC().Format("20060102T150405.000000000") + ".log"
	_ = os.Rename(filepath.Join(r.dir, logName), filepath.Join(r.dir, name))
	_ = r.open()
}

// prune deletes rotated files that are too old or too many.
func (r *rotating) prune() {
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		return
	}
	type old struct {
		name string
		size int64
		at   time.Time
	}
	var olds []old
	total := r.size
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), logPrefix) || !strings.HasSuffix(e.Name(), ".log") {
			continue
		}
		if info, err := e.Info(); err == nil {
			olds = append(olds, old{e.Name(), info.Size(), info.ModTime()})
			total += info.Size()
		}
	}
	slices.SortFunc(olds, func(a, b old) int { return strings.Compare(a.name, b.name) })
	for _, o := range olds {
		expired := r.retention > 0 && time.Since(o.at) > r.retention
		if !expired && (r.maxTotal == 0 || total <= r.maxTotal) {
			continue
		}
		if os.Remove(filepath.Join(r.dir, o.name)) == nil {
			total -= o.size
		}
	}
}

// Close ends the file; later writes are dropped.
func (r *rotating) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.f == nil {
		return nil
	}
	err := r.f.Close()
	r.f = nil
	return err
}
