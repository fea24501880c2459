package jepsen

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWhatDamageMustComeTo is the judgement of a node that votes again, after a change of one of its files.
func TestWhatDamageMustComeTo(t *testing.T) {
	t.Parallel()
	const log = "groups/1/log/00000000000000000001.seg"
	was, now := map[uint32]string{0: "n1/a", 1: "n1/a"}, map[uint32]string{0: "n1/a", 1: "n1/b"}
	for _, tt := range []struct {
		name, file  string
		want        effect
		exact, seen bool
		now         map[uint32]string
		said        string // of the path of the file
		groups      []uint32
		ok, harm    bool
	}{
		{name: "noticed", file: log, want: noticed, exact: true, seen: true, now: now, said: "damaged: %s", ok: true, harm: true},
		{name: "noticed late", file: log, want: either, now: now, said: "damaged: %s", ok: true, harm: true},
		{name: "harmless", file: log, want: either, now: was, ok: true},
		{name: "for nothing", file: log, want: harmless, seen: true, now: now, said: "damaged: %s"},
		{name: "the same replica", file: log, want: noticed, exact: true, seen: true, now: was, said: "damaged: %s"},
		{name: "another group's", file: log, want: noticed, seen: true, now: map[uint32]string{0: "n1/b", 1: "n1/a"}, said: "damaged: %s"},
		{name: "no replica yet", file: log, want: noticed, seen: true, now: map[uint32]string{0: "n1/a"}, said: "damaged: %s"},
		{name: "no name", file: log, want: noticed, exact: true, seen: true, now: now, said: "damaged: something"},
		{name: "no damage", file: log, want: noticed, exact: true, seen: true, now: now, said: "opened %s"},
		{name: "of all", file: "NODE", want: noticed, exact: true, seen: true, now: now, said: "damaged: %s"},
		{
			name: "of all, and all", file: "NODE", want: noticed, exact: true, seen: true,
			now: map[uint32]string{0: "n1/b", 1: "n1/b"}, said: "damaged: %s", ok: true, harm: true,
		},
		{name: "of some", file: "", want: noticed, seen: true, groups: []uint32{1}, now: now, said: "damaged: %s", ok: true, harm: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			n := &Node{Slot: "n1", ID: "n1", dir: filepath.Join(dir, "n1")}
			h := &harm{
				node: n, file: filepath.Join(n.data(), tt.file), want: tt.want, exact: tt.exact, servers: was, groups: tt.groups,
			}
			c := &Cluster{dir: dir}
			before := fmt.Sprintf("damaged: %s, long ago\n", h.file)
			h.logged = int64(len(before))
			text := before + "first line\n"
			if tt.said != "" {
				text += strings.Replace(tt.said, "%s", h.file, 1) + "\n"
			}
			if err := os.WriteFile(c.logFile(n), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			w := &world{c: c, say: t.Logf}
			h.seen = tt.seen
			w.conclude(h, tt.now)
			if ok := len(w.found) == 0; ok != tt.ok {
				t.Errorf("found %q", w.found)
			}
			want := harmTally{}
			switch {
			case tt.ok && tt.harm:
				want.Noticed = 1
			case tt.ok:
				want.Harmless = 1
			}
			if w.harm != want {
				t.Errorf("counted %+v, want %+v", w.harm, want)
			}
		})
	}
}
