package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// publishWait is how long a publisher waits for its ack before it sends the message again.
	publishWait = 2 * time.Second
	// publishPause is the pause before that, when an error came at once.
	publishPause = 50 * time.Millisecond
	// payloadSize is that of a message, bytes.
	payloadSize = 128
	// fetchBatch and fetchWait are those of one pull of a worker.
	fetchBatch = 50
	fetchWait  = time.Second
	// ackWait is how long a worker waits for the confirmation of its ack.
	ackWait = 2 * time.Second
	// queueWorkers share the work queue.
	queueWorkers = 4
)

// publisher sends numbered messages, each again and again until it is acked.
type publisher struct {
	number  int
	subject string
	withID  bool
	acked   atomic.Int64 // messages 0 to acked-1 are
	retries atomic.Int64 // sends beyond the first
	watch   atomic.Pointer[killing]
}

// onQueue says to which stream it publishes.
func (p *publisher) onQueue() bool { return strings.HasPrefix(p.subject, queueSubject) }

// id is the text that identifies a message: publisher/number.
func (p *publisher) id(n int64) string { return fmt.Sprintf("%d/%d", p.number, n) }

// parseID reads what id wrote, from the start of a payload.
func parseID(payload []byte) (pub int, n int64, err error) {
	text, _, _ := strings.Cut(string(payload), " ")
	a, b, ok := strings.Cut(text, "/")
	pub, errPub := strconv.Atoi(a)
	n, errN := strconv.ParseInt(b, 10, 64)
	if !ok || errPub != nil || errN != nil {
		return 0, 0, fmt.Errorf("a message of the demo reads %q", payload)
	}
	return pub, n, nil
}

// run publishes until quit is closed; the message it is at then is still brought to its end, if ctx lasts.
func (p *publisher) run(ctx context.Context, quit <-chan struct{}, js jetstream.JetStream) {
	for n := int64(0); ; n++ {
		select {
		case <-quit:
			return
		default:
		}
		if !p.publish(ctx, js, n) {
			return
		}
		p.acked.Add(1)
		if k := p.watch.Swap(nil); k != nil {
			select {
			case k.acked <- time.Now():
			default:
			}
		}
	}
}

// publish sends message n until it is acked; false if ctx ended before.
func (p *publisher) publish(ctx context.Context, js jetstream.JetStream, n int64) bool {
	id := p.id(n)
	msg := &nats.Msg{Subject: p.subject, Data: []byte(id + strings.Repeat(" ", payloadSize-len(id)))}
	opts := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)}
	if p.withID {
		opts = append(opts, jetstream.WithMsgID("demo-"+id))
	}
	for {
		try, cancel := context.WithTimeout(ctx, publishWait)
		_, err := js.PublishMsg(try, msg, opts...)
		cancel()
		if err == nil {
			return true
		}
		pause := time.NewTimer(publishPause)
		select {
		case <-ctx.Done():
			pause.Stop()
			return false
		case <-pause.C:
		}
		p.retries.Add(1)
	}
}

// tally is what was read of one stream.
type tally struct {
	lock sync.Mutex
	mu   struct { // guarded by lock
		seqs      map[uint64]time.Time // stream sequences seen; when their ack was confirmed, zero until then
		copies    map[int][]uint16     // by publisher and number: under how many sequences it was seen
		distinct  int
		again     int // deliveries of a sequence that was seen before
		afterAck  int // those of them after its ack was confirmed
		confirmed int
		alien     error
	}
}

func newTally() *tally {
	t := &tally{}
	t.mu.seqs, t.mu.copies = make(map[uint64]time.Time), make(map[int][]uint16)
	return t
}

// saw notes a message.
func (t *tally) saw(seq uint64, payload []byte) {
	pub, n, err := parseID(payload)
	t.lock.Lock()
	defer t.lock.Unlock()
	if err != nil {
		t.mu.alien = err
		return
	}
	if confirmed, before := t.mu.seqs[seq]; before {
		t.mu.again++
		if !confirmed.IsZero() {
			t.mu.afterAck++
		}
		return
	}
	t.mu.seqs[seq] = time.Time{}
	list := t.mu.copies[pub]
	for int64(len(list)) <= n {
		list = append(list, 0)
	}
	if list[n]++; list[n] == 1 {
		t.mu.distinct++
	}
	t.mu.copies[pub] = list
}

