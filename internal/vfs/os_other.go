//go:build unix && !linux

package vfs

// The calls below are hints or have a slower equivalent on systems other than
// Linux.

func (f *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	return writevLoop(bufs, off, 1, func(b [][]byte, off int64) (int, error) {
		return f.f.WriteAt(b[0], off)
	})
}

func (f *osFile) Datasync() error                 { return f.f.Sync() }
func (f *osFile) Preallocate(_, _ int64) error    { return nil }
func (f *osFile) StartWriteback(_, _ int64) error { return nil }
func (f *osFile) DropCache(_, _ int64)            {}
func (f *osFile) AdviseWillNeed(_, _ int64)       {}
