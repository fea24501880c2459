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

// timeTravel is S6: files of one node are what they were a while ago.
func timeTravel(ctx context.Context, w *world, s Step) error {
	n := w.node(s, 0)
	old := filepath.Join(n.dir, "old")
	then := n.status(ctx)
	if err := errors.Join(w.c.Kill(n), os.RemoveAll(old), copyTree(old, n.data()), w.c.Start(n), w.ready(ctx)); err != nil {
		return err
	}
	var back func(h *harm) error
	var err error
	if file := oldFile(s.fault()); file != "" {
		// Files that say who a replica is and what it starts from change when it is replaced, and hardly before.
		err = damaging(ctx, w, s, n, func(h *harm) error { return h.lose(w, file, s) })
		back = func(h *harm) error { return h.putBack(w, old, file) }
	} else {
		// An entry counts as acknowledged when the leader has heard of it: a node that has caught up acknowledges many.
		if s.Variant == oldDisk {
			if err := w.reach(ctx, n); err != nil {
				return err
			}
			then = n.status(ctx)
		}
		w.say("%s will be what it was %v ago", n.ID, s.Hold)
		err = errors.Join(hold(ctx, s.Hold), w.ready(ctx))
		back = func(h *harm) error { return h.oldChunks(w, old, s.dice()) }
	}
	if err != nil {
		return err
	}
	if s.Variant == oldDisk {
		var grown []uint32
		now := n.status(ctx)
		for i := range min(len(then), len(now)) {
			if now[i].LastLog > then[i].LastLog+manyEntries {
				grown = append(grown, now[i].Group)
			}
		}
		back = func(h *harm) error { return h.oldDisk(old, grown) }
	}
	return errors.Join(damaging(ctx, w, s, n, back), os.RemoveAll(old))
}

// lose has a replica replaced: its pointer is removed, or all of them, if the file is of no group.
func (h *harm) lose(w *world, file string, s Step) error {
	if filepath.Dir(file) == "." {
		return h.flip(w, filepath.Join(h.node.data(), file), s.dice())
	}
	h.file = filepath.Join(h.node.data(), oldFile("timetravel"+variantSep+oldPointer))
	w.say("%s of %s removed", h.node.name(h.file), h.node.ID)
	return h.change(func() error { return errors.Join(os.Remove(h.file), syncFile(filepath.Dir(h.file))) })
}

// putBack replaces a file by the one that was there before its replica was replaced.
func (h *harm) putBack(w *world, old, file string) error {
	if file == oldFile("timetravel"+variantSep+oldManifest) {
		return h.oldManifest(w, old, filepath.Dir(file))
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
func (h *harm) oldManifest(w *world, old, state string) error {
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
func (h *harm) oldDisk(old string, grown []uint32) error {
	h.file, h.want, h.groups = h.node.data(), either, grown
	if len(grown) > 0 {
		h.want = noticed
	}
	return errors.Join(os.RemoveAll(h.file), os.Rename(old, h.file), syncFile(h.node.dir))
}

// oldChunks puts half of a file back, in chunks at random.
func (h *harm) oldChunks(w *world, old string, rng *rand.Rand) error {
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
