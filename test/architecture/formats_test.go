package architecture

import (
	"encoding/binary"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// formatDoc has the byte tables of everything that a node writes.
const formatDoc = "docs/storage-format.md"

// root is the module's directory, seen from this package.
const root = "../.."

// onDisk names constants that say what a file is called.
var onDisk = regexp.MustCompile(`(Name|Prefix|Suffix)$`)

// TestFormatsAreDocumented checks that every magic number and every file name
// of the packages that write to the disk is in the document: what is not there
// is what nobody can repair by hand.
func TestFormatsAreDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, formatDoc))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	for _, dir := range []string{"internal/segment", "internal/replica"} {
		magics, names := 0, 0
		for name, value := range constants(t, filepath.Join(root, dir)) {
			switch {
			case strings.HasSuffix(name, "Magic"):
				magics++
				if text := letters(value); !strings.Contains(doc, text) {
					t.Errorf("%s: the format %q (%s) is not in %s", dir, text, name, formatDoc)
				}
			case onDisk.MatchString(name) && value.Kind() == constant.String:
				names++
				if text := constant.StringVal(value); !strings.Contains(doc, text) {
					t.Errorf("%s: files called %q (%s) are not in %s", dir, text, name, formatDoc)
				}
			}
		}
		if magics < 3 || names < 3 {
			t.Errorf("%s: %d magics and %d names found: this test looks in the wrong place", dir, magics, names)
		}
	}
}

// letters is what can be read of a magic: `WPSEG` of "WPSEG\0\0".
func letters(v constant.Value) string {
	if v.Kind() == constant.String {
		return strings.TrimRight(constant.StringVal(v), "\x00")
	}
	n, _ := constant.Uint64Val(v)
	b := binary.LittleEndian.AppendUint64(nil, n)
	return strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(b))
}

// constants gives the package-level constants of a directory's sources without
// their tests. What a constant is made of must be in the same package.
func constants(t *testing.T, dir string) map[string]constant.Value {
	t.Helper()
	files := token.NewFileSet()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var parsed []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(files, path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, f)
	}
	// Imports are not followed and bodies not looked at: what is missing is no concern of constants.
	cfg := types.Config{Error: func(error) {}, IgnoreFuncBodies: true}
	pkg, _ := cfg.Check(dir, files, parsed, nil)
	out := map[string]constant.Value{}
	for _, name := range pkg.Scope().Names() {
		if c, ok := pkg.Scope().Lookup(name).(*types.Const); ok && c.Val().Kind() != constant.Unknown {
			out[name] = c.Val()
		}
	}
	return out
}
