package cli

import (
	"errors"
	"strconv"

	"github.com/whippetmq/whippet/client"
	"github.com/whippetmq/whippet/internal/cli/output"
	"github.com/whippetmq/whippet/internal/cli/units"
	"github.com/whippetmq/whippet/wire"
)

// userCmd groups the commands about users.
type userCmd struct {
	Create      userCreateCmd      `cmd:"" name:"create" aliases:"c" help:"Create a user."`
	Delete      userDeleteCmd      `cmd:"" name:"delete" aliases:"d" help:"Delete a user and its tokens."`
	Get         userGetCmd         `cmd:"" name:"get" aliases:"g" help:"Show a user and its permissions."`
	List        userListCmd        `cmd:"" name:"list" aliases:"l" help:"List the users."`
	Name        userNameCmd        `cmd:"" name:"name" aliases:"n" help:"Rename a user."`
	Status      userStatusCmd      `cmd:"" name:"status" aliases:"s" help:"Let a user sign in, or not."`
	Password    userPasswordCmd    `cmd:"" name:"password" aliases:"pwd" help:"Change a user's password."`
	Permissions userPermissionsCmd `cmd:"" name:"permissions" aliases:"p" help:"Replace a user's permissions."`
}

// permissionFlags are the two ways to name permissions.
type permissionFlags struct {
	Global string   `name:"global-permissions" short:"g" placeholder:"LIST" help:"Permissions on everything, separated by commas: manage_servers (m_srv), read_servers (r_srv), manage_users (m_usr), read_users (r_usr), manage_streams (m_str), read_streams (r_str), manage_topics (m_top), read_topics (r_top), poll_messages (p_msg), send_messages (s_msg)."`
	Stream []string `name:"stream-permissions" short:"s" sep:"none" placeholder:"RULE" help:"Permissions on one stream and its topics, ID[:LIST][#TOPIC_ID[:LIST]]...; may be repeated."`
}

func (f permissionFlags) parse() (*wire.Permissions, error) {
	return parsePermissions(f.Global, f.Stream)
}

type userView struct {
	ID        uint32 `json:"id"`
	CreatedAt uint64 `json:"created_at"`
	Status    string `json:"status"`
	Username  string `json:"username"`
}

func viewUser(u wire.User) userView {
	return userView{ID: u.ID, CreatedAt: u.CreatedAt, Status: u.Status.String(), Username: u.Username}
}

type userDetailsView struct {
	userView
	Permissions any `json:"permissions"`
}

func parseStatus(s string) wire.UserStatus {
	if s == "inactive" {
		return wire.UserInactive
	}
	return wire.UserActive
}

type userCreateCmd struct {
	Username        string `arg:"" name:"username" help:"Name, 3 to 50 bytes."`
	Password        string `arg:"" name:"password" help:"Password, 3 to 100 bytes."`
	Status          string `name:"user-status" short:"u" enum:"active,inactive" default:"active" help:"active or inactive."`
	permissionFlags `embed:""`
}

// Run creates the user.
func (c *userCreateCmd) Run(inv *invocation) error {
	p, err := c.parse()
	if err != nil {
		return err
	}
	inv.out.Executing("create user with username: %s", c.Username)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	u, err := conn.CreateUser(inv.ctx, wire.CreateUser{
		Username: c.Username, Password: c.Password, Status: parseStatus(c.Status), Permissions: p,
	})
	if err != nil {
		return failed(err, "create user %q", c.Username)
	}
	inv.out.Done(userDetailsView{viewUser(u.User), viewPermissions(u.Permissions)}, "User with username: %s created", c.Username)
	return nil
}

// userArg is the first argument of commands about a user.
type userArg struct {
	User ident `arg:"" name:"user" help:"Id or name of the user."`
}

type userDeleteCmd struct {
	userArg `embed:""`
}

// Run deletes the user.
func (c *userDeleteCmd) Run(inv *invocation) error {
	inv.out.Executing("delete user with ID: %s", c.User)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.DeleteUser(inv.ctx, c.User.Identifier); err != nil {
		return failed(err, "delete user %s", c.User)
	}
	inv.out.Done(deleted{Deleted: true, User: c.User.String()}, "User with ID: %s deleted", c.User)
	return nil
}

type userGetCmd struct {
	userArg `embed:""`
}

