package replication

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

const testIncarnation = "0011223344556677"

// TestEveryBitOfAnIdentity: no flipped bit and no cut of the files that say who a node and
// its replicas are passes, neither as the same nor as another one.
func TestEveryBitOfAnIdentity(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	id, err := openIdentity(&Config{FS: fs, Dir: "data", NodeID: "n1", Logger: zap.NewNop()})
	if err == nil {
		err = errors.Join(id.join("0123456789abcdef0123456789abcdef"), id.settle(1))
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := incarnation(fs, "data/groups/0", testIncarnation); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		read func() error
	}{
		{"data/NODE", func() error { _, _, err := readIdentity(fs, "data"); return err }},
		{"data/groups/0/INCARNATION", func() error { _, _, err := readIncarnation(fs, "data/groups/0"); return err }},
	} {
		good, ok, err := readFile(fs, tt.path)
		if err = errors.Join(err, tt.read()); err != nil || !ok {
			t.Fatal(err)
		}
		try := func(what string, b []byte) {
			t.Helper()
			if err := replaceFile(fs, tt.path, b); err != nil {
				t.Fatal(err)
			}
			if err := tt.read(); !errors.Is(err, record.ErrDamaged) || record.DamagedFile(err) != tt.path {
				t.Errorf("%s, %s: %v", tt.path, what, err)
			}
		}
		for i := range len(good) * 8 {
			b := slices.Clone(good)
			b[i/8] ^= 1 << (i % 8)
			try(fmt.Sprintf("bit %d of byte %d flipped", i%8, i/8), b)
		}
		for n := range good {
			try(fmt.Sprintf("cut to %d bytes", n), good[:n])
		}
		try("a byte more", append(slices.Clone(good), '\n'))
		if err := replaceFile(fs, tt.path, good); err != nil {
			t.Fatal(err)
		}
	}
}

// TestIdentitiesWithoutChecksums: what builds before checksums wrote is read, and nothing
// that only resembles it.
func TestIdentitiesWithoutChecksums(t *testing.T) {
	t.Parallel()
	const old = `{"version":1,"node":"n1","cluster":"c1","incarnation":"` + testIncarnation + `"}` + "\n"
	id, err := parseIdentity("NODE", []byte(old))
	if err != nil || id.Node != "n1" || id.Cluster != "c1" || id.Incarnation != testIncarnation || id.New || id.Lost {
		t.Errorf("%+v, %v", id, err)
	}
	for _, text := range []string{
		strings.ReplaceAll(old, "version\":1", "version\":3"), strings.TrimSuffix(old, "\n"), " " + old,
		strings.ReplaceAll(old, "cluster", "clustes"), strings.ReplaceAll(old, "n1", ""),
		strings.ReplaceAll(old, "77", "7"), strings.ReplaceAll(old, "77", "7A"), "null\n", "{}\n",
	} {
		if id, err := parseIdentity("NODE", []byte(text)); !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%q: %+v, %v", text, id, err)
		}
	}
	fs := vfs.NewMem()
	for text, whole := range map[string]bool{
		testIncarnation + "\n": true, testIncarnation: false, testIncarnation[1:] + "\n": false,
		strings.ToUpper("aabbccddeeff0011") + "\n": false, testIncarnation + "\n\n": false, "": false,
	} {
		if err := errors.Join(makeDirs(fs, "g"), replaceFile(fs, "g/INCARNATION", []byte(text))); err != nil {
			t.Fatal(err)
		}
		got, ok, err := readIncarnation(fs, "g")
		if whole && (err != nil || got != testIncarnation) || !whole && (ok || !errors.Is(err, record.ErrDamaged)) {
			t.Errorf("%q: %q, %t, %v", text, got, ok, err)
		}
	}
}

