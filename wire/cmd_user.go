package wire

// GetUser asks for a user (31). Answer: UserDetails, or an empty payload.
type GetUser struct {
	User Identifier
}

// Code is CodeGetUser.
func (*GetUser) Code() Code { return CodeGetUser }

// Append encodes the body.
func (c *GetUser) Append(dst []byte) []byte { return c.User.Append(dst) }

// Decode reads the body.
func (c *GetUser) Decode(src []byte) error {
	r := reader{b: src}
	*c = GetUser{User: r.ident("user id")}
	return r.err()
}

// GetUsers asks for all users (32). Answer: Users.
type GetUsers struct{}

// Code is CodeGetUsers.
func (*GetUsers) Code() Code { return CodeGetUsers }

// Append encodes the body.
func (*GetUsers) Append(dst []byte) []byte { return dst }

// Decode reads the body.
func (*GetUsers) Decode([]byte) error { return nil }

// DeleteUser removes a user and its tokens (34). Answer: Empty.
type DeleteUser struct {
	User Identifier
}

// Code is CodeDeleteUser.
func (*DeleteUser) Code() Code { return CodeDeleteUser }

// Append encodes the body.
func (c *DeleteUser) Append(dst []byte) []byte { return c.User.Append(dst) }

// Decode reads the body.
func (c *DeleteUser) Decode(src []byte) error {
	r := reader{b: src}
	*c = DeleteUser{User: r.ident("user id")}
	return r.err()
}

// UserStatus says whether a user may sign in.
type UserStatus uint8

// Statuses of users.
const (
	UserActive   UserStatus = 1
	UserInactive UserStatus = 2
)

// String names the status.
func (s UserStatus) String() string {
	switch s {
	case UserActive:
		return "active"
	case UserInactive:
		return "inactive"
	}
	return "status(" + utoa(uint64(s)) + ")"
}

// CreateUser adds a user (33, commands §3.7). Answer: UserDetails.
type CreateUser struct {
	Username    string
	Password    string
	Status      UserStatus
	Permissions *Permissions // nil = none
	Options     Options
}

// Code is CodeCreateUser.
func (*CreateUser) Code() Code { return CodeCreateUser }

// Append encodes the body.
func (c *CreateUser) Append(dst []byte) []byte {
	dst = appendName(appendName(dst, c.Username), c.Password)
	dst = appendOptionalPermissions(append(dst, byte(c.Status)), c.Permissions)
	return c.Options.Append(dst)
}

// Decode reads the body.
func (c *CreateUser) Decode(src []byte) error {
	r := reader{b: src}
	*c = CreateUser{
		Username: r.name("user name"), Password: r.secret("password"), Status: UserStatus(r.u8()),
		Permissions: r.optionalPermissions(), Options: r.optionsRest(),
	}
	return r.err()
}

func appendOptionalPermissions(dst []byte, p *Permissions) []byte {
	if p == nil {
		return append(dst, 0)
	}
	return appendPermissions32(append(dst, 1), p)
}

func (r *reader) optionalPermissions() *Permissions {
	if r.u8() != 1 {
		return nil
	}
	return r.permissions32()
}

// UpdateUser renames a user or changes its status (35). Answer: Empty.
type UpdateUser struct {
	User     Identifier
	Username *string     // nil = unchanged
	Status   *UserStatus // nil = unchanged
	Options  Options
}

// Code is CodeUpdateUser.
func (*UpdateUser) Code() Code { return CodeUpdateUser }

// Append encodes the body.
func (c *UpdateUser) Append(dst []byte) []byte {
	dst = c.User.Append(dst)
	if c.Username != nil {
		dst = appendName(append(dst, 1), *c.Username)
	} else {
		dst = append(dst, 0)
	}
	if c.Status != nil {
		dst = append(dst, 1, byte(*c.Status))
	} else {
		dst = append(dst, 0)
	}
	return c.Options.Append(dst)
}

