package wire

import (
	"errors"
	"strings"
	"testing"
)

// decoderOf gives the decoder that a negative vector names.
func decoderOf(t *testing.T, v vector) func([]byte) error {
	withReader := func(f func(*reader)) func([]byte) error {
		return func(b []byte) error {
			r := reader{b: b}
			f(&r)
			return r.err()
		}
	}
	switch v.Decoder {
	case "WireName":
		return withReader(func(r *reader) { r.name("wire name") })
	case "WireIdentifier":
		return func(b []byte) error {
			_, err := new(Identifier).Decode(b)
			return err
		}
	case "WireConsumer":
		return withReader(func(r *reader) { r.consumer() })
	case "WirePartitioning":
		return withReader(func(r *reader) { r.partitioning() })
	case "PS":
		return withReader(func(r *reader) { r.strategy() })
	case "ClientVersionInfo":
		return new(ClientVersion).Decode
	case "rm::SendMessagesResponse":
		return new(SendConfirmations).Decode
	case "rt::get_topics::GetTopicsResponse":
		return new(Topics).Decode
	case "batch (verify checksums)":
		return func(b []byte) error {
			batch, _, err := ParseBatch(b)
			if err != nil {
				return err
			}
			return batch.Verify()
		}
	case "RequestHeader":
		return new(RequestHeader).Decode
	case "EvictionHeader":
		return new(EvictionHeader).Decode
	case "result section":
		return func(b []byte) error {
			_, err := SplitResult(b)
			return err
		}
	}
	if strings.HasSuffix(v.Decoder, "Request") {
		if req, ok := NewRequest(v.Code); ok {
			return req.Decode
		}
	}
	t.Fatalf("unknown decoder %q", v.Decoder)
	return nil
}

func TestVectorNegative(t *testing.T) {
	kinds := map[string]error{
		"UnexpectedEof":          ErrUnexpectedEOF,
		"InvalidUtf8":            ErrInvalidUTF8,
		"UnknownDiscriminant":    ErrUnknownDiscriminant,
		"Validation":             ErrValidation,
		"InvalidBatchChecksum":   ErrInvalidBatchChecksum,
		"InvalidMessageChecksum": ErrInvalidMessageChecksum,
		"InvalidBitPattern":      ErrInvalidBitPattern,
		"InvalidField":           ErrInvalidField,
		"InvalidCommand":         ErrInvalidFrameKind,
		"InvalidSize":            ErrInvalidSize,
		"malformed (client surfaces InvalidCommand 3)": ErrMalformedResult,
	}
	for _, v := range loadVectors(t, "negative.json") {
		t.Run(v.Name, func(t *testing.T) {
			want, ok := kinds[v.Error]
			if !ok {
				t.Fatalf("unknown kind %q", v.Error)
			}
			err := decoderOf(t, v)(v.bytes(t))
			if !errors.Is(err, want) {
				t.Errorf("error %v, want %v", err, want)
			}
			var c ErrorCode
			if s := StatusOf(err); !errors.As(err, &c) && s != ErrInvalidCommand {
				t.Errorf("status %d, want 3", s)
			}
		})
	}
}
