package cli

import (
	"fmt"
	"strings"

	"github.com/whippetmq/whippet/wire"
)

// ident is a stream, topic, group or user on the command line: digits are an id, anything else a name.
type ident struct{ wire.Identifier }

// UnmarshalText parses the argument.
func (i *ident) UnmarshalText(text []byte) error {
	id, err := wire.ParseIdentifier(string(text))
	if err != nil {
		return fmt.Errorf("%q is neither an id nor a name of 1 to 255 bytes", text)
	}
	i.Identifier = id
	return nil
}

// streamArg is the first argument of commands about a stream.
type streamArg struct {
	Stream ident `arg:"" name:"stream" help:"Id or name of the stream."`
}

// topicArgs are the first arguments of commands about a topic.
type topicArgs struct {
	streamArg `embed:""`
	Topic     ident `arg:"" name:"topic" help:"Id or name of the topic."`
}

func (t topicArgs) String() string {
	return fmt.Sprintf("topic %s of stream %s", t.Topic, t.Stream)
}

// plural writes "1 partition" or "3 partitions".
func plural(n uint32, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// optionPairs are repeated --set KEY=VALUE flags.
type optionPairs []string

func (p optionPairs) options() (wire.Options, error) {
	var o wire.Options
	for _, pair := range p {
		key, value, ok := strings.Cut(pair, "=")
		switch {
		case !ok:
			return nil, badUsage("--set %q is not KEY=VALUE", pair)
		case key == "" || len(key) > 255:
			return nil, badUsage("--set %q: a key has 1 to 255 bytes", pair)
		case value == "" || len(value) > 255:
			return nil, badUsage("--set %q: a value has 1 to 255 bytes", pair)
		}
		o = o.Set(key, wire.StringValue(value))
	}
	return o, nil
}
