package jepsen

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	// behindMetric tells by how much a group's clock is behind the wall clocks.
	behindMetric = "holdfast_clock_behind_seconds"
	// waitMetric tells for how much longer nothing is deleted by age.
	waitMetric = "holdfast_clock_age_wait_seconds"
	// acceptedAge is the max_age of a message that is too old when the clock has gone forward by aheadBy.
	acceptedAge = aheadBy / 2
)

// accepted moves all wall clocks forward: every node must say that the cluster's clock is behind, and nothing
// may change, until an operator tells any node that they are right. Then it must go forward at once, for all, and
// messages be deleted by age; a leader that is killed then must not change it, nor must wall clocks that go back.
func accepted(ctx context.Context, w *world, s Step) error {
	c := &watchedClock{w: w}
	if err := c.open(ctx, acceptedAge); err != nil {
		return fmt.Errorf("watching the clock: %w", err)
	}
	defer c.nc.Close()
	was, old, err := c.offset(ctx)
	if err != nil {
		return err
	}
	goal := max(was, 0) + aheadBy
	w.say("all wall clocks are ahead by %v; the cluster's is off by %v", goal, was.Round(time.Millisecond))
	if err := w.setWalls(ctx, goal, w.c.Nodes...); err != nil {
		return err
	}
	err = errors.Join(w.told(ctx, "before the wall clocks are accepted", goal-was),
		c.stays(ctx, was, "the wall clocks moved"))
	n := w.node(s, 0)
	if n == w.leader(ctx, s) {
		n = w.node(s, 1)
	}
	w.say("an operator tells %s that the wall clocks are right", n.ID)
	bound, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	err = errors.Join(err, process.Until(bound, func() error {
		_, err := n.request(bound, http.MethodPost, "/accept-clock")
		return err
	}), c.stays(ctx, goal, "the wall clocks were accepted"))
	gone := func() bool { return c.gone(ctx, old) }
	if err == nil && !await(ctx, deletesWithin, gone) && ctx.Err() == nil {
		w.broken("a message past its max_age is still there %v after the wall clocks were accepted", deletesWithin)
	}
	n = w.leader(ctx, s)
	w.say("killing the leader %s", n.ID)
	err = errors.Join(err, w.told(ctx, "after the wall clocks were accepted", 0),
		w.c.Kill(n), hold(ctx, downTime), w.c.Start(n), w.ready(ctx), c.stays(ctx, goal, "the leader was killed"))
	w.say("all wall clocks are right again")
	return errors.Join(err, w.setWalls(ctx, 0, w.c.Nodes...), c.stays(ctx, goal, "the wall clocks went back"), w.ready(ctx))
}

// told waits until every node's metrics say by how much each group's clock is behind, and that no group waits
// before it deletes by age.
func (w *world) told(ctx context.Context, when string, behind time.Duration) error {
	bound, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	err := process.Until(bound, func() error {
		for _, n := range w.c.Nodes {
			b, err := n.request(bound, http.MethodGet, "/metrics")
			if err != nil {
				return err
			}
			if err := tells(string(b), behind); err != nil {
				return fmt.Errorf("%s: %w", n.ID, err)
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		w.broken("%s: %v", when, err)
	}
	return ctx.Err()
}

// tells compares what one node's metrics say of the clocks of its groups with how they stand.
func tells(metrics string, behind time.Duration) error {
	behinds, err := gauges(metrics, behindMetric)
	if err != nil {
		return err
	}
	waits, err := gauges(metrics, waitMetric)
	if err != nil {
		return err
	}
	for i, s := range behinds {
		if (s - behind).Abs() > clockSlack {
			return fmt.Errorf("clocks are behind by %v, want %v", s, behind)
		}
		if waits[i] != 0 {
			return fmt.Errorf("nothing is deleted by age for %v", waits[i])
		}
	}
	return nil
}

// gauges are the values of a metric in seconds, in the order of the groups; of two groups at least.
func gauges(metrics, name string) (out []time.Duration, err error) {
	for line := range strings.Lines(metrics) {
		if !strings.HasPrefix(line, name+"{") {
			continue
		}
		_, text, _ := strings.Cut(strings.TrimSpace(line), "} ")
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out = append(out, time.Duration(v*float64(time.Second)))
	}
	if len(out) < 2 {
		return nil, fmt.Errorf("%d groups tell %s", len(out), name)
	}
	return out, nil
}
