// Package architecture holds the rules of ARCHITECTURE.md that a test can check.
package architecture

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/whippetmq/whippet/"

// floors lists the packages from the ground up. A package may import only packages of lower floors (and, where they
// share a floor, none of that floor), so that a change is never felt below.
var floors = [][]string{
	{"wire", "internal/vfs", "internal/clock", "internal/loglimit"},
	{"internal/segment", "internal/credential", "client", "internal/cli/units", "internal/bench/report", "internal/bench/floor"},
	{"internal/cli/output", "internal/cli/contexts", "internal/cli/localnode", "internal/cli/secrets"},
	{"internal/replica"},
	{"internal/replica/transport", "internal/metadata", "internal/partition", "internal/config"},
	{"internal/cluster"},
	{"internal/broker"},
	{"internal/gateway/tcp"},
	{"server"},
	{"whippettest", "internal/bench"},
	{"internal/cli"},
	{"cmd/whippet"},
}

// alone lists packages with a stricter rule than their floor: all of ours that they may import.
var alone = map[string][]string{
	"client":           {"wire"},
	"wire":             {},
	"internal/segment": {"wire", "internal/vfs"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Imports", module+"...")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	decoder := json.NewDecoder(strings.NewReader(string(output)))
	for {
		var p listed
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("go list output: %v", err)
		}
		all = append(all, p)
	}
}

func TestImportsPointDown(t *testing.T) {
	floor := map[string]int{}
	for number, names := range floors {
		for _, name := range names {
			floor[name] = number
		}
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasPrefix(name, "test/") {
			continue
		}
		own, known := floor[name]
		if !known {
			t.Errorf("%s stands on no floor: add it to ARCHITECTURE.md and to this test", name)
			continue
		}
		for _, path := range p.Imports {
			imported, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			if below, known := floor[imported]; known && below >= own {
				t.Errorf("%s (floor %d) imports %s (floor %d): imports point down only", name, own, imported, below)
			}
		}
	}
}

func TestStricterRules(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		allowed, strict := alone[name]
		if !strict {
			continue
		}
		for _, path := range p.Imports {
			imported, ours := strings.CutPrefix(path, module)
			if ours && !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s: it may import only %v of this module", name, imported, allowed)
			}
		}
	}
}
