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

// built is the binary of this test process, built when it is first asked for. It is the process's own because a build
// takes seconds and every test of the process wants the same one.
var built = sync.OnceValues(func() (string, error) { //nolint:gochecknoglobals // see above
	if path := os.Getenv(BinaryVariable); path != "" {
		return filepath.Abs(path)
	}
	dir, err := os.MkdirTemp("", "whippet-harness-")
	if err != nil {
		return "", fmt.Errorf("directory of the binary: %w", err)
	}
	path := filepath.Join(dir, "whippet")
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	args := []string{"build", "-o", path}
	if raceEnabled {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "github.com/whippetmq/whippet/cmd/whippet")...).CombinedOutput()
	if err != nil {
		_ = os.RemoveAll(dir) // the build's error is what matters
		return "", fmt.Errorf("go build cmd/whippet: %w\n%s", err, out)
	}
	return path, nil
})

// Binary is the path of the whippet binary, built once per process, with the race detector when the test has it.
func Binary() (string, error) { return built() }

// Main runs the tests of a package that uses the harness: it removes the binary afterwards and fails when goroutines are
// left. Call it from TestMain.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if os.Getenv(BinaryVariable) == "" {
			if path, err := built(); err == nil {
				_ = os.RemoveAll(filepath.Dir(path)) // a leftover in the temporary directory harms nobody
			}
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
