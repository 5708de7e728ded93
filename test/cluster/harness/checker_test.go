package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/wire"
)

// history makes a checker that saw two producers send to partition 0 in turn, and the log that is right for it: messages
// 0..9 of each acknowledged, then one refused and one unknown.
func history() (*Checker, []Logged) {
	c := NewChecker()
	a, b := c.Producer(), c.Producer()
	var log []Logged
	for range 10 {
		for _, p := range []uint32{a, b} {
			s := c.Begin(p, 0, 1, 100)
			at := uint64(len(log))
			log = append(log, Logged{Offset: at, ID: s.Messages[0].ID, Payload: s.Messages[0].Payload})
			s.End(Acknowledged, true, at, nil)
		}
	}
	c.Begin(a, 0, 1, 100).End(Refused, false, 0, wire.ErrTransientNotAccepted)
	c.Begin(b, 0, 1, 100).End(Unknown, false, 0, client.ErrOutcomeUnknown)
	return c, log
}

// at makes message k of the history again, for an offset.
func at(k Key, offset uint64) Logged {
	m := k.message(100)
	return Logged{Offset: offset, ID: m.ID, Payload: m.Payload}
}

// renumber gives the log its offsets anew.
func renumber(log []Logged) []Logged {
	for i := range log {
		log[i].Offset = uint64(i)
	}
	return log
}

func TestCheckerFindsWhatIsPlanted(t *testing.T) {
	cases := []struct {
		name  string
		plant func([]Logged) []Logged
		want  string // empty = the log is right
	}{
		{"nothing", func(l []Logged) []Logged { return l }, ""},
		{"unknown message present", func(l []Logged) []Logged { return append(l, at(Key{2, 0, 10}, 20)) }, ""},
		{"last message lost", func(l []Logged) []Logged { return l[:19] }, "lost: message 9 of producer 2"},
		{"message lost in the middle", func(l []Logged) []Logged { return renumber(slices.Delete(l, 7, 8)) }, "lost: message 3 of producer 2"},
		{"everything lost", func([]Logged) []Logged { return nil }, "lost: message 0 of producer"},
		{"duplicate at the end", func(l []Logged) []Logged { return append(l, at(Key{1, 0, 9}, 20)) }, "duplicate: message 9 of producer 1"},
		{"duplicate in place", func(l []Logged) []Logged { return renumber(slices.Insert(l, 5, l[4])) }, "duplicate: message 2 of producer 1"},
		{"unknown message twice", func(l []Logged) []Logged {
			return append(l, at(Key{2, 0, 10}, 20), at(Key{2, 0, 10}, 21))
		}, "duplicate: message 10 of producer 2"},
		{"reordered within a producer", func(l []Logged) []Logged {
			l[4], l[6] = l[6], l[4]
			return renumber(l)
		}, "reordered: message 2 of producer 1"},
		{"unknown message in front of an older one", func(l []Logged) []Logged {
			return renumber(slices.Insert(l, 3, at(Key{2, 0, 10}, 0)))
		}, "reordered: "},
		{"offset is not the acknowledged one", func(l []Logged) []Logged {
			l[4], l[5] = l[5], l[4] // different producers: no order between them
			return renumber(l)
		}, "moved: message 2 of producer"},
		{"payload altered", func(l []Logged) []Logged {
			l[6].Payload = slices.Clone(l[6].Payload)
			l[6].Payload[50] ^= 1
			return l
		}, "altered: offset 6"},
		{"payload truncated", func(l []Logged) []Logged {
			l[6].Payload = l[6].Payload[:60]
			return l
		}, "altered: offset 6"},
		{"message id altered", func(l []Logged) []Logged {
			l[6].ID.Lo++
			return l
		}, "altered: offset 6"},
		{"refused message present", func(l []Logged) []Logged { return append(l, at(Key{1, 0, 10}, 20)) }, "refused: message 10 of producer 1"},
		{"message that nobody sent", func(l []Logged) []Logged { return append(l, at(Key{1, 0, 999}, 20)) }, "stranger: offset 20"},
		{"producer that is not there", func(l []Logged) []Logged { return append(l, at(Key{77, 0, 0}, 20)) }, "stranger: offset 20"},
		{"message of another partition", func(l []Logged) []Logged { return append(l, at(Key{1, 3, 0}, 20)) }, "stranger: offset 20"},
		{"foreign bytes", func(l []Logged) []Logged {
			return append(l, Logged{Offset: 20, Payload: []byte("hello")})
		}, "altered: offset 20"},
		{"gap in the offsets", func(l []Logged) []Logged { return append(l, at(Key{2, 0, 10}, 22)) }, "offsets: 22 where 20 is due"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			checker, log := history()
			err := checker.Check(0, c.plant(log))
			switch {
			case c.want == "" && err != nil:
				t.Fatalf("a right log is refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestOutcomeOfErrors(t *testing.T) {
	cases := []struct {
		name string
		err  error
		want Outcome
	}{
		{"no error", nil, Acknowledged},
		{"not admitted", fmt.Errorf("send: %w", client.ErrNotAdmitted), Refused},
		{"58", wire.ErrTransientNotAccepted, Refused},
		{"57", wire.ErrTransientNotCommitted, Unknown},
		{"unknown with a code in the chain", fmt.Errorf("%w: %w", client.ErrOutcomeUnknown, wire.ErrTransientNotAccepted), Unknown},
		{"topic not found", fmt.Errorf("x: %w", wire.ErrTopicIdNotFound), Refused},
		{"blocked", client.ErrBlocked, Refused},
		{"an error that says nothing", errors.New("connection reset"), Unknown},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := OutcomeOf(c.err); got != c.want {
				t.Fatalf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	c, _ := history()
	s := c.Summarise(nil)
	if s.Sends != 22 || s.Acknowledged != 20 || s.Refused != 1 || s.Unknown != 1 || s.Pending != 0 {
		t.Fatalf("got %s", s)
	}
	open := c.Begin(1, 0, 1, 10)
	if got := c.Summarise(nil).Pending; got != 1 {
		t.Fatalf("%d pending sends, want 1", got)
	}
	open.End(Unknown, false, 0, nil)
	if got := c.Failures(1); !strings.Contains(got, "refused") || !strings.Contains(got, "and more") {
		t.Fatalf("got %q", got)
	}
}
