package jepsen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/replication"
)

// manyEntries is by how many entries a log must have grown that others certainly know of what was acknowledged.
const manyEntries = 100

// oldFile is the file that a variant of the nemesis timetravel puts back alone, below the data directory; "" for
// others.
func oldFile(fault string) string {
	group := "groups/" + strconv.Itoa(eventGroup) + "/"
	base, variant, _ := strings.Cut(fault, variantSep)
	if base != "timetravel" {
		return ""
	}
	return map[string]string{
		oldPointer: group + "state/" + pointerFile, oldIncarnation: group + "INCARNATION", oldNode: "NODE",
		oldManifest: group + "state/" + dbPrefix,
	}[variant]
}

// timeTravel is S6: files of a minority are what they were a while ago.
func timeTravel(ctx context.Context, w *world, s Step) error {
	few := w.few(s)
	then := statusOf(ctx, few)
	err := errors.Join(each(few, w.c.Kill), each(few, func(n *Node) error {
		return errors.Join(os.RemoveAll(n.old()), copyTree(n.old(), n.data()))
	}), each(few, w.c.Start), w.ready(ctx))
	if err != nil {
		return err
	}
	var back func(h *harm, rng *rand.Rand) error
	if file := oldFile(s.fault()); file != "" {
		// Files that say who a replica is and what it starts from change when it is replaced, and hardly before.
		err = damaging(ctx, w, s, few, func(h *harm, rng *rand.Rand) error { return h.lose(w, file, rng) })
		back = func(h *harm, _ *rand.Rand) error { return h.putBack(w, file) }
	} else {
		// An entry counts as acknowledged when the leader has heard of it: a node that has caught up acknowledges many.
		if s.Variant == oldDisk {
			if err := each(few, func(n *Node) error { return w.reach(ctx, n) }); err != nil {
				return err
			}
			then = statusOf(ctx, few)
		}
		w.say("%s will be what it was %v ago", ids(few), s.Hold)
		err = errors.Join(hold(ctx, s.Hold), w.ready(ctx))
		back = func(h *harm, rng *rand.Rand) error { return h.oldChunks(w, rng) }
	}
	if err != nil {
		return err
	}
	if s.Variant == oldDisk {
		now := statusOf(ctx, few)
		back = func(h *harm, _ *rand.Rand) error { return h.oldDisk(grown(then[h.node], now[h.node])) }
	}
	return errors.Join(damaging(ctx, w, s, few, back), each(few, func(n *Node) error { return os.RemoveAll(n.old()) }))
}

// old is where a copy of the node's data is kept.
func (n *Node) old() string { return filepath.Join(n.dir, "old") }

// statusOf is what nodes say of their replicas.
func statusOf(ctx context.Context, ns []*Node) map[*Node][]replication.Status {
	out := make(map[*Node][]replication.Status, len(ns))
	for _, n := range ns {
		out[n] = n.status(ctx)
	}
	return out
}

// grown are the groups whose logs have grown by many entries.
func grown(then, now []replication.Status) []uint32 {
	var out []uint32
	for i := range min(len(then), len(now)) {
		if now[i].LastLog > then[i].LastLog+manyEntries {
			out = append(out, now[i].Group)
		}
	}
	return out
}

// lose has a replica replaced: its pointer is removed, or all of them, if the file is of no group.
func (h *harm) lose(w *world, file string, rng *rand.Rand) error {
	if filepath.Dir(file) == "." {
		return h.flip(w, filepath.Join(h.node.data(), file), rng)
	}
	h.file = filepath.Join(h.node.data(), oldFile("timetravel"+variantSep+oldPointer))
	w.say("%s of %s removed", h.node.name(h.file), h.node.ID)
	return h.change(func() error { return errors.Join(os.Remove(h.file), syncFile(filepath.Dir(h.file))) })
}

