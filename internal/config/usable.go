package config

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strconv"
)

// Usable reports what this version cannot do for the configuration, and TLS files that cannot be used. The error joins
// every [Problem]. Load has asked already; a configuration that was made or changed in code needs it before anything is
// opened.
func (c *Config) Usable() error {
	var errs []error
	for _, p := range c.unusable() {
		p.Where = c.Origin(p.Key).Where
		errs = append(errs, p)
	}
	return errors.Join(errs...)
}

func (c *Config) unusable() []*Problem {
	var out []*Problem
	// To run without what was asked for would break a promise.
	if c.Crypt.Enabled {
		out = append(out, &Problem{Key: "encryption.enabled", Given: "true", Takes: "takes false: this version does not offer encryption at rest"})
	}
	if c.Telemetry.Enabled {
		out = append(out, &Problem{Key: "telemetry.enabled", Given: "true", Takes: "takes false: this version does not offer telemetry export"})
	}
	if !c.TCP.Enabled {
		out = append(out, &Problem{Key: "tcp.enabled", Given: "false", Takes: "takes true: TCP is the only transport of this version"})
	}
	if t := c.TCP.TLS; c.TCP.Enabled && t.Enabled {
		out = append(out, t.unusable("tcp.tls")...)
	}
	if t := c.Cluster.TLS; c.Cluster.Enabled && t.Enabled {
		out = append(out, TLS{SelfSigned: t.SelfSigned, CertFile: t.CertFile, KeyFile: t.KeyFile}.unusable("cluster.tls")...)
		out = append(out, t.unusableAuthority()...)
	}
	return out
}

// unusable checks the files of a TLS that is enabled, whose keys begin with prefix.
func (t TLS) unusable(prefix string) []*Problem {
	if _, err := os.Stat(t.CertFile); t.SelfSigned && err != nil {
		return nil // a certificate is made at the start
	}
	from := []string{prefix + ".self_signed"}
	var out []*Problem
	read := func(key, file, what string) []byte {
		pem, err := os.ReadFile(file)
		if err != nil {
			out = append(out, &Problem{Key: prefix + key, Given: strconv.Quote(file), Takes: "takes the file of " + what + " (PEM) while " + prefix + ".enabled is true: " + err.Error(), from: from})
		}
		return pem
	}
	certificate, private := read(".cert_file", t.CertFile, "a certificate"), read(".key_file", t.KeyFile, "its private key")
	if len(out) > 0 {
		return out
	}
	if _, err := tls.X509KeyPair(certificate, private); err != nil {
		out = append(out, &Problem{
			Key: prefix + ".cert_file", Given: strconv.Quote(t.CertFile), from: append(from, prefix+".key_file"),
			Takes: "takes the file of a certificate (PEM) whose private key is in " + prefix + ".key_file (" + strconv.Quote(t.KeyFile) + "): " + err.Error(),
		})
	}
	return out
}

// unusableAuthority checks who must have signed the certificates of nodes.
func (t ClusterTLS) unusableAuthority() []*Problem {
	p := &Problem{Key: "cluster.tls.ca_file", Given: strconv.Quote(t.CAFile), from: []string{"cluster.tls.self_signed"}}
	const takes = "takes the file of the authority (PEM) that signed cluster.tls.cert_file"
	if t.CAFile == "" {
		if t.SelfSigned {
			return nil
		}
		p.Given, p.Takes = "nothing", takes+" while cluster.tls.self_signed is false"
		return []*Problem{p}
	}
	pem, err := os.ReadFile(t.CAFile)
	switch {
	case err != nil:
		p.Takes = takes + ": " + err.Error()
	case !x509.NewCertPool().AppendCertsFromPEM(pem):
		p.Takes = takes + ": it holds no certificate"
	default:
		return nil
	}
	return []*Problem{p}
}
