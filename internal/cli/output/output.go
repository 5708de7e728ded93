package output

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
)

// Printer writes results. The zero value with W set prints tables. It is used by one goroutine at a time.
type Printer struct {
	W     io.Writer // where results go
	Quiet bool      // print no result, unless a method says otherwise
	JSON  bool      // one JSON document per result, nothing else; wins over Quiet

	err error
}

// Err is the first error of writing, nil when every result reached the writer.
func (p *Printer) Err() error { return p.err }

// Executing announces what a command is about to do; only in the forms for people.
func (p *Printer) Executing(format string, args ...any) {
	if p.JSON {
		return
	}
	p.Line("Executing "+format, args...)
}

// Line prints one line of text for people.
func (p *Printer) Line(format string, args ...any) {
	if p.Quiet || p.JSON {
		return
	}
	p.write(Escape(fmt.Sprintf(format, args...)) + "\n")
}

// Always prints one line whatever the modes say: for results that quiet mode keeps, such as a raw token.
func (p *Printer) Always(line string) { p.write(line + "\n") }

// Done prints a confirmation, or doc as JSON.
func (p *Printer) Done(doc any, format string, args ...any) {
	if p.JSON {
		p.Document(doc)
		return
	}
	p.Line(format, args...)
}

// Document prints v as one line of JSON, in JSON mode only.
func (p *Printer) Document(v any) {
	if !p.JSON {
		return
	}
	// An encoder would escape <, > and & for HTML, which no reader of a command's output wants.
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		if p.err == nil {
			p.err = fmt.Errorf("encode the result: %w", err)
		}
		return
	}
	p.write(b.String())
}

// NotFound prints that something is absent: a line for people, null for programs. It is not an error.
func (p *Printer) NotFound(format string, args ...any) {
	if p.JSON {
		p.write("null\n")
		return
	}
	p.Line(format, args...)
}

// Sheet is a result with columns.
type Sheet struct {
	Header []string
	Rows   [][]string
	// Doc is the same result for programs.
	Doc any
	// List prints one record a line, fields separated by "|", without the header.
	List bool
	// None, when set, is printed instead of a table without rows.
	None string
}

// Sheet prints a result with columns.
func (p *Printer) Sheet(s Sheet) {
	switch {
	case p.JSON:
		p.Document(s.Doc)
	case p.Quiet:
	case len(s.Rows) == 0 && s.None != "":
		p.Line("%s", s.None)
	case s.List:
		p.write(List(s.Rows))
	default:
		p.write(Table(s.Header, s.Rows))
	}
}

// Details prints a result of one thing: rows of a property and its value, under the given titles.
func (p *Printer) Details(property, value string, rows [][]string, doc any) {
	p.Sheet(Sheet{Header: []string{property, value}, Rows: rows, Doc: doc})
}

func (p *Printer) write(s string) {
	if p.err != nil {
		return
	}
	if _, err := io.WriteString(p.W, s); err != nil {
		p.err = fmt.Errorf("write the result: %w", err)
	}
}

// Table draws a bordered table, ending in a line feed.
func Table(header []string, rows [][]string) string {
	cell := lipgloss.NewStyle().Padding(0, 1)
	t := table.New().
		Border(lipgloss.ASCIIBorder()).
		Headers(escapeAll(header)...).
		Wrap(false).
		StyleFunc(func(int, int) lipgloss.Style { return cell })
	for _, r := range rows {
		t.Row(escapeAll(r)...)
	}
	return t.String() + "\n"
}

// Nested draws a table without borders, to stand in a cell of another one.
func Nested(header []string, rows [][]string) string {
	widths := make([]int, len(header))
	all := append([][]string{header}, rows...)
	for _, r := range all {
		for i, c := range r {
			widths[i] = max(widths[i], lipgloss.Width(c))
		}
	}
	var b strings.Builder
	for i, r := range all {
		if i > 0 {
			b.WriteByte('\n')
		}
		for j, c := range r {
			if j > 0 {
				b.WriteString("  ")
			}
			b.WriteString(c)
			if j < len(r)-1 {
				b.WriteString(strings.Repeat(" ", widths[j]-lipgloss.Width(c)))
			}
		}
	}
	return b.String()
}

// List writes one record a line, fields separated by "|".
func List(rows [][]string) string {
	var b strings.Builder
	for _, r := range rows {
		for i, c := range r {
			if i > 0 {
				b.WriteByte('|')
			}
			b.WriteString(strings.ReplaceAll(Escape(c), "\n", " "))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Escape replaces what a terminal would act on (control characters, bytes that are no UTF-8) by visible text. Line
// feeds stay, so that a cell may have several lines.
func Escape(s string) string {
	clean := true
	for _, r := range s {
		if unprintable(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unprintable(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unprintable(r rune) bool { return r < 0x20 && r != '\n' || r >= 0x7f && r < 0xa0 }

func escapeAll(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = Escape(c)
	}
	return out
}
