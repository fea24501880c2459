package jepsen

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	streamFull = "FULL"
	// roomLeft is what a disk has left that is short of space: less than --disk-min-free, which is 256 MiB.
	roomLeft = 192 << 20
	// noRoom is the error code of what is refused for want of space.
	noRoom = 10023
	// refusesWithin is how long a leader may go on to accept: it looks every second.
	refusesWithin = 15 * time.Second
	// fullAcks are how many acks of a work queue must be confirmed in each phase, within ackedWithin each.
	fullAcks    = 3
	ackedWithin = 20 * time.Second
	// stillWithin is the longest time without an acked publish while a follower's disk is full.
	stillWithin = 10 * time.Second
)

// fullProbe is a work queue of its own: messages that were delivered before a disk was full, to be acked then, and
// publishes that show who is refused.
type fullProbe struct {
	w       *world
	nc      *nats.Conn
	js      jetstream.JetStream
	subject string
	held    []jetstream.Msg
}

func newFullProbe(ctx context.Context, w *world) (*fullProbe, error) {
	p := &fullProbe{w: w, subject: fmt.Sprintf("full.%d", w.h.now().Milliseconds())}
	var err error
	if p.nc, err = connectAny(w.c, "full"); err != nil {
		return nil, err
	}
	if p.js, err = jetstream.New(p.nc, jetstream.WithDefaultTimeout(callTimeout)); err == nil {
		bound, cancel := context.WithTimeout(ctx, probeTime)
		err = p.prepare(bound)
		cancel()
	}
	if err != nil {
		p.nc.Close()
		return nil, fmt.Errorf("probe of a full disk: %w", err)
	}
	return p, nil
}

// prepare has messages delivered.
func (p *fullProbe) prepare(ctx context.Context) error {
	var cons jetstream.Consumer
	err := process.Until(ctx, func() (err error) {
		_, err = p.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: streamFull, Subjects: []string{"full.*"}, Retention: jetstream.WorkQueuePolicy, Replicas: len(p.w.c.Nodes),
		})
		if err != nil {
			return err
		}
		cons, err = p.js.CreateOrUpdateConsumer(ctx, streamFull, jetstream.ConsumerConfig{
			Durable: strings.ReplaceAll(p.subject, ".", "-"), FilterSubject: p.subject,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: probeWindow,
		})
		return err
	})
	for i := 0; i < 2*fullAcks && err == nil; i++ {
		err = process.Until(ctx, func() error { return p.publish(ctx) })
	}
	if err != nil {
		return err
	}
	return process.Until(ctx, func() error {
		b, err := cons.Fetch(2*fullAcks-len(p.held), jetstream.FetchMaxWait(fetchWait))
		if err != nil {
			return err
		}
		for m := range b.Messages() {
			p.held = append(p.held, m)
		}
		if len(p.held) < 2*fullAcks {
			return fmt.Errorf("%d of %d messages were delivered", len(p.held), 2*fullAcks)
		}
		return nil
	})
}

func (p *fullProbe) publish(ctx context.Context) error {
	_, err := p.js.Publish(ctx, p.subject, []byte("x"), jetstream.WithRetryAttempts(0))
	return err
}

// refused waits until a publish is refused for want of space.
func (p *fullProbe) refused(ctx context.Context) {
	begin := time.Now()
	var last error
	ok := await(ctx, refusesWithin, func() bool {
		last = p.publish(ctx)
		var api *jetstream.APIError
		return errors.As(last, &api) && api.ErrorCode == noRoom
	})
	switch {
	case ctx.Err() != nil:
	case ok:
		p.w.say("a publish is refused after %v: %v", time.Since(begin).Round(time.Millisecond), last)
	default:
		p.w.broken("no publish was refused with err_code %d within %v of a disk that is short of space, the last one: %v",
			noRoom, refusesWithin, last)
	}
}

