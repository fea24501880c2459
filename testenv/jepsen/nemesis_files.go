package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// flips is how many bits of a file are flipped, as many as Jepsen's probability gives on average.
const flips = 2

// beyond: one time in so many, bits of a segment are flipped where nothing was written, too.
const beyond = 8

const (
	// syncMin and syncRange are how long a slow sync takes: 2 to 31 s.
	syncMin   = 2 * time.Second
	syncRange = 30
	// movedBy is how long a sync takes that must cost a leader the leadership: a shorter one may end before
	// anybody has waited for as long as an election takes to begin, twice.
	movedBy = 5 * time.Second
)

// dice are the chance of a step.
func (s Step) dice() *rand.Rand { return rand.New(rand.NewPCG(s.Choice, 2)) }

// bitflip and truncate are S4.
func bitflip(ctx context.Context, w *world, s Step) error {
	return damaging(ctx, w, s, w.few(s), func(h *harm, rng *rand.Rand) error {
		file, err := pick(w, h.node, rng)
		if err != nil {
			return err
		}
		return h.flip(w, file, rng)
	})
}

func truncate(ctx context.Context, w *world, s Step) error {
	return damaging(ctx, w, s, w.few(s), func(h *harm, rng *rand.Rand) (err error) {
		if h.file, err = pick(w, h.node, rng); err != nil {
			return err
		}
		info, err := os.Stat(h.file)
		if err != nil {
			return err
		}
		cut := int64(rand.NewZipf(rng, 1.5, 1, uint64(info.Size()-1)).Uint64()) + 1
		w.say("%d bytes cut off %s of %s", cut, h.node.name(h.file), h.node.ID)
		return h.change(func() error { return errors.Join(os.Truncate(h.file, info.Size()-cut), syncFile(h.file)) })
	})
}

// snapshot is S5.
func snapshot(ctx context.Context, w *world, s Step) error {
	return damaging(ctx, w, s, w.few(s), func(h *harm, rng *rand.Rand) error {
		var files []string
		least := int64(1)
		if s.Variant == fileRemoved {
			least = 0 // that a file is there may be all that it says
		}
		for _, kind := range w.c.flavor.snapshots() {
			found, err := w.c.files(h.node, w.c.flavor.kinds()[kind], least)
			if err != nil {
				return err
			}
			files = append(files, found...)
		}
		if len(files) == 0 {
			return fmt.Errorf("%s has no snapshot", h.node.ID)
		}
		file := files[rng.IntN(len(files))]
		if s.Variant != fileRemoved {
			return h.flip(w, file, rng)
		}
		h.file = file
		w.say("%s of %s removed", h.node.name(file), h.node.ID)
		return h.change(func() error { return errors.Join(os.Remove(file), syncFile(filepath.Dir(file))) })
	})
}

// flip flips bits of a file, mostly of what was written to it, if it is longer than that.
func (h *harm) flip(w *world, file string, rng *rand.Rand) error {
	h.file = file
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	end := len(b)
	if filepath.Ext(file) == segmentSuffix && rng.IntN(beyond) > 0 {
		end = written(b)
	}
	w.say("%d bits flipped in %s of %s, of its first %d bytes", flips, h.node.name(file), h.node.ID, end)
	return h.change(func() error { return flip(file, int64(end), rng) })
}

// copyTree copies a directory durably: a power cut later in the run must not empty files that the node never wrote.
func copyTree(to, from string) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, syncFile(path))
	})
}

// syncFile syncs a file or a directory.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// slowSync is S10: the disk of the leader answers late, or not at all until the fault ends.
func slowSync(ctx context.Context, w *world, s Step) error {
	n := w.leader(ctx, s)
	sick, err := n.sick()
	if err != nil {
		return err
	}
	d := syncMin + time.Duration(s.Choice%syncRange)*time.Second
	w.say("every sync of %s takes %v", n.ID, d)
	begin, err := time.Now(), sick.stall(d)
	if err == nil && d >= movedBy {
		err = errors.Join(w.moves(ctx, s, n, "its syncs became slow"), w.serve(ctx))
	}
	err = errors.Join(err, hold(ctx, 2*s.Hold-time.Since(begin)))
	w.say("%s leads now", w.leader(ctx, s).ID)
	return errors.Join(err, sick.stall(0), w.ready(ctx))
}

// pick chooses one of the kinds of files that the node has, and one of that kind.
func pick(w *world, n *Node, rng *rand.Rand) (string, error) {
	kinds := w.c.flavor.kinds()
	var have [][]string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		files, err := w.c.files(n, kinds[kind], 1)
		if err != nil {
			return "", err
		}
		if len(files) > 0 {
			have = append(have, files)
		}
	}
	if len(have) == 0 {
		return "", fmt.Errorf("%s has no file of any kind", n.ID)
	}
	files := have[rng.IntN(len(have))]
	return files[rng.IntN(len(files))], nil
}

// name tells a file of a node, from its data directory on.
func (n *Node) name(file string) string {
	if rel, err := filepath.Rel(n.data(), file); err == nil {
		return rel
	}
	return file
}

// asidePrefix begins the names of directories that a node has set aside, and does not use.
const asidePrefix = "damaged-"

// files lists a node's files whose base name matches a pattern, in order of their names: those
// that are of a size at least, and are in use.
func (c *Cluster) files(n *Node, patterns []string, least int64) ([]string, error) {
	var out []string
	err := filepath.WalkDir(n.data(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), asidePrefix) {
			return fs.SkipDir
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if info, err := d.Info(); err != nil || info.Size() < least {
			return err
		}
		for _, p := range patterns {
			if ok, err := filepath.Match(p, filepath.Base(path)); ok || err != nil {
				out = append(out, path)
				return err
			}
		}
		return nil
	})
	return out, err
}

// flip flips bits of a file in place, below an offset, each in another byte.
func flip(file string, below int64, rng *rand.Rand) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Sync(), f.Close()) }()
	done := make(map[int64]bool)
	for len(done) < int(min(flips, below)) {
		at, b := rng.Int64N(below), make([]byte, 1)
		if done[at] {
			continue
		}
		done[at] = true
		if _, err := f.ReadAt(b, at); err != nil {
			return fmt.Errorf("flipping a bit of %s: %w", file, err)
		}
		b[0] ^= 1 << rng.IntN(8)
		if _, err := f.WriteAt(b, at); err != nil {
			return err
		}
	}
	return nil
}
