package cli

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// messagePollCmd reads messages of one partition.
type messagePollCmd struct {
	topicArgs  `embed:""`
	Partition  uint32  `arg:"" name:"partition" help:"Id of the partition."`
	Offset     *uint64 `name:"offset" short:"o" xor:"from" placeholder:"N" help:"Start at this offset."`
	First      bool    `name:"first" short:"f" xor:"from" help:"Start at the first message."`
	Last       bool    `name:"last" short:"l" xor:"from" help:"The last messages."`
	Next       bool    `name:"next" short:"n" xor:"from" help:"Start behind the stored offset of the consumer."`
	Timestamp  *uint64 `name:"timestamp" xor:"from" placeholder:"MICROS" help:"Start at the first batch that was appended at or after this time (microseconds since 1970)."`
	Count      *uint32 `name:"message-count" short:"m" placeholder:"N" help:"How many messages at most (1; without a limit with --follow)."`
	AutoCommit bool    `name:"auto-commit" short:"a" help:"Store the offset of the last message for the consumer."`
	Consumer   ident   `name:"consumer" short:"c" default:"0" placeholder:"CONSUMER" help:"Id or name of the consumer (0)."`
	Headers    bool    `name:"show-headers" short:"s" help:"Show the headers of messages."`
	Output     string  `name:"output-file" placeholder:"FILE" help:"Append the messages to FILE in binary form, for \"message send --input-file\"."`
	Follow     bool    `name:"follow" help:"Go on with new messages until Ctrl-C, one a line (implies --next when no start is given)."`
}

// Pauses between polls of a partition without new messages.
const (
	followShortest = 10 * time.Millisecond
	followLongest  = 250 * time.Millisecond
	followChunk    = 1000
)

func (c *messagePollCmd) strategy() (wire.PollingStrategy, error) {
	switch {
	case c.Offset != nil:
		return wire.FromOffset(*c.Offset), nil
	case c.First:
		return wire.FromFirst(), nil
	case c.Last:
		return wire.FromLast(), nil
	case c.Timestamp != nil:
		return wire.FromTimestamp(*c.Timestamp), nil
	case c.Next, c.Follow:
		return wire.FromNext(), nil
	}
	return wire.PollingStrategy{}, badUsage("say where to start: --offset N, --first, --last, --next or --timestamp MICROS")
}

