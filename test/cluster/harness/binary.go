package harness

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// BinaryVariable names a whippet binary to use instead of building one.
const BinaryVariable = "WHIPPET_TEST_BINARY"

// buildLimit bounds the build, which may compile everything once with the race detector.
const buildLimit = 5 * time.Minute

// builds are the binaries of this test process by their build tags, each built when it is first asked for. They are the
// process's own because a build takes seconds and every test of the process wants the same one.
var builds struct { //nolint:gochecknoglobals // see above
	mu   sync.Mutex
	dir  string
	path map[string]string
}

// Binary is the path of the whippet binary with the given build tag ("" = none), built once per process, with the race
// detector when the test has it.
func Binary(tag string) (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" && tag == "" {
		return filepath.Abs(path)
	}
	builds.mu.Lock()
	defer builds.mu.Unlock()
	if path, there := builds.path[tag]; there {
		return path, nil
	}
	if builds.dir == "" {
		dir, err := os.MkdirTemp("", "whippet-harness-")
		if err != nil {
			return "", fmt.Errorf("directory of the binary: %w", err)
		}
		builds.dir, builds.path = dir, map[string]string{}
	}
	path := filepath.Join(builds.dir, "whippet"+tag)
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	args := []string{"build", "-o", path, "-tags", tag}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/whippetmq/whippet/cmd/whippet")...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("go build cmd/whippet: %w\n%s", err, out)
	}
	builds.path[tag] = path
	return path, nil
}

// Main runs the tests of a package that uses the harness: it removes the binaries afterwards and fails when goroutines are
// left. Call it from TestMain.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if builds.dir != "" {
			_ = os.RemoveAll(builds.dir) // a leftover in the temporary directory harms nobody
		}
		os.Exit(code)
	}))
}

// Slow reports whether the long versions of tests were asked for (WHIPPET_SLOW=1).
func Slow() bool { return os.Getenv("WHIPPET_SLOW") == "1" }

// Scale picks the figure of the short or of the long version of a test.
func Scale[T any](short, long T) T {
	if Slow() {
		return long
	}
	return short
}

// Slack widens a bound on time for nodes that run with the race detector, which makes them several times slower.
func Slack(d time.Duration) time.Duration {
	if raceEnabled {
		return 4 * d
	}
	return d
}
