package credential

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/argon2"
)

// Cost of a new hash (security.md §2): the defaults of the library that the released server uses, so that hashes can be moved.
const (
	memoryKiB  = 19456
	passes     = 2
	lanes      = 1
	cheapKiB   = 8 // the least that Argon2 takes for a lane
	saltLength = 16
	keyLength  = 32
)

// Bounds of what is accepted from a stored hash. A hash is ours or was imported by an administrator; the bounds keep a broken one
// from taking the node's memory.
const (
	maxMemoryKiB = 1 << 20
	maxPasses    = 64
	maxLanes     = 16
	minSalt      = 8
	maxSalt      = 64
	minKey       = 16
	maxKey       = 64
	maxHashText  = 512
)

// Lengths of a user name and of a password in bytes (security.md §2).
const (
	MinUsername = 3
	MaxUsername = 50
	MinPassword = 3
	MaxPassword = 100
)

// ValidUsername reports whether the length of a user name is within its bounds.
func ValidUsername(name string) bool { return len(name) >= MinUsername && len(name) <= MaxUsername }

// ValidPassword reports whether the length of a password is within its bounds. A password outside them can never be right, so a
// login answers without hashing it (security.md §3).
func ValidPassword(password string) bool {
	return len(password) >= MinPassword && len(password) <= MaxPassword
}

var (
	// ErrBusy means that too many password hashes are running or waiting. Nothing was computed; the caller may try again later.
	ErrBusy = errors.New("password hashing is overloaded")
	// ErrMalformedHash means that a stored hash is not an Argon2id hash within this package's bounds.
	ErrMalformedHash = errors.New("malformed password hash")
)

// Config of a [Hasher]. A zero field takes the default.
type Config struct {
	// Workers is the number of Argon2 runs at once; default: the number of CPUs.
	Workers int
	// Queue is the number of callers that may wait for a worker; default: 64 per worker. A caller beyond it gets [ErrBusy] at once.
	Queue int
	// Wait is how long one caller waits for a worker before [ErrBusy]; default: 5 s.
	Wait time.Duration
	// Rand gives salts; default: [rand.Reader].
	Rand io.Reader
	// Cheap makes new hashes that cost next to nothing and protect nothing, for tests that are not about passwords.
	Cheap bool
}

// Hasher hashes and verifies passwords with bounded concurrency. All methods may be called from any goroutine. It owns no goroutine
// and needs no closing.
type Hasher struct {
	cfg     Config
	workers chan struct{} // one slot per active run
	waiting atomic.Int64
	dummy   phc // also the cost of new hashes
}

// NewHasher makes a [Hasher].
func NewHasher(cfg Config) *Hasher {
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.NumCPU()
	}
	if cfg.Queue <= 0 {
		cfg.Queue = 64 * cfg.Workers
	}
	if cfg.Wait <= 0 {
		cfg.Wait = 5 * time.Second
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	cost := phc{memory: memoryKiB, passes: passes, lanes: lanes}
	if cfg.Cheap {
		cost.memory, cost.passes = cheapKiB, 1
	}
	// The key is never compared with success: verification against the dummy returns false whatever comes out.
	cost.salt, cost.key = make([]byte, saltLength), make([]byte, keyLength)
	return &Hasher{
		cfg:     cfg,
		workers: make(chan struct{}, cfg.Workers),
		dummy:   cost,
	}
}

// Hash returns the PHC string of an Argon2id hash of password under a fresh salt. Errors: [ErrBusy], the context's, or the random
// source's. The length of the password is the caller's to check.
func (h *Hasher) Hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltLength)
	if _, err := io.ReadFull(h.cfg.Rand, salt); err != nil {
		return "", fmt.Errorf("salt of a password hash: %w", err)
	}
	if err := h.acquire(ctx); err != nil {
		return "", err
	}
	defer h.release()
	p := h.dummy
	p.salt = salt
	p.key = p.derive(password, keyLength)
	return p.String(), nil
}

// Verify reports whether password belongs to the PHC string hash. Errors: [ErrBusy], the context's, [ErrMalformedHash]; with an
// error the verdict is always false.
func (h *Hasher) Verify(ctx context.Context, hash, password string) (bool, error) {
	p, err := parsePHC(hash)
	if err != nil {
		return false, err
	}
	return h.verify(ctx, p, password)
}