// Run polls once, or on and on.
func (c *messagePollCmd) Run(inv *invocation) (err error) {
	strategy, err := c.strategy()
	if err != nil {
		return err
	}
	seal, err := newSealer(inv.globals.EncryptionKey)
	if err != nil {
		return err
	}
	var file io.WriteCloser
	if c.Output != "" {
		if file, err = os.OpenFile(c.Output, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return err
		}
		defer func() {
			if cerr := file.Close(); err == nil {
				err = cerr
			}
		}()
	}
	inv.out.Executing("poll messages from topic ID: %s and stream with ID: %s", c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	r := client.PollRequest{
		Stream: c.Stream.Identifier, Topic: c.Topic.Identifier, Partition: c.Partition,
		Consumer: wire.SingleConsumer(c.Consumer.Identifier), Strategy: strategy, AutoCommit: c.AutoCommit, Count: 1,
	}
	if c.Count != nil {
		r.Count = *c.Count
		if r.Count == 0 {
			return badUsage("--message-count is 0: it must be 1 or more")
		}
	}
	if c.Follow {
		return c.follow(inv, conn, r, seal, file)
	}
	return c.once(inv, conn, r, seal, file)
}

func (c *messagePollCmd) once(inv *invocation, conn *client.Client, r client.PollRequest, seal *sealer, file io.Writer) error {
	start := time.Now()
	polled, err := conn.Poll(inv.ctx, r)
	if err != nil {
		return failed(err, "poll partition %d of %s", c.Partition, c.topicArgs)
	}
	took := time.Since(start)
	defer polled.Release()
	var messages []wire.MessageView
	var size uint64
	for m := range polled.PolledMessages.Messages() {
		if file == nil {
			if m, err = seal.openMessage(m); err != nil {
				return failed(err, "read the message at offset %d", m.Offset)
			}
		}
		size += uint64(len(m.Payload))
		messages = append(messages, m)
	}
	if file != nil {
		if err := writeMessages(file, messages, seal); err != nil {
			return err
		}
		inv.out.Done(map[string]any{"messages": len(messages), "bytes": size, "file": c.Output},
			"Polled %s of total size %s, stored to %s", plural(uint64(len(messages)), "message"), units.Size(size), c.Output)
		return nil
	}
	if inv.out.JSON {
		inv.out.Document(viewPolled(&polled.PolledMessages, messages))
		return nil
	}
	inv.out.Line("Polled messages from topic with ID: %s and stream with ID: %s (from partition with ID: %d)", c.Topic, c.Stream, polled.PartitionID)
	inv.out.Line("Polled %s of total size %s, it took %s", plural(uint64(len(messages)), "message"), units.Size(size), took.Round(time.Microsecond))
	if len(messages) > 0 {
		header, rows := messageRows(messages, c.Headers)
		inv.out.Sheet(output.Sheet{Header: header, Rows: rows})
	}
	return nil
}

// writeMessages appends messages to a file in its binary form, decrypted when there is a key.
func writeMessages(w io.Writer, messages []wire.MessageView, seal *sealer) error {
	var buf []byte
	for _, m := range messages {
		m, err := seal.openMessage(m)
		if err != nil {
			return failed(err, "read the message at offset %d", m.Offset)
		}
		buf = appendMessageFile(buf, m)
		if len(buf) > 1<<20 {
			if _, err := w.Write(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	_, err := w.Write(buf)
	return err
}

// follow prints messages as they come. The first poll starts where the flags say; from then on each starts behind the
// last message seen, so that it does not matter whether offsets are stored.
func (c *messagePollCmd) follow(inv *invocation, conn *client.Client, r client.PollRequest, seal *sealer, file io.Writer) error {
	left := uint64(1<<63 - 1)
	if c.Count != nil {
		left = uint64(*c.Count)
	}
	// The lines of one poll leave together.
	buffered := bufio.NewWriterSize(inv.out.W, 64<<10)
	inv.out.W = buffered
	pause := followShortest
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for left > 0 {
		r.Count = uint32(min(left, followChunk))
		polled, err := conn.Poll(inv.ctx, r)
		if err != nil {
			if inv.ctx.Err() != nil {
				return nil // Ctrl-C is how this command ends
			}
			return failed(err, "poll partition %d of %s", c.Partition, c.topicArgs)
		}
		seen := uint64(0)
		for m := range polled.PolledMessages.Messages() {
			if err := c.emit(inv, polled.PartitionID, m, seal, file); err != nil {
				polled.Release()
				return errors.Join(err, buffered.Flush())
			}
			r.Strategy = wire.FromOffset(m.Offset + 1)
			seen++
		}
		if seen == 0 && (r.Strategy.Kind == wire.StrategyLast || r.Strategy.Kind == wire.StrategyTimestamp) {
			// Nothing there yet: whatever comes next is new.
			if polled.CurrentOffset > 0 {
				r.Strategy = wire.FromOffset(polled.CurrentOffset + 1)
			}
		}
		polled.Release()
		left -= seen
		if err := errors.Join(inv.out.Err(), buffered.Flush()); err != nil {
			return err
		}
		if seen > 0 {
			pause = followShortest
			continue
		}
		timer.Reset(pause)
		pause = min(2*pause, followLongest)
		select {
		case <-inv.ctx.Done():
			return nil
		case <-timer.C:
		}
	}
	return nil
}

// emit prints one message as a line, or appends it to the file.
func (c *messagePollCmd) emit(inv *invocation, partition uint32, m wire.MessageView, seal *sealer, file io.Writer) error {
	if file != nil {
		return writeMessages(file, []wire.MessageView{m}, seal)
	}
	m, err := seal.openMessage(m)
	if err != nil {
		return failed(err, "read the message at offset %d", m.Offset)
	}
	if inv.out.JSON {
		inv.out.Document(struct {
			Partition uint32 `json:"partition_id"`
			messageView
		}{partition, viewMessage(m)})
		return nil
	}
	fields := []string{strconv.FormatUint(m.Offset, 10), units.TimeLocalMicros(m.Timestamp), m.ID.String(), strconv.Itoa(len(m.Payload))}
	if c.Headers {
		h, _ := m.Headers()
		var parts []string
		for _, kv := range h {
			parts = append(parts, headerText(kv.Key)+":"+kv.Value.Kind.String()+":"+headerText(kv.Value))
		}
		fields = append(fields, strings.Join(parts, ","))
	}
	inv.out.Line("%s", strings.Join(append(fields, strings.ReplaceAll(payloadText(m.Payload), "\n", `\n`)), "|"))
	return nil
}

// messageRows are the table of polled messages; with headers, each key that occurs becomes a column.
func messageRows(messages []wire.MessageView, headers bool) (header []string, rows [][]string) {
	header = []string{"Offset", "Timestamp", "ID", "Length", "Payload"}
	columns := map[string]int{}
	parsed := make([]wire.Headers, len(messages))
	if headers {
		for i := range messages {
			h, err := messages[i].Headers()
			if err != nil {
				continue // headers that do not decode show no columns
			}
			parsed[i] = h
			for _, kv := range h {
				name := headerColumn(kv)
				if _, ok := columns[name]; !ok {
					columns[name] = len(header)
					header = append(header, name)
				}
			}
		}
	}
	for i, m := range messages {
		row := make([]string, len(header))
		row[0], row[1], row[2] = strconv.FormatUint(m.Offset, 10), units.TimeLocalMicros(m.Timestamp), m.ID.String()
		row[3], row[4] = strconv.Itoa(len(m.Payload)), payloadText(m.Payload)
		for _, kv := range parsed[i] {
			row[columns[headerColumn(kv)]] = headerText(kv.Value)
		}
		rows = append(rows, row)
	}
	return header, rows
}

func headerColumn(kv wire.KeyValue) string {
	return fmt.Sprintf("Header: %s (%s)", headerText(kv.Key), kv.Value.Kind)
}

// payloadText shows a payload: text as it is, anything else with its bytes escaped.
func payloadText(p []byte) string {
	if utf8.Valid(p) {
		return string(p)
	}
	var b strings.Builder
	for len(p) > 0 {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, p[0])
		} else {
			b.WriteRune(r)
		}
		p = p[n:]
	}
	return b.String()
}

type messageHeaderView struct {
	Checksum        uint64      `json:"checksum"`
	ID              json.Number `json:"id"`
	Offset          uint64      `json:"offset"`
	Timestamp       uint64      `json:"timestamp"`
	OriginTimestamp uint64      `json:"origin_timestamp"`
	HeadersLength   int         `json:"user_headers_length"`
	PayloadLength   int         `json:"payload_length"`
}

type messageView struct {
	Header  messageHeaderView `json:"header"`
	Payload string            `json:"payload"`        // base64
	Text    *string           `json:"text,omitempty"` // the payload, when it is text
	Headers any               `json:"user_headers"`
}

func viewMessage(m wire.MessageView) messageView {
	v := messageView{
		Header: messageHeaderView{
			Checksum: m.Checksum, ID: json.Number(m.ID.String()), Offset: m.Offset, Timestamp: m.Timestamp,
			OriginTimestamp: m.OriginTimestamp, HeadersLength: len(m.HeadersBytes), PayloadLength: len(m.Payload),
		},
		Payload: base64.StdEncoding.EncodeToString(m.Payload),
		Headers: []headerView{},
	}
	if utf8.Valid(m.Payload) {
		text := string(m.Payload)
		v.Text = &text
	}
	if len(m.HeadersBytes) > 0 {
		if h, err := m.Headers(); err == nil {
			v.Headers = viewHeaders(h)
		} else {
			v.Headers = base64.StdEncoding.EncodeToString(m.HeadersBytes)
		}
	}
	return v
}

type polledView struct {
	Partition     uint32        `json:"partition_id"`
	CurrentOffset uint64        `json:"current_offset"`
	Count         int           `json:"count"`
	Messages      []messageView `json:"messages"`
}

func viewPolled(p *wire.PolledMessages, messages []wire.MessageView) polledView {
	v := polledView{Partition: p.PartitionID, CurrentOffset: p.CurrentOffset, Count: len(messages), Messages: []messageView{}}
	for _, m := range messages {
		v.Messages = append(v.Messages, viewMessage(m))
	}
	return v
}
