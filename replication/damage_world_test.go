package replication

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/replication/membership"
)

// register makes all nodes write their rows, as they do when they have joined.
func (w *world) register() {
	w.t.Helper()
	for _, n := range w.nodes {
		ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
		err := n.host().Register(ctx, NodeRow{Raft: n.name + ":1"})
		cancel()
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// control brings the groups to what is desired until stop is closed: every node a
// voter, unless the world says otherwise. It is the controller of a node, without its decisions.
func (w *world) control(stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(100 * time.Millisecond):
		}
		for _, n := range w.nodes {
			h := n.host()
			if h == nil {
				continue
			}
			for _, g := range h.Groups() {
				w.step(n, h, g)
			}
		}
	}
}

func (w *world) step(n *node, h *Host, g *Group) {
	t := g.Term()
	if t == nil || t.Check() != nil {
		return
	}
	v := membership.View{Leader: n.name, Replicas: map[string]string{}}
	st := g.Status()
	progress := map[string]Progress{}
	for _, p := range g.Progress() {
		progress[p.Server] = p
	}
	for _, m := range st.Members {
		mm := membership.Member{Server: m.Server, Node: m.Node, Voter: m.Voter}
		if m.Server != g.Server() {
			p, contacted := progress[m.Server]
			if !contacted {
				p.Contact = -1
			}
			mm.Behind, mm.Contact, mm.OutOfService = st.LastLog-min(p.Match, st.LastLog), p.Contact, p.OutOfService
		}
		v.Members = append(v.Members, mm)
	}
	desired := w.desired.Load()
	if desired != nil {
		v.Desired = *desired
	}
	for _, o := range w.nodes {
		if desired == nil {
			v.Desired.Voters = append(v.Desired.Voters, o.name)
		}
		row, _, err := Row[NodeRow](h.Meta(), NodeKey(o.name))
		if err != nil {
			return
		}
		v.Replicas[o.name] = row.Servers[g.ID()]
	}
	change := map[membership.Kind]Change{
		membership.AddFollower: AddNonvoter, membership.Promote: AddVoter,
		membership.Demote: Demote, membership.Remove: Remove,
	}
	c := membership.Step(membership.Settings{}.WithDefaults(), v)
	kind, ok := change[c.Kind]
	if !ok && slices.Contains(v.Desired.Voters, n.name) {
		return
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*time.Second)
	defer cancel()
	if ok {
		_ = g.Configure(ctx, kind, c.Server, st.Configured) // the next step sees what became of it
	} else {
		_ = g.Transfer(ctx, v.Desired.Voters[0]) // one that does not vote does not lead
	}
}

// sound says that all replicas are voters, one of each node, none damaged.
func (w *world) sound() bool {
	for _, n := range w.nodes {
		h := n.host()
		if h == nil {
			return false
		}
		for _, g := range h.Groups() {
			st := g.Status()
			if st.Damage != nil || !st.Replicating || len(st.Members) != len(w.nodes) {
				return false
			}
			for _, o := range w.nodes {
				oh := o.host()
				if oh == nil || !slices.ContainsFunc(st.Members, func(m Member) bool {
					return m.Voter && m.Server == oh.Group(g.ID()).Server()
				}) {
					return false
				}
			}
		}
	}
	return true
}

// even says that all replicas have applied the same.
func (w *world) even() bool {
	for group := range uint32(2) {
		first := w.nodes[0].host().Group(group).Status().Applied
		for _, n := range w.nodes {
			if n.host().Group(group).Status().Applied != first {
				return false
			}
		}
	}
	return true
}

// disk edits files of a node that is down.
type diskEdit struct {
	w  *world
	fs *vfs.MemFS
}

func (e diskEdit) fail(err error) {
	if err != nil {
		e.w.t.Helper()
		e.w.t.Fatal(err)
	}
}

func (e diskEdit) read(path string) []byte {
	e.w.t.Helper()
	f, err := e.fs.Open(path)
	e.fail(err)
	b, err := io.ReadAll(f)
	e.fail(errors.Join(err, f.Close()))
	return b
}

func (e diskEdit) write(path string, b []byte) {
	e.w.t.Helper()
	f, err := e.fs.Create(path, vfs.WriteCategoryUnspecified)
	e.fail(err)
	_, err = f.Write(b)
	e.fail(errors.Join(err, f.Sync(), f.Close()))
}

func (e diskEdit) flip(path string, at int) {
	e.w.t.Helper()
	b := e.read(path)
	b[min(at, len(b)-1)] ^= 0x10
	e.write(path, b)
}

// rot flips a bit in place, as that of a medium that decays under a node that has the file
// open. at counts from the end if it is negative.
func (e diskEdit) rot(path string, at int64) {
	e.w.t.Helper()
	f, err := e.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	e.fail(err)
	st, err := f.Stat()
	e.fail(err)
	if at < 0 {
		at += st.Size()
	}
	at = max(0, min(at, st.Size()-1))
	var b [1]byte
	_, err = f.ReadAt(b[:], at)
	e.fail(err)
	b[0] ^= 0x10
	_, err = f.WriteAt(b[:], at)
	e.fail(errors.Join(err, f.Sync(), f.Close()))
}

func (e diskEdit) cut(path string) {
	e.w.t.Helper()
	b := e.read(path)
	e.write(path, b[:len(b)/2])
}

func (e diskEdit) remove(path string) {
	e.w.t.Helper()
	e.fail(e.fs.RemoveAll(path))
}

// find returns the last file of a directory whose name has a prefix and a suffix: a power
// cut brings files back that were removed, and they are older.
func (e diskEdit) find(dir, prefix, suffix string) string {
	e.w.t.Helper()
	names, err := e.fs.List(dir)
	e.fail(err)
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		if strings.HasPrefix(name, prefix) && strings.HasSuffix(name, suffix) {
			return e.fs.PathJoin(dir, name)
		}
	}
	e.w.t.Fatalf("%s holds no %s…%s: %v", dir, prefix, suffix, names)
	return ""
}

// each edits the files of a group's databases whose names contain a text: which of them
// a crash left over, and which are in force, only the database knows.
func (e diskEdit) each(group, text string, edit func(path string)) {
	e.w.t.Helper()
	state := group + "/state"
	dbs, err := e.fs.List(state)
	e.fail(err)
	edited := false
	for _, db := range dbs {
		if !strings.HasPrefix(db, "db-") {
			continue
		}
		names, err := e.fs.List(e.fs.PathJoin(state, db))
		e.fail(err)
		for _, name := range names {
			// A marker file of Pebble names a manifest, too.
			if strings.Contains(name, text) && !strings.HasPrefix(name, "marker.") {
				edit(e.fs.PathJoin(state, db, name))
				edited = true
			}
		}
	}
	if !edited {
		e.w.t.Fatalf("%s holds no %s", state, text)
	}
}

// segments returns the live segments of a log, oldest first, read from its list.
func (e diskEdit) segments(dir string) []string {
	e.w.t.Helper()
	b := e.read(e.fs.PathJoin(dir, "SEGMENTS"))
	var out []string
	for at := 24; at+32 <= len(b)-4; at += 32 {
		number := uint64(0)
		for i := range 8 {
			number |= uint64(b[at+i]) << (8 * i)
		}
		name := "00000000000000000000" + uitoa(number)
		out = append(out, e.fs.PathJoin(dir, name[len(name)-20:]+".seg"))
	}
	return out
}

func uitoa(n uint64) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return uitoa(n/10) + uitoa(n%10)
}
