package hub

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// token is what nats-server's configuration parser wraps values in. Its type there is not exported.
type token interface {
	Value() any
	IsUsedVariable() bool
}

// plain removes the token around a value; the values inside a map or list keep theirs.
func plain(v any) any {
	if t, ok := v.(token); ok {
		return t.Value()
	}
	return v
}

// lookup finds the first of names in m, ignoring case as nats-server does. It returns the key as written.
func lookup(m map[string]any, names ...string) (key string, value any, ok bool) {
	for k, v := range m {
		for _, n := range names {
			if strings.EqualFold(k, n) {
				return k, plain(v), true
			}
		}
	}
	return "", nil, false
}

// lookupMap is lookup for a block.
func lookupMap(m map[string]any, names ...string) map[string]any {
	_, v, _ := lookup(m, names...)
	sub, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	return sub
}

// unwrap removes all tokens from a value, at any depth.
func unwrap(v any) any {
	switch x := plain(v).(type) {
	case map[string]any:
		out := make(map[string]any, len(x))
		for k, e := range x {
			out[k] = unwrap(e)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, e := range x {
			out[i] = unwrap(e)
		}
		return out
	default:
		return x
	}
}

// render writes m in the configuration language, so that parsing it gives m again, with the same keys
// marked as used variables (nats-server accepts an unknown key only if a $reference used it).
func render(m map[string]any) (string, error) {
	var b strings.Builder
	if err := renderKeys(&b, m); err != nil {
		return "", err
	}
	return b.String(), nil
}

func renderKeys(b *strings.Builder, m map[string]any) error {
	var vars, rest []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if t, ok := m[k].(token); ok && t.IsUsedVariable() {
			vars = append(vars, k)
		} else {
			rest = append(rest, k)
		}
	}
	for _, k := range vars {
		if err := renderEntry(b, k, m[k]); err != nil {
			return err
		}
	}
	if len(rest) > 0 {
		// The references mark the variables as used; the real value of the key, which follows, replaces them.
		q, err := quoteKey(rest[0])
		if err != nil {
			return err
		}
		for _, v := range vars {
			fmt.Fprintf(b, "%s: $%s\n", q, v)
		}
	}
	for _, k := range rest {
		if err := renderEntry(b, k, m[k]); err != nil {
			return err
		}
	}
	return nil
}

func renderEntry(b *strings.Builder, key string, value any) error {
	q, err := quoteKey(key)
	if err != nil {
		return err
	}
	b.WriteString(q)
	b.WriteString(": ")
	if err := renderValue(b, value); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	b.WriteByte('\n')
	return nil
}

func renderValue(b *strings.Builder, value any) error {
	switch v := plain(value).(type) {
	case map[string]any:
		b.WriteString("{\n")
		if err := renderKeys(b, v); err != nil {
			return err
		}
		b.WriteByte('}')
	case []any:
		b.WriteString("[\n")
		for _, e := range v {
			if err := renderValue(b, e); err != nil {
				return err
			}
			b.WriteByte('\n')
		}
		b.WriteByte(']')
	case string:
		quoteString(b, v)
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case float64:
		s := strconv.FormatFloat(v, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0" // else it would come back as an integer
		}
		b.WriteString(s)
	case bool:
		b.WriteString(strconv.FormatBool(v))
	case time.Time:
		b.WriteString(v.UTC().Format("2006-01-02T15:04:05Z"))
	default:
		return fmt.Errorf("value of unknown type %T", v)
	}
	return nil
}

// quoteKey quotes a key. Quoted keys know no escapes.
func quoteKey(key string) (string, error) {
	switch {
	case !strings.Contains(key, `"`):
		return `"` + key + `"`, nil
	case !strings.Contains(key, `'`):
		return `'` + key + `'`, nil
	default:
		return "", fmt.Errorf("key %q contains both kinds of quotes", key)
	}
}

func quoteString(b *strings.Builder, s string) {
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; c {
		case '"', '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case '\n':
			b.WriteString(`\n`)
		case '\r':
			b.WriteString(`\r`)
		case '\t':
			b.WriteString(`\t`)
		default:
			if c < ' ' {
				fmt.Fprintf(b, `\x%02x`, c)
				continue
			}
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
}
