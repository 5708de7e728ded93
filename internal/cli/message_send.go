package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// messageSendCmd sends messages. Those of one call keep their order within a partition.
type messageSendCmd struct {
	topicArgs `embed:""`
	Messages  []string `arg:"" optional:"" name:"message" help:"Messages; without any, each line of standard input is one."`
	Partition *uint32  `name:"partition-id" short:"p" xor:"where" placeholder:"ID" help:"Send to this partition."`
	Key       *string  `name:"message-key" short:"m" xor:"where" placeholder:"KEY" help:"Send to the partition that this key belongs to. Without -p and -m partitions take turns with batches of messages, beginning at any."`
	Headers   []string `name:"headers" short:"H" sep:"none" placeholder:"KEY:KIND:VALUE" help:"Headers of every message, separated by commas (a backslash keeps a comma); kinds are raw, string, bool, int8 to int128, uint8 to uint128, float32, float64."`
	Input     string   `name:"input-file" xor:"source" placeholder:"FILE" help:"Send the messages of a file that \"message poll --output-file\" wrote."`
	Lines     string   `name:"lines" xor:"source" placeholder:"FILE" help:"Send each line of FILE as a message (- is standard input)."`
}

// Limits of one batch of lines.
const (
	sendBatchMessages = 1000
	sendBatchBytes    = 1 << 20
	sendLinger        = 5 * time.Millisecond
	longestLine       = wire.MaxPayloadSize
)

// sendResult counts what was acknowledged. Acknowledgements arrive on the producer's goroutine.
type sendResult struct {
	mu         sync.Mutex
	messages   uint64
	bytes      uint64
	partitions map[uint32]*sentRange
	err        error
}

type sentRange struct {
	Partition uint32 `json:"partition_id"`
	First     uint64 `json:"first_offset"`
	Last      uint64 `json:"last_offset"`
	Count     uint64 `json:"count"`
}

type sendView struct {
	Messages   uint64      `json:"messages"`
	Bytes      uint64      `json:"bytes"`
	EmptyLines uint64      `json:"empty_lines,omitempty"` // left out: a payload has at least one byte
	Partitions []sentRange `json:"partitions"`
}

// Run sends the messages and waits until all are acknowledged.
func (c *messageSendCmd) Run(inv *invocation) error {
	headers, err := parseHeaders(c.Headers)
	if err != nil {
		return err
	}
	if c.Key != nil && (*c.Key == "" || len(*c.Key) > 255) {
		return badUsage("--message-key has %d bytes: 1 to 255 are allowed", len(*c.Key))
	}
	if len(c.Messages) > 0 && (c.Input != "" || c.Lines != "") {
		return badUsage("give messages, --lines or --input-file, not several of them")
	}
	if c.Input != "" && len(headers) > 0 {
		return badUsage("--headers cannot be combined with --input-file: its messages have their own headers")
	}
	seal, err := newSealer(inv.globals.EncryptionKey)
	if err != nil {
		return err
	}
	if seal != nil && (len(headers) > 0 || c.Input != "") {
		return badUsage("--encryption-key encrypts payloads only, so it takes neither --headers nor --input-file, which would send headers in clear")
	}
	src, err := c.source(inv)
	if err != nil {
		return err
	}
	defer src.close()

	inv.out.Executing("send messages to topic with ID: %s and stream with ID: %s", c.Topic, c.Stream)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	producer := conn.Producer(c.Stream.Identifier, c.Topic.Identifier, c.producerConfig())
	res := &sendResult{partitions: map[uint32]*sentRange{}}
	sendErr := c.sendAll(inv.ctx, producer, src, res, func(m *client.Message) {
		m.Headers = headers
		m.Payload = seal.seal(m.Payload)
	})
	// What was handed over is still sent after Ctrl-C: its lines have been read and are nowhere else.
	flushCtx, cancel := context.WithTimeout(context.WithoutCancel(inv.ctx), 30*time.Second)
	defer cancel()
	if err := producer.Close(flushCtx); err != nil && sendErr == nil {
		sendErr = err
	}
	return c.report(inv, src, res, sendErr)
}

func (c *messageSendCmd) producerConfig() client.ProducerConfig {
	cfg := client.ProducerConfig{
		Linger: sendLinger, BatchMessages: sendBatchMessages, BatchBytes: sendBatchBytes, OnUnknown: client.UnknownContinue,
	}
	switch {
	case c.Partition != nil:
		cfg.Partitioner = client.FixedPartition(*c.Partition)
	case c.Key != nil:
		cfg.Partitioner = client.KeyPartitioner()
	default:
		cfg.Partitioner = client.BalancedFrom(rand.Uint32()) // a loop of such commands is to use all partitions
	}
	return cfg
}

// sendAll hands every message to the producer.
func (c *messageSendCmd) sendAll(ctx context.Context, p *client.Producer, src *source, res *sendResult, prepare func(*client.Message)) error {
	for {
		if ctx.Err() != nil {
			return errInterrupted
		}
		m, err := src.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errInterrupted):
			return errInterrupted
		case err != nil:
			return err
		}
		if err := res.failure(); err != nil {
			return err // the first refused message ends the run; more would only repeat it
		}
		size := uint64(len(m.Payload))
		prepare(&m)
		if c.Key != nil {
			m.Key = []byte(*c.Key)
		}
		err = p.Enqueue(ctx, m, func(conf client.Confirmation, err error) { res.done(conf, size, err) })
		switch {
		case err != nil && ctx.Err() != nil:
			return errInterrupted
		case err != nil:
			return err
		}
	}
}

