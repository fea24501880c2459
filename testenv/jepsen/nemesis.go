package jepsen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv/netcut"
)

const (
	// recoverTimeout is how long a fault waits for the cluster where it needs it; the
	// verdict of a cluster that does not come back is spoken at the end.
	recoverTimeout = 45 * time.Second
	// pauseMin and pauseRange are how long a leader is paused: 10 to 30 s.
	pauseMin   = 10 * time.Second
	pauseRange = 20
	// delay and jitter are those of Jepsen's packet faults.
	delay  = 100 * time.Millisecond
	jitter = 50 * time.Millisecond
	// downTime is how long a killed node stays down where nothing else says so.
	downTime = 2 * time.Second
	// aloneTime is how long a bare majority is left alone: many times what an election takes.
	aloneTime = 15 * time.Second
	// kills is the most kills of one step.
	kills = 3
	// resetEvery is the pause between two resets.
	resetEvery = 500 * time.Millisecond
)

// world is what a nemesis acts on.
type world struct {
	c   *Cluster
	h   *History
	say func(format string, args ...any)
	// acceptAfter is for how long wall clocks must be ahead until the system follows them.
	acceptAfter time.Duration
	// found are broken promises, in words.
	found []string
	// harm is what came of changes of files.
	harm harmTally
}

// broken notes that something was seen which must not be.
func (w *world) broken(format string, args ...any) {
	w.found = append(w.found, fmt.Sprintf(format, args...))
	w.say("WRONG: "+format, args...)
}

// node is the k-th in the order of the step.
func (w *world) node(s Step, k int) *Node { return w.c.Nodes[s.Order[k]] }

// leader is the node that leads the stream that keeps everything, or the first of the step.
func (w *world) leader(ctx context.Context, s Step) *Node {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for k := range s.Order {
		n := w.node(s, k)
		if !n.Running() || n.paused {
			continue
		}
		if id := leaderAs(ctx, n); id != "" {
			for _, o := range w.c.Nodes {
				if o.ID == id {
					return o
				}
			}
		}
	}
	return w.node(s, 0)
}

func leaderAs(ctx context.Context, n *Node) string {
	nc, err := connect(n, "nemesis")
	if err != nil {
		return ""
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		return ""
	}
	st, err := js.Stream(ctx, streamLog)
	if err != nil || st.CachedInfo().Cluster == nil {
		return ""
	}
	return st.CachedInfo().Cluster.Leader
}

// during marks the time of f as one in which a node is paused or cut off.
func (w *world) during(name string, f func() error) error {
	begin := w.h.now()
	err := f()
	w.h.excuse(Interval{Name: name, Begin: begin, End: w.h.now()})
	return err
}

// well waits for the cluster for a while, and says whether every node serves, and votes: a node that has been
// replaced, and still has a vote in a group, counts like one that is not well.
func (w *world) well(ctx context.Context) bool {
	wait, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	return w.c.WaitReady(wait) == nil && (!w.c.Kind.Ours() || w.voting(wait, len(w.c.Nodes)) == nil)
}

// ready waits for the cluster for a while. It says so if that takes too long, which is
// not the nemesis' to judge.
func (w *world) ready(ctx context.Context) error {
	wait, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	if err := w.c.WaitReady(wait); err != nil {
		w.say("not ready after %v: %v", recoverTimeout, err)
	}
	return ctx.Err()
}

// hold waits; its error is that of a run that ends.
func hold(ctx context.Context, d time.Duration) error {
	if !pause(ctx, d) {
		return ctx.Err()
	}
	return nil
}

// victim is the leader or the first of the step.
func (w *world) victim(ctx context.Context, s Step) *Node {
	if s.Choice%2 == 0 && !s.Fixed {
		return w.leader(ctx, s)
	}
	return w.node(s, 0)
}

// victims are as many nodes as the cluster can do without: the victim, and the first others of the step.
func (w *world) victims(ctx context.Context, s Step) []*Node {
	out := []*Node{w.victim(ctx, s)}
	for k := 0; len(out) < w.minority(); k++ {
		if n := w.node(s, k); n != out[0] {
			out = append(out, n)
		}
	}
	return out
}

func (w *world) minority() int { return minority(len(w.c.Nodes)) }

// sides part the nodes of a step: a minority, another one, and the one that makes either of them a majority.
func (w *world) sides(s Step) (a, b []*Node, c *Node) {
	all := make([]*Node, len(s.Order))
	for k := range s.Order {
		all[k] = w.node(s, k)
	}
	m := w.minority()
	return all[:m], all[m : 2*m], all[2*m]
}

