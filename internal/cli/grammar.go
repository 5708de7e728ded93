package cli

import (
	"context"
	"errors"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// grammar is the whole command line. Every flag has an explicit name, so that renaming a field changes nothing for
// users.
type grammar struct {
	Globals

	Up      upCmd      `cmd:"" name:"up" group:"node" help:"Start a working server on embedded storage and say how to use it."`
	Server  serverCmd  `cmd:"" name:"server" group:"node" help:"Run a node from a configuration file, variables and flags."`
	Bench   benchCmd   `cmd:"" name:"bench" group:"node" help:"Measure throughput and latency."`
	Debug   debugCmd   `cmd:"" name:"debug" group:"node" help:"Look into the files of a node."`
	Version versionCmd `cmd:"" name:"version" group:"node" help:"Print the version."`

	Stream         streamCmd         `cmd:"" name:"stream" aliases:"s" group:"data" help:"Create, list, change and delete streams."`
	Topic          topicCmd          `cmd:"" name:"topic" aliases:"t" group:"data" help:"Create, list, change and delete topics."`
	Partition      partitionCmd      `cmd:"" name:"partition" aliases:"p" group:"data" help:"Add partitions to a topic, or remove some."`
	Segment        segmentCmd        `cmd:"" name:"segment" aliases:"seg" group:"data" help:"Delete the oldest segments of a partition."`
	Message        messageCmd        `cmd:"" name:"message" aliases:"m" group:"data" help:"Send and poll messages."`
	ConsumerOffset consumerOffsetCmd `cmd:"" name:"consumer-offset" aliases:"o,offset" group:"data" help:"Read and set what consumers have processed."`
	ConsumerGroup  consumerGroupCmd  `cmd:"" name:"consumer-group" aliases:"g" group:"data" help:"Create, list and delete consumer groups."`

	Ping     pingCmd     `cmd:"" name:"ping" group:"system" help:"Measure the time to the server and back."`
	Me       meCmd       `cmd:"" name:"me" group:"system" help:"Show this connection as the server sees it."`
	Stats    statsCmd    `cmd:"" name:"stats" group:"system" help:"Show the server's statistics."`
	Client   clientCmd   `cmd:"" name:"client" aliases:"c" group:"system" help:"Show the server's connections."`
	Cluster  clusterCmd  `cmd:"" name:"cluster" aliases:"cl" group:"system" help:"Show the nodes of the cluster."`
	Snapshot snapshotCmd `cmd:"" name:"snapshot" group:"system" help:"Fetch an archive of the server's diagnostic files."`
	Options  optionsCmd  `cmd:"" name:"options" group:"system" help:"List the options that topics, streams and users take."`

	User    userCmd    `cmd:"" name:"user" aliases:"u" group:"access" help:"Create, list, change and delete users."`
	Pat     patCmd     `cmd:"" name:"pat" group:"access" help:"Create, list and delete personal access tokens."`
	Login   loginCmd   `cmd:"" name:"login" aliases:"li" group:"access" help:"Sign in once for the next commands."`
	Logout  logoutCmd  `cmd:"" name:"logout" aliases:"lo" group:"access" help:"End the session that login made."`
	Session sessionCmd `cmd:"" name:"session" aliases:"sess" group:"access" help:"Tell about the session that login made."`
	Context contextCmd `cmd:"" name:"context" aliases:"ctx" group:"access" help:"Keep connection options under a name."`

	Completion completionCmd `cmd:"" name:"completion" group:"node" help:"Print a shell completion script."`
}

// Globals are the options of every command; the short forms are added by expandShorts, since the reference uses
// the same letters again in its commands.
type Globals struct {
	Help        helpFlag    `name:"help" short:"h" help:"Show help; --help also lists the options of the connection."`
	ShowVersion versionFlag `name:"version" short:"V" help:"Print the version."`

	JSON     bool       `name:"json" help:"Print one JSON document per result."`
	Quiet    bool       `name:"quiet" help:"Print no results."`
	Debug    string     `name:"debug" placeholder:"FILE" help:"Write a trace to FILE, replacing it."`
	Generate shellsFlag `name:"generate" placeholder:"SHELL" help:"Print a completion script for bash, elvish, fish, powershell or zsh."`

	Connect   string `name:"connect" group:"connection" placeholder:"URL" help:"Connection string, iggy://user:password@host:port. Without it that of $$WHIPPET_CONNECT counts, else the active context; the options below replace their part of either."`
	Username  string `name:"username" group:"connection" placeholder:"NAME" help:"Sign in as NAME; the password is asked for when it is not given."`
	Password  string `name:"password" group:"connection" placeholder:"TEXT" help:"The password of --username."`
	Token     string `name:"token" group:"connection" placeholder:"TOKEN" help:"Sign in with a personal access token."`
	TokenName string `name:"token-name" group:"connection" placeholder:"NAME" help:"Sign in with a token that was stored under NAME."`

	Transport            string `name:"transport" group:"connection" enum:"tcp,quic,http,ws" default:"tcp" help:"tcp; quic, http and ws are not in this version."`
	TCPServerAddress     string `name:"tcp-server-address" group:"connection" default:"127.0.0.1:8090" placeholder:"HOST:PORT" help:"Where the server is (${default})."`
	TCPReconnectRetries  string `name:"tcp-reconnection-max-retries" group:"connection" default:"10" placeholder:"N" help:"How often to dial again, or unlimited (${default})."`
	TCPReconnectInterval string `name:"tcp-reconnection-interval" group:"connection" default:"1s" placeholder:"TIME" help:"Pause between dials (${default})."`
	TCPTLSEnabled        bool   `name:"tcp-tls-enabled" group:"connection" help:"Use TLS."`
	TCPTLSDomain         string `name:"tcp-tls-domain" group:"connection" default:"localhost" placeholder:"NAME" help:"Name in the server's certificate (${default})."`
	EncryptionKey        string `name:"encryption-key" group:"connection" placeholder:"BASE64" help:"Encrypt and decrypt payloads with AES-256-GCM under this key."`
	Timeout              string `name:"timeout" group:"connection" default:"30s" placeholder:"TIME" help:"How long one request may take (${default})."`

	Other otherTransports `embed:""`
}

// otherTransports are the options of transports that are not built in yet. They are accepted, so that scripts and
// contexts written for the reference go on to parse; choosing the transport itself is an error.
type otherTransports struct {
	CredentialsUsername string `name:"credentials-username" hidden:""`
	CredentialsPassword string `name:"credentials-password" hidden:""`

	HTTPAPIURL  string `name:"http-api-url" hidden:"" default:"http://localhost:3000"`
	HTTPRetries uint32 `name:"http-retries" hidden:"" default:"3"`

	QUICClientAddress    string `name:"quic-client-address" hidden:"" default:"127.0.0.1:0"`
	QUICServerAddress    string `name:"quic-server-address" hidden:"" default:"127.0.0.1:8080"`
	QUICServerName       string `name:"quic-server-name" hidden:"" default:"localhost"`
	QUICRetries          string `name:"quic-reconnection-max-retries" hidden:"" default:"10"`
	QUICInterval         string `name:"quic-reconnection-interval" hidden:"" default:"1s"`
	QUICStreams          uint64 `name:"quic-max-concurrent-bidi-streams" hidden:"" default:"10000"`
	QUICDatagrams        uint64 `name:"quic-datagram-send-buffer-size" hidden:"" default:"100000"`
	QUICInitialMTU       uint16 `name:"quic-initial-mtu" hidden:"" default:"1200"`
	QUICSendWindow       uint64 `name:"quic-send-window" hidden:"" default:"1000000"`
	QUICReceiveWindow    uint64 `name:"quic-receive-window" hidden:"" default:"1000000"`
	QUICResponseBuffer   uint64 `name:"quic-response-buffer-size" hidden:"" default:"1048576"`
	QUICKeepAlive        uint64 `name:"quic-keep-alive-interval" hidden:"" default:"5000"`
	QUICMaxIdle          uint64 `name:"quic-max-idle-timeout" hidden:"" default:"100000"`
	QUICValidate         bool   `name:"quic-validate-certificate" hidden:""`
	WebSocketAddress     string `name:"websocket-server-address" hidden:"" default:"127.0.0.1:8092"`
	WebSocketMaxRetries  string `name:"websocket-reconnection-max-retries" hidden:"" default:"10"`
	WebSocketReconnectIn string `name:"websocket-reconnection-interval" hidden:"" default:"1s"`
}

// globalShorts are the letters of global options.
var globalShorts = map[rune]string{
	'q': "quiet", 'd': "debug", 'u': "username", 'p': "password", 't': "token", 'n': "token-name",
}

// errShown ends parsing after something was printed instead of running a command.
var errShown = errors.New("shown")

// newParser builds the parser of g.
func newParser(g *grammar, p Process) (*kong.Kong, error) {
	return kong.New(g,
		kong.Name("whippet"),
		kong.Description("A partitioned, replicated log server, and the tools to work with it."),
		kong.Writers(p.Stdout, p.Stderr),
		kong.NoDefaultHelp(),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: 120, FlagsLast: true}),
		kong.ExplicitGroups([]kong.Group{
			{Key: "node", Title: "Servers and tools:"},
			{Key: "data", Title: "Streams and messages:"},
			{Key: "system", Title: "A server's state:"},
			{Key: "access", Title: "Users and access:"},
			{Key: "connection", Title: "Connection:"},
		}),
		kong.Resolvers(&baseResolver{getenv: p.Getenv, stderr: p.Stderr}),
		kong.KindMapper(reflect.String, kong.MapperFunc(decodeText)),
		kong.Bind(&p),
		kong.BindTo(context.Background(), (*context.Context)(nil)),
	)
}

