package jepsen

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	// acceptAfter is for how long the wall clocks must be ahead until the product follows them, and
	// for how long then nothing is deleted by age (replication/clock, DefaultAcceptAfter).
	acceptAfter = 10 * time.Minute
	// aheadBy is by how much the wall clocks are ahead of the cluster's.
	aheadBy = 2 * time.Minute
	// correctsWithin is how much later than that the clock may be corrected: leaders may change, and
	// looks take their time.
	correctsWithin = 20 * time.Second
	// clockSlack is by how much two readings of one clock may differ here.
	clockSlack = 2 * time.Second
	// deletesWithin is how long after its wait a message may still be there.
	deletesWithin = 30 * time.Second
	streamAge     = "AGE"
)

// watchedClock is a stream whose messages tell the cluster's clock, and one of which is to go.
type watchedClock struct {
	w  *world
	nc *nats.Conn
	js jetstream.JetStream
}

// corrected moves all wall clocks forward and leaves them there: the cluster's clock must follow
// when they have been ahead for long enough, not earlier; nothing may be deleted by age for as long
// again; a leader that is killed then must not change the clock, nor must the wall clocks that go back.
func corrected(ctx context.Context, w *world, s Step) error {
	c := &watchedClock{w: w}
	if err := c.open(ctx, w.acceptAfter+aheadBy/2); err != nil {
		return fmt.Errorf("watching the clock: %w", err)
	}
	defer c.nc.Close()
	was, _, err := c.offset(ctx)
	if err != nil {
		return err
	}
	_, old, err := c.offset(ctx) // this message looks older than it is soon
	if err != nil {
		return err
	}
	goal := max(was, 0) + aheadBy
	w.say("all wall clocks are ahead by %v and stay; the cluster's is off by %v and must follow after %v", goal,
		was.Round(time.Millisecond), w.acceptAfter)
	begin := time.Now()
	if err := w.setWalls(ctx, goal, w.c.Nodes...); err != nil {
		return err
	}
	at, err := c.follows(ctx, begin, was, goal)
	if err != nil || at == 0 {
		return errors.Join(err, w.setWalls(ctx, 0, w.c.Nodes...))
	}
	n := w.leader(ctx, s)
	w.say("the clock was corrected after %v; killing the leader %s", at.Round(time.Millisecond), n.ID)
	err = errors.Join(w.c.Kill(n), hold(ctx, downTime), w.c.Start(n), w.ready(ctx),
		c.stays(ctx, goal, "the leader was killed"))
	if err == nil {
		err = c.ages(ctx, begin.Add(at), old)
	}
	w.say("all wall clocks are right again")
	return errors.Join(err, w.setWalls(ctx, 0, w.c.Nodes...), c.stays(ctx, goal, "the wall clocks went back"), w.ready(ctx))
}

// open makes the stream, whose messages are to go after maxAge.
func (c *watchedClock) open(ctx context.Context, maxAge time.Duration) error {
	var err error
	if c.nc, err = connectAny(c.w.c, "clock"); err != nil {
		return err
	}
	if c.js, err = jetstream.New(c.nc, jetstream.WithDefaultTimeout(callTimeout)); err != nil {
		return err
	}
	bound, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	return process.Until(bound, func() error {
		_, err := c.js.CreateOrUpdateStream(bound, jetstream.StreamConfig{
			Name: streamAge, Subjects: []string{"age"}, Replicas: len(c.w.c.Nodes), MaxAge: maxAge,
		})
		return err
	})
}

// offset is by how much the cluster's clock is ahead of the machine's, as a new message tells it.
func (c *watchedClock) offset(ctx context.Context) (by time.Duration, seq uint64, err error) {
	bound, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err = process.Until(bound, func() error {
		sent := time.Now()
		ack, err := c.js.Publish(bound, "age", nil)
		if err != nil {
			return err
		}
		if time.Since(sent) > clockSlack/2 {
			return errors.New("the publish took too long to tell the time")
		}
		m, err := c.message(bound, ack.Sequence)
		if err == nil {
			by, seq = m.Time.Sub(sent), ack.Sequence
		}
		return err
	})
	return by, seq, err
}

func (c *watchedClock) message(ctx context.Context, seq uint64) (*jetstream.RawStreamMsg, error) {
	st, err := c.js.Stream(ctx, streamAge)
	if err != nil {
		return nil, err
	}
	return st.GetMsg(ctx, seq)
}

func (c *watchedClock) gone(ctx context.Context, seq uint64) bool {
	_, err := c.message(ctx, seq)
	return errors.Is(err, jetstream.ErrMsgNotFound)
}

// follows waits until the clock was corrected, and returns when; 0 if it was not, or wrongly.
func (c *watchedClock) follows(ctx context.Context, begin time.Time, was, goal time.Duration) (time.Duration, error) {
	for {
		before := time.Since(begin)
		by, _, err := c.offset(ctx)
		at := time.Since(begin)
		switch {
		case err != nil:
			return 0, err
		case (by-goal).Abs() <= clockSlack && at < c.w.acceptAfter-clockSlack:
			c.w.broken("the clock was corrected after %v already, and not after %v", at, c.w.acceptAfter)
			return 0, nil
		case (by - goal).Abs() <= clockSlack:
			return at, nil
		case (by - was).Abs() > clockSlack:
			c.w.broken("the clock went by %v; it was off by %v, and the wall clocks are by %v", by, was, goal)
			return 0, nil
		case before > c.w.acceptAfter+correctsWithin:
			c.w.broken("the clock is not corrected after %v", before)
			return 0, nil
		}
		if err := hold(ctx, lookEvery); err != nil {
			return 0, err
		}
	}
}

// stays holds the clock to an offset.
func (c *watchedClock) stays(ctx context.Context, goal time.Duration, after string) error {
	by, _, err := c.offset(ctx)
	if err == nil && (by-goal).Abs() > clockSlack {
		c.w.broken("after %s the cluster's clock is off by %v, it was by %v", after, by, goal)
	}
	return err
}

// ages looks after a message that looks older than max_age since the correction: it must be there
// as long as ages are not trusted, and go then.
func (c *watchedClock) ages(ctx context.Context, corrected time.Time, old uint64) error {
	gone := func() bool { return c.gone(ctx, old) }
	keep := time.Until(corrected.Add(c.w.acceptAfter - correctsWithin/2))
	if await(ctx, max(keep, lookEvery), gone) {
		c.w.broken("a message was deleted by age %v after the clock was corrected, not after %v",
			time.Since(corrected).Round(time.Millisecond), c.w.acceptAfter)
		return ctx.Err()
	}
	if !await(ctx, time.Until(corrected.Add(c.w.acceptAfter+deletesWithin)), gone) && ctx.Err() == nil {
		c.w.broken("a message past its max_age is still there %v after ages are trusted again", deletesWithin)
		return nil
	}
	c.w.say("a message that looked too old went %v after the correction", time.Since(corrected).Round(time.Millisecond))
	return ctx.Err()
}
