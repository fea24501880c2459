package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// drain lets the publishers finish their last message and the workers take what is left.
func (d *demo) drain(ctx context.Context, c *crew) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	close(c.quit)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.publishers.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		c.cancel()
		<-ended
		return fmt.Errorf("publishers did not finish within %v", drainTime)
	}
	nc, err := d.connect("demo-drain")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	tick := time.NewTicker(localPoll)
	defer tick.Stop()
	for {
		left, err := pendingOf(ctx, js)
		if err == nil && left == 0 {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the workers did not finish within %v: %d messages are left (%w)", drainTime,
				left, err)
		}
	}
	c.cancel()
	c.workers.Wait()
	return nil
}

// pendingOf counts what the workers have not got or not acked.
func pendingOf(ctx context.Context, js jetstream.JetStream) (uint64, error) {
	var left uint64
	for _, stream := range []string{queueName, logName} {
		cons, err := js.Consumer(ctx, stream, workerName)
		if err != nil {
			return left, err
		}
		info := cons.CachedInfo()
		left += info.NumPending + uint64(max(info.NumAckPending, 0))
	}
	return left, nil
}

// count is one line of the result.
type count struct {
	name                            string
	acked, read, lost, twice, doubt int64
}

// judge reads the streams with a client that took no part, and compares what is
// there with what was acked.
func (d *demo) judge(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	began := time.Now()
	nc, err := d.connect("demo-reader")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	log := newTally()
	if err := readAll(ctx, js, logName, log); err != nil {
		return fmt.Errorf("reading %s: %w", logName, err)
	}
	left := newTally()
	if err := readAll(ctx, js, queueName, left); err != nil {
		return fmt.Errorf("reading %s: %w", queueName, err)
	}
	d.env.say("\nAn independent reader read %d messages of %s and %d that are left of %s, in %.1f s.\n",
		len(log.mu.seqs), logName, len(left.mu.seqs), queueName, time.Since(began).Seconds())
	for _, t := range []*tally{log, left, d.queue, d.logged} {
		if t.mu.alien != nil {
			return t.mu.alien
		}
	}
	if len(left.mu.seqs) > 0 {
		return fmt.Errorf("%d messages are left in %s although every one was acked", len(left.mu.seqs),
			queueName)
	}
	return d.report([]count{
		d.count("work queue, with Nats-Msg-Id", d.queue,
			func(p *publisher) bool { return p.onQueue() && p.withID }),
		d.count("work queue, without", d.queue, func(p *publisher) bool { return p.onQueue() && !p.withID }),
		d.count("limits, with Nats-Msg-Id", log, func(p *publisher) bool { return !p.onQueue() && p.withID }),
		d.count("limits, without", log, func(p *publisher) bool { return !p.onQueue() && !p.withID }),
	})
}

// count compares what some publishers had acked with what was read.
func (d *demo) count(name string, read *tally, which func(*publisher) bool) count {
	c := count{name: name}
	for _, p := range d.pubs {
		if !which(p) {
			continue
		}
		acked := p.acked.Load()
		c.acked += acked
		copies := read.mu.copies[p.number]
		for n := range max(acked, int64(len(copies))) {
			var seen int64
			if n < int64(len(copies)) {
				seen = int64(copies[n])
			}
			switch {
			case n >= acked && seen > 0:
				c.doubt++
			case n < acked && seen == 0:
				c.lost++
			case n < acked:
				c.read++
			}
			c.twice += max(seen-1, 0)
		}
	}
	return c
}

// report prints the result and says whether it is good.
func (d *demo) report(counts []count) error {
	rows := [][]string{{"", "ACKED", "READ BACK", "LOST", "STORED TWICE"}}
	var total count
	withID := int64(0)
	for i, c := range counts {
		rows = append(rows, c.row())
		total.acked, total.read, total.lost = total.acked+c.acked, total.read+c.read, total.lost+c.lost
		total.twice, total.doubt = total.twice+c.twice, total.doubt+c.doubt
		if i%2 == 0 {
			withID += c.twice
		}
	}
	total.name = "all"
	if err := d.env.table(append(rows, total.row())); err != nil {
		return err
	}
	retries := int64(0)
	for _, p := range d.pubs {
		retries += p.retries.Load()
	}
	d.env.say("\nPublishes sent again because no ack came: %d; stored without an ack: %d.", retries,
		total.doubt)
	d.env.say("Without a Nats-Msg-Id, such a message may be stored twice; with one it must not.")
	d.env.say(
		"Deliveries: queue %d distinct, %d again, %d of those after a confirmed ack (%d acks confirmed);",
		len(d.queue.mu.seqs), d.queue.mu.again, d.queue.mu.afterAck, d.queue.mu.confirmed)
	d.env.say("            log   %d distinct, %d again.", len(d.logged.mu.seqs), d.logged.mu.again)
	for _, k := range d.kills {
		select {
		case at := <-k.acked:
			k.after = at.Sub(k.at)
			d.env.say("Leader %s killed: the next ack came %.1f s later.", k.victim, k.after.Seconds())
		default:
			d.env.say("Leader %s killed: no ack came after it.", k.victim)
		}
	}
	switch {
	case total.lost > 0:
		return fmt.Errorf("%d acked messages are LOST", total.lost)
	case withID > 0:
		return fmt.Errorf("%d messages with a Nats-Msg-Id were stored twice", withID)
	case total.acked == 0:
		return errors.New("nothing was acked: nothing is proven")
	}
	d.env.say("\nNothing that was acked is lost: %d acked, %d read back, through %d kills of the leader.",
		total.acked, total.read, len(d.kills))
	return nil
}

func (c *count) row() []string {
	return []string{
		c.name, number(uint64(c.acked)), number(uint64(c.read)), number(uint64(c.lost)),
		number(uint64(c.twice)),
	}
}

// readAll reads a stream from its first to its last message.
func readAll(ctx context.Context, js jetstream.JetStream, stream string, to *tally) error {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return err
	}
	state := s.CachedInfo().State
	if state.Msgs == 0 {
		return nil
	}
	cons, err := s.OrderedConsumer(ctx,
		jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return err
	}
	it, err := cons.Messages()
	if err != nil {
		return err
	}
	defer it.Stop()
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	for {
		msg, err := it.Next()
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		meta, err := msg.Metadata()
		if err != nil {
			return err
		}
		to.saw(meta.Sequence.Stream, msg.Data())
		if meta.Sequence.Stream >= state.LastSeq {
			return nil
		}
	}
}
