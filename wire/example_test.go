package wire_test

import (
	"fmt"

	"github.com/whippetmq/whippet/wire"
)

// A whole send: batch, request and frame.
func Example_send() {
	batch, err := wire.BuildBatch(nil, []wire.Message{
		{ID: wire.U128{Lo: 1}, OriginTimestamp: 1_000_000, Payload: []byte("hello")},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	send := &wire.SendMessages{
		Stream: wire.ID(7), Topic: wire.Name("orders"), Partitioning: wire.PartitionID(3), Batch: batch,
	}
	frame := wire.AppendCommand(nil, wire.RequestHeader{Client: wire.U128{Lo: 42}, Session: 9, Request: 1}, send)

	var header wire.RequestHeader
	if err := header.Decode(frame); err != nil {
		fmt.Println(err)
		return
	}
	var got wire.SendMessages
	if err := got.Decode(frame[wire.HeaderSize:]); err != nil {
		fmt.Println(err)
		return
	}
	if err := got.Batch.Verify(); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(header.Operation, got.Stream, got.Topic, got.Batch.Count())
	for m := range got.Batch.Messages() {
		fmt.Printf("%d %s\n", m.Offset, m.Payload)
	}
	// Output:
	// SendMessages 7 orders 1
	// 0 hello
}

// How a client reads a reply: the frame kind, the header, then the payload of
// the command that it sent.
func Example_reply() {
	request := wire.RequestHeader{Client: wire.U128{Lo: 42}, Session: 9, Request: 2, Operation: wire.OpCreateStream}
	answer := wire.AppendRejection(nil, request.Reply(), wire.ErrStreamNameAlreadyExists)

	var header wire.ReplyHeader
	if wire.KindOf(answer) != wire.FrameReply || header.Decode(answer) != nil {
		return
	}
	_, err := header.Payload(answer[wire.HeaderSize:])
	fmt.Println(err)
	fmt.Println(wire.StatusOf(err).Class())
	// Output:
	// a stream with this name already exists (StreamNameAlreadyExists, code 1012)
	// terminal
}
