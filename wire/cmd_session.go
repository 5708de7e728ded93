package wire

// LoginRegister signs in with user name and password (40). Answer: LoginReply.
type LoginRegister struct {
	Version  ClientVersion
	Username string
	Password string
	Context  string // empty = none
}

// Code is CodeLoginRegister.
func (*LoginRegister) Code() Code { return CodeLoginRegister }

// Append encodes the body.
func (l *LoginRegister) Append(dst []byte) []byte {
	dst = appendName(l.Version.Append(dst), l.Username)
	return appendStr32(appendName(dst, l.Password), l.Context)
}

// Decode reads the body. A body that does not decode may still be a
// LoginRegisterWithPat: the two share one operation (framing §4.2).
func (l *LoginRegister) Decode(src []byte) error {
	r := reader{b: src}
	*l = LoginRegister{}
	l.Version.decode(&r)
	l.Username, l.Password, l.Context = r.name("user name"), r.secret("password"), r.str32("context")
	return r.err()
}

// LoginRegisterWithPat signs in with a token (45). Answer: LoginReply.
type LoginRegisterWithPat struct {
	Version ClientVersion
	Token   string
	Context string // empty = none
}

// Code is CodeLoginRegisterWithPat.
func (*LoginRegisterWithPat) Code() Code { return CodeLoginRegisterWithPat }

// Append encodes the body.
func (l *LoginRegisterWithPat) Append(dst []byte) []byte {
	return appendStr32(appendName(l.Version.Append(dst), l.Token), l.Context)
}

// Decode reads the body.
func (l *LoginRegisterWithPat) Decode(src []byte) error {
	r := reader{b: src}
	*l = LoginRegisterWithPat{}
	l.Version.decode(&r)
	l.Token, l.Context = r.secret("token"), r.str32("context")
	return r.err()
}

// LoginReply answers both logins (commands §3.6).
type LoginReply struct {
	UserID          uint32
	Session         uint64 // never 0
	ProtocolVersion Version
	ServerVersion   string
}

// Append encodes the payload.
func (l *LoginReply) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, l.UserID)
	dst = le.AppendUint64(dst, l.Session)
	dst = le.AppendUint32(dst, uint32(l.ProtocolVersion))
	return appendName(dst, l.ServerVersion)
}

// Decode reads the payload.
func (l *LoginReply) Decode(src []byte) error {
	r := reader{b: src}
	*l = LoginReply{UserID: r.u32(), Session: r.u64(), ProtocolVersion: Version(r.u32()), ServerVersion: r.name("server version")}
	return r.err()
}

// LogoutUser ends the session of the connection (39). Answer: Empty.
type LogoutUser struct{}

// Code is CodeLogoutUser.
func (*LogoutUser) Code() Code { return CodeLogoutUser }

// Append encodes the body.
func (*LogoutUser) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*LogoutUser) Decode([]byte) error { return nil }

// LoginUser is the legacy login (38), known only to be refused.
type LoginUser struct {
	Username, Password, Version, Context string
}

// Code is CodeLoginUser.
func (*LoginUser) Code() Code { return CodeLoginUser }

// Append encodes the body.
func (l *LoginUser) Append(dst []byte) []byte {
	dst = appendName(appendName(dst, l.Username), l.Password)
	return appendStr32(appendStr32(dst, l.Version), l.Context)
}

// Decode reads the body.
func (l *LoginUser) Decode(src []byte) error {
	r := reader{b: src}
	*l = LoginUser{r.name("user name"), r.secret("password"), r.str32("version"), r.str32("context")}
	return r.err()
}

// LoginWithPersonalAccessToken is the legacy token login (44), known only to be
// refused.
type LoginWithPersonalAccessToken struct {
	Token string
}

// Code is CodeLoginWithPersonalAccessToken.
func (*LoginWithPersonalAccessToken) Code() Code { return CodeLoginWithPersonalAccessToken }

// Append encodes the body.
func (l *LoginWithPersonalAccessToken) Append(dst []byte) []byte { return appendName(dst, l.Token) }

// Decode reads the body.
func (l *LoginWithPersonalAccessToken) Decode(src []byte) error {
	r := reader{b: src}
	l.Token = r.name("token")
	return r.err()
}
