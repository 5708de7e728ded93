package credential

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"

	"lukechampine.com/blake3"
)

// tokenBytes is how much randomness a personal access token holds (security.md §3).
const tokenBytes = 50

// NewToken draws a personal access token: its text, which is shown once, and the hash that is stored (see [HashToken]).
func NewToken(random io.Reader) (text, hash string, err error) {
	var raw [tokenBytes]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return "", "", fmt.Errorf("personal access token: %w", err)
	}
	text = base64.StdEncoding.EncodeToString(raw[:])
	return text, HashToken(text), nil
}

// HashToken returns what is stored of a personal access token and looked up at a login: BLAKE3-256 of the text, 64 hexadecimal
// digits in lower case.
func HashToken(text string) string {
	sum := blake3.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
