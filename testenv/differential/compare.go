package differential

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A Diff is one place where Holdfast differs from JetStream.
type Diff struct {
	Step int
	Op   Op
	// What was compared: "answer", "advisory …", "streams" …
	What string
	// Path leads to the value inside of it.
	Path      string
	Want, Got string
	// Explained names the entry of the list that it matches.
	Explained string
}

// String is the difference in three lines.
func (d *Diff) String() string {
	at := d.What
	if d.Path != "" {
		at += " at " + d.Path
	}
	return fmt.Sprintf("%s\n    jetstream: %s\n    holdfast:  %s", at, d.Want, d.Got)
}

// key is the same for differences that have the same cause, most likely.
func (d *Diff) key() string {
	return d.What + " " + indexes.Replace(d.Path)
}

var indexes = strings.NewReplacer( //nolint:gochecknoglobals // constant
	"0", "", "1", "", "2", "", "3", "", "4", "", "5", "", "6", "", "7", "", "8", "", "9", "")

const absent = "(absent)"

// compareText compares two bodies: as JSON where both are, else as text.
func compareText(what, want, got string) []Diff {
	if want == got {
		return nil
	}
	w, okW := parse(want)
	g, okG := parse(got)
	if !okW || !okG {
		return []Diff{{What: what, Want: quoted(want), Got: quoted(got)}}
	}
	out := compareTree(what, "", w, g)
	if len(out) == 0 && !strings.Contains(want, genPrefix) {
		out = []Diff{{What: what, Path: " (order of fields or form of values)", Want: quoted(want), Got: quoted(got)}}
	}
	return out
}

func quoted(s string) string {
	if s == "" {
		return "(empty)"
	}
	if len(s) > 0 && s[0] == '{' {
		return s
	}
	return clip(s)
}

func parse(s string) (any, bool) {
	if len(s) == 0 || s[0] != '{' {
		return nil, false
	}
	dec := json.NewDecoder(bytes.NewReader([]byte(s)))
	dec.UseNumber()
	var v any
	err := dec.Decode(&v)
	return v, err == nil
}

// compareTree compares decoded JSON; an answer that is an error on one side only is one difference.
func compareTree(what, path string, want, got any) []Diff {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			return compareObjects(what, path, w, g)
		}
	case []any:
		if g, ok := got.([]any); ok {
			return compareLists(what, path, w, g)
		}
	default:
		if want == got {
			return nil
		}
	}
	return []Diff{{What: what, Path: path, Want: text(want), Got: text(got)}}
}

func compareObjects(what, path string, w, g map[string]any) []Diff {
	if we, ge := w["error"], g["error"]; (we == nil) != (ge == nil) {
		return []Diff{{What: what, Path: path + "error", Want: errorOrAll(w), Got: errorOrAll(g)}}
	} else if we != nil && text(we) != text(ge) {
		return []Diff{{What: what, Path: path + "error", Want: text(we), Got: text(ge)}}
	}
	keys := maps.Clone(w)
	maps.Copy(keys, g)
	var out []Diff
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		wv, okW := w[k]
		gv, okG := g[k]
		switch {
		case !okW:
			out = append(out, Diff{What: what, Path: path + k, Want: absent, Got: text(gv)})
		case !okG:
			out = append(out, Diff{What: what, Path: path + k, Want: text(wv), Got: absent})
		default:
			sep := k
			if isTree(wv) {
				sep += "."
			}
			out = append(out, compareTree(what, path+sep, wv, gv)...)
		}
	}
	return out
}

func isTree(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

func errorOrAll(m map[string]any) string {
	if m["error"] != nil {
		return text(m["error"])
	}
	return "no error: " + text(m)
}

func compareLists(what, path string, w, g []any) []Diff {
	if len(w) != len(g) {
		return []Diff{{What: what, Path: path, Want: text(w), Got: text(g)}}
	}
	// Generated names differ, and so does the order that they are listed in.
	if strings.Contains(text(w), genPrefix) {
		byText := func(a, b any) int { return cmp.Compare(text(a), text(b)) }
		w, g = slices.SortedFunc(slices.Values(w), byText), slices.SortedFunc(slices.Values(g), byText)
	}
	var out []Diff
	for i := range w {
		out = append(out, compareTree(what, path+"["+strconv.Itoa(i)+"].", w[i], g[i])...)
	}
	return out
}

func text(v any) string {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(buf.String())
}

// compareView compares two messages.
func compareView(what string, w, g *view) []Diff {
	var out []Diff
	for _, f := range []struct{ path, want, got string }{
		{"subject", w.Subject, g.Subject}, {"reply", w.Reply, g.Reply}, {"header", w.Header, g.Header},
	} {
		if f.want != f.got {
			out = append(out, Diff{What: what, Path: f.path, Want: quoted(f.want), Got: quoted(f.got)})
		}
	}
	return append(out, compareText(what, w.Body, g.Body)...)
}

// compareBox compares what arrived in a box beyond the first from views.
func compareBox(what string, w, g []view, loose bool) []Diff { //nolint:revive // flag-parameter: of the operation
	if loose {
		w, g = loosened(w), loosened(g)
	}
	var out []Diff
	for i := range min(len(w), len(g)) {
		out = append(out, compareView(fmt.Sprintf("%s, message %d", what, i+1), &w[i], &g[i])...)
	}
	for i := len(g); i < len(w); i++ {
		out = append(out, Diff{What: what, Path: "message " + strconv.Itoa(i+1), Want: w[i].String(), Got: absent})
	}
	for i := len(w); i < len(g); i++ {
		out = append(out, Diff{What: what, Path: "message " + strconv.Itoa(i+1), Want: absent, Got: g[i].String()})
	}
	return out
}

// loosened is the set of messages, without what the ends of a pull depend on.
func loosened(vs []view) []view {
	var out []view
	for _, v := range vs {
		if !v.heartbeat() {
			out = append(out, v.loosen())
		}
	}
	sortViews(out)
	return slices.Compact(out)
}

func sortViews(vs []view) {
	slices.SortFunc(vs, func(a, b view) int { return cmp.Compare(a.String(), b.String()) })
}

// String is the message in one line.
func (v view) String() string {
	out := v.Subject
	if v.Reply != "" {
		out += " reply " + v.Reply
	}
	if v.Header != "" {
		out += " header " + clip(v.Header)
	}
	return out + " body " + quoted(v.Body)
}
