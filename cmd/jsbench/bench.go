package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// adminTimeout bounds connecting and each call that is not measured.
const adminTimeout = 20 * time.Second

// errLost says that the server lost messages that it had acknowledged.
var errLost = errors.New("messages were lost")

// errRefused says that publishes or acks failed.
var errRefused = errors.New("requests failed")

// A bench is one run against one stream.
type bench struct {
	c      *Config
	url    string // servers to connect to; narrowed to the leader once it is known
	t      *tally
	fill   *filler
	conns  []*nats.Conn // of the publishers
	admin  *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	before uint64 // messages in the stream when the run began
}

// runAll makes all runs and prints each; it stops at the first that cannot be believed, after printing it.
func runAll(ctx context.Context, c *Config, w io.Writer) error {
	for range c.Runs {
		r, err := runOnce(ctx, c)
		if r.Msgs > 0 || err == nil {
			err = errors.Join(err, r.print(c, w))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// runOnce sets up, measures, verifies and cleans up one run.
func runOnce(ctx context.Context, c *Config) (r Result, err error) {
	//nolint:gosec // The number of a run need not be secret.
	b := &bench{c: c, url: c.URL, fill: newFiller(c), t: newTally(c, rand.Uint32())}
	defer func() {
		err = errors.Join(err, b.close(context.WithoutCancel(ctx)))
	}()
	if err := b.open(ctx); err != nil {
		return Result{}, err
	}
	if c.Mode == modeConsume || c.Mode == modeFetch {
		if err := b.publishAll(ctx, prefill); err != nil {
			return Result{}, fmt.Errorf("prefill: %w", err)
		}
		if _, err := b.verifyStored(ctx); err != nil {
			return Result{}, fmt.Errorf("prefill: %w", err)
		}
	}
	return b.measure(ctx)
}

// measure runs the mode between two looks at the CPU clocks and verifies it.
func (b *bench) measure(ctx context.Context) (Result, error) {
	server, err := processCPU(b.c.PIDs)
	if err != nil {
		return Result{}, err
	}
	own, err := ownCPU()
	if err != nil {
		return Result{}, err
	}
	begin := b.t.now()
	b.t.moved()
	end, runErr := b.load(ctx)
	drained := b.t.now()

	r := newResult(b.c, b.t, max(end-begin, time.Nanosecond))
	r.Drain = (drained - end).Seconds()
	serverNow, err := processCPU(b.c.PIDs)
	if err != nil {
		return r, errors.Join(runErr, err)
	}
	ownNow, err := ownCPU()
	if err != nil {
		return r, errors.Join(runErr, err)
	}
	r.ServerCPU = perMillion(serverNow-server, r.Msgs)
	r.ClientCPU = perMillion(ownNow-own, r.Msgs)
	r.Lost, err = b.judge(ctx, runErr)
	return r, err
}

// load is what is measured. It returns when the last message counted, as time since the run began.
func (b *bench) load(ctx context.Context) (time.Duration, error) {
	if !b.c.consumes() {
		err := b.publishAll(ctx, measured)
		return time.Duration(b.t.progress.Load()), err
	}
	cons, err := b.createConsumer(ctx)
	if err != nil {
		return b.t.now(), err
	}
	published := make(chan struct{})
	var end time.Duration
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(published)
		if b.c.Mode != modeWorkq {
			return nil
		}
		return b.publishAll(both, measured)
	})
	g.Go(func() error {
		var err error
		end, err = b.consumeAll(both, published)
		return err
	})
	if err := g.Wait(); err != nil {
		return end, err
	}
	return end, b.awaitDrained(ctx, cons)
}

// judge decides whether the run may be believed. It returns how many acknowledged messages are missing.
func (b *bench) judge(ctx context.Context, runErr error) (lost int, err error) {
	problems := []error{runErr}
	if b.c.consumes() {
		if lost = b.t.acked.missingIn(b.t.received); lost > 0 {
			problems = append(problems, fmt.Errorf("%w: %d of %d acknowledged messages were not delivered",
				errLost, lost, b.t.acked.len()))
		}
	}
	switch {
	case runErr != nil:
		return lost, errors.Join(problems...)
	case b.c.Mode == modeWorkq:
		problems = append(problems, b.verifyEmpty(ctx))
	case !b.c.consumes():
		lost, err = b.verifyStored(ctx)
		problems = append(problems, err)
	}
	if n := b.t.failures.Load(); n > 0 && !b.c.TolerateErrors {
		problems = append(problems, fmt.Errorf("%w: %d, the first: %w", errRefused, n, b.t.reason()))
	}
	return lost, errors.Join(problems...)
}

// verifyStored waits until the stream holds everything that was acknowledged; acknowledgements weaker than
// quorum may come before that. With failures it may hold more, since a request may fail after it was
// stored. It returns how many are missing.
func (b *bench) verifyStored(ctx context.Context) (missing int, err error) {
	want := b.before + uint64(b.t.acked.len())
	mayBeMore := b.t.failures.Load() > 0
	err = b.await(ctx, func() (string, error) {
		info, err := b.stream.Info(ctx)
		if err != nil {
			return "", fmt.Errorf("stream info: %w", err)
		}
		got := info.State.Msgs
		missing = int(want - min(got, want))
		if got < want || (got > want && !mayBeMore) {
			return fmt.Sprintf("the stream holds %d messages (sequences %d to %d), want %d",
				got, info.State.FirstSeq, info.State.LastSeq, want), nil
		}
		return "", nil
	})
	if err != nil {
		return missing, fmt.Errorf("%w: %w", errLost, err)
	}
	return 0, nil
}

// verifyEmpty waits until a work queue holds nothing.
func (b *bench) verifyEmpty(ctx context.Context) error {
	return b.await(ctx, func() (string, error) {
		info, err := b.stream.Info(ctx)
		if err != nil {
			return "", fmt.Errorf("stream info: %w", err)
		}
		if n := info.State.Msgs; n > 0 {
			return fmt.Sprintf("the work queue still holds %d messages", n), nil
		}
		return "", nil
	})
}

// open connects, makes the stream, and connects again to its leader.
func (b *bench) open(ctx context.Context) error {
	var err error
	if b.admin, b.js, err = b.connect(ctx); err != nil {
		return err
	}
	if err := b.openStream(ctx); err != nil {
		return err
	}
	if b.c.ToLeader {
		if err := b.narrowToLeader(ctx); err != nil {
			return err
		}
	}
	for range b.c.Conns {
		nc, _, err := b.connect(ctx)
		if err != nil {
			return err
		}
		b.conns = append(b.conns, nc)
	}
	return nil
}

// openStream takes the stream as it is (--keep) or makes it anew.
func (b *bench) openStream(ctx context.Context) error {
	if b.c.Keep {
		s, err := b.js.Stream(ctx, b.c.Stream)
		if err == nil {
			b.stream, b.before = s, s.CachedInfo().State.Msgs
			return nil
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("stream %s: %w", b.c.Stream, err)
		}
	} else if err := b.deleteStream(ctx); err != nil {
		return err
	}
	cfg := jetstream.StreamConfig{
		Name: b.c.Stream, Subjects: []string{b.c.Subject, b.c.Subject + ".>"},
		Replicas: b.c.Replicas, Storage: jetstream.FileStorage,
	}
	if b.c.Storage == "memory" {
		cfg.Storage = jetstream.MemoryStorage
	}
	if b.c.Mode == modeWorkq {
		cfg.Retention = jetstream.WorkQueuePolicy
	}
	s, err := b.js.CreateStream(ctx, cfg)
	if err != nil {
		return fmt.Errorf("create stream %s: %w", b.c.Stream, err)
	}
	b.stream = s
	if s.CachedInfo().State.Msgs == 0 {
		return nil
	}
	// nats-server v2.15.3: a stream that is created right after one of its name was deleted may find its
	// data.
	if err := s.Purge(ctx); err != nil {
		return fmt.Errorf("purge stream %s: %w", b.c.Stream, err)
	}
	return nil
}

func (b *bench) deleteStream(ctx context.Context) error {
	err := b.js.DeleteStream(ctx, b.c.Stream)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete stream %s: %w", b.c.Stream, err)
	}
	return nil
}

