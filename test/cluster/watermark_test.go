package cluster

import (
	"fmt"
	"testing"
	"time"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/test/cluster/harness"
	"github.com/whippetmq/whippet/wire"
)

// metadataGroup is the group of the metadata on links between nodes.
const metadataGroup = uint64(1) << 63

// TestSendToALaggingNode is E.2/17: a topic is made and sent to at once, while the metadata reaches one of the nodes 300 ms
// late. No caller is told that the topic is not there.
func TestSendToALaggingNode(t *testing.T) {
	c := three(t, peerProxies, func(o *harness.Options) { o.Spread = true })
	must(t, c.TransferMetadata(patient(t), 0))
	const lagging = 2
	for from := range 2 {
		rule := c.PeerProxy(from, lagging).Rule(harness.Rule{Name: "metadata", Do: harness.Delay(300 * time.Millisecond), Match: func(f *harness.Frame) bool {
			return f.Dir == harness.ToServer && f.PeerKind == harness.PeerRaft && f.Group == metadataGroup && f.RaftType == harness.RaftAppend
		}})
		defer func() {
			if rule.Hits() == 0 && from == 0 {
				t.Error("no metadata was delayed: the test proves nothing")
			}
		}()
	}
	cl, w := c.Client(t, 0)
	before := session(t, cl)
	must(t, c.Node(0).Call(patient(t), &wire.CreateStream{Name: "s"}, nil))
	stream := wire.Name("s")
	for i := range harness.Scale(4, 20) {
		name := fmt.Sprintf("topic-%d", i)
		_, err := cl.CreateTopic(patient(t), stream, client.TopicConfig{Name: name, Partitions: 3})
		must(t, err)
		for p := range uint32(3) {
			conf, err := cl.Send(patient(t), stream, wire.Name(name), wire.PartitionID(p), client.Message{Payload: []byte("at once")})
			if err != nil || conf.Offset != 0 {
				t.Errorf("send to partition %d of the new %s: %+v, %v", p, name, conf, err)
			}
		}
		for p := range uint32(3) {
			polled, err := cl.Poll(patient(t), client.PollRequest{Stream: stream, Topic: wire.Name(name), Partition: p, Strategy: wire.FromFirst()})
			if err != nil || polled.Count != 1 {
				t.Errorf("poll of partition %d of the new %s: %v", p, name, err)
			}
		}
	}
	stays(t, cl, w, before)
}
