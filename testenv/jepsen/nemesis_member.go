package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/testenv/process"
)

// membershipFaults change who is in the cluster. Most of them are Holdfast's alone: nats-server has no such commands,
// or has them and promises nothing of the kind.
func membershipFaults() map[string]nemesis {
	return map[string]nemesis{
		"grow": {
			what:   "two nodes join and are removed again, by command, a leader killed in between",
			common: true, alone: true, run: grow,
			foreign: "new servers get no vote there: the replicas of a stream are a setting of the stream",
		},
		"move": {
			what:   "one node, or all at once, back with their files on other addresses",
			common: true, variants: []string{hitOne, hitAll}, run: move,
		},
		"return": {
			what:   "a node removed by command while it was down, or held by SIGSTOP, comes back: it is refused",
			common: true, alone: true, variants: []string{returnKilled, returnPaused}, run: returned,
			foreign: "it promises nothing of a removed server that comes back",
		},
		"twins": {
			what: "a second node with the id of a live one, empty or with a copy of its files, is refused; " +
				"with that of a paused one, it replaces it",
			common: true, takes: true, variants: []string{twinEmpty, twinCopy, twinPaused}, run: twins,
			foreign: "it promises nothing of two servers of one name",
		},
	}
}

// extra prepares a node beside those of the cluster, with a disk of no kind.
func (c *Cluster) extra(ctx context.Context, slot, id string) (*Node, error) {
	n := &Node{Slot: slot, ID: id, dir: filepath.Join(c.dir, slot)}
	for _, p := range []*string{&n.Client, &n.Admin} {
		var err error
		if *p, err = c.ports.Address(); err != nil {
			return nil, err
		}
	}
	return n, c.newPorts(ctx, n)
}

// voting waits until every group has so many voters, and nobody else, as all nodes that run see it, who are among
// them: one that is catching up sees who voted once. Those that are new take as long as it takes to send them everything.
func (w *world) voting(ctx context.Context, voters int) error {
	wait, cancel := context.WithTimeout(ctx, 2*recoverTimeout)
	defer cancel()
	return process.Until(wait, func() error {
		asked := 0
		for _, n := range w.c.Nodes {
			if !n.Running() || n.paused {
				continue
			}
			if err := n.voting(wait, voters); err != nil {
				return err
			}
			asked++
		}
		if asked == 0 {
			return errors.New("no node runs")
		}
		return nil
	})
}

func (n *Node) voting(ctx context.Context, voters int) error {
	b, err := n.request(ctx, http.MethodGet, "/raft")
	if err != nil {
		return err
	}
	var groups []replication.Status
	if err := json.Unmarshal(b, &groups); err != nil {
		return err
	}
	for i := range groups {
		g := &groups[i] // no members where nothing runs, as of a damaged replica
		if len(g.Members) != voters || slices.ContainsFunc(g.Members, func(m replication.Member) bool { return !m.Voter }) {
			return fmt.Errorf("group %d of %s has %v, want %d voters and nobody else", g.Group, n.ID, g.Members, voters)
		}
		if !slices.ContainsFunc(g.Members, func(m replication.Member) bool { return m.Server == g.Server }) {
			return fmt.Errorf("replica %s is not in its group %d: %v", g.Server, g.Group, g.Members)
		}
	}
	return nil
}

// grownBy is how many nodes join for a while.
const grownBy = 2

// grow is S7 with more nodes.
func grow(ctx context.Context, w *world, s Step) (err error) {
	var more []*Node
	defer func() {
		for _, n := range more {
			if err != nil { // killed as voters they would be missing for good
				err = errors.Join(err, w.removed(ctx, n.ID))
			}
		}
		if err != nil {
			err = errors.Join(err, w.voting(ctx, len(w.c.Nodes)))
		}
		for _, n := range more {
			err = errors.Join(err, w.c.Kill(n), w.c.wipe(n))
		}
	}()
	for k := range grownBy {
		slot := fmt.Sprintf("n%d", len(w.c.Nodes)+1+k)
		n, err := w.c.extra(ctx, slot, fmt.Sprintf("%s-at-%d", slot, w.h.now()/time.Second))
		if err != nil {
			return err
		}
		more = append(more, n)
		w.say("%s joins", n.ID)
		if err := w.c.Start(n); err != nil {
			return err
		}
	}
	if err := w.voting(ctx, len(w.c.Nodes)+len(more)); err != nil {
		return err
	}
	n := w.leader(ctx, s)
	w.say("%d vote; killing %s", len(w.c.Nodes)+len(more), n.ID)
	err = errors.Join(w.c.Kill(n), hold(ctx, s.Hold), w.c.Start(n), w.ready(ctx))
	if err != nil {
		return err
	}
	for _, n := range more {
		w.say("%s is removed", n.ID)
		if err := w.removed(ctx, n.ID); err != nil {
			return err
		}
	}
	if err := w.voting(ctx, len(w.c.Nodes)); err != nil {
		return err
	}
	for _, n := range more {
		if err := w.refused(ctx, n, "was removed from its cluster"); err != nil {
			return err
		}
	}
	return w.ready(ctx)
}

