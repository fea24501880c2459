package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// errStalled says that nothing moved for --stall.
var errStalled = errors.New("stalled")

// A publisher sends the messages numbered first to last-1.
type publisher struct {
	b           *bench
	nc          *nats.Conn
	first, last int
	until       time.Time // stop then; zero: never
	why         purpose
}

// A purpose says what publishing is for.
type purpose uint8

const (
	measured purpose = iota // it is what is measured
	prefill                 // it fills a stream: no latencies, no --max-duration
)

// publishAll runs the publishers until every message is acknowledged or refused. An error means that the run
// cannot be judged; a refused message is only counted.
func (b *bench) publishAll(ctx context.Context, why purpose) error {
	var until time.Time
	if why == measured && b.c.MaxDuration > 0 {
		until = time.Now().Add(b.c.MaxDuration)
	}
	g, ctx := errgroup.WithContext(ctx)
	per := b.c.perPublisher()
	for i := range b.c.Publishers {
		p := &publisher{
			b: b, nc: b.conns[i%len(b.conns)], until: until, why: why,
			first: i * per, last: min((i+1)*per, b.c.Msgs),
		}
		if p.first < p.last {
			g.Go(func() error { return p.run(ctx) })
		}
	}
	return g.Wait()
}

func (p *publisher) run(ctx context.Context) error {
	switch {
	case p.b.c.Mode == modePubSync:
		return p.sync(ctx)
	case p.b.c.Light:
		return p.light(ctx)
	default:
		return p.async(ctx)
	}
}

// over says whether publishing number n should not begin. Looking at the clock each time would cost too much
// where nothing waits for an answer; where something does, 64 messages may take long.
func (p *publisher) over(n int) bool {
	look := n%64 == 0 || p.b.c.Mode == modePubSync
	return look && !p.until.IsZero() && time.Now().After(p.until)
}

// message builds message n, stamped with the present time.
func (p *publisher) message(n int) *nats.Msg {
	c := p.b.c
	s := stamp{run: p.b.t.run, number: uint32(n), at: int64(p.b.t.now())}
	m := &nats.Msg{Subject: c.Subject, Data: p.b.fill.payload(s)}
	if c.Subjects > 1 {
		m.Subject += "." + strconv.Itoa(n%c.Subjects)
	}
	if len(c.Header) > 0 || c.MsgID {
		m.Header = make(nats.Header, len(c.Header)+1)
	}
	for _, h := range c.Header {
		name, value, _ := strings.Cut(h, ":")
		m.Header.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	if c.MsgID {
		m.Header.Set(nats.MsgIdHdr, strconv.FormatUint(uint64(s.run), 16)+"-"+strconv.Itoa(n))
	}
	return m
}

// done counts the outcome of the message with this stamp.
func (p *publisher) done(s stamp, err error) {
	t := p.b.t
	t.moved()
	if err != nil {
		t.fail(err)
		return
	}
	if !t.acked.add(s.number) {
		t.fail(fmt.Errorf("message %d was acknowledged twice", s.number))
		return
	}
	if p.why == measured && !p.b.c.consumes() {
		t.observe(t.now() - time.Duration(s.at))
	}
}

// sync publishes one message after the other.
func (p *publisher) sync(ctx context.Context) error {
	js, err := jetstream.New(p.nc)
	if err != nil {
		return err
	}
	for n := p.first; n < p.last && !p.over(n); n++ {
		m := p.message(n)
		one, cancel := context.WithTimeout(ctx, p.b.c.Timeout)
		_, err := js.PublishMsg(one, m)
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s, _ := readStamp(m.Data)
		p.done(s, err)
	}
	return nil
}

// A window counts publishes that wait for their acknowledgement.
type window struct {
	slots chan struct{}
	stall time.Duration
}

// enter waits for a free slot.
func (w *window) enter(ctx context.Context) error {
	select {
	case w.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(w.stall)
	defer timer.Stop()
	select {
	case w.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%w: no PubAck for %v, %d are awaited", errStalled, w.stall, len(w.slots))
	}
}

func (w *window) leave() { <-w.slots }

// drain waits until nothing is in flight.
func (w *window) drain(ctx context.Context) error {
	for range cap(w.slots) {
		if err := w.enter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// async publishes with the jetstream package.
func (p *publisher) async(ctx context.Context) error {
	c := p.b.c
	w := &window{slots: make(chan struct{}, c.Window), stall: c.Stall}
	js, err := jetstream.New(p.nc,
		jetstream.WithPublishAsyncMaxPending(c.Window+1), // the window is ours
		jetstream.WithPublishAsyncTimeout(c.Timeout),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, _ *jetstream.PubAck) {
			s, _ := readStamp(m.Data)
			p.done(s, nil)
			w.leave()
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			s, _ := readStamp(m.Data)
			p.done(s, err)
			w.leave()
		}))
	if err != nil {
		return err
	}
	defer js.CleanupPublisher()
	for n := p.first; n < p.last && !p.over(n); n++ {
		if err := w.enter(ctx); err != nil {
			return err
		}
		if _, err := js.PublishMsgAsync(p.message(n)); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	return w.drain(ctx)
}

// light publishes with plain requests: one inbox, and the slot's number as the last token of the reply
// subject. It costs the client less than the jetstream package, which matters when client and servers share
// cores.
func (p *publisher) light(ctx context.Context) error {
	c := p.b.c
	w := &window{slots: make(chan struct{}, c.Window), stall: min(c.Stall, c.Timeout)}
	free := make(chan int, c.Window)
	sent := make([]atomic.Pointer[stamp], c.Window)
	for i := range c.Window {
		free <- i
	}
	inbox := p.nc.NewInbox() + "."
	sub, err := p.nc.Subscribe(inbox+"*", func(m *nats.Msg) {
		slot, err := strconv.Atoi(strings.TrimPrefix(m.Subject, inbox))
		if err != nil || slot < 0 || slot >= len(sent) {
			p.b.t.fail(fmt.Errorf("a reply on %s, which nobody asked for", m.Subject))
			return
		}
		s := sent[slot].Swap(nil)
		if s == nil {
			p.b.t.fail(errors.New("a second reply to one publish"))
			return
		}
		p.done(*s, readPubAck(m))
		free <- slot
		w.leave()
	})
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if err := sub.SetPendingLimits(-1, -1); err != nil {
		return err
	}
	for n := p.first; n < p.last && !p.over(n); n++ {
		if err := w.enter(ctx); err != nil {
			return err
		}
		slot := <-free // there is one, the window has as many
		m := p.message(n)
		m.Reply = inbox + strconv.Itoa(slot)
		s, _ := readStamp(m.Data)
		sent[slot].Store(&s)
		if err := p.nc.PublishMsg(m); err != nil {
			return fmt.Errorf("publish: %w", err)
		}
	}
	return w.drain(ctx)
}

// readPubAck tells a PubAck from an error or a status.
func readPubAck(m *nats.Msg) error {
	if len(m.Data) == 0 {
		return fmt.Errorf("status %s instead of a PubAck", m.Header.Get("Status"))
	}
	if bytes.HasPrefix(m.Data, []byte(`{"stream":`)) {
		return nil // the usual form, not worth a JSON decoder
	}
	var ack struct {
		Stream string              `json:"stream"`
		Error  *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return fmt.Errorf("no PubAck: %w", err)
	}
	if ack.Error != nil {
		return ack.Error
	}
	if ack.Stream == "" {
		return fmt.Errorf("no PubAck: %q", m.Data)
	}
	return nil
}