// identityKinds are what can happen to the file NODE.
var identityKinds = []struct {
	name string
	do   func(e diskEdit)
}{
	{"flipped in its name", func(e diskEdit) { e.flip("data/NODE", 24) }},
	{"cut", func(e diskEdit) { e.cut("data/NODE") }},
	{"empty", func(e diskEdit) { e.write("data/NODE", nil) }},
	{"deleted", func(e diskEdit) { e.remove("data/NODE") }},
	{"of zeros", func(e diskEdit) { e.write("data/NODE", make([]byte, 150)) }},
	{"damaged, and the incarnations, too", func(e diskEdit) {
		e.cut("data/NODE")
		e.flip("data/groups/0/INCARNATION", 3)
		e.flip("data/groups/1/INCARNATION", 20)
	}},
	{"damaged, and group 0 gone", func(e diskEdit) {
		e.cut("data/NODE")
		e.remove("data/groups/0")
	}},
}

// TestLostIdentityIsReplaced: a node that does not know any more who it is votes with nothing
// of what it had, is filled from the others under names that were never used, and keeps its files.
func TestLostIdentityIsReplaced(t *testing.T) {
	for i, kind := range identityKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			cared(t, func(w *world) { w.loseOne(w.nodes[i%3], w.nodes[(i+1)%3], kind.do) })
		})
	}
}

func (w *world) loseOne(victim, other *node, do func(diskEdit)) {
	t := w.t
	t.Helper()
	used := map[string]bool{victim.host().Incarnation(): true}
	for _, g := range victim.host().Groups() {
		used[g.Server()] = true
	}
	cluster := victim.host().ClusterID()
	w.powerCut(nil, 0, victim)
	do(diskEdit{w, victim.mu.fs})
	// With a second one down there is no majority, unless the one that is lost votes.
	w.powerCut(nil, 0, other)
	victim.up()
	h := victim.host()
	if !h.Lost() || h.Incarnation() != "" {
		t.Fatalf("lost: %t, incarnation %q", h.Lost(), h.Incarnation())
	}
	if id := h.ClusterID(); id != "" && id != cluster {
		t.Errorf("of cluster %q, was of %q", id, cluster)
	}
	if err := h.BootstrapSingle(t.Context()); h.ClusterID() == "" && !errors.Is(err, record.ErrRefused) {
		t.Errorf("a bootstrap: %v", err)
	}
	for _, g := range h.Groups() {
		d := g.Damage()
		if d == nil { // nothing of it was left
			if n := len(g.Status().Members); n != 0 {
				t.Errorf("group %d has %d members", g.ID(), n)
			}
			continue
		}
		if d.File != "data/NODE" && !strings.HasPrefix(d.File, "data/groups/0") {
			t.Errorf("group %d: file %q, %s", g.ID(), d.File, d.Reason)
		}
	}
	// A crash in between changes nothing.
	w.pause(5 * Local().Election)
	w.powerCut(nil, 0, victim)
	victim.up()
	h = victim.host()
	w.pause(20 * Local().Election)
	for _, n := range w.nodes {
		if host := n.host(); host != nil {
			if tm := host.Group(1).Term(); tm != nil && tm.Check() == nil {
				t.Errorf("%s leads with one healthy voter of three", n.name)
			}
		}
	}
	if d := h.Group(1).Damage(); !h.Lost() || d == nil || d.Aside != "" || d.Waits == "" {
		t.Errorf("lost: %t; without a majority: %+v, want to wait and to say why", h.Lost(), d)
	}
	other.up()
	w.eventually("all to be sound", w.sound)
	w.eventually("the loss to be over", func() bool { return !h.Lost() })
	if h.ClusterID() != cluster || used[h.Incarnation()] {
		t.Errorf("of cluster %q, was of %q; incarnation %q", h.ClusterID(), cluster, h.Incarnation())
	}
	for _, g := range h.Groups() {
		if used[g.Server()] {
			t.Errorf("group %d is %s again", g.ID(), g.Server())
		}
	}
	w.complete(200)
	w.put(value(200))
	w.complete(201)
	e := diskEdit{w, victim.mu.fs}
	if log := e.segments(asideOf(w, victim, "data/groups/1") + "/log"); len(log) == 0 {
		t.Error("nothing of the old log is kept")
	}
	// A restart finds nothing of it.
	w.powerCut(nil, 0, victim)
	victim.up()
	if h := victim.host(); h.Lost() || h.Group(0).Damage() != nil || h.Group(1).Damage() != nil {
		t.Errorf("after a restart: lost %t, %+v", h.Lost(), h.Group(1).Damage())
	}
	w.eventually("all to be sound", w.sound)
}

