package cli

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/whippetmq/whippet/wire"
)

// ident is a stream, topic, group or user on the command line: digits are an id, anything else a name.
type ident struct{ wire.Identifier }

// Decode parses the argument.
func (i *ident) Decode(ctx *kong.DecodeContext) error {
	text, err := popText(ctx.Scan)
	if err != nil {
		return err
	}
	return i.parse(text)
}

func (i *ident) parse(text string) error {
	id, err := wire.ParseIdentifier(text)
	if err != nil {
		return fmt.Errorf("%q is neither an id nor a name of 1 to 255 bytes", text)
	}
	i.Identifier = id
	return nil
}

// newName is a name that something is given; digits are a name too.
type newName string

// Decode checks the argument, because a server says no more of a name it does not take than that it could not read the
// request.
func (n *newName) Decode(ctx *kong.DecodeContext) error {
	text, err := popText(ctx.Scan)
	if err != nil {
		return err
	}
	if err := wire.ValidateName(text); err != nil {
		return fmt.Errorf("%q is not a name: a name is UTF-8 of 1 to 255 bytes, this has %d", text, len(text))
	}
	*n = newName(text)
	return nil
}

// decodeText takes an argument byte for byte. Kong's own mapper takes it through JSON, which puts U+FFFD in the place of
// every byte that is not UTF-8: a message would be sent, and acknowledged, as something else than was given.
func decodeText(ctx *kong.DecodeContext, target reflect.Value) error {
	text, err := popText(ctx.Scan)
	if err == nil {
		target.SetString(text)
	}
	return err
}

func popText(scan *kong.Scanner) (text string, err error) {
	if text, ok := scan.Peek().Value.(string); ok {
		_, err = scan.PopValue("string")
		return text, err
	}
	err = scan.PopValueInto("string", &text) // from a context file, which has other kinds too
	return text, err
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
func plural[N uint32 | uint64](n N, thing string) string {
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
