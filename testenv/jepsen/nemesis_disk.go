package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"
)

const (
	// exitStopped is the exit code of a node that cannot go on.
	exitStopped = 4
	// endsWithin is how long a node may take to end after its disk has begun to fail. It writes
	// all the time; 7 s are what a stop may take then.
	endsWithin = 20 * time.Second
	// movesWithin is how long it may take until another node leads when the leader's disk hangs.
	movesWithin = 20 * time.Second
	// hangTime is how long a disk hangs: longer than the 37 s within which a node gives up.
	hangTime = 45 * time.Second
	// leavesWithin is how long the end of a node takes that has given up, when its disk goes on.
	leavesWithin = 10 * time.Second
	// cutTime is how long a follower is cut off.
	cutTime = 60 * time.Second
	// servesWithin is how long the others may take to ack publishes, servedAcks of them.
	servesWithin = 20 * time.Second
	servedAcks   = 10
	// catchUpWithin is how long a node that is back may take to apply what the others had applied.
	catchUpWithin = 45 * time.Second
	// lookEvery is the pause between two looks.
	lookEvery = 200 * time.Millisecond
)

// sickDisk is a disk that can be slow, hang and fail.
type sickDisk interface {
	disk
	// stall makes every sync take that long, 0 ends that.
	stall(d time.Duration) error
	// fail makes every call fail in a way, until free.
	fail(how failure) error
}

// failure is how the calls of a disk fail, a command of testenv/lazyfs.
type failure string

const (
	syncFails  failure = "eio sync"
	writeFails failure = "eio write"
	syncHangs  failure = "hang"
)

// errNoSick says that a disk has no such faults.
var errNoSick = errors.New("jepsen: this kind of disk cannot be slow, hang or fail")

func (n *Node) sick() (sickDisk, error) { //nolint:ireturn // as mountAt
	if d, ok := n.disk.(sickDisk); ok {
		return d, nil
	}
	return nil, errNoSick
}

// await looks again and again until f is true; false if that takes longer than d.
func await(ctx context.Context, d time.Duration, f func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	for !f() {
		if !pause(ctx, lookEvery) {
			return false
		}
	}
	return true
}

// ends waits until a node that cannot go on has ended, as it should.
func (w *world) ends(ctx context.Context, n *Node, within time.Duration) error {
	ended := await(ctx, within, func() bool { return !n.Running() })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !w.c.Kind.Ours(): // its own business
	case !ended:
		w.broken("%s did not end within %v", n.ID, within)
	case n.child.ExitCode() != exitStopped:
		w.broken("%s ended with exit code %d, want %d", n.ID, n.child.ExitCode(), exitStopped)
	default:
		w.say("%s has ended with exit code %d", n.ID, exitStopped)
	}
	return nil
}

// serve waits until publishes are acked, which a majority must see to.
func (w *world) serve(ctx context.Context) error { return w.serveWithin(ctx, servesWithin) }

func (w *world) serveWithin(ctx context.Context, within time.Duration) error {
	_, before := w.h.counts()
	if !await(ctx, within, func() bool { _, now := w.h.counts(); return now >= before+servedAcks }) &&
		ctx.Err() == nil {
		w.broken("not %d publishes were acked in %v by a majority", servedAcks, within)
	}
	return ctx.Err()
}

