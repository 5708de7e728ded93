package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"github.com/whippetmq/whippet/wire"
)

// Dialer opens the byte stream under a link: frames go over it back to back. TLS,
// QUIC and WebSocket are dialers beside TCP.
type Dialer interface {
	// Dial connects to "host:port". It must honour ctx, handshake included.
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// TCPDialer dials TCP, with TLS when TLS is set. The zero value is ready.
type TCPDialer struct {
	// TLS encrypts the connection.
	TLS *TLSOptions
	// Nagle leaves TCP_NODELAY off.
	Nagle bool
}

// Dial connects.
func (d *TCPDialer) Dial(ctx context.Context, address string) (net.Conn, error) {
	var nd net.Dialer
	conn, err := nd.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetNoDelay(!d.Nagle); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	if d.TLS == nil {
		return conn, nil
	}
	cfg, err := d.TLS.config(address)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	secure := tls.Client(conn, cfg)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

// config builds the TLS configuration for an address.
func (o *TLSOptions) config(address string) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Config != nil {
		cfg = o.Config.Clone()
	}
	if o.Domain != "" {
		cfg.ServerName = o.Domain
	}
	if cfg.ServerName == "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, fmt.Errorf("tls server name from %q: %w: %w", address, wire.ErrInvalidTlsDomain, err)
		}
		cfg.ServerName = host
	}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls roots: %w: %w", wire.ErrInvalidTlsCertificatePath, err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls roots of %s: %w", o.CAFile, wire.ErrInvalidTlsCertificate)
		}
	}
	if o.InsecureSkipVerify {
		cfg.InsecureSkipVerify = true
	}
	return cfg, nil
}
