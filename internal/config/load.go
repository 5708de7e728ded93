package config

import (
	"cmp"
	"context"
	_ "embed" // the defaults
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/v2"
	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

//go:embed defaults.toml
var defaultsTOML []byte

// DefaultFile is read from the working directory when no file is named.
const DefaultFile = "whippet.toml"

// Options of Load: what the command line gave, and where to look.
type Options struct {
	// File is --config; it wins over IGGY_CONFIG_PATH and must exist.
	File string
	// Data is --data; it wins over path.
	Data string
	// ReplicaID is --replica-id; nil = not given.
	ReplicaID *int
	// Fresh is --fresh.
	Fresh bool
	// DefaultRoot is --with-default-root-credentials.
	DefaultRoot bool
	// Dir is the working directory for DefaultFile, relative files and .env; empty = the process's.
	Dir string
	// Environ is the environment as NAME=value; nil = the process's.
	Environ []string
}

// Note is something to log once the log is set up.
type Note struct {
	Level slog.Level
	Text  string
	Args  []any
}

// Report is what Load wants logged.
type Report struct{ Notes []Note }

func (r *Report) note(l slog.Level, text string, args ...any) {
	r.Notes = append(r.Notes, Note{l, text, args})
}

// Log writes the notes.
func (r *Report) Log(log *slog.Logger) {
	for _, n := range r.Notes {
		log.Log(context.Background(), n.Level, n.Text, n.Args...)
	}
}

// Problem is one key that cannot be used as given.
type Problem struct {
	// Key is the dotted path, or the variable when it is no key.
	Key string
	// Given is the value, masked when secret.
	Given string
	// Takes says what the key takes, or what to do.
	Takes string
	// Where is the file and line or the variable.
	Where string

	from []string // other keys whose values it follows from
}

// Error names the key, what was given, and what it takes.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Key)
	if p.Where != "" {
		b.WriteString(" (" + p.Where + ")")
	}
	b.WriteString(": ")
	if p.Given != "" {
		b.WriteString("got " + p.Given + ", ")
	}
	b.WriteString(p.Takes)
	return b.String()
}

// Default is the configuration of a node that was given nothing.
func Default() *Config {
	c, _, err := Load(Options{Environ: []string{}, Dir: os.DevNull})
	if err != nil {
		// The embedded text is part of the program; its test keeps it sound.
		panic(fmt.Errorf("config: broken defaults: %w", err))
	}
	return c
}

// Load builds and checks the configuration. The error joins every problem found.
func Load(o Options) (*Config, *Report, error) {
	l := &loader{o: o, rep: &Report{}, keys: map[string]key{}, origins: map[string]Origin{}, k: koanf.New(".")}
	for _, k := range table() {
		l.order = append(l.order, k)
		l.keys[k.path] = k
	}
	if err := l.layer(defaultsTOML, "", "default"); err != nil {
		return nil, nil, err
	}
	env, err := l.environ()
	if err != nil {
		return nil, nil, err
	}
	if err := l.file(env); err != nil {
		return nil, nil, err
	}
	l.variables(env)
	l.flags()
	c := l.build()
	l.values = len(l.problems)
	c.Root = rootFrom(env, o.DefaultRoot, l.rep)
	c.check(l)
	if len(l.problems) > 0 {
		slices.SortStableFunc(l.problems, func(a, b *Problem) int { return cmp.Compare(a.Key, b.Key) })
		errs := make([]error, len(l.problems))
		for i, p := range l.problems {
			errs[i] = p
		}
		return nil, l.rep, errors.Join(errs...)
	}
	return c, l.rep, nil
}

type loader struct {
	o        Options
	rep      *Report
	order    []key
	keys     map[string]key
	origins  map[string]Origin
	k        *koanf.Koanf
	problems []*Problem
	values   int // the first so many problems are of single values, the rest of how values relate
	inert    []string
}

func (l *loader) problem(p *Problem) { l.problems = append(l.problems, p) }

// mapProvider gives a nested map to koanf.
type mapProvider map[string]any

func (m mapProvider) Read() (map[string]any, error) { return m, nil }
func (m mapProvider) ReadBytes() ([]byte, error)    { return nil, errors.New("config: no bytes in a map") }

// merge lays nested values over what is there.
func (l *loader) merge(m map[string]any) error {
	if err := l.k.Load(mapProvider(m), nil); err != nil {
		return fmt.Errorf("config: merge: %w", err)
	}
	return nil
}

// put sets a dotted path in a nested map.
func put(m map[string]any, path string, v any) {
	parts := strings.Split(path, ".")
	for _, p := range parts[:len(parts)-1] {
		next, ok := m[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[p] = next
		}
		m = next
	}
	m[parts[len(parts)-1]] = v
}