func (r *sendResult) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *sendResult) done(conf client.Confirmation, size uint64, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.err == nil {
			r.err = err
		}
		return
	}
	r.messages++
	r.bytes += size
	if !conf.Known {
		return
	}
	s := r.partitions[conf.Partition]
	if s == nil {
		s = &sentRange{Partition: conf.Partition, First: conf.Offset, Last: conf.Offset}
		r.partitions[conf.Partition] = s
	}
	s.First, s.Last = min(s.First, conf.Offset), max(s.Last, conf.Offset)
	s.Count++
}

func (c *messageSendCmd) report(inv *invocation, src *source, res *sendResult, err error) error {
	if err == nil {
		err = res.failure()
	}
	res.mu.Lock() // a flush that took too long leaves acknowledgements that still arrive
	defer res.mu.Unlock()
	view := sendView{Messages: res.messages, Bytes: res.bytes, EmptyLines: src.empty, Partitions: []sentRange{}}
	for _, s := range res.partitions {
		view.Partitions = append(view.Partitions, *s)
	}
	sort.Slice(view.Partitions, func(i, j int) bool { return view.Partitions[i].Partition < view.Partitions[j].Partition })
	if err != nil {
		if res.messages > 0 {
			were := "were"
			if res.messages == 1 {
				were = "was"
			}
			err = fmt.Errorf("%w (%s before %s acknowledged)", err, plural(res.messages, "message"), were)
		}
		return failed(err, "send to %s", c.topicArgs)
	}
	if c.Input != "" {
		inv.out.Line("Read %s and built %s", units.Size(src.read), plural(res.messages, "message"))
	}
	var where []string
	for _, p := range view.Partitions {
		if p.First == p.Last {
			where = append(where, fmt.Sprintf("partition %d at offset %d", p.Partition, p.First))
		} else {
			where = append(where, fmt.Sprintf("partition %d at offsets %d to %d", p.Partition, p.First, p.Last))
		}
	}
	text := ""
	if len(where) > 0 {
		text = ": " + strings.Join(where, ", ")
	}
	if src.empty > 0 {
		text += fmt.Sprintf(" (empty lines left out: %d)", src.empty)
	}
	inv.out.Done(view, "Sent %s to topic with ID: %s and stream with ID: %s%s", plural(res.messages, "message"), c.Topic, c.Stream, text)
	return nil
}

// source is where messages come from.
type source struct {
	next  func() (client.Message, error) // io.EOF at the end
	close func()
	empty uint64 // lines that were left out
	read  uint64 // bytes of a file of messages
}

func (c *messageSendCmd) source(inv *invocation) (*source, error) {
	s := &source{close: func() {}}
	open := func(name string) (io.Reader, error) {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		s.close = func() { _ = f.Close() }
		return newInterruptible(inv.ctx, f), nil // it may be a pipe
	}
	switch {
	case len(c.Messages) > 0:
		s.next = arguments(c.Messages)
	case c.Input != "":
		f, err := open(c.Input)
		if err != nil {
			return nil, err
		}
		s.messageFile(c.Input, f)
	case c.Lines != "" && c.Lines != "-":
		f, err := open(c.Lines)
		if err != nil {
			return nil, err
		}
		s.lines(f)
	default:
		if interactive(inv.Stdin) && !inv.globals.Quiet {
			_, _ = fmt.Fprintln(inv.Stderr, "Each line is a message; end with Ctrl-D.")
		}
		s.lines(inv.stdin)
	}
	return s, nil
}

// arguments makes each argument a message.
func arguments(rest []string) func() (client.Message, error) {
	return func() (client.Message, error) {
		if len(rest) == 0 {
			return client.Message{}, io.EOF
		}
		m := rest[0]
		rest = rest[1:]
		if m == "" {
			return client.Message{}, badUsage("a message is empty: a payload has at least one byte")
		}
		return client.Message{Payload: []byte(m)}, nil
	}
}

// messageFile takes the messages of a file that a poll wrote.
func (s *source) messageFile(name string, f io.Reader) {
	r := bufio.NewReaderSize(f, 1<<20)
	s.next = func() (client.Message, error) {
		m, n, err := readMessageFile(r)
		if err != nil {
			if !errors.Is(err, io.EOF) {
				err = fmt.Errorf("%s: %w", name, err)
			}
			return client.Message{}, err
		}
		s.read += uint64(n)
		return client.Message{ID: m.ID, OriginTimestamp: m.OriginTimestamp, Payload: m.Payload, HeadersBytes: m.HeadersBytes}, nil
	}
}

// lines makes each line a message, without its line feed. Empty lines are no messages.
func (s *source) lines(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), longestLine+2)
	s.next = func() (client.Message, error) {
		for sc.Scan() {
			if line := sc.Bytes(); len(line) > 0 {
				return client.Message{Payload: line}, nil // the producer copies it before it returns
			}
			s.empty++
		}
		if err := sc.Err(); err != nil {
			if errors.Is(err, bufio.ErrTooLong) {
				return client.Message{}, fmt.Errorf("a line is longer than %d bytes, the largest payload", longestLine)
			}
			return client.Message{}, fmt.Errorf("read lines: %w", err)
		}
		return client.Message{}, io.EOF
	}
}
