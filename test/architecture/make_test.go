package architecture

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestScriptsHaveATarget checks that what can be run under test/ is run by the
// Makefile, and that CONTRIBUTING.md names targets that there are: a script
// that only its author knows is not run by anybody.
func TestScriptsHaveATarget(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	err = filepath.WalkDir(filepath.Join(root, "test"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.Name() == "target" && d.IsDir() {
			return fs.SkipDir // what cargo built
		}
		info, err := d.Info()
		if err != nil || d.IsDir() || info.Mode()&0o100 == 0 {
			return err
		}
		scripts++
		name := "./" + filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if called := regexp.MustCompile(regexp.QuoteMeta(name) + `(\s|$)`); !called.Match(makefile) {
			t.Errorf("no target of the Makefile runs %s", name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if scripts < 4 {
		t.Errorf("%d scripts found: this test looks in the wrong place", scripts)
	}
	contributing, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`make ([a-z][a-z-]*)").FindAllSubmatch(contributing, -1) {
		if target := string(m[1]); !regexp.MustCompile(`(?m)^` + target + `:`).Match(makefile) {
			t.Errorf("CONTRIBUTING.md: the Makefile has no target %s", target)
		}
	}
}
