package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"github.com/whippetmq/whippet/internal/config"
)

// tlsOf makes the TLS configuration of a listener; nil when it is off. With
// self_signed the files count when the certificate is there, else a certificate
// for the loopback is made for this run (security.md §7).
func tlsOf(key string, c config.TLS) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	if c.SelfSigned {
		if _, err := os.Stat(c.CertFile); err != nil {
			cert, err := loopbackCertificate()
			if err != nil {
				return nil, fmt.Errorf("%s.self_signed: %w", key, err)
			}
			return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
		}
	}
	cert, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s.cert_file, %s.key_file: %w", key, key, err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// loopbackCertificate is valid for a year and for this run only.
func loopbackCertificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return tls.Certificate{}, err
	}
	now := time.Now()
	t := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "localhost"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

func tlsListener(ln net.Listener, c *tls.Config) net.Listener { return tls.NewListener(ln, c) }

// peerTLS makes both sides' configuration of the link between nodes; nil when it
// is off. With ca_file both sides must present a certificate of that authority;
// which node it is, the hello proves, so host names do not count. Without it the
// link is only encrypted, and the shared secret keeps strangers out; Usable has seen
// to it that this was asked for.
func peerTLS(c config.ClusterTLS) (server, client *tls.Config, err error) {
	if !c.Enabled {
		return nil, nil, nil
	}
	server, err = tlsOf("cluster.tls", config.TLS{Enabled: true, SelfSigned: c.SelfSigned, CertFile: c.CertFile, KeyFile: c.KeyFile})
	if err != nil {
		return nil, nil, err
	}
	client = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: server.Certificates, InsecureSkipVerify: true} //nolint:gosec // see VerifyConnection
	if c.CAFile == "" {
		return server, client, nil
	}
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, nil, fmt.Errorf("cluster.tls.ca_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, nil, fmt.Errorf("cluster.tls.ca_file: %s holds no certificate", c.CAFile)
	}
	server.ClientAuth, server.ClientCAs = tls.RequireAndVerifyClientCert, roots
	client.VerifyConnection = func(cs tls.ConnectionState) error {
		intermediates := x509.NewCertPool()
		for _, cert := range cs.PeerCertificates[1:] {
			intermediates.AddCert(cert)
		}
		_, err := cs.PeerCertificates[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: intermediates, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
		})
		return err
	}
	return server, client, nil
}
