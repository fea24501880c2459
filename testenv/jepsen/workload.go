package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// writersPerNode is how many writers publish through each node.
	writersPerNode = 2
	// workEvery: one publish of so many goes to the work queue.
	workEvery = 4
	// registerRate is how many register operations each node's client begins per second.
	registerRate = 12
	// registerWindow is how long one set of registers is used: it bounds what a check must search.
	registerWindow = 5 * time.Second
	registers      = 2
	// fetchBatch and fetchWait are of one pull of the work queue.
	fetchBatch = 16
	fetchWait  = time.Second
	// retryPause is the pause after a failed fetch.
	retryPause = 100 * time.Millisecond
)

// load is the clients of a run.
type load struct {
	h      *History
	kind   Kind
	seed   uint64
	conns  []*nats.Conn
	wg     sync.WaitGroup
	cancel context.CancelFunc
	// workers is cancelled later than the rest: they drain the queue.
	workers       sync.WaitGroup
	cancelWorkers context.CancelFunc
}

// startLoad connects the clients and lets them work until stop.
func startLoad(ctx context.Context, c *Cluster, h *History, rate int, seed uint64) (*load, error) {
	l := &load{h: h, kind: c.Kind, seed: seed}
	workCtx, cancelWorkers := context.WithCancel(ctx)
	ctx, l.cancel = context.WithCancel(ctx)
	l.cancelWorkers = cancelWorkers
	every := time.Second * time.Duration(len(c.Nodes)*writersPerNode) / time.Duration(rate)
	for i, n := range c.Nodes {
		for k := range writersPerNode {
			writer := i*writersPerNode + k
			nc, js, err := l.connect(n, fmt.Sprint("writer-", writer))
			if err != nil {
				return l, err
			}
			_ = nc
			l.wg.Go(func() { l.write(ctx, js, writer, every) })
		}
		nc, js, err := l.connect(n, fmt.Sprint("register-", i))
		if err != nil {
			return l, err
		}
		l.wg.Go(func() { l.useRegisters(ctx, nc, js, i, len(c.Nodes)*writersPerNode+i) })
		if _, js, err = l.connect(n, fmt.Sprint("worker-", i)); err != nil {
			return l, err
		}
		l.workers.Go(func() { l.work(workCtx, js, n.Slot) })
		if nc, _, err = l.connect(n, fmt.Sprint("patient-", i), nats.PingInterval(patience)); err != nil {
			return l, err
		}
		if err := l.lookUp(ctx, nc, n.Slot); err != nil {
			return l, err
		}
		l.stay(workCtx, nc, n.Slot)
	}
	return l, nil
}

func (l *load) connect(n *Node, name string, more ...nats.Option) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := connect(n, name, more...)
	if err != nil {
		return nil, nil, err
	}
	l.conns = append(l.conns, nc)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(callTimeout))
	return nc, js, err
}

// stopWriting ends the writers and the users of registers.
func (l *load) stopWriting() {
	l.cancel()
	l.wg.Wait()
}

// close ends everything.
func (l *load) close() {
	l.stopWriting()
	l.cancelWorkers()
	l.workers.Wait()
	for _, nc := range l.conns {
		nc.Close()
	}
}

// write publishes the messages of one writer, one at a time, never one twice.
func (l *load) write(ctx context.Context, js jetstream.JetStream, writer int, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for counter := 0; ; counter++ {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		p := Publish{
			ID: fmt.Sprintf("%d-%d", writer, counter), Stream: streamLog, Writer: writer, Counter: counter,
		}
		subject := "jepsen." + strconv.Itoa(writer)
		if counter%workEvery == workEvery-1 {
			p.Stream, subject = streamWork, "work."+strconv.Itoa(writer)
		}
		l.send(ctx, js, p, l.kind.message(subject))
	}
}

// send publishes once and notes what came of it. It is not cut short by the end of the
// run: what was attempted gets its time to be answered.
func (l *load) send(ctx context.Context, js jetstream.JetStream, p Publish, m *nats.Msg) Publish {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	m.Data = []byte(p.ID)
	p.Invoke = l.h.now()
	ack, err := js.PublishMsg(ctx, m, jetstream.WithRetryAttempts(0))
	p.Return, p.Outcome = l.h.now(), l.kind.judge(err)
	if err == nil {
		p.Seq = ack.Sequence
	} else {
		p.Error = err.Error()
	}
	l.h.publish(p)
	return p
}

