//go:build !linux

package bench

import "errors"

func dropCaches(string) error {
	return errors.New("dropping files from the page cache works on Linux only")
}