// expandShorts turns the short forms of global options into the long ones, wherever the command that they stand
// in does not use the letter itself: in "-p secret message send -p 3", the first p is the password and the second
// one the partition. Neither order nor number of the other arguments changes.
func expandShorts(app *kong.Application, args []string) []string {
	out := make([]string, 0, len(args)+4)
	node := app.Node
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return append(out, args[i:]...)
		case strings.HasPrefix(arg, "--"):
			out = append(out, arg)
			name, _, given := strings.Cut(arg[2:], "=")
			if f := flagNamed(node, name); f != nil && takesValue(f) && !given && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
		case len(arg) > 1 && arg[0] == '-':
			var more []string
			var wants bool
			more, wants = expandGroup(node, arg)
			out = append(out, more...)
			if wants && i+1 < len(args) {
				i++
				out = append(out, args[i])
			}
		default:
			out = append(out, arg)
			if child := childNamed(node, arg); child != nil {
				node = child
			}
		}
	}
	return out
}

// expandGroup rewrites one argument of short flags ("-q", "-qu", "-uname"); wants tells that the next argument is
// the value of the last of them.
func expandGroup(node *kong.Node, arg string) (out []string, wants bool) {
	for letters := []rune(arg[1:]); len(letters) > 0; letters = letters[1:] {
		r, rest := letters[0], string(letters[1:])
		f, name := flagShort(node, r), "-"+string(r)
		if f == nil {
			long, ok := globalShorts[r]
			if !ok {
				return append(out, "-"+string(letters)), false // unknown: the parser says so
			}
			f, name = flagNamed(node, long), "--"+long
		}
		switch {
		case !takesValue(f):
			out = append(out, name)
		case rest == "":
			return append(out, name), true
		case strings.HasPrefix(name, "--"):
			return append(out, name+"="+strings.TrimPrefix(rest, "=")), false
		default:
			return append(out, name+rest), false
		}
	}
	return out, false
}

func takesValue(f *kong.Flag) bool { return f != nil && !f.IsBool() && !f.IsCounter() }

func flagNamed(node *kong.Node, name string) *kong.Flag {
	for n := node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if f.Name == name {
				return f
			}
		}
	}
	return nil
}

func flagShort(node *kong.Node, r rune) *kong.Flag {
	for n := node; n != nil; n = n.Parent {
		for _, f := range n.Flags {
			if f.Short == r {
				return f
			}
		}
	}
	return nil
}

func childNamed(node *kong.Node, name string) *kong.Node {
	for _, c := range node.Children {
		if c.Name == name {
			return c
		}
		for _, a := range c.Aliases {
			if a == name {
				return c
			}
		}
	}
	return nil
}
