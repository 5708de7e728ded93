package disk

import (
	"testing"

	"github.com/whippetmq/whippet/test/cluster/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }
