package client

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/whippetmq/whippet/wire"
)

// ParseConnectionString reads "iggy://user:password@host:port?k=v&k=v" or
// "iggy://token@host:port" (command line §6). "iggy+tcp" is the same as "iggy";
// the other transports are refused until they exist. Broken strings give
// [wire.ErrInvalidConnectionString], a broken retry count
// [wire.ErrInvalidNumberValue].
//
// TCP options: tls, tls_domain, tls_ca_file, reconnection_retries,
// reconnection_interval, reestablish_after, heartbeat_interval, nodelay. Here
// nodelay is true unless the string says false.
func ParseConnectionString(s string) (Options, error) {
	var o Options
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || strings.Contains(rest, "://") {
		return o, badConnString("want exactly one ://")
	}
	switch scheme {
	case "iggy", "iggy+tcp":
	case "iggy+quic", "iggy+http", "iggy+ws":
		return o, badConnString("transport " + strings.TrimPrefix(scheme, "iggy+") + " is not available in this client")
	default:
		return o, badConnString("scheme must be iggy:// or iggy+tcp://")
	}
	login, rest, ok := strings.Cut(rest, "@")
	if !ok || strings.Contains(rest, "@") {
		return o, badConnString("want exactly one @ between credentials and address")
	}
	user, password, isUser := strings.Cut(login, ":")
	switch {
	case isUser && (user == "" || password == "" || strings.Contains(password, ":")):
		return o, badConnString("user and password must not be empty and have one : between them")
	case isUser:
		o.Username, o.Password = user, password
	case login == "":
		return o, badConnString("no credentials")
	default:
		o.Token = login
	}
	address, query, hasQuery := strings.Cut(rest, "?")
	if strings.Contains(query, "?") {
		return o, badConnString("want at most one ?")
	}
	if err := checkAddress(address); err != nil {
		return o, err
	}
	o.Addresses = []string{address}
	if !hasQuery {
		return o, nil
	}
	return o, o.parseQuery(query)
}

func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.Contains(host, ":") {
		return badConnString("address must be host:port")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return badConnString("port must be 1-65535")
	}
	return nil
}

func (o *Options) parseQuery(query string) error {
	var tls TLSOptions
	enabled := false
	for pair := range strings.SplitSeq(query, "&") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || strings.Contains(value, "=") {
			return badConnString("option " + strconv.Quote(pair) + " is not key=value")
		}
		var err error
		switch key {
		case "tls":
			enabled = value == "true"
		case "tls_domain":
			tls.Domain = value
		case "tls_ca_file":
			tls.CAFile = value
		case "nodelay":
			o.Nagle = value != "true"
		case "reconnection_retries":
			o.Reconnect.Retries, err = parseRetries(value)
		case "reconnection_interval":
			o.Reconnect.Interval, err = parseInterval(key, value)
		case "reestablish_after":
			o.Reconnect.ReestablishAfter, err = parseInterval(key, value)
		case "heartbeat_interval":
			o.HeartbeatInterval, err = parseInterval(key, value)
		default:
			return badConnString("unknown option " + strconv.Quote(key))
		}
		if err != nil {
			return err
		}
	}
	if enabled {
		o.TLS = &tls
	}
	return nil
}

// parseRetries reads "unlimited" or a u32. Options count the other way round:
// 0 is unlimited there and none is negative.
func parseRetries(value string) (int, error) {
	if value == "unlimited" {
		return 0, nil
	}
	n, err := strconv.ParseUint(value, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("connection string: reconnection_retries: %w", wire.ErrInvalidNumberValue)
	}
	if n == 0 {
		return -1, nil
	}
	return int(n), nil
}

func parseInterval(key, value string) (time.Duration, error) {
	d, ok := parseHumanDuration(value)
	if !ok || d <= 0 {
		return 0, badConnString(key + " is not a positive duration")
	}
	return d, nil
}

var humanUnits = map[string]time.Duration{
	"ns": time.Nanosecond, "nsec": time.Nanosecond, "nanos": time.Nanosecond,
	"us": time.Microsecond, "usec": time.Microsecond, "micros": time.Microsecond,
	"ms": time.Millisecond, "msec": time.Millisecond, "millis": time.Millisecond,
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// parseHumanDuration reads "1h 30m", "500ms", "2days".
func parseHumanDuration(s string) (time.Duration, bool) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, false
	}
	var total time.Duration
	for s != "" {
		i := 0
		for i < len(s) && s[i] >= '0' && s[i] <= '9' {
			i++
		}
		n, err := strconv.ParseUint(s[:i], 10, 63)
		if err != nil {
			return 0, false
		}
		s = strings.TrimLeft(s[i:], " ")
		j := 0
		for j < len(s) && s[j] >= 'a' && s[j] <= 'z' {
			j++
		}
		unit, ok := humanUnits[s[:j]]
		if !ok || n > uint64(1<<62)/uint64(unit) {
			return 0, false
		}
		if total += time.Duration(n) * unit; total < 0 {
			return 0, false
		}
		s = strings.TrimLeft(s[j:], " ")
	}
	return total, true
}

func badConnString(why string) error {
	return fmt.Errorf("connection string: %s: %w", why, wire.ErrInvalidConnectionString)
}
