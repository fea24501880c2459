package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	// noticesWithin is how long a node may take after its start to say that its files are damaged, or to show that
	// they are not.
	noticesWithin = 45 * time.Second
)

// harm is what was done to the files of a node that does not run.
type harm struct {
	node *Node
	// file was changed; want is what must come of it.
	file string
	want effect
	// exact: what the node says must name the file itself, not only the directory that it is in.
	exact bool
	// servers are the replicas that the node had, by group; logged is how much it had written to its log.
	servers map[uint32]string
	logged  int64
	// groups are those whose replicas must be replaced, if it is noticed; nil: the one that the file is of, or all.
	groups []uint32
	// seen: the node said that it is damaged, or was rebuilt. It took that long to say so, or to show that it is well.
	seen bool
	took time.Duration
}

// what is the name of what was changed, for people.
func (h *harm) what() string {
	if name := h.node.name(h.file); name != "." {
		return name
	}
	return "its whole disk"
}

// harmTally counts what came of steps that change files.
type harmTally struct {
	// Noticed: the node took what was damaged out of service, and was rebuilt. Harmless: nobody needed what changed.
	Noticed  int `json:"noticed"`
	Harmless int `json:"harmless"`
}

// status is what a node says of its replicas; nothing if it does not answer.
func (n *Node) status(ctx context.Context) []replication.Status {
	b, err := n.request(ctx, http.MethodGet, "/raft")
	var out []replication.Status
	if err != nil || json.Unmarshal(b, &out) != nil {
		return nil
	}
	return out
}

// serversOf are the replicas of a node, by group.
func serversOf(list []replication.Status) map[uint32]string {
	out := make(map[uint32]string)
	for i := range list {
		out[list[i].Group] = list[i].Server
	}
	return out
}

// groupOf is the directory of the group that a file is of, the data directory if it is of none.
func (h *harm) groupOf() (dir, group string) {
	parts := strings.Split(h.node.name(h.file), string(filepath.Separator))
	if len(parts) > 2 && parts[0] == "groups" {
		return filepath.Join(h.node.data(), parts[0], parts[1]), parts[1]
	}
	return h.node.data(), ""
}

// change lets f change a file, and decides what must come of it.
func (h *harm) change(f func() error) error {
	before, err := readOrNone(h.file)
	if err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	after, err := readOrNone(h.file)
	h.want = effectOf(h.file, before, after)
	h.exact = h.want == noticed && after != nil
	return err
}

// readOrNone reads a file, nil if it is not there.
func readOrNone(file string) ([]byte, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// said is what the node has logged since its files were changed.
func (h *harm) said(c *Cluster) string {
	text, err := os.ReadFile(c.logFile(h.node))
	if err != nil {
		return err.Error()
	}
	return string(text[min(h.logged, int64(len(text))):])
}

// hit are the groups whose replicas must be replaced if the damage is noticed.
func (h *harm) hit() []uint32 {
	if h.groups != nil {
		return h.groups
	}
	_, group := h.groupOf()
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.servers)), func(id uint32) bool {
		return group != "" && group != fmt.Sprint(id)
	})
}

// replaced says whether the replicas that were hit are others now: all that had to notice it, or one that did.
func (h *harm) replaced(now map[uint32]string) bool {
	ids := h.hit()
	is := func(id uint32) bool { return now[id] != "" && now[id] != h.servers[id] }
	if h.want != noticed {
		return slices.ContainsFunc(ids, is)
	}
	return len(ids) > 0 && !slices.ContainsFunc(ids, func(id uint32) bool { return !is(id) })
}

// named says whether a line of a log says of a file, or of what is in a directory, that it is damaged.
func named(log, file string) bool {
	return slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
		return strings.Contains(line, "damaged") && strings.Contains(line, file)
	})
}

// hurt says whether the node says at this moment that a replica is damaged.
func hurt(list []replication.Status) bool {
	for i := range list {
		if list[i].Damage != nil {
			return true
		}
	}
	return false
}

// few are as many nodes as the cluster can do without, the first of the step.
func (w *world) few(s Step) []*Node {
	out := make([]*Node, w.minority())
	for k := range out {
		out[k] = w.node(s, k)
	}
	return out
}

