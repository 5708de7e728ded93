package metadata

import (
	"cmp"
	"slices"

	"github.com/whippetmq/whippet/wire"
)

// topicOptions is what an entry says of the options of a new topic. Defaults are filled in by the proposer and travel with the entry:
// nodes with other defaults must not disagree about a topic (model.md §4, "Resolution").
type topicOptions struct {
	explicit, derived wire.Options
}

func (o *topicOptions) append(dst []byte) []byte {
	return appendOptions(appendOptions(dst, o.explicit), o.derived)
}

func (o *topicOptions) decode(r *reader) {
	o.explicit = r.options()
	o.derived = r.options()
	for i := range o.explicit {
		if _, twice := o.derived.Get(o.explicit[i].Key); twice {
			r.fail("option %q is both explicit and derived", o.explicit[i].Key)
		}
	}
}

// resolveOptions checks what a client sent for a new topic.
func resolveOptions(sent wire.Options, partitions uint32, defaults wire.TopicOptions) (topicOptions, error) {
	t, err := wire.ResolveTopicOptions(sent, partitions, defaults)
	if err != nil {
		return topicOptions{}, refuse(err)
	}
	return topicOptions{explicit: t.Explicit, derived: t.Derived}, nil
}

// optionPatch is what an entry says of changed options: explicit is set, derived goes back to these defaults.
type optionPatch struct{ topicOptions }

// newPatch checks what a client sent for an existing topic, as far as that is possible without the topic.
func newPatch(sent wire.Options, defaults wire.TopicOptions) (optionPatch, error) {
	// The smallest segment size stands for the topic's own, so that 1019 is certain here; apply compares with the real one.
	base := wire.Options{{Key: wire.OptSegmentSize, Value: wire.Uint64Value(wire.MinSegmentSize)}}
	t, err := wire.UpdateTopicOptions(nil, base, sent, defaults)
	if err != nil {
		return optionPatch{}, refuse(err)
	}
	return optionPatch{topicOptions{explicit: t.Explicit, derived: t.Derived.Delete(wire.OptSegmentSize)}}, nil
}

// apply changes the options of a copy of a topic, whose lists it does not touch.
func (p *optionPatch) apply(t *Topic) wire.ErrorCode {
	if len(p.explicit)+len(p.derived) == 0 {
		return 0
	}
	explicit, derived := t.Explicit.Clone(), t.Derived.Clone()
	for _, o := range p.explicit {
		explicit = explicit.Set(o.Key, o.Value)
		derived = derived.Delete(o.Key)
	}
	for _, o := range p.derived {
		explicit = explicit.Delete(o.Key)
		derived = derived.Set(o.Key, o.Value)
	}
	sortOptions(explicit)
	sortOptions(derived)
	config := wire.TopicOptionsOf(explicit, derived)
	if _, set := p.explicit.Get(wire.OptMaxTopicSize); set && config.MaxTopicSize < config.SegmentSize {
		return wire.ErrInvalidTopicSize
	}
	t.Explicit, t.Derived, t.Config = explicit, derived, config
	return 0
}

// fits tells whether the patch can be applied to a topic.
func (p *optionPatch) fits(t *Topic) bool {
	probe := *t
	return p.apply(&probe) == 0
}

func sortOptions(o wire.Options) {
	slices.SortFunc(o, func(a, b wire.Option) int { return cmp.Compare(a.Key, b.Key) })
}
