package config

import (
	"fmt"
	"slices"
	"strings"
)

// relation reports a problem that follows from the values of several keys, unless one of them was refused for itself:
// what stands in the configuration then is not what was given.
func (l *loader) relation(p *Problem) {
	for _, key := range append([]string{p.Key}, p.from...) {
		if l.refused(key) {
			return
		}
	}
	p.Where = l.where(p.Key)
	l.problem(p)
}

// refused reports whether the value of a key, or of one below it, cannot be used, whatever other keys say.
func (l *loader) refused(key string) bool {
	return slices.ContainsFunc(l.problems[:l.values], func(p *Problem) bool {
		return p.Key == key || strings.HasPrefix(p.Key, key+".")
	})
}

// limit reports that the key low has more than the key high allows. It names the one that was set: who only made files
// larger did nothing to the total.
func (l *loader) limit(low, most, high, least string) {
	p := &Problem{Key: low, Given: l.given(low), Takes: "takes " + most + " " + high + " (" + l.text(high) + ")", from: []string{high}}
	if l.origins[low].Source == "default" && l.origins[high].Source != "default" {
		p = &Problem{Key: high, Given: l.given(high), Takes: "takes " + least + " " + low + " (" + l.text(low) + ")", from: []string{low}}
	}
	l.relation(p)
}

// given is a value as it was written, in the writer's own unit.
func (l *loader) given(key string) string { return show(l.k.Get(key)) }

// text is the same without the quotes of a string.
func (l *loader) text(key string) string { return fmt.Sprint(l.k.Get(key)) }

// check holds the rules that span keys.
func (c *Config) check(l *loader) {
	bad := func(key, given, takes string, from ...string) {
		l.relation(&Problem{Key: key, Given: given, Takes: takes, from: from})
	}
	for _, p := range c.unusable() {
		l.relation(p)
	}
	for _, cleaner := range []struct {
		key     string
		without bool
	}{
		{"data_maintenance.messages.interval", c.Cleaner.Enabled && c.Cleaner.Interval == 0},
		{"personal_access_token.cleaner.interval", c.Tokens.CleanerEnabled && c.Tokens.CleanerInterval == 0},
	} {
		if cleaner.without {
			bad(cleaner.key, l.given(cleaner.key), "takes a duration above zero while the cleaner is enabled")
		}
	}
	if c.Logging.MaxTotalSize != 0 && c.Logging.MaxTotalSize < c.Logging.MaxFileSize {
		l.limit("logging.max_file_size", "at most", "logging.max_total_size", "at least")
	}
	if c.QUIC.StreamReceiveWindow > c.QUIC.ReceiveWindow {
		l.limit("quic.stream_receive_window", "at most", "quic.receive_window", "at least")
	}
	if c.WebSocket.MaxFrame > c.WebSocket.MaxMessage {
		l.limit("websocket.max_frame_size", "at most", "websocket.max_message_size", "at least")
	}
	if c.WebSocket.Enabled && c.WebSocket.MaxMessage > c.Bus.MaxMessage && l.origins["websocket.max_message_size"].Source != "default" {
		l.limit("websocket.max_message_size", "at most", "message_bus.max_message_size", "at least")
	}
	if i := slices.Index(c.HTTP.CORS.AllowedOrigins, "*"); i > 0 {
		bad("http.cors.allowed_origins", strings.Join(c.HTTP.CORS.AllowedOrigins, ", "), `takes "*" as the first entry only`)
	}
	for _, m := range c.HTTP.CORS.AllowedMethods {
		if !slices.Contains([]string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "CONNECT", "TRACE"}, strings.ToUpper(strings.TrimSpace(m))) {
			bad("http.cors.allowed_methods", fmt.Sprintf("%q", m), "takes names of HTTP methods")
		}
	}
	if c.HTTP.CORS.AllowCredentials {
		for _, w := range []struct {
			key  string
			list []string
		}{{"http.cors.allowed_origins", c.HTTP.CORS.AllowedOrigins}, {"http.cors.allowed_headers", c.HTTP.CORS.AllowedHeaders}, {"http.cors.exposed_headers", c.HTTP.CORS.ExposedHeaders}} {
			if slices.Contains(w.list, "*") {
				bad(w.key, `"*"`, "takes no wildcard while http.cors.allow_credentials is true")
			}
		}
	}
	c.checkCluster(l)
}
