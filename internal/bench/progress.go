package bench

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/charmbracelet/x/term"

	"github.com/whippetmq/whippet/internal/cli/units"
)

// progress shows how a run is going: one line that is rewritten on a terminal, a line every few seconds elsewhere.
type progress struct {
	w        io.Writer
	label    string
	terminal bool
	every    time.Duration // on a terminal: how often the line is rewritten
	last     time.Time
	width    int
}

func newProgress(w io.Writer, p Plan) *progress {
	pr := &progress{w: w, label: p.Kind, every: 5 * time.Second, last: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(f.Fd()) {
		pr.terminal, pr.every = true, 200*time.Millisecond
	}
	return pr
}

// as is the same progress under another label.
func (p *progress) as(label string) *progress {
	q := *p
	q.label = label
	return &q
}

func (p *progress) show(pt Point) {
	now := time.Now()
	if p.w == nil || now.Sub(p.last) < p.every {
		return
	}
	p.last = now
	parts := []string{fmt.Sprintf("%s %3.0fs", p.label, pt.Seconds)}
	if pt.ProduceMsgs > 0 {
		parts = append(parts, line("sent", pt.ProduceMsgs, pt.ProduceBytes, pt.ProduceP50, pt.ProduceP99))
	}
	if pt.ConsumeMsgs > 0 {
		parts = append(parts, line("read", pt.ConsumeMsgs, pt.ConsumeBytes, pt.ConsumeP50, pt.ConsumeP99))
	}
	if pt.ServerResident > 0 {
		parts = append(parts, fmt.Sprintf("server %.2f cores, %s", pt.ServerCPU, units.Size(pt.ServerResident)))
	}
	text := strings.Join(parts, " | ")
	if !p.terminal {
		_, _ = fmt.Fprintln(p.w, text)
		return
	}
	pad := max(0, p.width-len(text))
	p.width = len(text)
	_, _ = fmt.Fprintf(p.w, "\r%s%s", text, strings.Repeat(" ", pad))
}

func (p *progress) end() {
	if p.w != nil && p.terminal && p.width > 0 {
		_, _ = fmt.Fprintf(p.w, "\r%s\r", strings.Repeat(" ", p.width))
	}
}

func line(what string, messages, bytes, p50, p99 float64) string {
	return fmt.Sprintf("%s %s msg/s, %s/s, p50 %s, p99 %s", what, Rate(messages), units.Size(uint64(bytes)), Micros(p50), Micros(p99))
}

// Rate writes a number per second: 950, 12.3k, 1.21M.
func Rate(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

// Micros writes a latency in the unit that suits it.
func Micros(us float64) string {
	switch {
	case us >= 1e6:
		return fmt.Sprintf("%.2f s", us/1e6)
	case us >= 1e3:
		return fmt.Sprintf("%.2f ms", us/1e3)
	}
	return fmt.Sprintf("%.0f us", us)
}
