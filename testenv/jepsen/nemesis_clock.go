package jepsen

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"
)

const (
	aYear = 365 * 24 * time.Hour
	// yieldsWithin is how long a leader whose wall clock is off may keep the leadership.
	yieldsWithin = 50 * time.Second
)

// clocks is S8.
func clocks(ctx context.Context, w *world, s Step) error {
	switch s.Variant {
	case clockCorrect:
		return corrected(ctx, w, s)
	case clockAccept:
		return accepted(ctx, w, s)
	case clockFrozen:
		return frozen(ctx, w, s)
	default:
		return jumps(ctx, w, s)
	}
}

// jumps moves the wall clock of one node, then those of all; a node is restarted meanwhile,
// or all are killed and started, a year ahead; then they move back. All the time a probe
// looks at what follows the time: see probe.
func jumps(ctx context.Context, w *world, s Step) error {
	rng := rand.New(rand.NewPCG(s.Choice, 3))
	jump := func() time.Duration {
		return []time.Duration{time.Hour, -time.Hour, aYear, -aYear}[rng.IntN(4)]
	}
	n, one, all := w.victim(ctx, s), jump(), jump()
	if s.Variant == clockStop {
		all = aYear
	}
	if s.Variant == clockYield {
		n = w.leader(ctx, s)
		if err := w.yields(ctx, s, n, one); err != nil {
			return err
		}
	}
	p, err := startProbe(ctx, w)
	if err != nil {
		return err
	}
	defer p.close()
	w.say("the wall clock of %s moves by %v", n.ID, one)
	err = errors.Join(w.setWalls(ctx, one, n), hold(ctx, s.Hold))
	w.say("all wall clocks are off by %v", all)
	err = errors.Join(err, w.setWalls(ctx, all, w.c.Nodes...), hold(ctx, s.Hold))
	again := []*Node{w.victim(ctx, s)}
	if s.Variant == clockStop {
		again = w.c.Nodes
	}
	w.say("%d of them killed and started", len(again))
	for _, n := range again {
		err = errors.Join(err, w.c.Kill(n))
	}
	for _, n := range again {
		err = errors.Join(err, w.c.Start(n))
	}
	err = errors.Join(err, w.ready(ctx))
	p.restarted()
	err = errors.Join(err, w.setWalls(ctx, one, n), hold(ctx, s.Hold/2))
	w.say("all wall clocks are right again")
	if err := errors.Join(err, w.setWalls(ctx, 0, w.c.Nodes...), p.finish(ctx)); err != nil {
		return err
	}
	return w.ready(ctx)
}

// frozen has the wall clock of one node stand still, then those of all, a node being restarted meanwhile, under the
// same probe: what follows the time must follow it all the same.
func frozen(ctx context.Context, w *world, s Step) error {
	n := w.victim(ctx, s)
	p, err := startProbe(ctx, w)
	if err != nil {
		return err
	}
	defer p.close()
	w.say("the wall clock of %s stands still", n.ID)
	err = errors.Join(w.c.freezeWall(n, time.Now()), hold(ctx, s.Hold))
	w.say("all wall clocks stand still")
	for _, o := range w.c.Nodes {
		err = errors.Join(err, w.c.freezeWall(o, time.Now()))
	}
	again := w.victim(ctx, s)
	w.say("%s killed and started", again.ID)
	err = errors.Join(err, hold(ctx, s.Hold), w.c.Kill(again), w.c.Start(again), w.ready(ctx))
	p.restarted()
	err = errors.Join(err, p.finish(ctx)) // they stand still for as long as the probe waits
	w.say("all wall clocks are right again")
	return errors.Join(err, w.setWalls(ctx, 0, w.c.Nodes...), w.ready(ctx))
}

// setWalls moves wall clocks to an offset from the machine's, and returns when they have moved.
func (w *world) setWalls(ctx context.Context, d time.Duration, ns ...*Node) error {
	var errs []error
	for _, n := range ns {
		errs = append(errs, w.c.setWall(n, d))
	}
	return errors.Join(append(errs, hold(ctx, offsetSettles))...)
}

// yields holds a leader to it that it does not stay one while its wall clock is off.
func (w *world) yields(ctx context.Context, s Step, n *Node, by time.Duration) error {
	w.say("the wall clock of the leader %s moves by %v, and stays", n.ID, by)
	if err := w.setWalls(ctx, by, n); err != nil {
		return err
	}
	begin := time.Now()
	gone := await(ctx, yieldsWithin, func() bool { id := w.leads(ctx, s, n); return id != "" && id != n.ID })
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case gone:
		w.say("another node leads after %v", time.Since(begin).Round(time.Millisecond))
	case w.c.Kind.Ours():
		w.broken("%s still leads, its wall clock off by %v for %v", n.ID, by, yieldsWithin)
	}
	return nil
}
