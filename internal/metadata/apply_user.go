package metadata

import (
	"cmp"
	"slices"

	"github.com/whippetmq/whippet/internal/credential"
	"github.com/whippetmq/whippet/wire"
)

// putUser adds or changes a user.
func (c *change) putUser(u *User) {
	if old := c.catalog.users.get(u.ID); old != nil && old.Name != u.Name {
		c.catalog.userNames = c.catalog.userNames.remove(old.Name)
	}
	c.catalog.users = c.catalog.users.set(u.ID, u)
	c.catalog.userNames = c.catalog.userNames.set(u.Name, u)
	c.changed = true
}

// other finds the user that an operation is about and checks the permission to manage users.
func (c *change) other(id wire.Identifier) (*User, wire.ErrorCode) {
	u := c.catalog.User(id)
	switch {
	case u == nil:
		return nil, wire.ErrResourceNotFound
	case !c.allows(RuleManageUsers, 0, 0):
		return nil, wire.ErrUnauthorized
	}
	return u, 0
}

func (c *change) createUser(o *createUser) wire.ErrorCode {
	switch {
	case !c.allows(RuleManageUsers, 0, 0):
		return wire.ErrUnauthorized
	case !credential.ValidUsername(o.name):
		return wire.ErrInvalidUsername
	case c.catalog.userNames.get(o.name) != nil:
		return wire.ErrUserAlreadyExists
	case c.catalog.users.len() >= maxUsers:
		return wire.ErrUsersLimitReached
	}
	u := &User{ID: c.catalog.users.free(), Name: o.name, CreatedAt: c.time, PasswordHash: o.hash, Active: o.active, Revision: c.index,
		permissions: o.permissions}
	c.putUser(u)
	details := wire.UserDetails{User: u.Entry(), Permissions: u.Permissions()}
	c.payload = details.Append(nil)
	return 0
}

func (c *change) updateUser(o *updateUser) wire.ErrorCode {
	u, code := c.other(o.user)
	if code != 0 {
		return code
	}
	next := *u
	if o.hasName {
		if !credential.ValidUsername(o.name) {
			return wire.ErrInvalidUsername
		}
		if other := c.catalog.userNames.get(o.name); other != nil && other.ID != u.ID {
			return wire.ErrUserAlreadyExists
		}
		next.Name = o.name
	}
	if o.hasActive {
		next.Active = o.active
	}
	if next.Name != u.Name || next.Active != u.Active {
		next.Revision = c.index
	}
	c.putUser(&next)
	return 0
}

func (c *change) deleteUser(o *deleteUser) wire.ErrorCode {
	u, code := c.other(o.user)
	if code != 0 {
		return code
	}
	if u.ID == RootUser {
		return wire.ErrCannotDeleteUser
	}
	for _, t := range u.tokens {
		c.catalog.tokens = c.catalog.tokens.remove(t.Hash)
	}
	c.catalog.users = c.catalog.users.set(u.ID, nil)
	c.catalog.userNames = c.catalog.userNames.remove(u.Name)
	c.changed = true
	c.deleted = u.ID
	return 0
}

func (c *change) updatePermissions(o *updatePermissions) wire.ErrorCode {
	u, code := c.other(o.user)
	if code != 0 {
		return code
	}
	if u.ID == RootUser {
		return wire.ErrCannotChangePermissions
	}
	next := *u
	next.permissions = o.permissions
	c.putUser(&next)
	return 0
}

// changePassword trusts the verdict on the current password only if the credentials are still those it was found on.
func (c *change) changePassword(o *changePassword) wire.ErrorCode {
	u := c.catalog.User(o.user)
	switch {
	case u == nil:
		return wire.ErrResourceNotFound
	case u.ID != c.user && !c.allows(RuleManageUsers, 0, 0):
		return wire.ErrUnauthorized
	case !o.verified, o.revision != u.Revision:
		return wire.ErrInvalidCredentials
	}
	next := *u
	next.PasswordHash = o.hash
	next.Revision = c.index
	c.putUser(&next)
	return 0
}

func (c *change) createToken(o *createToken) wire.ErrorCode {
	u := c.catalog.users.get(c.user)
	if u == nil {
		return wire.ErrUnauthorized
	}
	at, exists := slices.BinarySearchFunc(u.tokens, o.name, func(t *Token, name string) int { return cmp.Compare(t.Name, name) })
	if exists {
		return wire.ErrPersonalAccessTokenAlreadyExists
	}
	t := &Token{User: u.ID, Name: o.name, Hash: o.hash}
	if o.expiry != 0 && o.expiry != wire.Never {
		t.ExpiryAt = c.time + o.expiry
		if t.ExpiryAt <= c.time { // does not fit
			return wire.ErrInvalidPersonalAccessTokenExpiry
		}
	}
	if c.catalog.tokens.get(o.hash) != nil {
		// The same random text twice: only a broken random source does that.
		return wire.ErrPersonalAccessTokenAlreadyExists
	}
	next := *u
	next.tokens = slices.Insert(slices.Clone(u.tokens), at, t)
	c.putUser(&next)
	c.catalog.tokens = c.catalog.tokens.set(t.Hash, t)
	return 0
}

func (c *change) deleteToken(o *deleteToken) wire.ErrorCode {
	u := c.catalog.users.get(c.user)
	if u == nil {
		return wire.ErrUnauthorized
	}
	t := u.Token(o.name)
	if t == nil {
		return wire.ErrResourceNotFound
	}
	next := *u
	next.tokens = slices.DeleteFunc(slices.Clone(u.tokens), func(x *Token) bool { return x == t })
	c.putUser(&next)
	c.catalog.tokens = c.catalog.tokens.remove(t.Hash)
	return 0
}
