package transport

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Version is the version of the link's format. Nodes of different versions refuse each other.
const Version = 1

// Purpose tells what a connection is for.
type Purpose uint8

// Purposes of a connection.
const (
	Link Purpose = 1 // frames of this package
	Bulk Purpose = 2 // copying of segments: a byte stream that the receiver of the connection serves
)

// Hello is what a node says of itself when a connection starts.
type Hello struct {
	Version    uint16
	Purpose    Purpose
	Suspect    bool // this node may have lost what it acknowledged
	Shards     uint16
	ClusterID  [16]byte
	NodeID     uint64
	Directory  [16]byte // minted when the data directory was made
	StartCount uint64   // raised and flushed at each start
	Run        uint64   // random, another for every process
	nonce      [32]byte
}

var helloMagic = [4]byte{'W', 'P', 'L', 'K'}

const helloSize = 4 + 2 + 1 + 1 + 2 + 6 + 16 + 8 + 16 + 8 + 8 + 32

func (h *Hello) append(dst []byte) []byte {
	dst = append(dst, helloMagic[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, h.Version)
	suspect := byte(0)
	if h.Suspect {
		suspect = 1
	}
	dst = append(dst, byte(h.Purpose), suspect)
	dst = binary.LittleEndian.AppendUint16(dst, h.Shards)
	dst = append(dst, make([]byte, 6)...)
	dst = append(dst, h.ClusterID[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.NodeID)
	dst = append(dst, h.Directory[:]...)
	dst = binary.LittleEndian.AppendUint64(dst, h.StartCount)
	dst = binary.LittleEndian.AppendUint64(dst, h.Run)
	return append(dst, h.nonce[:]...)
}

func decodeHello(src []byte) (Hello, error) {
	var h Hello
	if [4]byte(src) != helloMagic {
		return h, &RefusedError{Reason: ReasonStranger, Text: "not a peer link: another protocol speaks on this port"}
	}
	h.Version = binary.LittleEndian.Uint16(src[4:])
	h.Purpose, h.Suspect = Purpose(src[6]), src[7] == 1
	h.Shards = binary.LittleEndian.Uint16(src[8:])
	h.ClusterID = [16]byte(src[16:])
	h.NodeID = binary.LittleEndian.Uint64(src[32:])
	h.Directory = [16]byte(src[40:])
	h.StartCount = binary.LittleEndian.Uint64(src[56:])
	h.Run = binary.LittleEndian.Uint64(src[64:])
	h.nonce = [32]byte(src[72:])
	return h, nil
}

// Reason says why a connection was refused.
type Reason uint8

// Reasons of a refusal.
const (
	ReasonStranger  Reason = 1 // not our protocol
	ReasonVersion   Reason = 2 // another version of the link
	ReasonCluster   Reason = 3 // a node of another cluster
	ReasonNode      Reason = 4 // a node that the roster does not name, or not the one that was dialled
	ReasonProof     Reason = 5 // the secret is wrong or missing
	ReasonIdentity  Reason = 6 // another live process or an older copy uses the same node id
	ReasonDraining  Reason = 7 // the node stops
	ReasonMalformed Reason = 8
	ReasonOutdated  Reason = 9 // the directory is not the newest that was seen of the node
)

// RefusedError says that a connection between nodes was refused, by this side or the other.
type RefusedError struct {
	Reason Reason
	Text   string

	own [16]byte // the directory that this node presented
}

func (e *RefusedError) Error() string { return "peer link refused: " + e.Text }

// proof is what shows that a side knows the secret: it covers both hellos and the side that gives it.
func proof(secret []byte, side byte, dialler, acceptor []byte) [sha256.Size]byte {
	if len(secret) == 0 {
		return [sha256.Size]byte{}
	}
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("whippet peer link"))
	mac.Write([]byte{side})
	mac.Write(dialler)
	mac.Write(acceptor)
	return [sha256.Size]byte(mac.Sum(nil))
}

const (
	sideDialler  = 1
	sideAcceptor = 2
)

// handshake runs the hello over a fresh connection: the dialler sends its hello, the acceptor its hello and proof, the
// dialler its proof, the acceptor its verdict. want is the node that was dialled, 0 on the accepting side.
func (t *Transport) handshake(conn net.Conn, want uint64, purpose Purpose) (peer Hello, err error) {
	if err := conn.SetDeadline(time.Now().Add(t.cfg.HandshakeTimeout)); err != nil {
		return Hello{}, fmt.Errorf("transport: set the hello's deadline: %w", err)
	}
	own := t.own()
	own.Purpose = purpose
	if _, err := io.ReadFull(rand.Reader, own.nonce[:]); err != nil {
		return Hello{}, fmt.Errorf("transport: nonce: %w", err)
	}
	if want != 0 {
		peer, err = t.greet(conn, &own, want)
	} else {
		peer, err = t.welcome(conn, &own)
	}
	if err != nil {
		return Hello{}, err
	}
	return peer, conn.SetDeadline(time.Time{})
}

// greet is the dialling side.
func (t *Transport) greet(conn net.Conn, own *Hello, want uint64) (Hello, error) {
	mine := own.append(nil)
	if _, err := conn.Write(mine); err != nil {
		return Hello{}, fmt.Errorf("transport: send hello: %w", err)
	}
	if err := readVerdict(conn); err != nil {
		return Hello{}, presented(err, own)
	}
	answer := make([]byte, helloSize+sha256.Size)
	if _, err := io.ReadFull(conn, answer); err != nil {
		return Hello{}, fmt.Errorf("transport: read hello: %w", err)
	}
	theirs, theirProof := answer[:helloSize], answer[helloSize:]
	peer, err := decodeHello(theirs)
	if err == nil {
		err = t.check(&peer, want)
	}
	if err == nil && !t.proven(theirProof, sideAcceptor, mine, theirs) {
		err = &RefusedError{Reason: ReasonProof, Text: fmt.Sprintf("node %d does not know the cluster's secret", peer.NodeID)}
	}
	if err == nil {
		err = t.admit(&peer)
	}
	if err != nil {
		return Hello{}, err
	}
	p := proof(t.cfg.Secret, sideDialler, mine, theirs)
	if _, err := conn.Write(p[:]); err != nil {
		return Hello{}, fmt.Errorf("transport: send proof: %w", err)
	}
	if err := readVerdict(conn); err != nil {
		return Hello{}, presented(err, own)
	}
	return peer, nil
}

// welcome is the accepting side.
func (t *Transport) welcome(conn net.Conn, own *Hello) (Hello, error) {
	theirs := make([]byte, helloSize)
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return Hello{}, fmt.Errorf("transport: read hello: %w", err)
	}
	peer, err := decodeHello(theirs)
	if err == nil {
		err = t.check(&peer, 0)
	}
	if err != nil {
		return Hello{}, t.refuse(conn, err)
	}
	own.Purpose = peer.Purpose
	mine := own.append(nil)
	p := proof(t.cfg.Secret, sideAcceptor, theirs, mine)
	answer := append(append([]byte{0, 0}, mine...), p[:]...)
	if _, err := conn.Write(answer); err != nil {
		return Hello{}, fmt.Errorf("transport: send hello: %w", err)
	}
	theirProof := make([]byte, sha256.Size)
	if _, err := io.ReadFull(conn, theirProof); err != nil {
		return Hello{}, fmt.Errorf("transport: read proof of node %d: %w", peer.NodeID, err)
	}
	if !t.proven(theirProof, sideDialler, theirs, mine) {
		return Hello{}, t.refuse(conn, &RefusedError{Reason: ReasonProof, Text: fmt.Sprintf("node %d does not know the cluster's secret", peer.NodeID)})
	}
	err = t.unique(&peer)
	if err == nil {
		err = t.admit(&peer)
	}
	if err == nil {
		err = t.remember(&peer)
	}
	if err != nil {
		return Hello{}, t.refuse(conn, err)
	}
	if _, err := conn.Write([]byte{0, 0}); err != nil {
		return Hello{}, fmt.Errorf("transport: send verdict: %w", err)
	}
	return peer, nil
}

