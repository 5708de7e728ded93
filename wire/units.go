package wire

import (
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// Never is the expiry that never comes, Unlimited the size without a limit
// (commands §2.12).
const (
	Never     uint64 = math.MaxUint64
	Unlimited uint64 = math.MaxUint64
)

// maxTextSeconds bounds durations given as text.
const maxTextSeconds = math.MaxUint32

// ParseDuration reads a duration as people write it ("7 days", "1h 30m",
// "500ms") and gives microseconds. A bare number is refused, except 0. It fails
// with ErrInvalidNumberValue.
func ParseDuration(text string) (us uint64, err error) {
	s := strings.TrimSpace(text)
	if s == "0" {
		return 0, nil
	}
	if s == "" {
		return 0, ErrInvalidNumberValue
	}
	var nanos uint64
	for s != "" {
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		n, perr := strconv.ParseUint(s[:i], 10, 64)
		if perr != nil {
			return 0, ErrInvalidNumberValue
		}
		s = strings.TrimLeft(s[i:], " \t")
		i = 0
		for i < len(s) && (s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z') {
			i++
		}
		unit := durationUnit(s[:i])
		s = strings.TrimLeft(s[i:], " \t")
		hi, part := bits.Mul64(n, unit)
		sum, carry := bits.Add64(nanos, part, 0)
		if unit == 0 || hi|carry != 0 {
			return 0, ErrInvalidNumberValue
		}
		nanos = sum
	}
	return nanos / 1000, nil
}

// durationUnit gives nanoseconds. Months are 30.44 and years 365.25 days; only
// the month's M is told apart by case.
func durationUnit(u string) uint64 {
	const (
		second = 1_000_000_000
		day    = 86_400 * second
	)
	if u == "M" {
		return 2_630_016 * second
	}
	switch strings.ToLower(u) {
	case "ns", "nsec", "nanos", "nanosecond", "nanoseconds":
		return 1
	case "us", "usec", "micros", "microsecond", "microseconds":
		return 1_000
	case "ms", "msec", "millis", "millisecond", "milliseconds":
		return 1_000_000
	case "s", "sec", "secs", "second", "seconds":
		return second
	case "m", "min", "mins", "minute", "minutes":
		return 60 * second
	case "h", "hr", "hrs", "hour", "hours":
		return 3_600 * second
	case "d", "day", "days":
		return day
	case "w", "wk", "wks", "week", "weeks":
		return 7 * day
	case "month", "months":
		return 2_630_016 * second
	case "y", "yr", "yrs", "year", "years":
		return 31_557_600 * second
	}
	return 0
}

// ParseExpiry reads the text of an expiry: a duration of at most 2^32-1 seconds,
// "none", "unlimited", "never" or "never_expire" (Never), "default" or
// "server_default" (0).
func ParseExpiry(text string) (us uint64, err error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "none", "unlimited", "never", "never_expire":
		return Never, nil
	case "default", "server_default":
		return 0, nil
	}
	us, err = ParseDuration(text)
	if err == nil && us > maxTextSeconds*1_000_000 {
		return 0, ErrInvalidNumberValue
	}
	return us, err
}

// ParseSize reads a number of bytes as people write it: "128 MiB", "1GB",
// "1.5 KiB", "512". KB is 1000, KiB is 1024; case does not matter. It fails with
// ErrInvalidSizeBytes.
func ParseSize(text string) (uint64, error) {
	s := strings.TrimSpace(text)
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	unit := sizeUnit(strings.TrimSpace(s[i:]))
	if i == 0 || unit == 0 {
		return 0, ErrInvalidSizeBytes
	}
	whole, fraction, dotted := strings.Cut(s[:i], ".")
	n, err := strconv.ParseUint(whole, 10, 64)
	hi, total := bits.Mul64(n, unit)
	if err != nil || hi != 0 || dotted && (fraction == "" || len(fraction) > 9) {
		return 0, ErrInvalidSizeBytes
	}
	if dotted {
		f, err := strconv.ParseUint(fraction, 10, 64)
		if err != nil {
			return 0, ErrInvalidSizeBytes
		}
		scale := uint64(1)
		for range len(fraction) {
			scale *= 10
		}
		fhi, flo := bits.Mul64(f, unit)
		part, _ := bits.Div64(fhi, flo, scale) // f < scale, so the quotient is below unit
		sum, carry := bits.Add64(total, part, 0)
		if carry != 0 {
			return 0, ErrInvalidSizeBytes
		}
		total = sum
	}
	return total, nil
}

func sizeUnit(u string) uint64 {
	switch strings.ToLower(u) {
	case "", "b", "byte", "bytes":
		return 1
	case "k", "kb":
		return 1e3
	case "m", "mb":
		return 1e6
	case "g", "gb":
		return 1e9
	case "t", "tb":
		return 1e12
	case "p", "pb":
		return 1e15
	case "ki", "kib":
		return 1 << 10
	case "mi", "mib":
		return 1 << 20
	case "gi", "gib":
		return 1 << 30
	case "ti", "tib":
		return 1 << 40
	case "pi", "pib":
		return 1 << 50
	}
	return 0
}

// ParseLimit reads the text of a size limit: a size, "unlimited" or "none"
// (Unlimited), "default" or "server_default" (0).
func ParseLimit(text string) (uint64, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "unlimited", "none":
		return Unlimited, nil
	case "default", "server_default":
		return 0, nil
	}
	return ParseSize(text)
}
