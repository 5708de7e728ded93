package cli

import "testing"

// Commands that send one message each reach all partitions.
func TestTurnsBeginAnywhere(t *testing.T) {
	used := map[uint32]bool{}
	for range 100 {
		used[new(messageSendCmd).producerConfig().Partitioner.Partition(nil, 3)] = true
	}
	if len(used) != 3 {
		t.Errorf("used: %v", used)
	}
}
