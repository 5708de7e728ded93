package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// ByteSize is a number of bytes.
type ByteSize int64

// String renders the size in the largest unit that divides it, binary or decimal: 64 MiB, 500 MB.
func (b ByteSize) String() string {
	units := []struct {
		name string
		n    ByteSize
	}{{"TiB", 1 << 40}, {"TB", 1e12}, {"GiB", 1 << 30}, {"GB", 1e9}, {"MiB", 1 << 20}, {"MB", 1e6}, {"KiB", 1 << 10}, {"KB", 1e3}}
	for _, u := range units {
		if b != 0 && b%u.n == 0 {
			return strconv.FormatInt(int64(b/u.n), 10) + " " + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

var errNotDuration = errors.New("not a duration")

var durationUnits = map[string]time.Duration{
	"ns": 1, "nsec": 1, "nanos": 1,
	"us": time.Microsecond, "usec": time.Microsecond, "µs": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond, "millis": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
	"month": 2630016 * time.Second, "months": 2630016 * time.Second,
	"y": 31557600 * time.Second, "year": 31557600 * time.Second, "years": 31557600 * time.Second,
}

// ParseDuration reads "10 s", "1h 30m", "7 days", "500ms"; "none", "unlimited",
// "disabled" and "0" are zero. A number without a unit other than 0 is refused.
func ParseDuration(s string) (time.Duration, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	switch t {
	case "0", "none", "unlimited", "disabled":
		return 0, nil
	case "":
		return 0, errNotDuration
	}
	var total time.Duration
	for t != "" {
		n := 0
		for n < len(t) && t[n] >= '0' && t[n] <= '9' {
			n++
		}
		if n == 0 {
			return 0, errNotDuration
		}
		v, err := strconv.ParseInt(t[:n], 10, 64)
		if err != nil {
			return 0, errNotDuration
		}
		t = strings.TrimLeft(t[n:], " ")
		u := 0
		for u < len(t) && t[u] != ' ' && (t[u] < '0' || t[u] > '9') {
			u++
		}
		unit, ok := durationUnits[t[:u]]
		if !ok || v > math.MaxInt64/int64(unit) {
			return 0, errNotDuration
		}
		d := time.Duration(v) * unit
		if total > math.MaxInt64-d {
			return 0, errNotDuration
		}
		total += d
		t = strings.TrimLeft(t[u:], " ")
	}
	return total, nil
}

// FormatDuration is the inverse of ParseDuration for whole units.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0 s"
	}
	units := []struct {
		name string
		n    time.Duration
	}{{"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}, {"ms", time.Millisecond}, {"us", time.Microsecond}, {"ns", 1}}
	for _, u := range units {
		if d%u.n == 0 {
			return strconv.FormatInt(int64(d/u.n), 10) + " " + u.name
		}
	}
	return d.String()
}

var errNotSize = errors.New("not a size")

var sizeUnits = map[string]float64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "pb": 1e15,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40, "pib": 1 << 50,
}

// ParseSize reads "64 MiB", "2 MB", "1.5 GiB" or a number of bytes; "none",
// "unlimited" and "0" are zero.
func ParseSize(s string) (ByteSize, error) {
	t := strings.ToLower(strings.TrimSpace(s))
	switch t {
	case "none", "unlimited":
		return 0, nil
	case "":
		return 0, errNotSize
	}
	n := 0
	for n < len(t) && (t[n] >= '0' && t[n] <= '9' || t[n] == '.') {
		n++
	}
	unit, ok := sizeUnits[strings.TrimSpace(t[n:])]
	if n == 0 || !ok {
		return 0, errNotSize
	}
	if !strings.Contains(t[:n], ".") {
		v, err := strconv.ParseInt(t[:n], 10, 64)
		if err != nil || v > math.MaxInt64/int64(unit) {
			return 0, errNotSize
		}
		return ByteSize(v * int64(unit)), nil
	}
	v, err := strconv.ParseFloat(t[:n], 64)
	if err != nil || v*unit >= math.MaxInt64 {
		return 0, errNotSize
	}
	return ByteSize(v * unit), nil
}

// The conversions below take what TOML gives (string, bool, int64, float64,
// []any) or the string of a variable.

func toString(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case int64, float64, bool:
		return fmt.Sprint(x), nil
	}
	return "", errors.New("not a string")
}

func toBool(v any) (bool, error) {
	switch x := v.(type) {
	case bool:
		return x, nil
	case string:
		switch strings.ToLower(strings.TrimSpace(x)) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	}
	return false, errors.New("not true or false")
}

func toInt(v any) (int64, error) {
	switch x := v.(type) {
	case int64:
		return x, nil
	case string:
		return strconv.ParseInt(strings.TrimSpace(x), 10, 64)
	}
	return 0, errors.New("not a whole number")
}

func toDuration(v any) (time.Duration, error) {
	switch x := v.(type) {
	case string:
		return ParseDuration(x)
	case int64:
		if x == 0 {
			return 0, nil
		}
	}
	return 0, errNotDuration
}

func toSize(v any) (ByteSize, error) {
	switch x := v.(type) {
	case string:
		return ParseSize(x)
	case int64:
		if x >= 0 {
			return ByteSize(x), nil
		}
	}
	return 0, errNotSize
}

// toList reads a TOML array, or "[a, b]" / "a, b" of a variable; quotes around
// an element are optional.
func toList(v any) ([]string, error) {
	switch x := v.(type) {
	case []any:
		out := make([]string, 0, len(x))
		for _, e := range x {
			s, err := toString(e)
			if err != nil {
				return nil, errors.New("not a list of strings")
			}
			out = append(out, s)
		}
		return out, nil
	case []string:
		return x, nil
	case string:
		t := strings.TrimSpace(x)
		if strings.HasPrefix(t, "[") != strings.HasSuffix(t, "]") {
			return nil, errors.New("not a list")
		}
		t = strings.TrimSuffix(strings.TrimPrefix(t, "["), "]")
		var out []string
		for part := range strings.SplitSeq(t, ",") {
			p := strings.TrimSpace(part)
			if len(p) >= 2 && (p[0] == '"' || p[0] == '\'') && p[len(p)-1] == p[0] {
				p = p[1 : len(p)-1]
			}
			if p != "" {
				out = append(out, p)
			}
		}
		return out, nil
	}
	return nil, errors.New("not a list")
}
