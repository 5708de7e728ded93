package wire

// GetPersonalAccessTokens asks for the caller's tokens (41). Answer: Tokens.
type GetPersonalAccessTokens struct{}

// Code is CodeGetPersonalAccessTokens.
func (*GetPersonalAccessTokens) Code() Code { return CodeGetPersonalAccessTokens }

// Append encodes the body.
func (*GetPersonalAccessTokens) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*GetPersonalAccessTokens) Decode([]byte) error { return nil }

// CreatePersonalAccessToken makes a token (42, commands §3.8). Answer: RawToken.
type CreatePersonalAccessToken struct {
	Name   string
	Expiry uint64 // microseconds from now; 0 and the largest number = never
}

// Code is CodeCreatePersonalAccessToken.
func (*CreatePersonalAccessToken) Code() Code { return CodeCreatePersonalAccessToken }

// Append encodes the body.
func (c *CreatePersonalAccessToken) Append(dst []byte) []byte {
	return le.AppendUint64(appendName(dst, c.Name), c.Expiry)
}

// Decode reads the body.
func (c *CreatePersonalAccessToken) Decode(src []byte) error {
	r := reader{b: src}
	*c = CreatePersonalAccessToken{Name: r.name("token name"), Expiry: r.u64()}
	return r.err()
}

// DeletePersonalAccessToken removes a token (43). Answer: Empty.
type DeletePersonalAccessToken struct {
	Name string
}

// Code is CodeDeletePersonalAccessToken.
func (*DeletePersonalAccessToken) Code() Code { return CodeDeletePersonalAccessToken }

// Append encodes the body.
func (c *DeletePersonalAccessToken) Append(dst []byte) []byte { return appendName(dst, c.Name) }

// Decode reads the body.
func (c *DeletePersonalAccessToken) Decode(src []byte) error {
	r := reader{b: src}
	c.Name = r.name("token name")
	return r.err()
}

// Token is a token entry; the secret is never shown again.
type Token struct {
	Name     string
	ExpiryAt uint64 // microseconds, 0 = never
}

// Tokens answers GetPersonalAccessTokens.
type Tokens struct {
	Tokens []Token
}

// Append encodes the payload.
func (t *Tokens) Append(dst []byte) []byte {
	for i := range t.Tokens {
		dst = le.AppendUint64(appendName(dst, t.Tokens[i].Name), t.Tokens[i].ExpiryAt)
	}
	return dst
}

// Decode reads the payload.
func (t *Tokens) Decode(src []byte) error {
	t.Tokens = nil
	for r := (reader{b: src}); r.left() > 0; {
		e := Token{Name: r.name("token name"), ExpiryAt: r.u64()}
		if r.fail != nil {
			return r.fail
		}
		t.Tokens = append(t.Tokens, e)
	}
	return nil
}

// RawToken answers CreatePersonalAccessToken: the secret itself.
type RawToken struct {
	Token string
}

// Append encodes the payload.
func (t *RawToken) Append(dst []byte) []byte { return appendName(dst, t.Token) }

// Decode reads the payload.
func (t *RawToken) Decode(src []byte) error {
	r := reader{b: src}
	t.Token = r.name("token")
	return r.err()
}