// proven checks a proof against the secret, and against the one that was in use before.
func (t *Transport) proven(got []byte, side byte, dialler, acceptor []byte) bool {
	current := proof(t.cfg.Secret, side, dialler, acceptor)
	if hmac.Equal(got, current[:]) {
		return true
	}
	if len(t.cfg.Secret) == 0 || len(t.cfg.PreviousSecret) == 0 {
		return false
	}
	previous := proof(t.cfg.PreviousSecret, side, dialler, acceptor)
	return hmac.Equal(got, previous[:])
}

// check looks at what a hello says before any proof.
func (t *Transport) check(peer *Hello, want uint64) error {
	switch {
	case peer.Version != Version:
		return &RefusedError{Reason: ReasonVersion, Text: fmt.Sprintf("node %d speaks version %d of the peer link, this node version %d: run the same release on all nodes",
			peer.NodeID, peer.Version, Version)}
	case peer.ClusterID != t.hello.ClusterID:
		return &RefusedError{Reason: ReasonCluster, Text: fmt.Sprintf("node %d belongs to another cluster: check cluster.name", peer.NodeID)}
	case want != 0 && peer.NodeID != want:
		return &RefusedError{Reason: ReasonNode, Text: fmt.Sprintf("the address of node %d is answered by node %d: check the roster", want, peer.NodeID)}
	case peer.NodeID == t.hello.NodeID:
		return &RefusedError{Reason: ReasonIdentity, Text: fmt.Sprintf("another process also runs as node %d: give each node its own --replica-id", peer.NodeID)}
	case t.peers[peer.NodeID] == nil:
		return &RefusedError{Reason: ReasonNode, Text: fmt.Sprintf("node %d is not in this node's roster", peer.NodeID)}
	case peer.Purpose != Link && peer.Purpose != Bulk:
		return &RefusedError{Reason: ReasonMalformed, Text: fmt.Sprintf("node %d asks for an unknown purpose %d", peer.NodeID, peer.Purpose)}
	}
	return nil
}

// refuse tells the other side why, as far as it listens, and gives the error back.
func (t *Transport) refuse(conn net.Conn, err error) error {
	var refused *RefusedError
	if errors.As(err, &refused) && refused.Reason != ReasonStranger {
		text := refused.Text[:min(len(refused.Text), 255)]
		_, _ = conn.Write(append([]byte{byte(refused.Reason), byte(len(text))}, text...)) // it is closed next anyway
	}
	return err
}

// presented notes in a refusal what was refused.
func presented(err error, own *Hello) error {
	var refused *RefusedError
	if errors.As(err, &refused) {
		refused.own = own.Directory
	}
	return err
}

func readVerdict(conn net.Conn) error {
	var verdict [2]byte
	if _, err := io.ReadFull(conn, verdict[:]); err != nil {
		return fmt.Errorf("transport: read verdict: %w", err)
	}
	if verdict[0] == 0 {
		return nil
	}
	text := make([]byte, verdict[1])
	if _, err := io.ReadFull(conn, text); err != nil {
		return fmt.Errorf("transport: read refusal: %w", err)
	}
	return &RefusedError{Reason: Reason(verdict[0]), Text: string(text)}
}
