package units

import (
	"math"
	"testing"
)

func TestSize(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1: "1 B", 999: "999 B", 1000: "1.00 KB", 1500: "1.50 KB", 999_999: "1.00 MB",
		1_000_000: "1.00 MB", 15_000_000_000: "15.00 GB", 1 << 30: "1.07 GB", 2_000_000_000_000: "2.00 TB",
	} {
		if got := Size(n); got != want {
			t.Errorf("Size(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint64
		bad  bool
	}{
		{in: "10", want: 10}, {in: "10B", want: 10}, {in: "15GB", want: 15e9}, {in: "15 GB", want: 15e9},
		{in: "128 MiB", want: 128 << 20}, {in: "1.5kb", want: 1500}, {in: "1gib", want: 1 << 30},
		{in: "", bad: true}, {in: "GB", bad: true}, {in: "10 apples", bad: true}, {in: "-1", bad: true},
		{in: "99999999999999999999", want: 0, bad: true}, {in: "18446744073709551615 KB", bad: true}, {in: "1.2.3", bad: true},
	} {
		got, err := ParseSize(c.in)
		if (err != nil) != c.bad || got != c.want {
			t.Errorf("ParseSize(%q) = %d, %v", c.in, got, err)
		}
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint64
	}{{"unlimited", Unlimited}, {"server_default", ServerDefault}, {"1 KB", 1000}} {
		got, err := ParseSizeLimit(c.in)
		if err != nil || got != c.want {
			t.Errorf("ParseSizeLimit(%q) = %d, %v", c.in, got, err)
		}
	}
	if got := SizeLimit(math.MaxUint64); got != "unlimited" {
		t.Errorf("SizeLimit(max) = %q", got)
	}
	if got := Expiry(math.MaxUint64); got != "unlimited" {
		t.Errorf("Expiry(max) = %q", got)
	}
}

func TestDuration(t *testing.T) {
	const s = 1_000_000
	for us, want := range map[uint64]string{
		0: "0s", 1: "1us", 1500: "1ms 500us", 90 * s: "1m 30s", 26 * 3600 * s: "1day 2h", 48 * 3600 * s: "2days",
		secondsPerYear * s: "1year", (secondsPerYear + secondsPerMonth + 5) * s: "1year 1month 5s",
	} {
		if got := Duration(us); got != want {
			t.Errorf("Duration(%d) = %q, want %q", us, got, want)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for _, c := range []struct {
		in   string
		want uint64
		bad  bool
	}{
		{in: "30s", want: 30e6}, {in: "15 m", want: 900e6}, {in: "1day 2h", want: 26 * 3600e6}, {in: "1h30m", want: 5400e6},
		{in: "250ms", want: 250e3}, {in: "0", want: 0},
		{in: "", bad: true}, {in: "12", bad: true}, {in: "s", bad: true}, {in: "1 parsec", bad: true}, {in: "9999999999999999years", bad: true},
	} {
		got, err := ParseDuration(c.in)
		if (err != nil) != c.bad || got != c.want {
			t.Errorf("ParseDuration(%q) = %d, %v", c.in, got, err)
		}
	}
}

func TestParseExpiry(t *testing.T) {
	for _, c := range []struct {
		in   []string
		want uint64
		bad  bool
	}{
		{nil, ServerDefault, false}, {[]string{"unlimited"}, Unlimited, false}, {[]string{"none"}, Unlimited, false},
		{[]string{"1day", "1hour"}, 25 * 3600e6, false}, {[]string{"1day 1h", "1m"}, 25*3600e6 + 60e6, false},
		{[]string{"1day", "unlimited"}, 0, true},
	} {
		got, err := ParseExpiry(c.in)
		if (err != nil) != c.bad || got != c.want {
			t.Errorf("ParseExpiry(%q) = %d, %v", c.in, got, err)
		}
	}
}

func TestTimes(t *testing.T) {
	if got := TimeUTC(1_700_000_000_000_000); got != "2023-11-14 22:13:20" {
		t.Errorf("TimeUTC = %q", got)
	}
	if got := TimeLocalMicros(math.MaxUint64); got == "" {
		t.Error("a time out of range prints nothing")
	}
}
