package cluster

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/whippetmq/whippet/internal/replica"
)

// TestBalancerPassesOverWhoCannotLead has one of the nodes take nothing, as its replicas are being made whole: the groups of
// the others come back all the same, and it is not asked for each of its groups.
func TestBalancerPassesOverWhoCannotLead(t *testing.T) {
	var asked []replica.GroupID
	b := NewBalancer(BalancerConfig{
		Self: 1, Nodes: []uint64{1, 2, 3}, Logger: slog.New(slog.DiscardHandler), Pace: time.Microsecond,
		Leads: func() bool { return true },
		Up:    func(node uint64) bool { return node != 1 }, // of itself a node has no link
		Transfer: func(_ context.Context, g replica.GroupID, to uint64) error {
			asked = append(asked, g)
			if to == 2 {
				return errors.New("it is suspect")
			}
			return nil
		},
	})
	began := time.Now()
	b.move(t.Context(), []move{{1, 1, 2}, {2, 1, 3}, {3, 1, 2}, {4, 2, 1}, {5, 1, 2}, {6, 1, 2}, {7, 1, 3}})
	if want := []replica.GroupID{1, 2, 3, 4, 5, 7}; !slices.Equal(asked, want) {
		t.Errorf("asked for the groups %v, want %v", asked, want)
	}
	for g, want := range map[replica.GroupID]uint64{1: 0, 2: 3, 3: 0, 4: 1, 5: 0, 6: 0, 7: 3} {
		if got := b.led[g]; got != want {
			t.Errorf("group %d is taken to be led by %d, want %d", g, got, want)
		}
		later := b.later[g]
		if refused := g == 1 || g == 3 || g == 5; refused != later.After(began.Add(29*time.Second)) {
			t.Errorf("group %d is tried again at %v, begun at %v", g, later, began)
		}
	}
}
