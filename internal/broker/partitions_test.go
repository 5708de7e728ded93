package broker

import (
	"fmt"
	"path"
	"sync"
	"testing"

	"github.com/whippetmq/whippet/internal/vfs"
)

// A partition of a new stream that has the id of a deleted one starts while the directories of the old one go.
func TestDirectoriesComeAndGo(t *testing.T) {
	p := &Partitions{cfg: PartitionsConfig{FS: vfs.OS(), Dir: t.TempDir()}}
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 300 {
				dir := path.Join(p.cfg.Dir, StreamsDir, "1", topicsDir, "0", partitionsDir, fmt.Sprintf("%d-%d", w, i))
				if err := p.makeDir(dir); err != nil {
					t.Error(err)
					return
				}
				if _, err := p.cfg.FS.List(dir); err != nil {
					t.Error(err)
					return
				}
				if err := p.remove(dir); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if left, err := p.cfg.FS.List(path.Join(p.cfg.Dir, StreamsDir)); err != nil || len(left) > 0 {
		t.Errorf("%d left, %v", len(left), err)
	}
}
