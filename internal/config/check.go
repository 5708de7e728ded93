package config

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
)

// check holds the rules that span keys.
func (c *Config) check(l *loader) {
	bad := func(key, given, takes string) {
		l.problem(&Problem{Key: key, Given: given, Takes: takes, Where: l.origins[key].Where})
	}
	if c.Cleaner.Enabled && c.Cleaner.Interval == 0 {
		bad("data_maintenance.messages.interval", "0 s", "takes a duration above zero while the cleaner is enabled")
	}
	if c.Tokens.CleanerEnabled && c.Tokens.CleanerInterval == 0 {
		bad("personal_access_token.cleaner.interval", "0 s", "takes a duration above zero while the cleaner is enabled")
	}
	if c.Logging.MaxTotalSize != 0 && c.Logging.MaxTotalSize < c.Logging.MaxFileSize {
		bad("logging.max_total_size", c.Logging.MaxTotalSize.String(), "takes at least logging.max_file_size ("+c.Logging.MaxFileSize.String()+")")
	}
	if c.QUIC.StreamReceiveWindow > c.QUIC.ReceiveWindow {
		bad("quic.stream_receive_window", c.QUIC.StreamReceiveWindow.String(), "takes at most quic.receive_window ("+c.QUIC.ReceiveWindow.String()+")")
	}
	if c.WebSocket.MaxFrame > c.WebSocket.MaxMessage {
		bad("websocket.max_frame_size", c.WebSocket.MaxFrame.String(), "takes at most websocket.max_message_size ("+c.WebSocket.MaxMessage.String()+")")
	}
	if c.WebSocket.Enabled && c.WebSocket.MaxMessage > c.Bus.MaxMessage && l.origins["websocket.max_message_size"].Source != "default" {
		bad("websocket.max_message_size", c.WebSocket.MaxMessage.String(), "takes at most message_bus.max_message_size ("+c.Bus.MaxMessage.String()+")")
	}
	if c.Crypt.Enabled {
		if k, err := base64.StdEncoding.DecodeString(c.Crypt.Key); err != nil || len(k) != 32 {
			bad("encryption.key", mask, "takes base64 of 32 bytes when encryption.enabled is true")
		}
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
