package localnode

import (
	"os/exec"
	"strings"
	"testing"
)

func TestQuote(t *testing.T) {
	for _, s := range []string{"plain", "/a/b-c_d.toml", "with space", "it's", `"$HOME"`, "", "a;b", "ü"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+Quote(s)).Output()
		if err != nil || string(out) != s {
			t.Errorf("%q is quoted as %s and read as %q (%v)", s, Quote(s), out, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no such program": {Config{Executable: "/no/such/program", Name: "n"}, "no such file"},
		"ends at once":    {Config{Executable: "false", Name: "n"}, "exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Dir = t.TempDir()
			_, err := Start(t.Context(), c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("start: %v", err)
			}
		})
	}
}
