package cli

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/whippetmq/whippet/wire"
)

// sealer encrypts and decrypts payloads and headers in the client: AES-256-GCM, stored as nonce (12 bytes),
// ciphertext, tag. A nil sealer leaves everything as it is.
type sealer struct{ aead cipher.AEAD }

// newSealer takes the base64 of 32 bytes; no key means no sealer.
func newSealer(key string) (*sealer, error) {
	if key == "" {
		return nil, nil
	}
	raw, err := base64.StdEncoding.DecodeString(key)
	if err != nil || len(raw) != 32 {
		return nil, fmt.Errorf("invalid encryption key: it must be the base64 of 32 bytes (\"openssl rand -base64 32\" makes one): %w", wire.ErrInvalidEncryptionKey)
	}
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, fmt.Errorf("invalid encryption key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("invalid encryption key: %w", err)
	}
	return &sealer{aead}, nil
}

func (s *sealer) seal(plain []byte) []byte {
	if s == nil || len(plain) == 0 {
		return plain
	}
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(plain)+s.aead.Overhead())
	_, _ = rand.Read(nonce) // never fails
	return s.aead.Seal(nonce, nonce, plain, nil)
}

func (s *sealer) open(sealed []byte) ([]byte, error) {
	if s == nil || len(sealed) == 0 {
		return sealed, nil
	}
	n := s.aead.NonceSize()
	if len(sealed) < n+s.aead.Overhead() {
		return nil, fmt.Errorf("this message was not encrypted with a key: %w", wire.ErrCannotDecryptData)
	}
	plain, err := s.aead.Open(nil, sealed[:n], sealed[n:], nil)
	if err != nil {
		return nil, fmt.Errorf("this message was not encrypted with this key: %w", wire.ErrCannotDecryptData)
	}
	return plain, nil
}

// openMessage decrypts a polled message.
func (s *sealer) openMessage(m wire.MessageView) (wire.MessageView, error) {
	if s == nil {
		return m, nil
	}
	var err error
	if m.Payload, err = s.open(m.Payload); err != nil {
		return m, err
	}
	// Clients of the reference encrypt headers too; ours sends none with a key.
	if headers, err := s.open(m.HeadersBytes); err == nil {
		m.HeadersBytes = headers
	}
	return m, nil
}