// VerifyUnknown does the work of a [Hasher.Verify] that fails, for a user name that does not exist. Errors: [ErrBusy] and the
// context's, exactly as for a user that exists.
func (h *Hasher) VerifyUnknown(ctx context.Context, password string) error {
	_, err := h.verify(ctx, h.dummy, password)
	return err
}

func (h *Hasher) verify(ctx context.Context, p phc, password string) (bool, error) {
	if err := h.acquire(ctx); err != nil {
		return false, err
	}
	defer h.release()
	key := p.derive(password, uint32(len(p.key))) //nolint:gosec // parsePHC bounds the length
	return subtle.ConstantTimeCompare(key, p.key) == 1, nil
}

func (h *Hasher) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("password hash: %w", err)
	}
	select {
	case h.workers <- struct{}{}:
		return nil
	default:
	}
	if h.waiting.Add(1) > int64(h.cfg.Queue) {
		h.waiting.Add(-1)
		return ErrBusy
	}
	defer h.waiting.Add(-1)
	timer := time.NewTimer(h.cfg.Wait)
	defer timer.Stop()
	select {
	case h.workers <- struct{}{}:
		return nil
	case <-timer.C:
		return ErrBusy
	case <-ctx.Done():
		return fmt.Errorf("password hash: %w", ctx.Err())
	}
}

func (h *Hasher) release() { <-h.workers }

// phc is a parsed `$argon2id$v=19$m=..,t=..,p=..$salt$key`.
type phc struct {
	memory, passes uint32
	lanes          uint8
	salt, key      []byte
}

func (p phc) derive(password string, length uint32) []byte {
	return argon2.IDKey([]byte(password), p.salt, p.passes, p.memory, p.lanes, length)
}

// String writes the PHC form.
func (p phc) String() string {
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, p.memory, p.passes, p.lanes,
		enc.EncodeToString(p.salt), enc.EncodeToString(p.key))
}

// CheckHash reports whether a stored hash is one that [Hasher.Verify] can use; the error wraps [ErrMalformedHash].
func CheckHash(hash string) error {
	_, err := parsePHC(hash)
	return err
}

func parsePHC(text string) (phc, error) {
	if len(text) > maxHashText {
		return phc{}, fmt.Errorf("%w: %d bytes long", ErrMalformedHash, len(text))
	}
	if strings.ContainsAny(text, "\r\n") { // which the base64 decoder would skip, even in strict mode
		return phc{}, fmt.Errorf("%w: line end", ErrMalformedHash)
	}
	parts := strings.Split(text, "$")
	if len(parts) != 6 || parts[0] != "" || parts[1] != "argon2id" {
		return phc{}, fmt.Errorf("%w: not argon2id", ErrMalformedHash)
	}
	if parts[2] != "v="+strconv.Itoa(argon2.Version) {
		return phc{}, fmt.Errorf("%w: version %q", ErrMalformedHash, parts[2])
	}
	cost := strings.Split(parts[3], ",")
	if len(cost) != 3 {
		return phc{}, fmt.Errorf("%w: cost %q", ErrMalformedHash, parts[3])
	}
	m, err := parameter(cost[0], "m=", maxMemoryKiB)
	if err != nil {
		return phc{}, err
	}
	t, err := parameter(cost[1], "t=", maxPasses)
	if err != nil {
		return phc{}, err
	}
	l, err := parameter(cost[2], "p=", maxLanes)
	if err != nil {
		return phc{}, err
	}
	if m < 8*l {
		return phc{}, fmt.Errorf("%w: %d KiB for %d lanes", ErrMalformedHash, m, l)
	}
	salt, err := base64.RawStdEncoding.Strict().DecodeString(parts[4])
	if err != nil || len(salt) < minSalt || len(salt) > maxSalt {
		return phc{}, fmt.Errorf("%w: salt", ErrMalformedHash)
	}
	key, err := base64.RawStdEncoding.Strict().DecodeString(parts[5])
	if err != nil || len(key) < minKey || len(key) > maxKey {
		return phc{}, fmt.Errorf("%w: key", ErrMalformedHash)
	}
	return phc{memory: m, passes: t, lanes: uint8(l), salt: salt, key: key}, nil //nolint:gosec // bounded by maxLanes
}

func parameter(text, prefix string, limit uint32) (uint32, error) {
	digits, ok := strings.CutPrefix(text, prefix)
	n, err := strconv.ParseUint(digits, 10, 32)
	if !ok || err != nil || n == 0 || n > uint64(limit) {
		return 0, fmt.Errorf("%w: cost %q", ErrMalformedHash, text)
	}
	return uint32(n), nil
}