// damaging kills some nodes, lets f change the files of each, starts them again, and holds them to what must come of
// that.
func damaging(ctx context.Context, w *world, s Step, few []*Node, f func(h *harm, rng *rand.Rand) error) error {
	harms := make([]*harm, len(few))
	for i, n := range few {
		harms[i] = &harm{node: n}
		if !w.c.Kind.Ours() {
			continue
		}
		if harms[i].servers = serversOf(n.status(ctx)); len(harms[i].servers) == 0 {
			return fmt.Errorf("%s does not say which replicas it has", n.ID)
		}
	}
	if err := each(few, w.c.Kill); err != nil {
		return err
	}
	rng := s.dice()
	for _, h := range harms {
		if info, err := os.Stat(w.c.logFile(h.node)); err == nil {
			h.logged = info.Size()
		}
		if err := f(h, rng); err != nil {
			return errors.Join(err, each(few, w.c.Start))
		}
	}
	if err := each(few, w.c.Start); err != nil {
		return err
	}
	if w.c.Kind.Ours() {
		if err := w.judge(ctx, harms); err != nil {
			return err
		}
	}
	return errors.Join(hold(ctx, s.Hold), w.ready(ctx))
}

// judge waits for what must come of changes of files: each node says that they are damaged, and which, and is rebuilt;
// or, where the bytes allow that, every row of its state can be read, and its replicas are those it had. What it then
// holds is compared with the other replicas at the end of the run.
func (w *world) judge(ctx context.Context, harms []*harm) error {
	begin := time.Now()
	told := harms[:0:0]
	for _, h := range harms {
		if w.notices(ctx, h, begin) {
			told = append(told, h)
		}
	}
	for _, h := range told {
		if err := w.rebuilt(ctx, h.node); ctx.Err() != nil {
			return ctx.Err()
		} else if err != nil {
			w.broken("%s, %s of it changed, is not a voter again: %v", h.node.ID, h.what(), err)
			continue
		}
		w.conclude(h, serversOf(h.node.status(ctx)))
	}
	return ctx.Err()
}

// notices waits until a node has said that its files are damaged, or has shown that they are not; false if it did
// neither.
func (w *world) notices(ctx context.Context, h *harm, begin time.Time) bool {
	told := await(ctx, noticesWithin, func() bool {
		list := h.node.status(ctx)
		h.seen = hurt(list) || h.replaced(serversOf(list))
		return h.seen || h.want != noticed && w.c.Ready(ctx, h.node) == nil && applied(ctx, h.node) != nil
	})
	h.took = time.Since(begin).Round(time.Millisecond)
	switch {
	case told || ctx.Err() != nil:
	case h.want == noticed:
		w.broken("%s did not notice within %v that %s is damaged", h.node.ID, noticesWithin, h.what())
	default:
		w.broken("%s neither serves all rows nor says that it is damaged within %v after a change of %s", h.node.ID,
			noticesWithin, h.what())
	}
	return told
}

// rebuilt waits until no replica of a node is damaged, and all groups have all their voters.
func (w *world) rebuilt(ctx context.Context, n *Node) error {
	wait, cancel := context.WithTimeout(ctx, 2*recoverTimeout)
	defer cancel()
	return process.Until(wait, func() error {
		switch list := n.status(wait); {
		case len(list) == 0:
			return fmt.Errorf("%s says nothing of its groups", n.ID)
		case hurt(list):
			return fmt.Errorf("%s is damaged: %w", n.ID, w.c.Ready(wait, n))
		}
		return w.voting(wait, len(w.c.Nodes))
	})
}

// conclude judges what is known when the node votes again.
func (w *world) conclude(h *harm, now map[uint32]string) {
	name := h.what()
	dir, _ := h.groupOf()
	file := dir
	if h.exact {
		file = h.file
	}
	switch {
	case !h.seen && maps.Equal(now, h.servers):
		w.harm.Harmless++
		w.say("the change of %s did no harm: after %v every row is read", name, h.took)
	case h.want == harmless:
		w.broken("%s took a replica out of service for %s, of which nobody needs what changed", h.node.ID, name)
	case !h.replaced(now):
		w.broken("%s says that it is damaged by %s, and its replicas are %v, as they were", h.node.ID, name, now)
	case !named(h.said(w.c), file):
		w.broken("%s was rebuilt, and did not name %s", h.node.ID, file)
	default:
		w.harm.Noticed++
		w.say("%s noticed %s after %v, and was rebuilt", h.node.ID, name, h.took)
	}
}