// narrowToLeader keeps the server that leads the stream, if it is one of --url: its best case, and the same
// for every system. It waits for a leader, which a new stream may not have yet.
func (b *bench) narrowToLeader(ctx context.Context) error {
	leader := ""
	err := b.await(ctx, func() (string, error) {
		info, err := b.stream.Info(ctx)
		switch {
		case err != nil:
			return "", fmt.Errorf("stream info: %w", err)
		case info.Cluster == nil:
			return "", nil // a server without cluster
		case info.Cluster.Leader == "":
			return "the stream has no leader", nil
		}
		leader = info.Cluster.Leader
		return "", nil
	})
	if err != nil || leader == "" {
		return err
	}
	for url := range strings.SplitSeq(b.c.URL, ",") {
		b.url = strings.TrimSpace(url)
		nc, _, err := b.connect(ctx)
		if err != nil {
			continue // not our server then
		}
		name := nc.ConnectedServerName()
		nc.Close()
		if name == leader {
			return nil
		}
	}
	b.url = b.c.URL
	return nil
}

// connect opens a connection that stays with its servers: the servers a cluster tells of are not used.
func (b *bench) connect(ctx context.Context) (*nats.Conn, jetstream.JetStream, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	opts := []nats.Option{
		nats.Name("jsbench"), nats.Timeout(adminTimeout),
		nats.MaxReconnects(-1), nats.IgnoreDiscoveredServers(),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { b.t.fail(err) }),
	}
	if b.c.Creds != "" {
		opts = append(opts, nats.UserCredentials(b.c.Creds))
	}
	if b.c.CA != "" {
		opts = append(opts, nats.RootCAs(b.c.CA))
	}
	nc, err := nats.Connect(b.url, opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", b.url, err)
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(adminTimeout))
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return nc, js, nil
}

// close deletes what the run made and closes its connections.
func (b *bench) close(ctx context.Context) error {
	var err error
	switch {
	case b.stream == nil:
	case !b.c.Keep:
		err = b.deleteStream(ctx)
	case b.c.consumes():
		if err = b.stream.DeleteConsumer(ctx, durable); errors.Is(err, jetstream.ErrConsumerNotFound) {
			err = nil
		}
	}
	for _, nc := range b.conns {
		nc.Close()
	}
	if b.admin != nil {
		b.admin.Close()
	}
	return err
}