// Run shows the user.
func (c *userGetCmd) Run(inv *invocation) error {
	inv.out.Executing("get user with ID: %s", c.User)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	u, err := conn.User(inv.ctx, c.User.Identifier)
	if errors.Is(err, client.ErrNotFound) {
		inv.out.NotFound("User with ID: %s was not found", c.User)
		return nil
	}
	if err != nil {
		return failed(err, "get user %s", c.User)
	}
	rows := [][]string{
		{"User ID", strconv.FormatUint(uint64(u.ID), 10)},
		{"Created", units.TimeLocal(u.CreatedAt)},
		{"Status", u.Status.String()},
		{"Username", u.Username},
	}
	rows = append(rows, permissionRows(u.Permissions, output.Nested)...)
	inv.out.Details("Property", "Value", rows, userDetailsView{viewUser(u.User), viewPermissions(u.Permissions)})
	return nil
}

type userListCmd struct {
	listMode `embed:""`
}

// Run lists the users.
func (c *userListCmd) Run(inv *invocation) error {
	inv.out.Executing("list users in %s mode", c.Mode)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	users, err := conn.Users(inv.ctx)
	if err != nil {
		return failed(err, "list users")
	}
	views := make([]userView, 0, len(users))
	var rows [][]string
	for _, u := range users {
		views = append(views, viewUser(u))
		rows = append(rows, []string{strconv.FormatUint(uint64(u.ID), 10), units.TimeLocal(u.CreatedAt), u.Status.String(), u.Username})
	}
	inv.out.Sheet(output.Sheet{
		Header: []string{"ID", "Created", "Status", "Username"}, Rows: rows, Doc: views, List: c.list(), None: "No users found!",
	})
	return nil
}

type userNameCmd struct {
	userArg `embed:""`
	Name    string `arg:"" name:"username" help:"New name."`
}

// Run renames the user.
func (c *userNameCmd) Run(inv *invocation) error {
	inv.out.Executing("update user with ID: %s with username: %s", c.User, c.Name)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.UpdateUser(inv.ctx, c.User.Identifier, &c.Name, nil); err != nil {
		return failed(err, "rename user %s", c.User)
	}
	inv.out.Done(updated{Updated: true, User: c.User.String(), Name: c.Name}, "User with ID: %s updated with username: %s", c.User, c.Name)
	return nil
}

type userStatusCmd struct {
	userArg `embed:""`
	Status  string `arg:"" name:"status" enum:"active,inactive" help:"active or inactive."`
}

// Run changes the status.
func (c *userStatusCmd) Run(inv *invocation) error {
	inv.out.Executing("update user with ID: %s with status: %s", c.User, c.Status)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	status := parseStatus(c.Status)
	if err := conn.UpdateUser(inv.ctx, c.User.Identifier, nil, &status); err != nil {
		return failed(err, "change the status of user %s", c.User)
	}
	inv.out.Done(updated{Updated: true, User: c.User.String(), Status: c.Status}, "User with ID: %s updated with status: %s", c.User, c.Status)
	return nil
}

type userPasswordCmd struct {
	userArg `embed:""`
	Current string `arg:"" optional:"" name:"current" help:"Current password; asked for when left out."`
	New     string `arg:"" optional:"" name:"new" help:"New password; asked for when left out."`
}

// Run changes the password.
func (c *userPasswordCmd) Run(inv *invocation) error {
	inv.out.Executing("change password for user with ID: %s", c.User)
	var err error
	asked := c.Current == "" || c.New == ""
	if c.Current == "" {
		if c.Current, err = inv.secret("Current password: "); err != nil {
			return failed(err, "read the current password")
		}
	}
	if c.New == "" {
		if c.New, err = inv.secret("New password: "); err != nil {
			return failed(err, "read the new password")
		}
	}
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.ChangePassword(inv.ctx, c.User.Identifier, c.Current, c.New); err != nil {
		return failed(err, "change the password of user %s", c.User)
	}
	if asked {
		inv.out.Quiet = false // who typed a password wants to know that it counts now
	}
	inv.out.Done(updated{Updated: true, User: c.User.String()}, "Password for user with ID: %s changed", c.User)
	return nil
}

type userPermissionsCmd struct {
	userArg         `embed:""`
	permissionFlags `embed:""`
}

// Run replaces the permissions; without any, all are removed.
func (c *userPermissionsCmd) Run(inv *invocation) error {
	p, err := c.parse()
	if err != nil {
		return err
	}
	inv.out.Executing("update permissions for user with ID: %s", c.User)
	conn, err := inv.connect()
	if err != nil {
		return err
	}
	if err := conn.UpdatePermissions(inv.ctx, c.User.Identifier, p); err != nil {
		return failed(err, "update the permissions of user %s", c.User)
	}
	inv.out.Done(updated{Updated: true, User: c.User.String()}, "Permissions for user with ID: %s updated", c.User)
	return nil
}
