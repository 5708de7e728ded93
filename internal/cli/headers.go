package cli

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/whippetmq/whippet/wire"
)

// parseHeaders reads "key:kind:value,key:kind:value". A value may contain ":", and "," behind a backslash.
func parseHeaders(specs []string) (wire.Headers, error) {
	var out wire.Headers
	for _, spec := range specs {
		for _, one := range splitEscaped(spec, ',') {
			key, rest, ok := strings.Cut(one, ":")
			kind, value, ok2 := strings.Cut(rest, ":")
			if !ok || !ok2 || key == "" {
				return nil, badUsage("header %q is not KEY:KIND:VALUE", one)
			}
			v, err := parseValue(kind, value)
			if err != nil {
				return nil, badUsage("header %q: %v", one, err)
			}
			for _, h := range out {
				if string(h.Key.Data) == key {
					return nil, badUsage("header %q is given twice", key)
				}
			}
			out = append(out, wire.Header(key, v))
		}
	}
	if err := out.Validate(); err != nil {
		return nil, badUsage("headers: %v", err)
	}
	return out, nil
}

// parseValue reads a value of a kind by name.
func parseValue(kindName, s string) (wire.Value, error) {
	kind, ok := wire.ParseKind(kindName)
	if !ok || !kind.Known() {
		return wire.Value{}, fmt.Errorf("unknown kind %q: take raw, string, bool, int8 to int128, uint8 to uint128, float32 or float64", kindName)
	}
	bits := kind.Size() * 8
	switch kind {
	case wire.KindRaw:
		return wire.RawValue([]byte(s)), nil
	case wire.KindString:
		return wire.StringValue(s), nil
	case wire.KindBool:
		b, err := strconv.ParseBool(s)
		if err != nil {
			err = fmt.Errorf("%q is neither true nor false", s)
		}
		return wire.BoolValue(b), err
	case wire.KindFloat32:
		f, err := strconv.ParseFloat(s, 32)
		return wire.Float32Value(float32(f)), cause(err)
	case wire.KindFloat64:
		f, err := strconv.ParseFloat(s, 64)
		return wire.Float64Value(f), cause(err)
	default:
		signed := kind >= wire.KindInt8 && kind <= wire.KindInt128
		data, err := integer(s, bits, signed)
		return wire.Value{Kind: kind, Data: data}, err
	}
}

// integer gives the two's complement of a decimal number, little-endian.
func integer(s string, bits int, signed bool) ([]byte, error) {
	n, ok := new(big.Int).SetString(s, 10)
	if !ok {
		return nil, fmt.Errorf("%q is not a whole number", s)
	}
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(bits))
	if signed {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	if n.Cmp(low) < 0 || n.Cmp(high) >= 0 {
		return nil, fmt.Errorf("%s does not fit %d bits", s, bits)
	}
	if n.Sign() < 0 {
		n.Add(n, new(big.Int).Lsh(big.NewInt(1), uint(bits)))
	}
	data := n.FillBytes(make([]byte, bits/8))
	for i, j := 0, len(data)-1; i < j; i, j = i+1, j-1 {
		data[i], data[j] = data[j], data[i]
	}
	return data, nil
}

// cause drops the function's name that strconv puts in front of its errors.
func cause(err error) error {
	var ne *strconv.NumError
	if errors.As(err, &ne) {
		return fmt.Errorf("%q: %w", ne.Num, ne.Err)
	}
	return err
}

// splitEscaped splits at sep, where a backslash takes the next character as it is.
func splitEscaped(s string, sep byte) []string {
	var out []string
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case s[i] == sep:
			out = append(out, b.String())
			b.Reset()
		default:
			b.WriteByte(s[i])
		}
	}
	return append(out, b.String())
}

// headerView is one header as JSON.
type headerView struct {
	Key   valueView `json:"key"`
	Value valueView `json:"value"`
}

type valueView struct {
	Kind  string `json:"kind"`
	Value string `json:"value"` // base64 of its bytes
	Text  any    `json:"text"`  // the same, readable
}

func viewHeaders(h wire.Headers) []headerView {
	out := make([]headerView, 0, len(h))
	for _, kv := range h {
		out = append(out, headerView{viewHeaderValue(kv.Key), viewHeaderValue(kv.Value)})
	}
	return out
}

func viewHeaderValue(v wire.Value) valueView {
	return valueView{Kind: v.Kind.String(), Value: base64.StdEncoding.EncodeToString(v.Data), Text: viewValue(v)}
}

// headerText is a header's value for people.
func headerText(v wire.Value) string {
	if v.Kind == wire.KindRaw {
		return hex.EncodeToString(v.Data)
	}
	return v.String()
}