// refused waits until a process has ended by itself and said why.
func (w *world) refused(ctx context.Context, n *Node, text string) error {
	wait, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	err := process.Until(wait, func() error {
		if n.Running() {
			return fmt.Errorf("%s goes on", n.ID)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if said := w.c.tail(n); !strings.Contains(said, text) {
		return fmt.Errorf("%s ended without a word of %q: %s", n.ID, text, said)
	}
	w.say("%s in %s was refused", n.ID, n.Slot)
	return nil
}

// move gives nodes other addresses for other nodes.
func move(ctx context.Context, w *world, s Step) error {
	hit := w.c.Nodes
	if s.Variant == hitOne {
		hit = []*Node{w.victim(ctx, s)}
	}
	w.say("%d nodes move", len(hit))
	var errs []error
	for _, n := range hit {
		errs = append(errs, w.c.Kill(n))
	}
	for _, n := range hit {
		errs = append(errs, w.c.newPorts(ctx, n))
	}
	for _, n := range hit {
		errs = append(errs, w.c.Start(n))
	}
	return errors.Join(append(errs, w.ready(ctx), hold(ctx, s.Hold))...)
}

// returned takes a node out that does not run, or is held, and lets it come back or go on.
func returned(ctx context.Context, w *world, s Step) error {
	n := w.victim(ctx, s)
	w.say("%s is %s and removed", n.ID, s.Variant)
	out := func() error { return errors.Join(w.removed(ctx, n.ID), w.voting(ctx, len(w.c.Nodes)-1)) }
	var err error
	if s.Variant == returnPaused {
		err = w.during(s.Name, func() error { return errors.Join(w.c.Pause(n), out(), w.c.Resume(n)) })
	} else {
		err = errors.Join(w.c.Kill(n), out(), w.c.Start(n))
	}
	if err != nil {
		return err
	}
	if err := w.refused(ctx, n, "was removed from its cluster"); err != nil {
		return err
	}
	w.say("%s comes back without its files", n.ID)
	return errors.Join(w.c.wipe(n), w.c.Start(n), w.voting(ctx, len(w.c.Nodes)), w.ready(ctx))
}

// heard waits until gossip hears a node at all the others: for half a minute after it moved it hears neither the
// old address nor the new one, and cannot tell two nodes of one id apart.
func (w *world) heard(ctx context.Context, n *Node) error {
	return w.gossip(ctx, n, "is alive", func(status string) bool { return status == discovery.Alive.String() })
}

// unheard waits until gossip hears a node nowhere else.
func (w *world) unheard(ctx context.Context, n *Node) error {
	return w.gossip(ctx, n, "is not alive", func(status string) bool { return status != discovery.Alive.String() })
}

// gossip waits until all other nodes say what is wanted of a node.
func (w *world) gossip(ctx context.Context, n *Node, what string, wanted func(status string) bool) error {
	wait, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	return process.Until(wait, func() error {
		for _, o := range w.c.Nodes {
			if o == n {
				continue
			}
			b, err := o.request(wait, http.MethodGet, "/members")
			if err != nil {
				return err
			}
			var members []node.MemberStatus
			if err := json.Unmarshal(b, &members); err != nil {
				return err
			}
			for i := range members {
				if members[i].ID == n.ID && !wanted(members[i].Gossip) {
					return fmt.Errorf("%s says that %s is %s, and not that it %s", o.ID, n.ID, members[i].Gossip, what)
				}
			}
		}
		return nil
	})
}

// twins starts a second node of an id.
func twins(ctx context.Context, w *world, s Step) error {
	n := w.victim(ctx, s)
	twin, err := w.c.extra(ctx, "twin", n.ID)
	if err != nil {
		return err
	}
	if err := w.c.wipe(twin); err != nil {
		return err
	}
	if s.Variant != twinEmpty {
		w.say("a copy of %s", n.ID)
		err := errors.Join(w.c.Kill(n), os.CopyFS(twin.data(), os.DirFS(n.data())), w.c.Start(n), w.ready(ctx))
		if err != nil {
			return err
		}
	}
	if err := w.heard(ctx, n); err != nil {
		return err
	}
	if s.Variant == twinPaused {
		err = replaced(ctx, w, n, twin)
	} else {
		w.say("a second %s", n.ID)
		err = errors.Join(w.c.Start(twin), w.refused(ctx, twin, inUse))
		if !n.Running() {
			err = errors.Join(err, fmt.Errorf("%s ended, too", n.ID))
		}
	}
	return errors.Join(err, w.c.Kill(twin), hold(ctx, s.Hold), w.ready(ctx))
}

// inUse is what a node says that ends for its twin.
const inUse = "is in use by another live node"

// replaced lets a second node take the place of one that is paused: the first one must end when it goes on, and
// the second must not. The first one then comes back, with files that are older than what was acknowledged in
// its name meanwhile.
func replaced(ctx context.Context, w *world, n, twin *Node) error {
	err := w.during("twins", func() error {
		w.say("%s paused", n.ID)
		// The place is taken when gossip has the new address, too: else the others may know the first one again.
		return errors.Join(w.c.Pause(n), w.unheard(ctx, n), w.c.Start(twin), w.takes(ctx, twin), w.heard(ctx, n))
	})
	if err != nil {
		return errors.Join(err, w.c.Resume(n))
	}
	w.say("the first %s goes on", n.ID)
	err = errors.Join(w.c.Resume(n), w.refused(ctx, n, inUse))
	if !twin.Running() {
		err = errors.Join(err, fmt.Errorf("the second %s ended, too", n.ID))
	}
	w.say("the first %s comes back", n.ID)
	return errors.Join(err, w.c.Kill(twin), w.c.Start(n))
}

// takes waits until a node is ready in the place of one that is silent. What it holds may be less than was
// acknowledged in its name; then it is rebuilt, once gossip believes its address.
func (w *world) takes(ctx context.Context, n *Node) error {
	wait, cancel := context.WithTimeout(ctx, 2*recoverTimeout)
	defer cancel()
	return process.Until(wait, func() error { return w.c.Ready(wait, n) })
}
