package client

import (
	"testing"

	"github.com/whippetmq/whippet/wire"
)

// TestClassifyEveryCode: every code of the protocol has its reaction; the ones
// that are not named here are fatal.
func TestClassifyEveryCode(t *testing.T) {
	want := map[wire.ErrorCode]reaction{
		8: reactUnknown, 9: reactReconnect, 20: reactRefresh, 30: reactReconnect, 31: reactUnknown, 32: reactUnknown,
		40: reactReconnect, 57: reactUnknown, 58: reactRetry, 59: reactApplied, 61: reactReconnect,
		206: reactUnknown, 304: reactUnknown, 403: reactUnknown, 404: reactUnknown,
		1009: reactRefresh, 1010: reactRefresh, 2010: reactRefresh, 2011: reactRefresh, 3007: reactRefresh,
	}
	known := 0
	for code := range wire.ErrorCode(20_000) {
		if !code.Known() {
			if got := classify(code); got != reactFatal {
				t.Errorf("unknown code %d: %v", code, got)
			}
			continue
		}
		known++
		if got := classify(code); got != want[code] {
			t.Errorf("%v: %v, want %v", code, got, want[code])
		}
		switch class := code.Class(); {
		case class == wire.ClassNotAdmitted && want[code] != reactRetry,
			class == wire.ClassOutcomeUnknown && want[code] != reactUnknown,
			class == wire.ClassApplied && want[code] != reactApplied,
			class == wire.ClassSessionLost && want[code] != reactReconnect && want[code] != reactUnknown,
			class == wire.ClassTerminal && want[code] != reactFatal && want[code] != reactRefresh:
			t.Errorf("%v: class %v of the protocol, reaction %v", code, class, want[code])
		}
		// A code that does not prove that nothing was written must never lead to
		// a resend under a new number.
		if r := classify(code); (r == reactRetry || r == reactReconnect) && !code.NothingWritten() && code != wire.ErrStaleClient {
			t.Errorf("%v would be sent again although it may have been applied", code)
		}
	}
	if known != 240 {
		t.Errorf("%d codes, want 240", known)
	}
}
