package output

import (
	"errors"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	got := Table([]string{"ID", "Name"}, [][]string{{"0", "orders"}, {"1", "a\tb\x1b[31m"}})
	want := `+----+--------------+
| ID | Name         |
+----+--------------+
| 0  | orders       |
| 1  | a\tb\x1b[31m |
+----+--------------+
`
	if got != want {
		t.Errorf("table:\n%s\nwant:\n%s", got, want)
	}
}

func TestList(t *testing.T) {
	got := List([][]string{{"0", "orders", "1.00 KB"}, {"1", "two\nlines", ""}})
	if want := "0|orders|1.00 KB\n1|two lines|\n"; got != want {
		t.Errorf("list = %q, want %q", got, want)
	}
}

func TestNested(t *testing.T) {
	got := Nested([]string{"Permission", "Value"}, [][]string{{"manage_servers", "true"}, {"read", "false"}})
	if want := "Permission      Value\nmanage_servers  true\nread            false"; got != want {
		t.Errorf("nested = %q, want %q", got, want)
	}
}

func TestPrinterModes(t *testing.T) {
	doc := map[string]any{"name": "a<b"}
	for _, c := range []struct {
		name        string
		quiet, json bool
		run         func(p *Printer)
		want        string
	}{
		{"line", false, false, func(p *Printer) { p.Executing("ping") }, "Executing ping\n"},
		{"quiet line", true, false, func(p *Printer) { p.Executing("ping") }, ""},
		{"json hides the line", false, true, func(p *Printer) { p.Executing("ping") }, ""},
		{"done", false, false, func(p *Printer) { p.Done(doc, "Created %s", "a") }, "Created a\n"},
		{"done as json", false, true, func(p *Printer) { p.Done(doc, "Created %s", "a") }, "{\"name\":\"a<b\"}\n"},
		{"json wins over quiet", true, true, func(p *Printer) { p.Done(doc, "Created") }, "{\"name\":\"a<b\"}\n"},
		{"not found", false, false, func(p *Printer) { p.NotFound("Stream %q was not found", "x") }, "Stream \"x\" was not found\n"},
		{"not found as json", false, true, func(p *Printer) { p.NotFound("x") }, "null\n"},
		{"empty with a line", false, false, func(p *Printer) { p.Sheet(Sheet{Header: []string{"ID"}, None: "No streams found!"}) }, "No streams found!\n"},
		{"empty list", false, false, func(p *Printer) { p.Sheet(Sheet{Header: []string{"ID"}, List: true}) }, ""},
		{"always", true, true, func(p *Printer) { p.Always("token") }, "token\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var b strings.Builder
			p := &Printer{W: &b, Quiet: c.quiet, JSON: c.json}
			c.run(p)
			if b.String() != c.want || p.Err() != nil {
				t.Errorf("printed %q (%v), want %q", b.String(), p.Err(), c.want)
			}
		})
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("closed pipe") }

func TestPrinterKeepsTheWriteError(t *testing.T) {
	p := &Printer{W: brokenWriter{}}
	p.Line("a")
	p.Line("b")
	if p.Err() == nil {
		t.Error("a failed write is not reported")
	}
}
