package report

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"
)

func sample() Page {
	line := Line{Name: "produced"}
	for i := range 2000 {
		line.Points = append(line.Points, XY{float64(i), float64(i * i)})
	}
	return Page{
		Title:    "produce <script>alert(1)</script>",
		Subtitle: "12 producers",
		Figures:  []Figure{{"1.2", "M msg/s", "throughput"}},
		Tables:   []Table{{Title: "Latency", Header: []string{"", "p50"}, Rows: [][]string{{"produce", "1 ms"}}}},
		Charts: []Chart{
			{Title: "Throughput", XName: "s", YName: "msg/s", Lines: []Line{line}},
			{Title: "Percentiles", Percentiles: true, Lines: []Line{{Name: "a", Points: []XY{{0, 1}, {50, 2}, {100, 9}}}}},
			{Title: "Nothing"},
		},
		Footer: "whippet bench produce",
	}
}

func TestPageIsSelfContained(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Write(&b); err != nil {
		t.Fatal(err)
	}
	html := b.String()
	for _, bad := range []string{"<script", "http://", "https://", "NaN", "Inf", "url("} {
		if strings.Contains(html, bad) {
			t.Errorf("the page contains %q", bad)
		}
	}
	if strings.Count(html, "<svg") != 3 || !strings.Contains(html, "12 producers") {
		t.Error("plots or text are missing")
	}
}

func TestSVGIsWellFormed(t *testing.T) {
	var b bytes.Buffer
	if err := sample().Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, svg := range regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(b.String(), -1) {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("svg does not parse: %v", err)
			}
		}
	}
}

func TestThinKeepsPeaks(t *testing.T) {
	points := make([]XY, 10_000)
	for i := range points {
		points[i] = XY{float64(i), 1}
	}
	points[7777].Y = 99
	got := thin(points)
	if len(got) > 600 {
		t.Errorf("%d points left", len(got))
	}
	peak := false
	for _, p := range got {
		peak = peak || p.Y == 99
	}
	if !peak {
		t.Error("the peak is gone")
	}
}

func TestShortAndSteps(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12: "12", 1500: "1.5k", 2e6: "2M", 3e9: "3G", 0.25: "0.25"} {
		if got := short(v); got != want {
			t.Errorf("short(%v) = %q, want %q", v, got, want)
		}
	}
	for hi, want := range map[float64]float64{100: 50, 10: 5, 7: 2, 1: 0.5} {
		if got := niceStep(hi, 4); got < want*0.39 || got > want*2.01 {
			t.Errorf("niceStep(%v) = %v", hi, got)
		}
	}
}