// ids are the names of nodes, for people.
func ids(ns []*Node) string {
	names := make([]string, len(ns))
	for i, n := range ns {
		names[i] = n.ID
	}
	return strings.Join(names, " and ")
}

// killOne is S1.
func killOne(ctx context.Context, w *world, s Step) error {
	for range 1 + s.Choice/2%kills {
		hit := w.victims(ctx, s)
		w.say("killing %s", ids(hit))
		err := errors.Join(each(hit, w.c.Kill), hold(ctx, downTime), each(hit, w.c.Start), hold(ctx, s.Hold/kills))
		if err != nil {
			return err
		}
	}
	return w.ready(ctx)
}

// killAll is S2 without a loss of power.
func killAll(ctx context.Context, w *world, _ Step) error {
	var errs []error
	for _, n := range w.c.Nodes {
		errs = append(errs, w.c.Kill(n))
	}
	return errors.Join(append(errs, w.c.StartAll(), w.ready(ctx))...)
}

func powerOne(ctx context.Context, w *world, s Step) error {
	hit := w.victims(ctx, s)
	w.say("power of %s", ids(hit))
	return errors.Join(w.c.CutPower(ctx, hit...), hold(ctx, downTime), each(hit, w.c.Start), hold(ctx, s.Hold),
		w.ready(ctx))
}

// powerAll is S2.
func powerAll(ctx context.Context, w *world, _ Step) error {
	return errors.Join(w.c.CutPower(ctx, w.c.Nodes...), w.c.StartAll(), w.ready(ctx))
}

// partKill is S3: what was acked by B and C must survive that C loses what it had not
// synced, and that B is then cut off. Each time those that are left must be a majority:
// else there would be nothing to lose, or nothing that could differ.
func partKill(ctx context.Context, w *world, s Step) error {
	a, b, c := w.sides(s)
	return w.during(s.Name, func() error {
		w.say("%s cut off, %s loses power, then %s cut off", ids(a), c.ID, ids(b))
		if err := errors.Join(each(a, w.c.Isolate), w.leftAlone(ctx, servesWithin), w.c.CutPower(ctx, c)); err != nil {
			return err
		}
		w.c.Net.Heal()
		if err := errors.Join(each(b, w.c.Isolate), w.c.Start(c), w.leftAlone(ctx, catchUpWithin)); err != nil {
			return err
		}
		w.c.Net.Heal()
		return w.ready(ctx)
	})
}

// pauseKill is S3 with pauses.
func pauseKill(ctx context.Context, w *world, s Step) error {
	a, b, c := w.sides(s)
	return w.during(s.Name, func() error {
		w.say("%s paused, %s loses power, then %s paused", ids(a), c.ID, ids(b))
		return errors.Join(
			each(a, w.c.Pause), w.leftAlone(ctx, servesWithin), w.c.CutPower(ctx, c), each(b, w.c.Pause),
			each(a, w.c.Resume), w.c.Start(c), w.leftAlone(ctx, catchUpWithin), each(b, w.c.Resume), w.ready(ctx),
		)
	})
}

// leftAlone leaves a majority to itself for a while, in which it must ack what is published; if one of them was
// just started, that has to read its files first, and to apply what it had not flushed.
func (w *world) leftAlone(ctx context.Context, within time.Duration) error {
	begin := time.Now()
	err := w.serveWithin(ctx, within)
	if took := time.Since(begin); err == nil && took < within {
		w.say("%d nodes ack alone after %v", w.minority()+1, took.Round(time.Millisecond))
	}
	return errors.Join(err, hold(ctx, aloneTime-time.Since(begin)))
}

// pauseLeader is S11.
func pauseLeader(ctx context.Context, w *world, s Step) error {
	n := w.leader(ctx, s)
	d := pauseMin + time.Duration(s.Choice%pauseRange)*time.Second
	return w.during(s.Name, func() error {
		w.say("%s paused for %v", n.ID, d)
		return errors.Join(w.c.Pause(n), hold(ctx, d), w.c.Resume(n), w.ready(ctx))
	})
}