// TestAllIdentitiesLost: nothing is founded, voted or set aside when no node knows any more
// who it is, and one of them can be recovered with everything.
func TestAllIdentitiesLost(t *testing.T) {
	cared(t, func(w *world) {
		t := w.t
		cluster := w.nodes[0].host().ClusterID()
		w.powerCut(nil, 0, w.nodes...)
		for i, n := range w.nodes {
			identityKinds[i].do(diskEdit{w, n.mu.fs})
			n.up()
		}
		w.pause(time.Minute)
		for _, n := range w.nodes {
			h := n.host()
			if err := h.Bootstrap([]Founder{{n.name, testIncarnation}}); !errors.Is(err, record.ErrRefused) {
				t.Errorf("%s: a bootstrap: %v", n.name, err)
			}
			for _, g := range h.Groups() {
				d := g.Damage()
				if !h.Lost() || g.Term() != nil || d == nil || d.Aside != "" || d.Waits != noHealthyMajority {
					t.Errorf("%s, group %d: lost %t, %+v", n.name, g.ID(), h.Lost(), d)
				}
			}
		}
		w.down()
		survivor := w.nodes[0]
		got, err := Recover(survivor.config())
		if err != nil || len(got) != 2 || !got[1].Changed {
			t.Fatalf("%+v, %v", got, err)
		}
		survivor.up()
		w.eventually("its cluster", func() bool { return survivor.host().ClusterID() == cluster })
		if survivor.host().Lost() || w.leader() != survivor {
			t.Error("the survivor does not lead")
		}
		if seq := w.put("after"); seq != 201 {
			t.Errorf("sequence %d after the recovery, want 201", seq)
		}
	})
}

// TestLostIdentityOfASingleNode: there is no other copy, so that nothing is touched; the
// error says which file it is and what to do, and that works.
func TestLostIdentityOfASingleNode(t *testing.T) {
	for i, kind := range identityKinds[:4] {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(w *world) {
				t := w.t
				n := w.nodes[0]
				n.up()
				if err := n.host().BootstrapSingle(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.put("one")
				w.powerCut(nil, 0, n)
				kind.do(diskEdit{w, n.mu.fs})
				c := n.config()
				c.Others = i%2 == 0 // its configuration knows better
				before := treeOf(t, c.FS, "data")
				h, err := Open(t.Context(), c)
				if err == nil {
					t.Fatal(errors.Join(errors.New("it starts"), h.Shutdown()))
				}
				for _, want := range []string{"data/NODE", "only voter", "cluster recover data --survivor a", "salvage"} {
					if !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), want) {
						t.Errorf("%v, want one that says %q", err, want)
					}
				}
				if after := treeOf(t, c.FS, "data"); after != before {
					t.Errorf("the refused start made\n%s\nof\n%s", after, before)
				}
				// The directory is that of a, whoever asks.
				other := c
				other.NodeID = "b"
				if _, err := Open(t.Context(), other); !errors.Is(err, errConfig) || !strings.Contains(err.Error(), `"a"`) {
					t.Errorf("as another node: %v", err)
				}
				if _, err := Recover(other); !errors.Is(err, errConfig) {
					t.Errorf("recovery as another node: %v", err)
				}
				got, err := Recover(n.config())
				if err != nil || len(got) != 2 || got[0].Changed || got[1].Changed {
					t.Fatalf("%+v, %v", got, err)
				}
				n.up()
				if err := n.host().BootstrapSingle(t.Context()); err != nil {
					t.Fatal(err)
				}
				if seq := w.put("two"); seq != 2 || n.host().Lost() {
					t.Errorf("sequence %d, want 2; lost %t", seq, n.host().Lost())
				}
			})
		})
	}
}

// treeOf lists the files below a directory.
func treeOf(t *testing.T, fs vfs.FS, dir string) string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		return dir + "\n" // a file
	}
	slices.Sort(names)
	out := ""
	for _, name := range names {
		out += treeOf(t, fs, fs.PathJoin(dir, name))
	}
	return out
}