// acks has some of the messages acked.
func (p *fullProbe) acks(ctx context.Context, when string) {
	for range fullAcks {
		m := p.held[0]
		p.held = p.held[1:]
		wait, cancel := context.WithTimeout(ctx, ackedWithin)
		err := process.Until(wait, func() error {
			call, cancel := context.WithTimeout(wait, callTimeout)
			defer cancel()
			return m.DoubleAck(call)
		})
		cancel()
		if err != nil && ctx.Err() == nil {
			p.w.broken("an ack was not confirmed within %v %s: %v", ackedWithin, when, err)
			return
		}
	}
}

// refusals are the publishes of the load that were refused for want of space, since a moment.
func (h *History) refusals(since Moment) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, code := 0, fmt.Sprintf("err_code=%d ", noRoom)
	for i := range h.Publishes {
		if h.Publishes[i].Return >= since && strings.Contains(h.Publishes[i].Error, code) {
			n++
		}
	}
	return n
}

// diskFull is S9: disks are short of space first, so that what would use more of it is refused, then they are full.
func diskFull(ctx context.Context, w *world, s Step) error {
	hit := w.c.Nodes
	switch leader := w.leader(ctx, s); s.Variant {
	case hitLeader:
		hit = []*Node{leader}
	case hitFollower:
		hit = []*Node{w.follower(s, leader)}
	}
	if !w.c.Kind.Ours() {
		w.say("disks of %d nodes full for %v", len(hit), s.Hold)
		return errors.Join(each(hit, func(n *Node) error { return n.disk.fill(0) }), hold(ctx, s.Hold),
			each(hit, func(n *Node) error { return n.disk.free() }), hold(ctx, time.Second), w.ready(ctx))
	}
	p, err := newFullProbe(ctx, w)
	if err != nil {
		return err
	}
	defer p.nc.Close()
	return w.fillUp(ctx, s, hit, p)
}

// follower is the first of a step that does not lead.
func (w *world) follower(s Step, leader *Node) *Node {
	if n := w.node(s, 0); n != leader {
		return n
	}
	return w.node(s, 1)
}

func each(ns []*Node, f func(n *Node) error) error {
	var errs []error
	for _, n := range ns {
		errs = append(errs, f(n))
	}
	return errors.Join(errs...)
}

// fillUp fills disks in two steps, frees them, and looks at all of it.
func (w *world) fillUp(ctx context.Context, s Step, hit []*Node, p *fullProbe) error {
	begin, running := w.h.now(), map[*Node]*process.Child{}
	for _, n := range w.c.Nodes {
		running[n] = n.child
	}
	var err error
	for _, left := range []int64{roomLeft, 0} {
		when := fmt.Sprintf("while %d disks have %d MiB left", len(hit), left>>20)
		w.say("%s, for %v", when, s.Hold)
		err = errors.Join(err, each(hit, func(n *Node) error { return n.disk.fill(left) }))
		if left > 0 && s.Variant != hitFollower {
			p.refused(ctx)
		}
		p.acks(ctx, when)
		err = errors.Join(err, hold(ctx, s.Hold))
	}
	w.say("%d publishes of the load were refused for want of space", w.h.refusals(begin))
	if s.Variant == hitFollower {
		w.unmoved(begin)
	}
	for _, n := range w.c.Nodes {
		if n.child != running[n] || !n.Running() {
			w.broken("%s stopped while disks were full", n.ID)
		}
	}
	w.say("the disks have room again")
	err = errors.Join(err, each(hit, func(n *Node) error { return n.disk.free() }), w.serve(ctx))
	for _, n := range w.c.Nodes {
		if n.child != running[n] || !n.Running() {
			w.broken("%s stopped when disks had been full", n.ID)
		}
	}
	return errors.Join(err, w.ready(ctx))
}

// unmoved holds the others to it that a follower's full disk is no matter to publishes.
func (w *world) unmoved(begin Moment) {
	if gap := w.h.gap(begin, w.h.now()); gap > stillWithin {
		w.broken("no publish was acked for %v while a follower's disk was full", gap.Round(time.Millisecond))
	}
	if n := w.h.refusals(begin); n > 0 {
		w.broken("%d publishes were refused while a follower's disk was full", n)
	}
}
