package wire

// Version is a packed protocol version: major << 20 | minor << 10 | patch
// (framing §7).
type Version uint32

// The version that this package speaks, and the lowest client that a server of
// this version accepts: the same with patch 0.
const (
	CurrentVersion Version = 11 << 10 // 0.11.0
	MinVersion     Version = CurrentVersion &^ 0x3ff
)

// PackVersion packs the three numbers, each below 1024.
func PackVersion(major, minor, patch uint32) Version {
	return Version(major&0x3ff<<20 | minor&0x3ff<<10 | patch&0x3ff)
}

// Major is the first number.
func (v Version) Major() uint32 { return uint32(v) >> 20 }

// Minor is the second number.
func (v Version) Minor() uint32 { return uint32(v) >> 10 & 0x3ff }

// Patch is the third number.
func (v Version) Patch() uint32 { return uint32(v) & 0x3ff }

// String gives "major.minor.patch".
func (v Version) String() string {
	return utoa(uint64(v.Major())) + "." + utoa(uint64(v.Minor())) + "." + utoa(uint64(v.Patch()))
}

// Accepts reports whether a server of version v lets this client in.
func (v Version) Accepts(client Version) bool {
	return client >= v&^0x3ff && client>>10 <= v>>10
}

// Semver is the number that the stats reply carries for a server's version:
// major*1,000,000 + minor*1,000 + patch (commands §3.1).
func (v Version) Semver() uint32 {
	return v.Major()*1_000_000 + v.Minor()*1_000 + v.Patch()
}

// ClientVersion is the block in front of both login bodies (framing §4.3).
type ClientVersion struct {
	Protocol   Version
	SDKName    string // 1..255 bytes, for example "go-sdk"
	SDKVersion string // 1..255 bytes
}

// Append encodes the block.
func (c ClientVersion) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, uint32(c.Protocol))
	dst = appendName(dst, c.SDKName)
	return appendName(dst, c.SDKVersion)
}

// Decode reads the block from the start of a login body, so that a server can
// check it before anything else (framing §4.2, steps 1 and 2).
func (c *ClientVersion) Decode(src []byte) error {
	r := reader{b: src}
	c.decode(&r)
	return r.err()
}

func (c *ClientVersion) decode(r *reader) {
	c.Protocol = Version(r.u32())
	c.SDKName = r.name("sdk name")
	c.SDKVersion = r.name("sdk version")
}