// Decode reads the body.
func (c *UpdateUser) Decode(src []byte) error {
	r := reader{b: src}
	*c = UpdateUser{User: r.ident("user id")}
	if r.u8() == 1 {
		s := r.name("user name")
		c.Username = &s
	}
	if r.u8() == 1 {
		s := UserStatus(r.u8())
		c.Status = &s
	}
	c.Options = r.optionsRest()
	return r.err()
}

// UpdatePermissions replaces the grants of a user (36). Answer: Empty.
type UpdatePermissions struct {
	User        Identifier
	Permissions *Permissions // nil = none
}

// Code is CodeUpdatePermissions.
func (*UpdatePermissions) Code() Code { return CodeUpdatePermissions }

// Append encodes the body.
func (c *UpdatePermissions) Append(dst []byte) []byte {
	return appendOptionalPermissions(c.User.Append(dst), c.Permissions)
}

// Decode reads the body.
func (c *UpdatePermissions) Decode(src []byte) error {
	r := reader{b: src}
	*c = UpdatePermissions{User: r.ident("user id"), Permissions: r.optionalPermissions()}
	return r.err()
}

// ChangePassword sets a new password (37). Answer: Empty.
type ChangePassword struct {
	User            Identifier
	CurrentPassword string
	NewPassword     string
}

// Code is CodeChangePassword.
func (*ChangePassword) Code() Code { return CodeChangePassword }

// Append encodes the body.
func (c *ChangePassword) Append(dst []byte) []byte {
	return appendName(appendName(c.User.Append(dst), c.CurrentPassword), c.NewPassword)
}

// Decode reads the body.
func (c *ChangePassword) Decode(src []byte) error {
	r := reader{b: src}
	*c = ChangePassword{User: r.ident("user id"), CurrentPassword: r.secret("current password"), NewPassword: r.secret("new password")}
	return r.err()
}

// User is a user entry.
type User struct {
	ID        uint32
	CreatedAt uint64 // microseconds
	Status    UserStatus
	Username  string
	Options   Options
}

// Append encodes the entry.
func (u *User) Append(dst []byte) []byte {
	dst = le.AppendUint32(dst, u.ID)
	dst = le.AppendUint64(dst, u.CreatedAt)
	dst = appendName(append(dst, byte(u.Status)), u.Username)
	return u.Options.append32(dst)
}

func (u *User) decode(r *reader) {
	*u = User{ID: r.u32(), CreatedAt: r.u64(), Status: UserStatus(r.u8()), Username: r.name("user name"), Options: r.options32()}
}

// UserDetails answers GetUser and CreateUser.
type UserDetails struct {
	User
	Permissions *Permissions // nil = none
}

// Append encodes the payload.
func (u *UserDetails) Append(dst []byte) []byte {
	dst = u.User.Append(dst)
	if u.Permissions == nil {
		return append(dst, 0, 0, 0, 0)
	}
	return appendPermissions32(append(dst, 1), u.Permissions)
}

// Decode reads the payload.
func (u *UserDetails) Decode(src []byte) error {
	r := reader{b: src}
	*u = UserDetails{}
	u.decode(&r)
	if r.u8() == 0 {
		r.take("permissions padding", 3)
	} else {
		u.Permissions = r.permissions32()
	}
	return r.err()
}

// Users answers GetUsers.
type Users struct {
	Users []User
}

// Append encodes the payload.
func (u *Users) Append(dst []byte) []byte {
	for i := range u.Users {
		dst = u.Users[i].Append(dst)
	}
	return dst
}

// Decode reads the payload.
func (u *Users) Decode(src []byte) error {
	u.Users = nil
	for r := (reader{b: src}); r.left() > 0; {
		var e User
		e.decode(&r)
		if r.fail != nil {
			return r.fail
		}
		u.Users = append(u.Users, e)
	}
	return nil
}
