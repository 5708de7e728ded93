package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Lengths of the calendar units that the reference uses: a year of 365.25 days, a month of a twelfth of it.
const (
	secondsPerYear  = 31_557_600
	secondsPerMonth = 2_630_016
	secondsPerDay   = 86_400
)

var durationUnits = map[string]uint64{ // microseconds
	"us": 1, "usec": 1, "µs": 1,
	"ms": 1e3, "msec": 1e3, "millis": 1e3,
	"s": 1e6, "sec": 1e6, "secs": 1e6, "second": 1e6, "seconds": 1e6,
	"m": 60e6, "min": 60e6, "mins": 60e6, "minute": 60e6, "minutes": 60e6,
	"h": 3600e6, "hr": 3600e6, "hrs": 3600e6, "hour": 3600e6, "hours": 3600e6,
	"d": secondsPerDay * 1e6, "day": secondsPerDay * 1e6, "days": secondsPerDay * 1e6,
	"w": 7 * secondsPerDay * 1e6, "week": 7 * secondsPerDay * 1e6, "weeks": 7 * secondsPerDay * 1e6,
	"month": secondsPerMonth * 1e6, "months": secondsPerMonth * 1e6,
	"y": secondsPerYear * 1e6, "year": secondsPerYear * 1e6, "years": secondsPerYear * 1e6,
}

// Duration writes a number of microseconds in words, largest unit first: "1day 2h", "1h 30m", "5s 20ms", "0s".
func Duration(us uint64) string {
	if us == 0 {
		return "0s"
	}
	var b strings.Builder
	add := func(n uint64, unit string, plural bool) {
		if n == 0 {
			return
		}
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(n, 10))
		b.WriteString(unit)
		if plural && n > 1 {
			b.WriteByte('s')
		}
	}
	seconds, rest := us/1e6, us%1e6
	add(seconds/secondsPerYear, "year", true)
	seconds %= secondsPerYear
	add(seconds/secondsPerMonth, "month", true)
	seconds %= secondsPerMonth
	add(seconds/secondsPerDay, "day", true)
	seconds %= secondsPerDay
	add(seconds/3600, "h", false)
	add(seconds%3600/60, "m", false)
	add(seconds%60, "s", false)
	add(rest/1000, "ms", false)
	add(rest%1000, "us", false)
	return b.String()
}

// Expiry is [Duration] for a limit, where 0 and the largest number have words.
func Expiry(us uint64) string {
	switch us {
	case ServerDefault:
		return "server_default"
	case Unlimited:
		return "unlimited"
	}
	return Duration(us)
}

// ParseDuration reads "90s", "1h 30m" or "1day 2h" and returns microseconds. A number needs a unit.
func ParseDuration(s string) (uint64, error) {
	bad := func() error {
		return fmt.Errorf("%q is not a duration: write numbers with units, such as 30s, 15m or 1day 2h", s)
	}
	text := strings.TrimSpace(s)
	if text == "" {
		return 0, bad()
	}
	if text == "0" {
		return 0, nil
	}
	var total uint64
	for text != "" {
		end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
		if end <= 0 {
			return 0, bad()
		}
		n, err := strconv.ParseUint(text[:end], 10, 64)
		if err != nil {
			return 0, bad()
		}
		text = strings.TrimLeft(text[end:], " ")
		end = strings.IndexFunc(text, func(r rune) bool { return r >= '0' && r <= '9' || r == ' ' })
		if end < 0 {
			end = len(text)
		}
		unit, ok := durationUnits[strings.ToLower(text[:end])]
		if !ok {
			return 0, bad()
		}
		if n > math.MaxUint64/unit || total > math.MaxUint64-n*unit {
			return 0, fmt.Errorf("duration %q is too long", s)
		}
		total += n * unit
		text = strings.TrimLeft(text[end:], " ")
	}
	return total, nil
}

// ParseExpiry adds up the words of an expiry ("1day", "1hour"). One word may be "unlimited" (also "none", "never")
// or "server_default"; no words at all mean "server_default".
func ParseExpiry(words []string) (uint64, error) {
	if len(words) == 0 {
		return ServerDefault, nil
	}
	if len(words) == 1 {
		switch strings.ToLower(strings.TrimSpace(words[0])) {
		case "unlimited", "none", "never", "never_expire":
			return Unlimited, nil
		case "server_default", "default":
			return ServerDefault, nil
		}
	}
	var total uint64
	for _, w := range words {
		us, err := ParseDuration(w)
		if err != nil {
			return 0, err
		}
		if total > math.MaxUint64-us {
			return 0, fmt.Errorf("expiry %q is too long", strings.Join(words, " "))
		}
		total += us
	}
	return total, nil
}

// Layouts of printed times.
const (
	layoutSeconds = "2006-01-02 15:04:05"
	layoutMicros  = "2006-01-02 15:04:05.000000"
)

// TimeUTC writes microseconds since 1970 as "2006-01-02 15:04:05" in UTC.
func TimeUTC(us uint64) string { return fromMicros(us).UTC().Format(layoutSeconds) }

// TimeLocal writes microseconds since 1970 as "2006-01-02 15:04:05" in the local zone.
func TimeLocal(us uint64) string { return fromMicros(us).Local().Format(layoutSeconds) }

// TimeLocalMicros is [TimeLocal] with microseconds, as polled messages show it.
func TimeLocalMicros(us uint64) string { return fromMicros(us).Local().Format(layoutMicros) }

func fromMicros(us uint64) time.Time {
	if us > math.MaxInt64 {
		us = math.MaxInt64
	}
	return time.UnixMicro(int64(us))
}
