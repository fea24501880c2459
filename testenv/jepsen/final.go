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
	// healTimeout is how long a cluster may take to serve after everything was repaired.
	healTimeout = 90 * time.Second
	// drainTimeout is how long the work queue may take to become empty, two waits for acks included.
	drainTimeout = 2*ackWait + 30*time.Second
	// leadTimeout is how long it may take to make a node the leader.
	leadTimeout = 30 * time.Second
	// readTimeout bounds the reading of all streams through one node.
	readTimeout = 5 * time.Minute
	// impatience replaces those for a cluster that did not come back: there is little to wait for.
	impatience = 20 * time.Second
	// placings is how often a reader is created anew until it is where it should be.
	placings = 60
	// readBatch and readWait are of one pull of a reader; readIdle empty ones end it.
	readBatch = 1000
	readWait  = 2 * time.Second
	readIdle  = 3
	// goneAfter is how long a stream or consumer must be unknown until it counts as gone.
	goneAfter = 10 * time.Second
)

// errGone says that a stream or consumer that was created is not there any more.
var errGone = errors.New("jepsen: it is gone")

// absence tells what is gone from what is not there yet.
type absence struct{ since time.Time }

// gone says whether the answer has been "not found" for goneAfter.
func (a *absence) gone(err error) bool {
	if !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		a.since = time.Time{}
		return false
	}
	if a.since.IsZero() {
		a.since = time.Now()
	}
	return time.Since(a.since) >= goneAfter
}

// drain waits until the work queue is empty; the workers work on meanwhile.
func drain(ctx context.Context, c *Cluster) error {
	nc, err := connect(c.Nodes[0], "drain")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		return err
	}
	var a absence
	lost := false
	err = process.Until(ctx, func() error {
		cons, err := js.Consumer(ctx, streamWork, durable)
		if lost = a.gone(err); lost {
			return nil
		}
		if err != nil {
			return err
		}
		info := cons.CachedInfo()
		if info.NumPending > 0 || info.NumAckPending > 0 {
			return fmt.Errorf("%d messages are not delivered, %d not acked", info.NumPending, info.NumAckPending)
		}
		return nil
	})
	if lost {
		return fmt.Errorf("consumer of %s: %w", streamWork, errGone)
	}
	return err
}

// readThrough makes a node the leader of each stream that keeps its messages, and
// reads the stream through it.
func readThrough(ctx context.Context, c *Cluster, n *Node) ([]Reads, error) {
	nc, err := connect(n, "reader")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		return nil, err
	}
	var out []Reads
	var failed []error
	for _, stream := range []string{streamLog, streamReg} {
		last, err := lead(ctx, c, js, stream, n)
		if errors.Is(err, errGone) {
			out = append(out, Reads{Node: n.Slot, Stream: stream, Leader: n.Slot})
			continue
		}
		if err != nil { // read it all the same, through whoever leads
			failed = append(failed, fmt.Errorf("making %s the leader of %s: %w", n.ID, stream, err))
		}
		if last == 0 && err != nil {
			continue
		}
		r, err := read(ctx, js, stream, n, last)
		if err != nil {
			failed = append(failed, fmt.Errorf("reading %s through %s: %w", stream, n.ID, err))
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(failed...)
}

// lead makes a node the leader, and returns the last sequence that it then tells.
func lead(ctx context.Context, c *Cluster, js jetstream.JetStream, stream string, n *Node) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, leadTimeout)
	defer cancel()
	var last uint64
	asked := time.Time{}
	var a absence
	lost := false
	err := process.Until(ctx, func() error {
		s, err := js.Stream(ctx, stream)
		if lost = a.gone(err); lost {
			return nil
		}
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		last = info.State.LastSeq
		if info.Cluster == nil || info.Cluster.Leader == n.ID {
			return nil
		}
		if time.Since(asked) > time.Second {
			asked = time.Now()
			err = c.flavor.moveLeader(ctx, c, n)
		}
		return errors.Join(fmt.Errorf("%s leads", info.Cluster.Leader), err)
	})
	if lost {
		return 0, errGone
	}
	return last, err
}

// read reads a stream through a consumer that has its place on the node.
func read(ctx context.Context, js jetstream.JetStream, stream string, n *Node, last uint64) (Reads, error) {
	r := Reads{Node: n.Slot, Stream: stream}
	var cons jetstream.Consumer
	for range placings {
		if cons != nil {
			forget(ctx, js, cons)
		}
		err := called(ctx, func(ctx context.Context) (err error) {
			cons, err = js.CreateConsumer(ctx, stream, jetstream.ConsumerConfig{
				AckPolicy: jetstream.AckNonePolicy, Replicas: 1, InactiveThreshold: time.Minute,
			})
			return err
		})
		if err != nil {
			return r, err
		}
		r.Leader = n.Slot
		ci := cons.CachedInfo().Cluster
		if ci == nil || ci.Leader == n.ID {
			break
		}
		r.Leader = ci.Leader
	}
	at := uint64(0)
	for idle := 0; at < last && idle < readIdle; {
		b, err := cons.Fetch(readBatch, jetstream.FetchMaxWait(readWait))
		if err != nil {
			return r, err
		}
		before := len(r.Entries)
		for m := range b.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return r, err
			}
			at = meta.Sequence.Stream
			r.Entries = append(r.Entries, Entry{Seq: at, ID: string(m.Data())})
		}
		if err := b.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return r, err
		}
		if idle++; len(r.Entries) > before {
			idle = 0
		}
		if ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	forget(ctx, js, cons)
	return r, nil
}

// forget removes a reader's consumer; one that stays goes by itself.
func forget(ctx context.Context, js jetstream.JetStream, cons jetstream.Consumer) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_ = js.DeleteConsumer(call, cons.CachedInfo().Stream, cons.CachedInfo().Name)
}

// called makes a call of the API until it is answered: NATS may lose a request, or its answer, when a leader goes.
func called(ctx context.Context, f func(context.Context) error) error {
	return process.Until(ctx, func() error {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return f(call)
	})
}