// reach waits until a node has applied what the others have applied now.
func (w *world) reach(ctx context.Context, n *Node) error {
	if !w.c.Kind.Ours() {
		return nil
	}
	goal := map[int]uint64{}
	for _, o := range w.c.Nodes {
		if o != n {
			for group, index := range applied(ctx, o) {
				goal[group] = max(goal[group], index)
			}
		}
	}
	begin := time.Now()
	ok := await(ctx, catchUpWithin, func() bool {
		has := applied(ctx, n)
		for group, index := range goal {
			if has[group] < index {
				return false
			}
		}
		return len(goal) > 0
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !ok:
		w.broken("%s has not applied within %v what the others had: %v of %v", n.ID, catchUpWithin, applied(ctx, n), goal)
	default:
		w.say("%s has caught up after %v", n.ID, time.Since(begin).Round(time.Millisecond))
	}
	return nil
}

// applied is how far each group of a node is; nothing if it does not say.
func applied(ctx context.Context, n *Node) map[int]uint64 {
	var list []Hash
	b, err := n.request(ctx, http.MethodGet, "/hash")
	if err != nil || json.Unmarshal(b, &list) != nil {
		return nil
	}
	out := make(map[int]uint64)
	for _, h := range list {
		out[h.Group] = h.Index
	}
	return out
}

// failingDisk has a node's disk answer EIO.
func failingDisk(ctx context.Context, w *world, s Step) error {
	what, lost := strings.CutSuffix(s.Variant, eioLost)
	n, how := w.victim(ctx, s), syncFails
	if what == eioWrite {
		how = writeFails
	}
	d, err := n.sick()
	if err != nil {
		return err
	}
	w.say("disk of %s: %s", n.ID, how)
	if err := errors.Join(d.fail(how), w.ends(ctx, n, endsWithin)); err != nil {
		return err
	}
	err = errors.Join(w.c.Kill(n), w.serve(ctx), hold(ctx, s.Hold))
	if lost {
		w.say("the disk of %s has lost what it did not sync", n.ID)
		err = errors.Join(err, d.cutPower(ctx))
	}
	return errors.Join(err, d.free(), w.c.Start(n), w.ready(ctx), w.reach(ctx, n))
}

// hangingDisk has a node's disk hang until the node has given up, or cuts a follower off for
// as long: others must not wait for it, and it must be replicated to again.
func hangingDisk(ctx context.Context, w *world, s Step) error {
	leader := w.leader(ctx, s)
	follower := w.follower(s, leader)
	switch s.Variant {
	case hitLeader:
		return hangs(ctx, w, s, leader)
	case hitFollower:
		return hangs(ctx, w, s, follower)
	default:
		return w.during(s.Name, func() error {
			w.say("%s, a follower, cut off for %v", follower.ID, cutTime)
			err := errors.Join(w.c.Isolate(follower), w.serve(ctx), hold(ctx, cutTime))
			w.c.Net.Heal()
			return errors.Join(err, w.ready(ctx), w.reach(ctx, follower))
		})
	}
}

func hangs(ctx context.Context, w *world, s Step, n *Node) error {
	d, err := n.sick()
	if err != nil {
		return err
	}
	w.say("the disk of %s hangs for %v", n.ID, hangTime)
	if err := d.fail(syncHangs); err != nil {
		return err
	}
	begin := time.Now()
	if err := w.moves(ctx, s, n, "its disk began to hang"); err != nil {
		return err
	}
	err = errors.Join(w.serve(ctx), hold(ctx, hangTime-time.Since(begin)), d.free())
	if err == nil {
		// A sync that hangs keeps the process that waits for it, even after its exit.
		err = w.ends(ctx, n, leavesWithin)
	}
	return errors.Join(err, w.c.Kill(n), w.c.Start(n), w.ready(ctx), w.reach(ctx, n))
}

// moves waits until another node than n leads, as it should soon after something happened to n.
func (w *world) moves(ctx context.Context, s Step, n *Node, after string) error {
	begin := time.Now()
	moved := await(ctx, movesWithin, func() bool { id := w.leads(ctx, s, n); return id != "" && id != n.ID })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case moved:
		w.say("another node than %s leads after %v", n.ID, time.Since(begin).Round(time.Millisecond))
	case w.c.Kind.Ours():
		w.broken("no other node than %s leads %v after %s", n.ID, movesWithin, after)
	}
	return nil
}

// leads is the node that leads, as the others than n say; empty if none of them knows.
func (w *world) leads(ctx context.Context, s Step, n *Node) string {
	for k := range s.Order {
		if o := w.node(s, k); o != n && o.Running() && !o.paused {
			ask, cancel := context.WithTimeout(ctx, connectTimeout)
			id := leaderAs(ask, o)
			cancel()
			if id != "" {
				return id
			}
		}
	}
	return ""
}