func (l *loader) file(env map[string]string) error {
	name, must := l.o.File, true
	if name == "" {
		name, must = env["IGGY_CONFIG_PATH"], false
	}
	implicit := name == ""
	if implicit {
		name = DefaultFile
	}
	full := name
	if !filepath.IsAbs(full) {
		full = filepath.Join(l.o.Dir, full)
	}
	text, err := os.ReadFile(full)
	switch {
	case err == nil:
		l.rep.note(slog.LevelInfo, "configuration file read", "file", full)
		return l.layer(text, name, "file")
	case implicit && (errors.Is(err, fs.ErrNotExist) || l.o.Dir == os.DevNull):
		return nil
	case !must && errors.Is(err, fs.ErrNotExist):
		l.rep.note(slog.LevelWarn, "configuration file of IGGY_CONFIG_PATH not found, using the defaults", "file", full)
		return nil
	case must:
		return fmt.Errorf("--config: %w", err)
	default:
		return fmt.Errorf("IGGY_CONFIG_PATH: %w", err)
	}
}

// layer reads one TOML text over what is there.
func (l *loader) layer(text []byte, name, source string) error {
	var raw map[string]any
	if err := toml.Unmarshal(text, &raw); err != nil {
		var de *toml.DecodeError
		if errors.As(err, &de) {
			line, col := de.Position()
			return fmt.Errorf("%s:%d:%d: %w", name, line, col, err)
		}
		return fmt.Errorf("%s: %w", name, err)
	}
	lines, err := lineNumbers(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	where := func(path string) string {
		if name == "" {
			return ""
		}
		for p := path; p != ""; {
			if n, ok := lines[p]; ok {
				return name + ":" + strconv.Itoa(n)
			}
			i := strings.LastIndexByte(p, '.')
			if i < 0 {
				break
			}
			p = p[:i]
		}
		return name
	}
	canon := map[string]any{}
	l.walk("", raw, where, func(path string, v any) {
		put(canon, path, v)
		l.origins[path] = Origin{Source: source, Where: where(path)}
	})
	for path := range lines {
		if inTables(path) {
			l.origins[path] = Origin{Source: source, Where: where(path)}
		}
	}
	return l.merge(canon)
}

// inTables reports whether a path lies in an array of tables.
func inTables(path string) bool {
	for t := range tables {
		if strings.HasPrefix(path, t+".") {
			return true
		}
	}
	return false
}

// where is where a key was set, or what it is a part of.
func (l *loader) where(key string) string {
	for {
		if o, ok := l.origins[key]; ok {
			return o.Where
		}
		i := strings.LastIndexByte(key, '.')
		if i < 0 {
			return ""
		}
		key = key[:i]
	}
}

// walk visits the known keys of a nested map under their present names and
// reports the rest.
func (l *loader) walk(prefix string, m map[string]any, where func(string) string, known func(string, any)) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		path, v := name, m[name]
		if prefix != "" {
			path = prefix + "." + name
		}
		if present, ok := l.present(path); ok {
			known(present, v)
			continue
		}
		if t, ok := tables[path]; ok {
			if list := asTables(v); list != nil {
				l.unknownFields(path, t, list, where)
				known(path, list)
			} else {
				l.problem(&Problem{Key: path, Given: show(v), Takes: "takes an array of tables, [[" + path + "]]", Where: where(path)})
			}
			continue
		}
		if hint, ok := removed[path]; ok {
			l.problem(&Problem{Key: path, Takes: "is no longer a key: " + hint, Where: where(path)})
			continue
		}
		if isInert(path) {
			l.useless(path, v, where(path))
			continue
		}
		if sub, ok := v.(map[string]any); ok {
			l.walk(path, sub, where, known)
			continue
		}
		args := []any{"key", path, "where", where(path)}
		if near := nearest(path, l.names(), 1); len(near) > 0 {
			args = append(args, "nearest", near[0])
		}
		l.rep.note(slog.LevelWarn, "unknown configuration key ignored", args...)
	}
}

// useless collects a key of the reference's engine; some values promise too much.
func (l *loader) useless(path string, v any, where string) {
	if slices.Contains(mustBeFalse, path) {
		if b, err := toBool(v); err == nil && b {
			l.problem(&Problem{Key: path, Given: "true", Takes: "is not offered: it takes false", Where: where})
			return
		}
	}
	l.inert = append(l.inert, path)
}

// present maps a known path, old or new, to its present name.
func (l *loader) present(path string) (string, bool) {
	if _, ok := l.keys[path]; ok {
		return path, true
	}
	for _, k := range l.order {
		if slices.Contains(k.old, path) {
			return k.path, true
		}
	}
	return "", false
}

func (l *loader) names() []string {
	names := slices.Collect(maps.Keys(l.keys))
	for t := range tables {
		names = append(names, t)
	}
	slices.Sort(names)
	return names
}

