package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// Lengths of the calendar units that the reference uses: a year of 365.25 days, a month of a twelfth of it.
const (
	secondsPerYear  = 31_557_600
	secondsPerMonth = 2_630_016
	secondsPerDay   = 86_400
)

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
	us, err := wire.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration: write numbers with units, such as 30s, 15m or 1day 2h", s)
	}
	return us, nil
}

// ParseExpiry adds up the words of an expiry ("1day", "1hour"). One word may be "unlimited" (also "none", "never")
// or "server_default"; no words at all mean "server_default".
func ParseExpiry(words []string) (uint64, error) {
	if len(words) == 0 {
		return ServerDefault, nil
	}
	us, err := wire.ParseExpiry(strings.Join(words, " "))
	if err != nil {
		return 0, fmt.Errorf("expiry %q is not a duration of less than 136 years: write numbers with units, such as 7days or 1h 30m, or unlimited or server_default",
			strings.Join(words, " "))
	}
	return us, nil
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
