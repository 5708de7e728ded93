package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// batchMessages is how many messages a batch holds, and how many NATS leaves unacknowledged.
const batchMessages = 1000

// row is one line of the table.
type row struct {
	Name    string  `json:"name"`
	What    string  `json:"what"`
	How     string  `json:"nats_client"` // the best of NATS's clients, which is compared
	Unit    string  `json:"unit"`
	NATS    float64 `json:"nats"`
	Whippet float64 `json:"whippet"`
	Ratio   float64 `json:"ratio"`
	Target  string  `json:"target"`
	Met     bool    `json:"met"`
	// Clients are the medians of NATS's different clients.
	Clients map[string]float64   `json:"nats_clients"`
	Natses  map[string][]float64 `json:"nats_runs"`
	Ours    []float64            `json:"whippet_runs"`

	least, most float64
	nats        func(context.Context) (map[string]float64, error)
	whippet     func(context.Context) (float64, error)
}

func rows(n *natsServer, w *whippet, messages int) []*row {
	var out []*row
	for _, size := range []int{1000, 100} {
		label := map[int]string{1000: "1 KB", 100: "100 B"}[size]
		count := messages
		if size == 100 {
			count *= 2
		}
		for _, producers := range []int{1, 4} {
			out = append(out, &row{
				Name: fmt.Sprintf("produce-%s-%d", strings.ToLower(strings.ReplaceAll(label, " ", "")), producers),
				What: fmt.Sprintf("produce %s, %d producers", label, producers), Unit: "msg/s", least: 5,
				nats: func(ctx context.Context) (map[string]float64, error) { return n.produce(ctx, size, producers, count) },
				whippet: func(ctx context.Context) (float64, error) {
					s, err := w.produce(ctx, size, producers, batchMessages, "producer")
					if err != nil {
						return 0, err
					}
					return s.PerSecond, nil
				},
			})
		}
		out = append(out, &row{
			Name: "consume-" + strings.ToLower(strings.ReplaceAll(label, " ", "")), What: "consume " + label + ", 1 consumer", Unit: "msg/s", least: 4,
			nats: func(ctx context.Context) (map[string]float64, error) { return n.consume(ctx, size, count) },
			whippet: func(ctx context.Context) (float64, error) {
				s, err := w.consume(ctx, size, count)
				if err != nil {
					return 0, err
				}
				return s.PerSecond, nil
			},
		})
	}
	return append(out, &row{
		Name: "single-send", What: "one message of 100 B per send, p50", Unit: "us", most: 1,
		nats: func(ctx context.Context) (map[string]float64, error) {
			r, err := n.publish(ctx, "sync", 100, 1, 20_000)
			return map[string]float64{"sync": r.p50}, err
		},
		whippet: func(ctx context.Context) (float64, error) {
			s, err := w.produce(ctx, 100, 1, 1, "send")
			if err != nil {
				return 0, err
			}
			return s.Latency.P50, nil
		},
	})
}

// measure runs both sides in turns and compares medians.
func (r *row) measure(ctx context.Context, rounds int) error {
	r.Natses, r.Clients = map[string][]float64{}, map[string]float64{}
	for i := range rounds {
		by, err := r.nats(ctx)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", r.Name, i+1, err)
		}
		for how, v := range by {
			r.Natses[how] = append(r.Natses[how], v)
			fmt.Fprintf(os.Stderr, "%-16s NATS     %12.0f %s (%s)\n", r.Name, v, r.Unit, how)
		}
		v, err := r.whippet(ctx)
		if err != nil {
			return fmt.Errorf("%s, round %d: %w", r.Name, i+1, err)
		}
		r.Ours = append(r.Ours, v)
		fmt.Fprintf(os.Stderr, "%-16s Whippet  %12.0f %s\n", r.Name, v, r.Unit)
	}
	r.Whippet = median(r.Ours)
	for how, runs := range r.Natses {
		r.Clients[how] = median(runs)
		better := r.Clients[how] > r.NATS
		if r.most > 0 { // a latency
			better = r.NATS == 0 || r.Clients[how] < r.NATS
		}
		if better {
			r.How, r.NATS = how, r.Clients[how]
		}
	}
	if r.NATS > 0 {
		r.Ratio = r.Whippet / r.NATS
	}
	if r.least > 0 {
		r.Target, r.Met = fmt.Sprintf("≥ %g", r.least), r.Ratio >= r.least
	} else {
		r.Target, r.Met = fmt.Sprintf("≤ %g", r.most), r.Ratio <= r.most
	}
	return nil
}

func median(v []float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	program := flag.String("whippet", "", "the whippet program (default: built from the checkout)")
	bin := flag.String("bin", "", "where the NATS programs are built and kept (default: a temporary directory)")
	rounds := flag.Int("rounds", 3, "runs of each side, in turns")
	length := flag.Duration("duration", 4*time.Second, "length of one run of Whippet")
	messages := flag.Int("messages", 300_000, "messages of 1 KB per run of NATS; twice as many of 100 B")
	only := flag.String("only", "", "names of rows, separated by commas (default: all)")
	document := flag.String("json", "", "write the rows to this file")
	inFlight := flag.Int("in-flight", 4, "unanswered batches of a producer, and polls of a consumer, of Whippet")
	flag.Parse()

	dir, err := os.MkdirTemp("", "whippet-compare-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if *bin == "" {
		*bin = dir
	}
	server, tool := filepath.Join(*bin, "nats-server"), filepath.Join(*bin, "nats")
	for pkg, out := range map[string]string{"github.com/nats-io/nats-server/v2": server, "github.com/nats-io/natscli/nats": tool} {
		if _, err := os.Stat(out); err == nil {
			continue
		}
		fmt.Fprintln(os.Stderr, "building", pkg)
		if err := build(ctx, here, pkg, out); err != nil {
			return err
		}
	}
	if *program == "" {
		*program = filepath.Join(dir, "whippet")
		if err := build(ctx, filepath.Join(here, "..", ".."), "./cmd/whippet", *program); err != nil {
			return err
		}
	}
	n, err := startNATS(ctx, server, tool, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	w := &whippet{program: *program, length: *length, inFlight: *inFlight}

	var done []*row
	for _, r := range rows(n, w, *messages) {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), r.Name) {
			continue
		}
		if err := r.measure(ctx, *rounds); err != nil {
			return err
		}
		done = append(done, r)
	}
	printTable(done)
	if *document == "" {
		return nil
	}
	b, err := json.MarshalIndent(done, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(*document, append(b, '\n'), 0o644)
}

func printTable(rows []*row) {
	t := tabwriter.NewWriter(os.Stdout, 2, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "what\tNATS JetStream\tother client of NATS\tWhippet\tratio\ttarget\t\t")
	for _, r := range rows {
		met := "missed"
		if r.Met {
			met = "met"
		}
		other := ""
		for how, v := range r.Clients {
			if how != r.How {
				other = fmt.Sprintf("%.0f %s (%s)", v, r.Unit, how)
			}
		}
		fmt.Fprintf(t, "%s\t%.0f %s (%s)\t%s\t%.0f %s\t%.2f\t%s\t%s\t\n", r.What, r.NATS, r.Unit, r.How, other, r.Whippet, r.Unit, r.Ratio, r.Target, met)
	}
	_ = t.Flush() // the standard output is all there is
}