// settled notes that the ack of a message is confirmed.
func (t *tally) settled(seq uint64) {
	t.lock.Lock()
	defer t.lock.Unlock()
	t.mu.seqs[seq] = time.Now()
	t.mu.confirmed++
}

func (t *tally) distinct() int {
	t.lock.Lock()
	defer t.lock.Unlock()
	return t.mu.distinct
}

// crew is the goroutines of the clients and how they end.
type crew struct {
	quit       chan struct{} // closed: publishers finish their message and end
	publishers sync.WaitGroup
	workers    sync.WaitGroup
	cancel     context.CancelFunc // ends everything
	conns      []*nats.Conn
}

// stop ends what still runs.
func (c *crew) stop() {
	if c.cancel != nil {
		c.cancel()
	}
	c.publishers.Wait()
	c.workers.Wait()
	for _, nc := range c.conns {
		nc.Close()
	}
}

// startClients starts publishers and workers, each on a connection of its own.
func (d *demo) startClients(ctx context.Context, publishers int, c *crew) error {
	ctx, c.cancel = context.WithCancel(ctx)
	c.quit = make(chan struct{})
	connect := func(name string) (jetstream.JetStream, error) {
		nc, err := d.connect(name)
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, nc)
		return jetstream.New(nc)
	}
	for i := range publishers {
		p := &publisher{number: i, withID: i/2%2 == 0, subject: queueSubject + "." + strconv.Itoa(i)}
		if i%2 == 1 {
			p.subject = logSubject + "." + strconv.Itoa(i)
		}
		js, err := connect("demo-publisher-" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		d.pubs = append(d.pubs, p)
		c.publishers.Go(func() { p.run(ctx, c.quit, js) })
	}
	for i := range queueWorkers + 1 {
		js, err := connect("demo-worker-" + strconv.Itoa(i))
		if err != nil {
			return err
		}
		w := worker{stream: queueName, to: d.queue, confirm: true}
		if i == queueWorkers {
			w = worker{stream: logName, to: d.logged}
		}
		c.workers.Go(func() { w.run(ctx, js) })
	}
	return nil
}

// worker takes messages and acks them, until ctx ends.
type worker struct {
	stream  string
	to      *tally
	confirm bool // waits for the confirmation of each ack
}

func (w *worker) run(ctx context.Context, js jetstream.JetStream) {
	var cons jetstream.Consumer
	for ctx.Err() == nil {
		var err error
		if cons == nil {
			ask, cancel := context.WithTimeout(ctx, publishWait)
			cons, err = js.Consumer(ask, w.stream, workerName)
			cancel()
		}
		if err == nil && w.fetch(ctx, cons) == nil {
			continue
		}
		pause := time.NewTimer(publishPause)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// fetch takes one batch. After an error it makes sense to wait for a moment: there may be no leader.
func (w *worker) fetch(ctx context.Context, cons jetstream.Consumer) error {
	batch, err := cons.Fetch(fetchBatch, jetstream.FetchMaxWait(fetchWait))
	if err != nil {
		return err
	}
	// Beside the reading, so that a message is noted when it comes and not after the acks of those before it.
	acks := make(chan jetstream.Msg, fetchBatch)
	var acking sync.WaitGroup
	acking.Go(func() {
		for msg := range acks {
			w.ack(ctx, msg)
		}
	})
	for msg := range batch.Messages() {
		if meta, err := msg.Metadata(); err == nil {
			w.to.saw(meta.Sequence.Stream, msg.Data())
			acks <- msg
		}
	}
	close(acks)
	acking.Wait()
	if err := batch.Error(); !errors.Is(err, nats.ErrTimeout) {
		return err
	}
	return nil
}

// ack acknowledges a message; one whose ack is lost comes again.
func (w *worker) ack(ctx context.Context, msg jetstream.Msg) {
	if !w.confirm {
		_ = msg.Ack()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ackWait)
	defer cancel()
	meta, err := msg.Metadata()
	if err == nil && msg.DoubleAck(ctx) == nil {
		w.to.settled(meta.Sequence.Stream)
	}
}
