package bench

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dropCaches writes the files of messages to the device and asks the kernel to forget their pages, so that the next
// reader finds a cold file.
func dropCaches(dir string) error {
	files, err := logFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		err = f.Sync() // pages that are not written yet cannot be dropped
		if err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		_ = f.Close() // read only
		if err != nil {
			return fmt.Errorf("drop %s from the page cache: %w", name, err)
		}
	}
	return nil
}
