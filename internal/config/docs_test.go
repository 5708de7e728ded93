package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
)

const docs = "../../docs/configuration.md"

// update has the test write the defaults and bounds of all keys into the document: WHIPPET_UPDATE=1.
func update() bool { return os.Getenv("WHIPPET_UPDATE") == "1" }

// keyRow is a line of the document about one key: name, default, what it takes, meaning.
var keyRow = regexp.MustCompile("^\\| `([a-z0-9_.]+)` \\| (.*?) \\| (.*?) \\| (.*) \\|$") //nolint:gochecknoglobals // a pattern

// documented is the line as it must be.
func documented(t *testing.T, k key, defaults map[string]any, meaning string) string {
	t.Helper()
	var v any = defaults
	for p := range strings.SplitSeq(k.path, ".") {
		m, ok := v.(map[string]any)
		if !ok {
			t.Fatalf("%s is not in defaults.toml", k.path)
		}
		v = m[p]
	}
	text := fmt.Sprint(v)
	switch v := v.(type) {
	case string:
		text = fmt.Sprintf("%q", v)
	case []any:
		words := make([]string, len(v))
		for i, w := range v {
			words[i] = fmt.Sprintf("%q", w)
		}
		text = "[" + strings.Join(words, ", ") + "]"
	}
	takes := k.takes
	if k.secret {
		takes += " (secret)"
	}
	return fmt.Sprintf("| `%s` | `%s` | %s | %s |", k.path, text, takes, meaning)
}

// Every key is described, with the default and the bounds that it really has.
func TestDocumentation(t *testing.T) {
	b, err := os.ReadFile(docs)
	if err != nil {
		t.Fatal(err)
	}
	var defaults map[string]any
	if err := toml.Unmarshal(defaultsTOML, &defaults); err != nil {
		t.Fatal(err)
	}
	known := map[string]key{}
	for _, k := range table() {
		known[k.path] = k
	}
	lines := strings.Split(string(b), "\n")
	described := map[string]bool{}
	for i, line := range lines {
		m := keyRow.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		k, ok := known[m[1]]
		if !ok {
			t.Errorf("line %d: there is no key %s", i+1, m[1])
			continue
		}
		if described[k.path] {
			t.Errorf("line %d: %s is described twice", i+1, k.path)
		}
		if strings.TrimSpace(m[4]) == "" {
			t.Errorf("line %d: %s has no meaning", i+1, k.path)
		}
		described[k.path] = true
		if want := documented(t, k, defaults, m[4]); update() {
			lines[i] = want
		} else if line != want {
			t.Errorf("line %d is not up to date (WHIPPET_UPDATE=1 go test ./internal/config -run TestDocumentation):\n%s\nwant\n%s", i+1, line, want)
		}
	}
	text := strings.Join(lines, "\n")
	for _, k := range table() {
		if !described[k.path] {
			t.Errorf("%s is not described", k.path)
		}
		for _, o := range k.old {
			if !strings.Contains(text, "| `"+o+"` | `"+k.path+"` |") {
				t.Errorf("the older name %s of %s is not described", o, k.path)
			}
		}
	}
	for _, name := range slices.Concat(tables["cluster.nodes"], tables["http.jwt.trusted_issuers"]) {
		if !strings.Contains(text, "| `"+name+"` |") {
			t.Errorf("the field %s of a table is not described", name)
		}
	}
	for _, name := range slices.Concat(inert, notConfiguration) {
		if !strings.Contains(text, "`"+strings.TrimSuffix(name, ".")) {
			t.Errorf("%s is not mentioned", name)
		}
	}
	for name := range removed {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("the removed key %s is not mentioned", name)
		}
	}
	if update() && !t.Failed() {
		if err := os.WriteFile(docs, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
