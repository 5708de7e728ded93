package credential

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
)

// TicketValidity is the longest life of a ticket (extensions.md, "Tickets").
const TicketValidity = 60 * time.Second

const (
	ticketPrefix = "wt1."
	ticketBody   = 4 + 8 + 8 + 16
	ticketSize   = ticketBody + sha256.Size
	// ticketDomain keeps a MAC made under the same key for another purpose from being taken for a ticket's.
	ticketDomain = "whippet ticket 1\x00"
)

var (
	// ErrMalformedTicket means that a token has a ticket's prefix and is not one.
	ErrMalformedTicket = errors.New("malformed ticket")
	// ErrForgedTicket means that a ticket was not made under this cluster's key.
	ErrForgedTicket = errors.New("ticket of another key")
	// ErrExpiredTicket means that a ticket's time is over.
	ErrExpiredTicket = errors.New("ticket has expired")
)

// TicketKey is the key of a cluster's tickets, 32 random bytes that the metadata state holds.
type TicketKey [32]byte

// Ticket signs its owner in once more without a password. It is valid on every node while Expiry has not come and the user's
// credential revision is still Revision; the second is the caller's to check, see [VerifyTicket].
type Ticket struct {
	// User is the owner.
	User uint32
	// Revision is the credential revision of the user when the ticket was made.
	Revision uint64
	// Expiry is when the ticket ends, microseconds since 1970, node time.
	Expiry uint64
	// Nonce makes two tickets of one moment differ.
	Nonce [16]byte
}

// IsTicket reports whether a token of a login 45 is to be read as a ticket rather than a personal access token. The prefix holds a
// character that base64 does not have, so no personal access token begins with it.
func IsTicket(token string) bool { return strings.HasPrefix(token, ticketPrefix) }

// IssueTicket writes the text of a ticket under key.
func IssueTicket(key *TicketKey, t Ticket) string {
	var b [ticketSize]byte
	binary.LittleEndian.PutUint32(b[0:], t.User)
	binary.LittleEndian.PutUint64(b[4:], t.Revision)
	binary.LittleEndian.PutUint64(b[12:], t.Expiry)
	copy(b[20:], t.Nonce[:])
	ticketMAC(key, b[:ticketBody], b[:ticketBody])
	return ticketPrefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// VerifyTicket reads a ticket and checks its MAC and, against now (microseconds since 1970), its time. The caller then compares
// Revision with the user's current one. Errors: [ErrMalformedTicket], [ErrForgedTicket], [ErrExpiredTicket].
func VerifyTicket(key *TicketKey, token string, now uint64) (Ticket, error) {
	text, ok := strings.CutPrefix(token, ticketPrefix)
	if !ok || len(text) != base64.RawURLEncoding.EncodedLen(ticketSize) {
		return Ticket{}, ErrMalformedTicket
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil {
		return Ticket{}, fmt.Errorf("%w: %w", ErrMalformedTicket, err)
	}
	if len(b) != ticketSize { // the decoder skips line ends, even in strict mode
		return Ticket{}, ErrMalformedTicket
	}
	mac := ticketMAC(key, b[:ticketBody], nil)
	if !hmac.Equal(mac, b[ticketBody:]) {
		return Ticket{}, ErrForgedTicket
	}
	t := Ticket{
		User:     binary.LittleEndian.Uint32(b[0:]),
		Revision: binary.LittleEndian.Uint64(b[4:]),
		Expiry:   binary.LittleEndian.Uint64(b[12:]),
		Nonce:    [16]byte(b[20:ticketBody]),
	}
	if t.Expiry <= now {
		return Ticket{}, ErrExpiredTicket
	}
	return t, nil
}

// ticketMAC appends the MAC of a ticket's body to dst.
func ticketMAC(key *TicketKey, body, dst []byte) []byte {
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(ticketDomain))
	h.Write(body)
	return h.Sum(dst)
}
