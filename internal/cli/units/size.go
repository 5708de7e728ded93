package units

import (
	"fmt"
	"strconv"

	"github.com/whippetmq/whippet/wire"
)

// Limits as they travel: 0 asks for the server's default, the largest number means no limit.
const (
	ServerDefault uint64 = 0
	Unlimited            = wire.Unlimited
)

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
	n, err := wire.ParseSize(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, such as 500MB or 1GiB", s)
	}
	return n, nil
}

// ParseSizeLimit is [ParseSize] with the words "unlimited" and "server_default".
func ParseSizeLimit(s string) (uint64, error) {
	n, err := wire.ParseLimit(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, such as 500MB or 1GiB, or unlimited or server_default", s)
	}
	return n, nil
}
