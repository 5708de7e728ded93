//go:build !race

package harness

// raceEnabled: the test runs with the race detector, so the nodes do too.
const raceEnabled = false
