package bench

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func u(n uint64) *uint64 { return &n }

// sampleSplit are rows as a run would give them.
func sampleSplit() []SplitRow {
	return []SplitRow{
		{Client: OurClient, Layout: OneNode, Offered: 45000, MessagesPerSec: 45010, P99: 2000, Refusals: u(0), Lookups: u(1)},
		{Client: OurClient, Layout: Spread, Offered: 45000, MessagesPerSec: 44990, P99: 2800, Refusals: u(2), Lookups: u(3)},
		{Client: OurClient, Layout: OneNode, MessagesPerSec: 200_000, P99: 1, Refusals: u(0), Lookups: u(0)},
		{Client: OurClient, Layout: Spread, MessagesPerSec: 180_000, P99: 1, SessionMoves: 1, Refusals: u(0), Lookups: u(0)},
		{Client: ReleasedClient, Layout: OneNode, Offered: 45000, MessagesPerSec: 40000},
		{Client: ReleasedClient, Layout: Spread, Offered: 45000, MessagesPerSec: 36000},
	}
}

func TestSplitFigures(t *testing.T) {
	type verdict struct {
		value float64
		met   string
	}
	want := map[string]verdict{
		"throughput, spread ÷ one node, offered":           {1, "met"}, // 0.9996, which a table shows as 1.00
		"throughput, spread ÷ one node, saturation":        {0.9, "missed"},
		"p99, spread ÷ one node, offered":                  {1.4, "met"},
		"session moves":                                    {1, "missed"},
		"refusals after the warm-up":                       {2, "missed"},
		"lookups after the warm-up":                        {4, ""},
		"released: throughput, spread ÷ one node, offered": {0.9, "met"},
		"released: session moves":                          {0, "met"},
	}
	got := splitFigures(sampleSplit())
	for _, f := range got {
		w, ok := want[f.What]
		if !ok {
			t.Errorf("unexpected figure %q", f.What)
			continue
		}
		delete(want, f.What)
		met := Figures([]Figure{f}).Rows[0][3]
		if math.Abs(f.Value-w.value) > 0.001 || met != w.met {
			t.Errorf("%s = %v %s, want %v %s", f.What, f.Value, met, w.value, w.met)
		}
	}
	for what := range want {
		t.Errorf("no figure %q", what)
	}
	if n := len(splitFigures(nil)); n != 0 {
		t.Errorf("%d figures of nothing", n)
	}
}

func TestSplitRowIsTheMedianOfItsRounds(t *testing.T) {
	row := splitRow(splitCase{OurClient, Spread, 0}, []SplitRun{
		{MessagesPerSec: 10, P50: 3, Routing: Routing{Refusals: 1, Lookups: 2}, NodeCores: []float64{0.1, 0.2, 0.3}, Failures: 1},
		{MessagesPerSec: 30, P50: 1, Routing: Routing{Refusals: 1, SessionMoves: 1}, NodeCores: []float64{0.3, 0.2, 0.1}},
		{MessagesPerSec: 20, P50: 2, NodeCores: []float64{0.2, 0.2, 0.2}},
	})
	if row.MessagesPerSec != 20 || row.P50 != 2 || *row.Refusals != 2 || *row.Lookups != 2 || row.SessionMoves != 1 || row.Failures != 1 || row.NodeCores[0] != 0.2 {
		t.Errorf("row = %+v", row)
	}
}

func TestSplitReport(t *testing.T) {
	rows := sampleSplit()
	rows[0].curve = []Percentile{{0, 100}, {50, 200}, {99, 2000}}
	r := &SplitResult{Started: time.Unix(0, 0), Rounds: 1, Plan: (&Split{Rate: 45000, Producers: 12, Batch: 100, MessageBytes: 100, InFlight: 1, Length: time.Second}).plan(), Rows: rows, Figures: splitFigures(rows), Notes: []string{"a note"}}
	var b bytes.Buffer
	if err := r.Page("whippet bench split-primaries").Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"6 partitions, 2-2-2", "45.0k", "a note", "<svg", "missed"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the report lacks %q", want)
		}
	}
}

func TestSplitCheck(t *testing.T) {
	good := Split{Rounds: 1, Length: time.Second, Rate: 1, Producers: 1, Batch: 1, MessageBytes: 1, InFlight: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Split){
		"no rounds": func(s *Split) { s.Rounds = 0 }, "no rate": func(s *Split) { s.Rate = 0 }, "no producers": func(s *Split) { s.Producers = 0 },
		"no time": func(s *Split) { s.Length = 0 }, "too much in flight": func(s *Split) { s.InFlight = 17 },
	} {
		s := good
		change(&s)
		if s.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A load generator of another client is told everything by flags, and its last line counts.
func TestForeign(t *testing.T) {
	script := func(body string) *Foreign {
		path := filepath.Join(t.TempDir(), "client.sh")
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
		return &Foreign{Command: []string{"sh", path}}
	}
	p := (&Split{Rate: 45000, Producers: 12, Batch: 100, MessageBytes: 100, InFlight: 1, Length: 1500 * time.Millisecond, WarmUp: time.Second}).plan()
	p.Topic = "t1"
	want := "--address 127.0.0.1:1 --topic bench/t1 --producers 12 --batch 100 --size 100 --rate 45000 --seconds 1.5 --warm-up 1"
	r, err := script(`[ "$*" = "`+want+`" ] || { echo "got $*" >&2; exit 1; }
echo warming up
echo '{"messages":300,"seconds":1.5,"p50_us":10,"p99_us":20,"p99_9_us":30,"max_us":40,"failures":1,"session_moves":2}'`).Run(t.Context(), p, "127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if *r != (ForeignResult{300, 1.5, 10, 20, 30, 40, 1, 2}) {
		t.Errorf("result %+v", r)
	}
	for name, c := range map[string]struct{ body, want string }{
		"fails":         {"echo no server >&2; exit 3", "no server"},
		"says nothing":  {"true", "printed no result"},
		"not JSON":      {"echo done", "printed no result"},
		"without times": {`echo '{"messages":3,"seconds":0,"p50_us":0,"p99_us":0,"p99_9_us":0,"max_us":0,"failures":0,"session_moves":0}'`, "without a time"},
		"another name":  {`echo '{"messages":3,"seconds":1,"p50_us":0,"p99_us":0,"p99_9_us":0,"max_us":0,"errors":9,"session_moves":0}'`, `without "failures"`},
	} {
		if _, err := script(c.body).Run(t.Context(), p, "a:1"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (&Foreign{Command: []string{"/no/such/program"}}).Run(t.Context(), p, "a:1"); err == nil {
		t.Error("a program that is not there: no error")
	}
}