// useRegisters reads, and writes on top of what it last saw, registers that all nodes'
// clients share.
func (l *load) useRegisters(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, client, writer int) {
	rng := rand.New(rand.NewPCG(l.seed, uint64(client)))
	t := time.NewTicker(time.Second / registerRate)
	defer t.Stop()
	known := make(map[string]uint64)
	for counter := 0; ; counter++ {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		subject := fmt.Sprintf("reg.%d.%d", l.h.now()/registerWindow, rng.IntN(registers))
		if rng.IntN(2) == 0 {
			l.readRegister(ctx, nc, subject, known)
			continue
		}
		expected := known[subject]
		if rng.IntN(10) == 0 {
			expected = 0 // mostly wrong
		}
		m := nats.NewMsg(subject)
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expected, 10))
		p := l.send(ctx, js, Publish{
			ID: fmt.Sprintf("%d-%d", writer, counter), Stream: streamReg, Writer: writer, Counter: counter,
		}, m)
		op := RegisterOp{
			Subject: subject, ID: p.ID, Invoke: p.Invoke, Return: p.Return, Expected: expected, Outcome: p.Outcome,
			Seq: p.Seq,
		}
		if p.Outcome == Refused {
			var told bool
			if op.Seq, told = wrongLast(p.Error); !told {
				continue // nobody judged it
			}
		}
		if p.Outcome != Unknown {
			known[subject] = op.Seq
		}
		l.h.register(op)
	}
}

// wrongLast reads the sequence in JetStream's text for a wrong expectation.
func wrongLast(text string) (uint64, bool) {
	_, rest, found := strings.Cut(text, "wrong last sequence: ")
	if !found {
		return 0, false
	}
	digits := rest
	for i, r := range rest {
		if r < '0' || r > '9' {
			digits = rest[:i]
			break
		}
	}
	seq, err := strconv.ParseUint(digits, 10, 64)
	return seq, err == nil
}

func (l *load) readRegister(ctx context.Context, nc *nats.Conn, subject string, known map[string]uint64) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	op := RegisterOp{Subject: subject, Invoke: l.h.now(), Outcome: Acked}
	seq, err := lastOf(ctx, nc, subject)
	op.Return, op.Seq = l.h.now(), seq
	if err != nil {
		return // a read that failed says nothing
	}
	known[subject] = seq
	l.h.register(op)
}

// work fetches and settles by double acks.
func (l *load) work(ctx context.Context, js jetstream.JetStream, node string) {
	for ctx.Err() == nil {
		if err := l.fetch(ctx, js, node); err != nil && !pause(ctx, retryPause) {
			return
		}
	}
}

// fetch takes one batch. It notes each message when it comes, and settles them after
// that, all at once: one that waited here for the acks of others would look as if it
// had been delivered late.
func (l *load) fetch(ctx context.Context, js jetstream.JetStream, node string) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := js.Consumer(call, streamWork, durable)
	if err != nil {
		return err
	}
	asked := l.h.now()
	b, err := c.Fetch(fetchBatch, jetstream.FetchMaxWait(fetchWait))
	if err != nil {
		return err
	}
	var batch []jetstream.Msg
	for m := range b.Messages() {
		d := Delivery{ID: string(m.Data()), Node: node, Asked: asked, At: l.h.now()}
		if meta, err := m.Metadata(); err == nil {
			d.Seq, d.Count = meta.Sequence.Stream, meta.NumDelivered
		}
		l.h.delivery(d)
		batch = append(batch, m)
	}
	var acks sync.WaitGroup
	for _, m := range batch {
		acks.Go(func() { l.ack(ctx, m) })
	}
	acks.Wait()
	if err := b.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return nil
}

func (l *load) ack(ctx context.Context, m jetstream.Msg) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	s := Settle{ID: string(m.Data()), Invoke: l.h.now()}
	err := m.DoubleAck(ctx)
	s.Return, s.Confirmed = l.h.now(), err == nil
	if meta, err := m.Metadata(); err == nil {
		s.Seq = meta.Sequence.Stream
	}
	l.h.settle(s)
}
