//go:build race

package broker

// poison overwrites released memory in builds with the race detector, so that a
// use after Release shows as damage (engine §10, trap 8).
func poison(b []byte) {
	for i := range b {
		b[i] = 0xDB
	}
}