// putBack replaces a file by the one that was there before its replica was replaced.
func (h *harm) putBack(w *world, file string) error {
	old := h.node.old()
	if file == oldFile("timetravel"+variantSep+oldManifest) {
		return h.oldManifest(w, filepath.Dir(file))
	}
	h.file = filepath.Join(h.node.data(), file)
	w.say("%s of %s put back to what it was before", file, h.node.ID)
	err := h.change(func() error { return copyFile(h.file, filepath.Join(old, file)) })
	if filepath.Base(file) != "INCARNATION" { // with that, the replica is another one than the group has
		h.want = min(h.want, either) // a valid file: whether it fits the others is for the node to find out
	}
	h.exact = false
	return err
}

// oldManifest makes an older manifest the one that counts.
func (h *harm) oldManifest(w *world, state string) error {
	old := h.node.old()
	markers, err := filepath.Glob(filepath.Join(old, state, dbPrefix+"*", manifestMarker+"*"))
	if err != nil || len(markers) == 0 {
		return fmt.Errorf("%s had no manifest: %w", h.node.ID, err)
	}
	now, err := filepath.Glob(filepath.Join(h.node.data(), state, dbPrefix+"*", manifestMarker+"*"))
	if err != nil || len(now) == 0 {
		return fmt.Errorf("%s has no manifest: %w", h.node.ID, err)
	}
	_, name, _ := strings.Cut(filepath.Base(markers[0]), "MANIFEST-")
	name = "MANIFEST-" + name
	dir := filepath.Dir(now[0])
	h.file, h.want = filepath.Join(dir, filepath.Base(markers[0])), either
	w.say("%s of %s counts again", name, h.node.ID)
	for _, file := range now {
		err = errors.Join(err, os.Remove(file))
	}
	return errors.Join(err, copyFile(filepath.Join(dir, name), filepath.Join(filepath.Dir(markers[0]), name)),
		copyFile(h.file, markers[0]))
}

// oldDisk puts all files back; the replicas of grown groups are behind what they acknowledged.
func (h *harm) oldDisk(grown []uint32) error {
	h.file, h.want, h.groups = h.node.data(), either, grown
	if len(grown) > 0 {
		h.want = noticed
	}
	return errors.Join(os.RemoveAll(h.file), os.Rename(h.node.old(), h.file), syncFile(h.node.dir))
}

// oldChunks puts half of a file back, in chunks at random.
func (h *harm) oldChunks(w *world, rng *rand.Rand) error {
	old := h.node.old()
	var differ []string
	for kind, patterns := range w.c.flavor.kinds() {
		files, err := w.c.files(h.node, patterns, 1)
		if err != nil {
			return err
		}
		for _, file := range files {
			if kind == "gossip" {
				continue
			}
			a, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			b, err := readOrNone(filepath.Join(old, h.node.name(file)))
			if err == nil && b != nil && len(changes(a, b)) > 0 {
				differ = append(differ, file)
			}
		}
	}
	if len(differ) == 0 {
		return fmt.Errorf("no file of %s has changed", h.node.ID)
	}
	slices.Sort(differ)
	h.file = differ[rng.IntN(len(differ))]
	w.say("half of the chunks of %s of %s put back to what they were", h.node.name(h.file), h.node.ID)
	err := h.change(func() error { return mixChunks(h.file, filepath.Join(old, h.node.name(h.file)), rng) })
	if filepath.Ext(h.file) != segmentSuffix {
		h.want = min(h.want, either)
	}
	h.exact = false // by the marks of others, perhaps
	return err
}

// mixChunks replaces chunks of a file that differ by those of an older one: half of them, one at least.
func mixChunks(file, old string, rng *rand.Rand) error {
	a, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(old)
	if err != nil {
		return err
	}
	var differ []int
	for at := 0; at < min(len(a), len(b)); at += chunk {
		if !bytes.Equal(a[at:min(at+chunk, len(a))], b[at:min(at+chunk, len(b))]) {
			differ = append(differ, at)
		}
	}
	rng.Shuffle(len(differ), func(i, j int) { differ[i], differ[j] = differ[j], differ[i] })
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	for _, at := range differ[:(len(differ)+1)/2] {
		if _, err = f.WriteAt(b[at:min(at+chunk, len(b))], int64(at)); err != nil {
			break
		}
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// copyFile copies a file durably, over one that may be there.
func copyFile(to, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(to, b, 0o600), syncFile(to), syncFile(filepath.Dir(to)))
}
