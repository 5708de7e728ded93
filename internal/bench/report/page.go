package report

import (
	"fmt"
	"html/template"
	"io"
)

// Page is a report.
type Page struct {
	Title    string
	Subtitle string
	Figures  []Figure // the numbers that matter, shown large
	Tables   []Table
	Charts   []Chart
	// Footer is preformatted text: the plan and the command that repeats the run.
	Footer string
}

// Figure is one number and what it is.
type Figure struct{ Value, Unit, Label string }

// Table of text. The first column is the name of the row.
type Table struct {
	Title  string
	Header []string
	Rows   [][]string
	Note   string
}

// Write renders the page.
func (p Page) Write(w io.Writer) error {
	if err := page.Execute(w, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

var page = template.Must(template.New("page").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
:root { color-scheme: light dark; --bg: #fcfcfb; --ink: #1d2229; --soft: #6b7480; --line: #e1e4e8; --card: #ffffff;
  --c0: #2563b0; --c1: #c4511d; --c2: #2f8a5b; --c3: #8a4fa8; }
@media (prefers-color-scheme: dark) { :root { --bg: #14171b; --ink: #e6e8eb; --soft: #98a1ac; --line: #2c323a; --card: #1b1f25;
  --c0: #6aa5ee; --c1: #f08a55; --c2: #63c492; --c3: #c191dd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1120px; padding: 2.5rem 1.5rem 4rem; background: var(--bg); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.02rem; margin: 2.4rem 0 .7rem; }
p.sub { color: var(--soft); margin: .3rem 0 1.8rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); gap: .8rem; }
.figure, figure { background: var(--card); border: 1px solid var(--line); border-radius: 8px; }
.figure { padding: .9rem 1rem; }
.figure b { display: block; font-size: 1.5rem; font-weight: 650; font-variant-numeric: tabular-nums; }
.figure b small { font-size: .85rem; font-weight: 400; color: var(--soft); }
.figure span { color: var(--soft); font-size: .85rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .42rem .7rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 500; font-size: .85rem; }
th:first-child, td:first-child { text-align: left; }
.scroll { overflow-x: auto; }
.note { color: var(--soft); font-size: .85rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: .8rem; margin-top: 2rem; }
figure { margin: 0; padding: 1rem 1rem .6rem; }
figcaption { font-weight: 600; margin-bottom: .5rem; }
.key { display: inline-flex; align-items: center; gap: .35rem; margin-right: 1rem; color: var(--soft); font-size: .85rem; font-weight: 400; }
.key i { width: .9rem; height: .2rem; border-radius: 2px; display: inline-block; }
svg { width: 100%; height: auto; display: block; overflow: visible; }
svg text { fill: var(--soft); font-size: 11px; font-family: inherit; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg polyline { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
pre { overflow-x: auto; background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 1rem; font-size: .82rem; }
</style>
</head>
<body>
<h1>{{.Title}}</h1>
<p class="sub">{{.Subtitle}}</p>
{{with .Figures}}<div class="figures">
{{range .}}<div class="figure"><b>{{.Value}} <small>{{.Unit}}</small></b><span>{{.Label}}</span></div>
{{end}}</div>{{end}}
{{range .Tables}}<h2>{{.Title}}</h2>
<div class="scroll"><table>
<thead><tr>{{range .Header}}<th>{{.}}</th>{{end}}</tr></thead>
<tbody>
{{range .Rows}}<tr>{{range .}}<td>{{.}}</td>{{end}}</tr>
{{end}}</tbody></table></div>
{{with .Note}}<p class="note">{{.}}</p>{{end}}{{end}}
{{with .Charts}}<div class="charts">
{{range .}}<figure><figcaption>{{.Title}}{{range $i, $s := .Lines}} <span class="key"><i style="background:var(--c{{$s.Color $i}})"></i>{{$s.Name}}</span>{{end}}</figcaption>{{.SVG}}</figure>
{{end}}</div>{{end}}
{{with .Footer}}<h2>How this was measured</h2>
<pre>{{.}}</pre>{{end}}
</body>
</html>
`))