// asTables accepts an array of tables, or an empty array.
func asTables(v any) []any {
	list, ok := v.([]any)
	if !ok {
		return nil
	}
	out := make([]any, 0, len(list))
	for _, e := range list {
		if _, ok := e.(map[string]any); !ok {
			return nil
		}
		out = append(out, e)
	}
	return out
}

func (l *loader) unknownFields(path string, fields []string, list []any, where func(string) string) {
	for i, e := range list {
		for _, f := range flatFields("", e.(map[string]any)) {
			if !slices.Contains(fields, f.schema) {
				at := path + "." + strconv.Itoa(i) + "." + f.path
				args := []any{"key", at, "where", where(at)}
				if near := nearest(f.schema, fields, 1); len(near) > 0 {
					args = append(args, "nearest", near[0])
				}
				l.rep.note(slog.LevelWarn, "unknown configuration key ignored", args...)
			}
		}
	}
}

type fieldPath struct{ path, schema string }

// flatFields lists the leaves of a table; the schema form has no indexes.
func flatFields(prefix string, m map[string]any) []fieldPath {
	var out []fieldPath
	for _, name := range slices.Sorted(maps.Keys(m)) {
		p := name
		if prefix != "" {
			p = prefix + "." + name
		}
		switch v := m[name].(type) {
		case map[string]any:
			out = append(out, flatFields(p, v)...)
		case []any:
			if len(v) == 0 {
				continue
			}
			for i, e := range v {
				if sub, ok := e.(map[string]any); ok {
					for _, f := range flatFields("", sub) {
						out = append(out, fieldPath{p + "." + strconv.Itoa(i) + "." + f.path, p + "." + f.schema})
					}
				} else {
					out = append(out, fieldPath{p, p})
				}
			}
		default:
			out = append(out, fieldPath{p, p})
		}
	}
	return out
}

// lineNumbers of every key and table of a TOML text, by dotted path; elements
// of arrays of tables carry their index.
func lineNumbers(text []byte) (map[string]int, error) {
	lines := map[string]int{}
	counts := map[string]int{}
	var p unstable.Parser
	p.Reset(text)
	prefix := ""
	for p.NextExpression() {
		e := p.Expression()
		var parts []string
		line := 0
		for it := e.Key(); it.Next(); {
			n := it.Node()
			parts = append(parts, string(n.Data))
			if line == 0 {
				line = p.Shape(n.Raw).Start.Line
			}
		}
		path := strings.Join(parts, ".")
		switch e.Kind {
		case unstable.Table:
			prefix = indexed(path, counts)
			lines[prefix] = line
		case unstable.ArrayTable:
			counts[path]++
			prefix = indexed(path, counts)
			lines[prefix] = line
			lines[path] = cmp.Or(lines[path], line)
		case unstable.KeyValue:
			if prefix != "" {
				path = prefix + "." + path
			}
			lines[path] = line
		}
	}
	return lines, p.Error()
}

// indexed inserts the index of the newest element behind each array of tables.
func indexed(path string, counts map[string]int) string {
	parts := strings.Split(path, ".")
	var out []string
	for i, part := range parts {
		out = append(out, part)
		if n := counts[strings.Join(parts[:i+1], ".")]; n > 0 {
			out = append(out, strconv.Itoa(n-1))
		}
	}
	return strings.Join(out, ".")
}

func (l *loader) flags() {
	if l.o.Data != "" {
		_ = l.merge(map[string]any{"path": l.o.Data})
		l.origins["path"] = Origin{Source: "flag", Where: "--data"}
	}
}

// build converts the merged values.
func (l *loader) build() *Config {
	c := &Config{ReplicaID: -1, Fresh: l.o.Fresh, origins: l.origins}
	if l.o.ReplicaID != nil {
		c.ReplicaID = *l.o.ReplicaID
		if c.ReplicaID < 0 || c.ReplicaID > 254 {
			l.problem(&Problem{Key: "--replica-id", Given: strconv.Itoa(c.ReplicaID), Takes: "takes a number from 0 to 254"})
		}
	}
	for _, k := range l.order {
		v := l.k.Get(k.path)
		if v == nil {
			continue
		}
		if err := k.set(c, v); err != nil {
			given := show(v)
			if k.secret {
				given = mask
			}
			l.problem(&Problem{Key: k.path, Given: given, Takes: "takes " + k.takes, Where: l.origins[k.path].Where})
		}
	}
	c.Cluster.Nodes = l.nodes()
	c.HTTP.JWT.TrustedIssuers = l.issuers()
	if len(l.inert) > 0 {
		slices.Sort(l.inert)
		l.rep.note(slog.LevelInfo, "configuration keys of the reference's own engine have no effect here", "keys", strings.Join(slices.Compact(l.inert), ", "))
	}
	return c
}

// show renders a given value for a message.
func show(v any) string {
	switch x := v.(type) {
	case string:
		return strconv.Quote(x)
	case map[string]any:
		return "a table"
	case []any:
		return "an array"
	}
	return fmt.Sprint(v)
}
