package replica

import (
	"encoding/binary"
	"fmt"

	"github.com/zeebo/xxh3"
)

// node.meta says whose directory this is and how the last run ended. It is replaced as a whole (temporary file, flush,
// rename, flush of the directory) at each start and at each orderly stop.
//
//	  0   8  magic "WPNODE\0\1" (last byte = format version)
//	  8  16  directory id, random, minted when the directory was made
//	 24  16  cluster id
//	 40   8  node id
//	 48   8  start counter
//	 56   1  1 = the last run stopped in an orderly way
//	 57   1  length of the boot id
//	 58  62  boot id of the kernel under which the last run was started, zero padded
//	120   8  XXH3-64 of bytes 0..119
const (
	nodeMetaMagic = 0x01_00_45_44_4f_4e_50_57 // "WPNODE\0\1" read little-endian
	nodeMetaLen   = 128
	maxBootID     = 62
)

type nodeMeta struct {
	directory [16]byte
	cluster   [16]byte
	node      uint64
	starts    uint64
	clean     bool
	boot      string
}

func (m *nodeMeta) encode() []byte {
	b := make([]byte, nodeMetaLen)
	binary.LittleEndian.PutUint64(b, nodeMetaMagic)
	copy(b[8:], m.directory[:])
	copy(b[24:], m.cluster[:])
	binary.LittleEndian.PutUint64(b[40:], m.node)
	binary.LittleEndian.PutUint64(b[48:], m.starts)
	if m.clean {
		b[56] = 1
	}
	boot := m.boot
	if len(boot) > maxBootID {
		boot = boot[:maxBootID]
	}
	b[57] = byte(len(boot))
	copy(b[58:], boot)
	binary.LittleEndian.PutUint64(b[120:], xxh3.Hash(b[:120]))
	return b
}

func decodeNodeMeta(path string, b []byte) (nodeMeta, error) {
	var m nodeMeta
	if err := checkMagic(path, b, nodeMetaMagic); err != nil {
		return m, err
	}
	switch {
	case len(b) != nodeMetaLen:
		return m, &CorruptError{path, fmt.Sprintf("%d bytes, want %d", len(b), nodeMetaLen)}
	case binary.LittleEndian.Uint64(b[120:]) != xxh3.Hash(b[:120]):
		return m, &CorruptError{path, "checksum differs"}
	case b[57] > maxBootID:
		return m, &CorruptError{path, "length of the boot id"}
	}
	copy(m.directory[:], b[8:])
	copy(m.cluster[:], b[24:])
	m.node = binary.LittleEndian.Uint64(b[40:])
	m.starts = binary.LittleEndian.Uint64(b[48:])
	m.clean = b[56] == 1
	m.boot = string(b[58 : 58+int(b[57])])
	return m, nil
}
