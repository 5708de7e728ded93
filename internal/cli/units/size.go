package units

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Limits as they travel: 0 asks for the server's default, the largest number means no limit.
const (
	ServerDefault uint64 = 0
	Unlimited     uint64 = math.MaxUint64
)

var sizeUnits = map[string]uint64{
	"": 1, "b": 1,
	"k": 1e3, "kb": 1e3, "kib": 1 << 10,
	"m": 1e6, "mb": 1e6, "mib": 1 << 20,
	"g": 1e9, "gb": 1e9, "gib": 1 << 30,
	"t": 1e12, "tb": 1e12, "tib": 1 << 40,
	"p": 1e15, "pb": 1e15, "pib": 1 << 50,
}

// Size writes n bytes in the largest decimal unit that keeps the number at or above one: "0 B", "512 B", "1.50 KB".
func Size(n uint64) string {
	if n < 1000 {
		return strconv.FormatUint(n, 10) + " B"
	}
	v := float64(n)
	for _, unit := range []string{"KB", "MB", "GB", "TB", "PB"} {
		v /= 1000
		// 999.995 would be printed as 1000.00: it belongs to the next unit.
		if v < 999.995 || unit == "PB" {
			return fmt.Sprintf("%.2f %s", v, unit)
		}
	}
	return strconv.FormatUint(n, 10) + " B"
}

// SizeLimit is [Size] for a topic's limit, where the two ends have words.
func SizeLimit(n uint64) string {
	switch n {
	case ServerDefault:
		return "server_default"
	case Unlimited:
		return "unlimited"
	}
	return Size(n)
}

// ParseSize reads a number of bytes with an optional unit ("10", "15GB", "128 MiB", "1.5 kb"; units of 1000
// are written KB, MB, ..., units of 1024 KiB, MiB, ...).
func ParseSize(s string) (uint64, error) {
	text := strings.TrimSpace(s)
	end := strings.IndexFunc(text, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '_' })
	if end < 0 {
		end = len(text)
	}
	digits := strings.ReplaceAll(text[:end], "_", "")
	unit, ok := sizeUnits[strings.ToLower(strings.TrimSpace(text[end:]))]
	if digits == "" || !ok {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, such as 500MB or 1GiB", s)
	}
	if n, err := strconv.ParseUint(digits, 10, 64); err == nil {
		if n > math.MaxUint64/unit {
			return 0, fmt.Errorf("size %q is too large", s)
		}
		return n * unit, nil
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, such as 500MB or 1GiB", s)
	}
	f *= float64(unit)
	if f >= math.MaxUint64 {
		return 0, fmt.Errorf("size %q is too large", s)
	}
	return uint64(f), nil
}

// ParseSizeLimit is [ParseSize] with the words "unlimited" and "server_default".
func ParseSizeLimit(s string) (uint64, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "unlimited", "none":
		return Unlimited, nil
	case "server_default", "default":
		return ServerDefault, nil
	}
	return ParseSize(s)
}
