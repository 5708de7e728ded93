package config

import (
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
)

// environ is the environment with the .env file under it. Empty variables count as not set.
func (l *loader) environ() (map[string]string, error) {
	list := l.o.Environ
	if list == nil {
		list = os.Environ()
	}
	env := map[string]string{}
	for _, kv := range list {
		if k, v, ok := strings.Cut(kv, "="); ok && v != "" && strings.HasPrefix(k, "IGGY_") {
			env[k] = v
		}
	}
	name, must := env["IGGY_ENV_PATH"], true
	if name == "" {
		name, must = ".env", false
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(l.o.Dir, name)
	}
	text, err := os.ReadFile(name)
	switch {
	case err == nil:
	case !must && (errors.Is(err, fs.ErrNotExist) || l.o.Dir == os.DevNull):
		return env, nil
	case !must:
		l.rep.note(slog.LevelWarn, ".env not readable, ignored", "error", err)
		return env, nil
	default:
		return nil, fmt.Errorf("IGGY_ENV_PATH: %w", err)
	}
	for n, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		line = strings.TrimSpace(strings.TrimPrefix(line, "export "))
		if line == "" || line[0] == '#' {
			continue
		}
		k, v, ok := strings.Cut(line, "=")
		if !ok {
			// The line is not repeated: it may hold a secret.
			l.rep.note(slog.LevelWarn, "line of .env without = ignored", "line", n+1)
			continue
		}
		k, v = strings.TrimSpace(k), strings.TrimSpace(v)
		switch {
		case len(v) >= 2 && (v[0] == '"' || v[0] == '\'') && v[len(v)-1] == v[0]:
			v = v[1 : len(v)-1]
		default:
			if i := strings.Index(v, " #"); i >= 0 {
				v = strings.TrimSpace(v[:i])
			}
		}
		if _, set := env[k]; !set && v != "" && strings.HasPrefix(k, "IGGY_") {
			env[k] = v
		}
	}
	return env, nil
}

// variables lays the IGGY_* variables over the file.
func (l *loader) variables(env map[string]string) {
	byName := map[string]string{}
	secret := map[string]bool{}
	for _, k := range l.order {
		byName[envName(k.path)] = k.path
		secret[k.path] = k.secret
		for _, o := range k.old {
			byName[envName(o)] = k.path
		}
	}
	canon := map[string]any{}
	arrays := map[string][]any{}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		v := env[name]
		if slices.Contains(notConfiguration, name) || slices.ContainsFunc(notConfigurationPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		if path, ok := byName[name]; ok {
			put(canon, path, v)
			l.origins[path] = Origin{Source: "variable", Where: name}
			shown := v
			if secret[path] {
				shown = mask
			}
			l.rep.note(slog.LevelInfo, "configuration overridden by a variable", "variable", name, "value", shown)
			continue
		}
		if path, ok := l.element(name, v, arrays); ok {
			l.origins[path] = Origin{Source: "variable", Where: name}
			l.rep.note(slog.LevelInfo, "configuration overridden by a variable", "variable", name, "value", v)
			continue
		}
		if path, hint, ok := removedVariable(name); ok {
			l.problem(&Problem{Key: path, Takes: "is no longer a key: " + hint, Where: name})
			continue
		}
		if path, ok := inertVariable(name); ok {
			l.useless(path, v, name)
			continue
		}
		args := []any{"variable", name}
		names := slices.Sorted(maps.Keys(byName))
		if near := nearest(name, names, 3); len(near) > 0 {
			args = append(args, "similar", strings.Join(near, ", "))
		}
		l.rep.note(slog.LevelWarn, "unknown variable ignored", args...)
	}
	for path, list := range arrays {
		for i, e := range list {
			if e == nil {
				list[i] = map[string]any{}
			}
		}
		put(canon, path, list)
	}
	_ = l.merge(canon)
}

// maxIndex bounds the index of an array element in a variable's name.
const maxIndex = 255

// element reads IGGY_<ARRAY>_<index>_<FIELD>.
func (l *loader) element(name, v string, arrays map[string][]any) (string, bool) {
	for _, path := range slices.Sorted(maps.Keys(tables)) {
		rest, ok := strings.CutPrefix(name, envName(path)+"_")
		if !ok {
			continue
		}
		i, rest, ok := cutIndex(rest)
		if !ok {
			continue
		}
		for _, f := range tables[path] {
			set := func(m map[string]any) { put(m, f, v) }
			if sub, inner, nested := nestedField(f); nested {
				after, ok := strings.CutPrefix(rest, strings.ToUpper(sub)+"_")
				if !ok {
					continue
				}
				j, after, ok := cutIndex(after)
				if !ok || after != strings.ToUpper(inner) {
					continue
				}
				set = func(m map[string]any) {
					list, _ := m[sub].([]any)
					list = grow(list, j)
					e, _ := list[j].(map[string]any)
					if e == nil {
						e = map[string]any{}
						list[j] = e
					}
					e[inner] = v
					m[sub] = list
				}
			} else if rest != strings.ToUpper(strings.ReplaceAll(f, ".", "_")) {
				continue
			}
			if arrays[path] == nil { // what a file has is replaced
				maps.DeleteFunc(l.origins, func(k string, _ Origin) bool { return strings.HasPrefix(k, path+".") })
				l.origins[path] = Origin{Source: "variable", Where: envName(path) + "_*"}
			}
			arrays[path] = grow(arrays[path], i)
			m, _ := arrays[path][i].(map[string]any)
			if m == nil {
				m = map[string]any{}
				arrays[path][i] = m
			}
			set(m)
			return path + "." + strconv.Itoa(i) + "." + f, true
		}
	}
	return "", false
}

func grow(list []any, i int) []any {
	for len(list) <= i {
		list = append(list, nil)
	}
	return list
}

func cutIndex(s string) (int, string, bool) {
	digits, rest, ok := strings.Cut(s, "_")
	if !ok {
		return 0, "", false
	}
	i, err := strconv.Atoi(digits)
	if err != nil || i < 0 || i > maxIndex {
		return 0, "", false
	}
	return i, rest, true
}

func removedVariable(name string) (path, hint string, ok bool) {
	for p, h := range removed {
		if envName(p) == name {
			return p, h, true
		}
	}
	return "", "", false
}

func inertVariable(name string) (string, bool) {
	for _, p := range inert {
		n := envName(strings.TrimSuffix(p, "."))
		if name == n || strings.HasSuffix(p, ".") && strings.HasPrefix(name, n+"_") {
			return p, true
		}
	}
	return "", false
}

// nearest names by edit distance, at most n, none that is far off.
func nearest(s string, names []string, n int) []string {
	type cand struct {
		name string
		d    int
	}
	var cs []cand
	limit := max(2, len(s)/3)
	for _, c := range names {
		if d := distance(s, c); d <= limit {
			cs = append(cs, cand{c, d})
		}
	}
	slices.SortStableFunc(cs, func(a, b cand) int { return a.d - b.d })
	var out []string
	for _, c := range cs[:min(n, len(cs))] {
		out = append(out, c.name)
	}
	return out
}

// distance of Levenshtein, over bytes.
func distance(a, b string) int {
	if len(a) > 256 || len(b) > 256 {
		return 1 << 20
	}
	prev := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := range len(a) {
		diag := prev[0]
		prev[0] = i + 1
		for j := range len(b) {
			up := prev[j+1]
			d := diag
			if a[i] != b[j] {
				d++
			}
			prev[j+1] = min(d, up+1, prev[j]+1)
			diag = up
		}
	}
	return prev[len(b)]
}