func partition(ctx context.Context, w *world, s Step) error {
	cut := netcut.State{Mode: netcut.Cut}
	n := w.victim(ctx, s)
	return w.during(s.Name, func() error {
		var err error
		switch s.Variant {
		case cutBoth:
			hit := w.victims(ctx, s)
			w.say("%s cut off", ids(hit))
			err = each(hit, w.c.Isolate)
		case cutUnheard:
			w.say("%s is not heard", n.ID)
			err = w.oneWay(n, func(o *Node) error { return w.c.Net.Set(n.Slot, o.Slot, cut) })
		case cutDeaf:
			w.say("%s does not hear", n.ID)
			err = w.oneWay(n, func(o *Node) error { return w.c.Net.Set(o.Slot, n.Slot, cut) })
		default:
			a, b := w.node(s, 0), w.node(s, 1)
			w.say("%s and %s cut off from each other", a.ID, b.ID)
			err = w.c.Net.SetBoth(a.Slot, b.Slot, cut)
		}
		err = errors.Join(err, hold(ctx, 2*s.Hold))
		w.c.Net.Heal()
		return errors.Join(err, w.ready(ctx))
	})
}

func (w *world) oneWay(n *Node, set func(o *Node) error) error {
	var errs []error
	for _, o := range w.c.Nodes {
		if o != n {
			errs = append(errs, set(o))
		}
	}
	return errors.Join(errs...)
}

func resets(ctx context.Context, w *world, s Step) error {
	n := w.victim(ctx, s)
	w.say("connections of %s reset for %v", n.ID, s.Hold)
	for end := time.Now().Add(s.Hold); time.Now().Before(end); {
		err := w.oneWay(n, func(o *Node) error {
			return w.c.Net.SetBoth(n.Slot, o.Slot, netcut.State{Mode: netcut.Reset})
		})
		w.c.Net.Heal()
		if err := errors.Join(err, hold(ctx, resetEvery)); err != nil {
			return err
		}
	}
	return w.ready(ctx)
}

func delays(ctx context.Context, w *world, s Step) error {
	slow := netcut.State{Delay: delay, Jitter: jitter}
	hit := w.c.Nodes
	if s.Variant == hitOne {
		hit = []*Node{w.node(s, 0)}
	}
	w.say("slow links of %d nodes for %v", len(hit), 2*s.Hold)
	var errs []error
	for _, n := range hit {
		errs = append(errs, w.oneWay(n, func(o *Node) error { return w.c.Net.SetBoth(n.Slot, o.Slot, slow) }))
	}
	errs = append(errs, hold(ctx, 2*s.Hold))
	w.c.Net.Heal()
	return errors.Join(append(errs, w.ready(ctx))...)
}

// rolling is S12.
func rolling(ctx context.Context, w *world, s Step) error {
	for k := range s.Order {
		n := w.node(s, k)
		w.say("restarting %s", n.ID)
		if err := w.c.Stop(ctx, n); err != nil {
			w.say("%v; killing it", err)
			if err := w.c.Kill(n); err != nil {
				return err
			}
		}
		if err := errors.Join(w.c.Start(n), w.ready(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// mixed takes the majority away, too, for a while.
func mixed(ctx context.Context, w *world, s Step) error {
	a, rest, _ := w.sides(s)
	b := rest[0]
	return w.during(s.Name, func() error {
		w.say("slow links, %s cut off, %s killed", ids(a), b.ID)
		err := errors.Join(
			w.oneWay(b, func(o *Node) error {
				return w.c.Net.SetBoth(b.Slot, o.Slot, netcut.State{Delay: delay, Jitter: jitter})
			}),
			each(a, w.c.Isolate), hold(ctx, s.Hold/2), w.c.Kill(b), hold(ctx, downTime), w.c.Start(b), hold(ctx, s.Hold),
		)
		w.c.Net.Heal()
		return errors.Join(err, w.ready(ctx))
	})
}

// member is S7, one cycle.
func member(ctx context.Context, w *world, s Step) error {
	n := w.victim(ctx, s)
	old := n.ID
	if s.Variant == memberEmpty {
		w.say("%s comes back without its files", old)
		return errors.Join(w.c.Kill(n), w.c.wipe(n), w.c.Start(n), w.ready(ctx))
	}
	if err := errors.Join(w.c.Kill(n), w.c.replace(ctx, n)); err != nil {
		return err
	}
	w.say("%s is replaced by %s", old, n.ID)
	if err := errors.Join(w.c.Start(n), hold(ctx, downTime)); err != nil {
		return err
	}
	if err := w.removed(ctx, old); err != nil {
		return fmt.Errorf("removing %s: %w", old, err)
	}
	return w.ready(ctx)
}

// removed tells the cluster that a node is gone for good, until it agrees.
func (w *world) removed(ctx context.Context, id string) error {
	wait, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	for {
		err := w.c.flavor.remove(wait, w.c, id)
		if err == nil || !pause(wait, time.Second) {
			if err != nil {
				w.say("%s was not removed: %v", id, err)
			}
			return ctx.Err()
		}
	}
}
