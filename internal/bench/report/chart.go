package report

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"
)

// Chart is one plot of lines over a common axis.
type Chart struct {
	Title string
	Lines []Line
	// XName and YName say what the axes are and in which unit.
	XName, YName string
	// Percentiles makes the axis of a latency curve: x is a percentile, spread by its number of nines.
	Percentiles bool
}

// Line is one series of a chart.
type Line struct {
	Name   string
	Points []XY
}

// XY is one point.
type XY struct{ X, Y float64 }

// Color is the index of the palette for line i.
func (Line) Color(i int) int { return i % 4 }

// Size of the drawing and its margins, in SVG units.
const (
	chartW, chartH             = 520, 240
	left, right, above, bottom = 58, 12, 10, 34
)

// SVG draws the chart.
func (c Chart) SVG() template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s">`, chartW, chartH, template.HTMLEscapeString(c.Title))
	x, xTicks := c.xAxis()
	y, yTicks := c.yAxis()
	for _, t := range yTicks {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			left, chartW-right, y(t.at), y(t.at), left-6, y(t.at)+3.5, t.text)
	}
	for _, t := range xTicks {
		anchor := "middle"
		if x(t.at) > chartW-2*right {
			anchor = "end" // its second half would be cut off
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="%s">%s</text>`, x(t.at), chartH-bottom+15, anchor, t.text)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, chartW-right, chartH-4, template.HTMLEscapeString(c.XName))
	fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, 0, chartH-4, template.HTMLEscapeString(c.YName))
	for i, l := range c.Lines {
		fmt.Fprintf(&b, `<polyline style="stroke:var(--c%d)" points="`, l.Color(i))
		for _, p := range thin(l.Points) {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(p.X), y(p.Y))
		}
		b.WriteString(`"/>`)
	}
	b.WriteString("</svg>")
	// Everything that is not a number of ours was escaped above.
	return template.HTML(b.String()) //nolint:gosec // built here
}

type tick struct {
	at   float64
	text string
}

func (c Chart) xAxis() (func(float64) float64, []tick) {
	const width = chartW - left - right
	if c.Percentiles {
		nines := func(p float64) float64 { // 0 → 0, 90 → 1, 99 → 2, ...
			return min(-math.Log10(max(1-p/100, 1e-6)), 5)
		}
		ticks := []tick{{0, "0"}, {50, "50"}, {90, "90"}, {99, "99"}, {99.9, "99.9"}, {99.99, "99.99"}, {99.999, "99.999"}}
		return func(v float64) float64 { return left + nines(v)/5*width }, ticks
	}
	hi := 0.0
	for _, l := range c.Lines {
		for _, p := range l.Points {
			hi = max(hi, p.X)
		}
	}
	if hi <= 0 {
		hi = 1
	}
	step := niceStep(hi, 6)
	var ticks []tick
	for v := 0.0; v <= hi*1.0001; v += step {
		ticks = append(ticks, tick{v, short(v)})
	}
	return func(v float64) float64 { return left + v/hi*width }, ticks
}

func (c Chart) yAxis() (func(float64) float64, []tick) {
	const height = chartH - above - bottom
	hi := 0.0
	for _, l := range c.Lines {
		for _, p := range l.Points {
			hi = max(hi, p.Y)
		}
	}
	if hi <= 0 || math.IsInf(hi, 0) || math.IsNaN(hi) {
		hi = 1
	}
	step := niceStep(hi, 4)
	top := math.Ceil(hi/step) * step
	var ticks []tick
	for v := 0.0; v <= top*1.0001; v += step {
		ticks = append(ticks, tick{v, short(v)})
	}
	return func(v float64) float64 { return above + height - v/top*height }, ticks
}

// niceStep is the step of 1, 2 or 5 times a power of ten that cuts hi into about n parts.
func niceStep(hi float64, n int) float64 {
	raw := hi / float64(n)
	mag := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5, 10} {
		if m*mag >= raw {
			return m * mag
		}
	}
	return 10 * mag
}

// short writes 1200000 as 1.2M.
func short(v float64) string {
	for _, u := range []struct {
		at   float64
		unit string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= u.at {
			return strconv.FormatFloat(round(v/u.at), 'f', -1, 64) + u.unit
		}
	}
	return strconv.FormatFloat(round(v), 'f', -1, 64)
}

func round(v float64) float64 { return math.Round(v*1000) / 1000 }

// thin keeps a line's size bounded: at most 600 points, the highest of each run, so that peaks stay.
func thin(points []XY) []XY {
	const most = 600
	if len(points) <= most {
		return points
	}
	out := make([]XY, 0, most)
	for i := range most {
		lo, hi := i*len(points)/most, (i+1)*len(points)/most
		best := points[lo]
		for _, p := range points[lo:hi] {
			if p.Y > best.Y {
				best = p
			}
		}
		out = append(out, best)
	}
	return out
}