// TestNoOtherNodeIsKnown: where nothing of group 0 can be read, the settings decide.
func TestNoOtherNodeIsKnown(t *testing.T) {
	t.Parallel()
	for _, others := range []bool{false, true} {
		fs := vfs.NewMem()
		if _, err := incarnation(fs, "data/groups/0", testIncarnation); err != nil {
			t.Fatal(err)
		}
		id, err := openIdentity(&Config{FS: fs, Dir: "data", NodeID: "a", Others: others, Logger: zap.NewNop()})
		if refused := errors.Is(err, record.ErrDamaged); refused == others || id.Lost != others {
			t.Errorf("others %t: %+v, %v", others, id, err)
		}
		if err != nil && !strings.Contains(err.Error(), "no other node is known") {
			t.Error(err)
		}
	}
}

// TestLossOverPowerCuts cuts the power before each step that puts another identity in the
// place of a damaged one: no group is ever unmarked beside a file that verifies, and the
// damaged one is kept.
func TestLossOverPowerCuts(t *testing.T) {
	t.Parallel()
	disk := func() *vfs.MemFS {
		fs := vfs.NewCrashableMem()
		for _, dir := range []string{"data/groups/0", "data/groups/1"} {
			if _, err := incarnation(fs, dir, testIncarnation); err != nil {
				t.Fatal(err)
			}
		}
		if err := replaceFile(fs, "data/NODE", []byte("what was")); err != nil {
			t.Fatal(err)
		}
		return fs
	}
	start := func(fs vfs.FS) (identity, error) {
		return openIdentity(&Config{FS: fs, Dir: "data", NodeID: "a", Others: true, Logger: zap.NewNop()})
	}
	for step := 0; ; step++ {
		mem, left, cut := disk(), step, errors.New("the power is cut")
		_, failed := start(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
				return nil
			}
			if left--; left < 0 {
				return cut
			}
			return nil
		})))
		after := mem.CrashClone(vfs.CrashCloneCfg{})
		for range 2 { // whatever the cut left, and then the next start
			_, ok, err := readIdentity(after, "data")
			for group := range uint32(2) {
				d, markErr := markedDamage(after, group, fmt.Sprintf("data/groups/%d", group))
				if ok && err == nil && (markErr != nil || d == nil || !d.ofIdentity(after)) {
					t.Fatalf("step %d: the file verifies, group %d has %+v, %v", step, group, d, markErr)
				}
			}
			if id, err := start(after); err != nil || !id.Lost || id.Incarnation == testIncarnation {
				t.Fatalf("step %d: the next start: %+v, %v", step, id, err)
			}
		}
		kept := 0
		names, err := after.List("data")
		for _, name := range names {
			if b, ok, _ := readFile(after, "data/"+name+"/NODE"); ok && string(b) == "what was" {
				kept++
			}
		}
		if err != nil || kept == 0 { // a cut within the rename may leave both names
			t.Fatalf("step %d: %d damaged files are kept in %v, %v", step, kept, names, err)
		}
		if failed == nil {
			if step < 12 {
				t.Errorf("%d steps only", step)
			}
			return
		}
	}
}

// TestReplicaOfALostIdentity: what a node announces that does not know its incarnation takes
// nothing from its other replicas.
func TestReplicaOfALostIdentity(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		n := w.nodes[0]
		n.up()
		if err := n.host().BootstrapSingle(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.leader()
		row := NodeRow{ID: "n2", Incarnation: "old", Servers: map[uint32]string{0: "n2/old", 1: "n2/old"}}
		value, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.host().Meta().Write(t.Context(), nil, []record.MetaWrite{{Key: NodeKey("n2"), Value: value}}); err != nil {
			t.Fatal(err)
		}
		payload, err := json.Marshal(newReplica{Group: 0, Server: "n2/new"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.host().serveReplica(t.Context(), "n2", Metadata, payload); err != nil {
			t.Fatal(err)
		}
		got, _, err := Row[NodeRow](n.host().Meta(), NodeKey("n2"))
		if err != nil || got.Incarnation != "old" || got.Servers[0] != "n2/new" || got.Servers[1] != "n2/old" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}
