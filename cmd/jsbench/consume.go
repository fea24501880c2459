package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// durable is the name of the consumer that a run makes and deletes.
const durable = "JSBENCH"

// pollEvery is how often the end of a run is looked for. The clock stops with the last message, not with
// the look.
const pollEvery = time.Millisecond

// infoEvery is how often the server is asked whether it has processed every ack.
const infoEvery = 20 * time.Millisecond

// createConsumer makes the consumer anew.
func (b *bench) createConsumer(ctx context.Context) (jetstream.Consumer, error) {
	err := b.stream.DeleteConsumer(ctx, durable)
	if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return nil, fmt.Errorf("delete consumer: %w", err)
	}
	cons, err := b.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy,
		MaxAckPending: b.c.MaxPending, AckWait: b.c.AckWait,
	})
	if err != nil {
		return nil, fmt.Errorf("create consumer: %w", err)
	}
	return cons, nil
}

// consumeAll receives until every message is there that was acknowledged by the time that published is
// closed, and returns when the last of them arrived, as time since the run began.
func (b *bench) consumeAll(ctx context.Context, published <-chan struct{}) (time.Duration, error) {
	stopping, stop := context.WithCancel(ctx)
	defer stop()
	g, working := errgroup.WithContext(stopping)
	for range b.c.Consumers {
		g.Go(func() error {
			if b.c.Mode == modeFetch {
				return b.fetchLoop(working)
			}
			return b.consumeLoop(working)
		})
	}
	g.Go(func() error {
		defer stop()
		return b.awaitReceived(working, published)
	})
	err := g.Wait()
	last := time.Duration(b.t.progress.Load())
	return last, err
}

// awaitReceived returns when nothing is missing, and with an error when nothing moves any more.
func (b *bench) awaitReceived(ctx context.Context, published <-chan struct{}) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		if b.t.idle() > b.c.Stall {
			return fmt.Errorf("%w: %d of %d acknowledged messages were not delivered for %v",
				errStalled, b.t.acked.missingIn(b.t.received), b.t.acked.len(), b.c.Stall)
		}
		select {
		case <-published:
		default:
			continue
		}
		if b.t.received.len() >= b.t.acked.len() && b.t.acked.missingIn(b.t.received) == 0 {
			return nil
		}
	}
}

// consumeLoop is one client that consumes by callback until ctx ends.
func (b *bench) consumeLoop(ctx context.Context) error {
	nc, js, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	cons, err := js.Consumer(ctx, b.c.Stream, durable)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	failed := make(chan error, 1)
	cc, err := cons.Consume(func(m jetstream.Msg) { b.receive(ctx, m) },
		jetstream.PullMaxMessages(b.c.Batch),
		jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) {
			if errors.Is(err, jetstream.ErrConsumerDeleted) {
				select {
				case failed <- err:
				default:
				}
			}
		}))
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	defer func() {
		cc.Stop()
		<-cc.Closed()
	}()
	select {
	case <-ctx.Done():
		return nc.Flush() // acks on their way
	case err := <-failed:
		return fmt.Errorf("consume: %w", err)
	}
}

// fetchLoop is one client that fetches batch after batch until ctx ends.
func (b *bench) fetchLoop(ctx context.Context) error {
	nc, js, err := b.connect(ctx)
	if err != nil {
		return err
	}
	defer nc.Close()
	cons, err := js.Consumer(ctx, b.c.Stream, durable)
	if err != nil {
		return fmt.Errorf("consumer: %w", err)
	}
	for ctx.Err() == nil {
		began := time.Now()
		batch, err := cons.Fetch(b.c.Batch, jetstream.FetchMaxWait(fetchWait))
		if err != nil {
			return fmt.Errorf("fetch: %w", err)
		}
		got := 0
		for m := range batch.Messages() {
			b.receive(ctx, m)
			got++
		}
		if err := batch.Error(); err != nil && ctx.Err() == nil {
			b.t.fail(fmt.Errorf("fetch: %w", err))
		}
		if got == b.c.Batch {
			b.t.observe(time.Since(began))
		}
	}
	return nc.Flush()
}

// fetchWait is how long a Fetch that finds less than its batch waits for more. It bounds how long a run
// takes to end, so it is short.
const fetchWait = 500 * time.Millisecond

// receive counts a delivery and acknowledges it. Messages of other runs are acknowledged only.
func (b *bench) receive(ctx context.Context, m jetstream.Msg) {
	t := b.t
	s, ok := readStamp(m.Data())
	ours := ok && s.run == t.run
	isNew := ours && t.received.add(s.number)
	if isNew {
		t.moved()
		if b.c.Mode == modeWorkq {
			t.observe(t.now() - time.Duration(s.at))
		}
	} else if ours {
		t.repeats.Add(1)
	}
	began := time.Now()
	var err error
	if b.c.DoubleAck {
		// The context of the run ends when the last message is there; its ack must still be confirmed.
		one, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.c.Timeout)
		err = m.DoubleAck(one)
		cancel()
	} else {
		err = m.Ack()
	}
	switch {
	case err != nil:
		t.fail(fmt.Errorf("ack: %w", err))
	case b.c.DoubleAck && b.c.Mode == modeConsume:
		t.observe(time.Since(began))
	}
}

// awaitDrained returns when the server has processed every ack.
func (b *bench) awaitDrained(ctx context.Context, cons jetstream.Consumer) error {
	return b.await(ctx, func() (string, error) {
		info, err := cons.Info(ctx)
		if err != nil {
			return "", fmt.Errorf("consumer info: %w", err)
		}
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return "", nil
		}
		return fmt.Sprintf("the consumer has %d messages pending and waits for %d acks",
			info.NumPending, info.NumAckPending), nil
	})
}

// await asks every infoEvery until look returns no complaint, or fails with the last one after --stall.
func (b *bench) await(ctx context.Context, look func() (string, error)) error {
	deadline := time.Now().Add(b.c.Stall)
	tick := time.NewTicker(infoEvery)
	defer tick.Stop()
	for {
		complaint, err := look()
		if err != nil || complaint == "" {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %s", b.c.Stall, complaint)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
