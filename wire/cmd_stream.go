package wire

// GetStream asks for a stream (200). Answer: StreamDetails, or an empty payload.
type GetStream struct {
	Stream Identifier
}

// Code is CodeGetStream.
func (*GetStream) Code() Code { return CodeGetStream }

// Append encodes the body.
func (c *GetStream) Append(dst []byte) []byte { return c.Stream.Append(dst) }

// Decode reads the body.
func (c *GetStream) Decode(src []byte) error {
	r := reader{b: src}
	*c = GetStream{Stream: r.ident("stream id")}
	return r.err()
}

// GetStreams asks for all streams (201). Answer: Streams.
type GetStreams struct{}

// Code is CodeGetStreams.
func (*GetStreams) Code() Code { return CodeGetStreams }

// Append encodes the body.
func (*GetStreams) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*GetStreams) Decode([]byte) error { return nil }

// DeleteStream removes a stream with all it holds (203). Answer: Empty.
type DeleteStream struct {
	Stream Identifier
}

// Code is CodeDeleteStream.
func (*DeleteStream) Code() Code { return CodeDeleteStream }

// Append encodes the body.
func (c *DeleteStream) Append(dst []byte) []byte { return c.Stream.Append(dst) }

// Decode reads the body.
func (c *DeleteStream) Decode(src []byte) error {
	r := reader{b: src}
	*c = DeleteStream{Stream: r.ident("stream id")}
	return r.err()
}

// PurgeStream empties every topic of a stream (205). Answer: Empty.
type PurgeStream struct {
	Stream Identifier
}

// Code is CodePurgeStream.
func (*PurgeStream) Code() Code { return CodePurgeStream }

// Append encodes the body.
func (c *PurgeStream) Append(dst []byte) []byte { return c.Stream.Append(dst) }

// Decode reads the body.
func (c *PurgeStream) Decode(src []byte) error {
	r := reader{b: src}
	*c = PurgeStream{Stream: r.ident("stream id")}
	return r.err()
}

// CreateStream adds a stream (202, commands §3.13). Answer: StreamDetails
// without topics.
type CreateStream struct {
	Name    string
	Options Options
}

// Code is CodeCreateStream.
func (*CreateStream) Code() Code { return CodeCreateStream }

// Append encodes the body.
func (c *CreateStream) Append(dst []byte) []byte { return c.Options.Append(appendName(dst, c.Name)) }

// Decode reads the body.
func (c *CreateStream) Decode(src []byte) error {
	r := reader{b: src}
	*c = CreateStream{Name: r.name("stream name"), Options: r.optionsRest()}
	return r.err()
}

// UpdateStream renames a stream (204). Answer: Empty.
type UpdateStream struct {
	Stream  Identifier
	Name    string
	Options Options
}

// Code is CodeUpdateStream.
func (*UpdateStream) Code() Code { return CodeUpdateStream }

// Append encodes the body.
func (c *UpdateStream) Append(dst []byte) []byte {
	return c.Options.Append(appendName(c.Stream.Append(dst), c.Name))
}

// Decode reads the body.
func (c *UpdateStream) Decode(src []byte) error {
	r := reader{b: src}
	*c = UpdateStream{Stream: r.ident("stream id"), Name: r.name("stream name"), Options: r.optionsRest()}
	return r.err()
}

// Stream is a stream entry.
type Stream struct {
	ID            uint32
	CreatedAt     uint64 // microseconds
	TopicsCount   uint32
	SizeBytes     uint64
	MessagesCount uint64
	Name          string
	Options       Options
}

// Append encodes the entry.
func (s *Stream) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, s.ID)
	dst = le.AppendUint64(dst, s.CreatedAt)
	dst = le.AppendUint32(dst, s.TopicsCount)
	dst = le.AppendUint64(dst, s.SizeBytes)
	dst = le.AppendUint64(dst, s.MessagesCount)
	return s.Options.append32(appendName(dst, s.Name))
}

func (s *Stream) decode(r *reader) {
	*s = Stream{
		ID: r.u32(), CreatedAt: r.u64(), TopicsCount: r.u32(), SizeBytes: r.u64(), MessagesCount: r.u64(),
		Name: r.name("stream name"), Options: r.options32(),
	}
}

// StreamDetails answers GetStream and CreateStream. Encoding writes the number
// of Topics as TopicsCount.
type StreamDetails struct {
	Stream
	Topics []Topic
}

// Append encodes the payload.
func (s *StreamDetails) Append(dst []byte) []byte {
	e := s.Stream
	e.TopicsCount = uint32(len(s.Topics))
	dst = e.Append(dst)
	for i := range s.Topics {
		dst = s.Topics[i].Append(dst)
	}
	return dst
}

// Decode reads the payload.
func (s *StreamDetails) Decode(src []byte) error {
	r := reader{b: src}
	*s = StreamDetails{}
	s.decode(&r)
	s.Topics = r.topics(s.TopicsCount)
	return r.err()
}

// Streams answers GetStreams.
type Streams struct {
	Streams []Stream
}

// Append encodes the payload.
func (s *Streams) Append(dst []byte) []byte {
	for i := range s.Streams {
		dst = s.Streams[i].Append(dst)
	}
	return dst
}

// Decode reads the payload.
func (s *Streams) Decode(src []byte) error {
	s.Streams = nil
	for r := (reader{b: src}); r.left() > 0; {
		var e Stream
		e.decode(&r)
		if r.fail != nil {
			return r.fail
		}
		s.Streams = append(s.Streams, e)
	}
	return nil
}
