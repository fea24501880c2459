package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Names of what the load uses.
const (
	streamAll  = "ALL"  // keeps everything: subjects all.<level>.<publisher>
	streamWork = "WORK" // work queue: subjects work.<level>.<publisher>
	durable    = "workers"
)

// Grace is how long after a confirmed ack a copy may still come that was sent before it.
const Grace = time.Second

// requestTimeout bounds one request. NATS may lose one, as when a route between two nodes closes: whoever waited for its
// answer as long as the run lasts would not see the next.
const requestTimeout = 2 * time.Second

// published is one message and what its publisher knows of it.
type published struct {
	id    string
	level string
	acked bool
	seq   uint64 // of the PubAck, if acked
}

// Load is the clients of a run and what they saw.
type Load struct {
	urls string

	mu  sync.Mutex
	saw struct { // guarded by mu
		all, work []*published
		confirmed map[string]time.Time // work id → when its ack was confirmed
		seen      map[string]int       // work id → deliveries
		afterAck  []string
		errors    int
	}
	wg     sync.WaitGroup
	cancel context.CancelFunc
}

// NewLoad creates the streams. urls are the client URLs of all nodes.
func NewLoad(ctx context.Context, urls string) (*Load, error) {
	l := &Load{urls: urls}
	l.saw.confirmed, l.saw.seen = make(map[string]time.Time), make(map[string]int)
	nc, js, err := l.connect("setup")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	for _, cfg := range []jetstream.StreamConfig{
		{Name: streamAll, Subjects: []string{"all.>"}, Duplicates: time.Hour},
		{Name: streamWork, Subjects: []string{"work.>"}, Retention: jetstream.WorkQueuePolicy, Duplicates: time.Hour},
	} {
		if _, err := js.CreateStream(ctx, cfg); err != nil {
			return nil, fmt.Errorf("creating stream %s: %w", cfg.Name, err)
		}
	}
	_, err = js.CreateConsumer(ctx, streamWork, jetstream.ConsumerConfig{
		Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second, MaxAckPending: 500,
	})
	return l, err
}

func (l *Load) connect(name string) (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect(l.urls, nats.Name(name), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.Timeout(time.Second))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(requestTimeout))
	return nc, js, err
}

// Start begins to publish and work until Stop.
func (l *Load) Start(ctx context.Context) error {
	ctx, l.cancel = context.WithCancel(ctx)
	for i, level := range []string{"quorum", "quorum", "quorum", "leader", "none"} {
		nc, js, err := l.connect(fmt.Sprint("publisher-", i))
		if err != nil {
			return err
		}
		l.wg.Go(func() {
			defer nc.Close()
			l.publish(ctx, js, level, i)
		})
	}
	for i := range 3 {
		nc, js, err := l.connect(fmt.Sprint("worker-", i))
		if err != nil {
			return err
		}
		l.wg.Go(func() {
			defer nc.Close()
			l.work(ctx, js)
		})
	}
	return nil
}

// Stop ends the load and waits for its clients.
func (l *Load) Stop() {
	l.cancel()
	l.wg.Wait()
}

// Acked is how many quorum publishes were acked so far.
func (l *Load) Acked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, list := range [][]*published{l.saw.all, l.saw.work} {
		for _, p := range list {
			if p.acked && p.level == "quorum" {
				n++
			}
		}
	}
	return n
}

func (l *Load) publish(ctx context.Context, js jetstream.JetStream, level string, publisher int) {
	for n := 0; ctx.Err() == nil; n++ {
		id := fmt.Sprintf("%s-%d-%d", level, publisher, n)
		l.send(ctx, js, &l.saw.all, &published{id: "a" + id, level: level}, fmt.Sprintf("all.%s.%d", level, publisher))
		l.send(ctx, js, &l.saw.work, &published{id: "w" + id, level: level}, fmt.Sprintf("work.%s.%d", level, publisher))
	}
}

// send publishes one message until it is acked. One at level none has no second try:
// its sender does not want to know.
func (l *Load) send(
	ctx context.Context, js jetstream.JetStream, list *[]*published, p *published, subject string,
) {
	l.mu.Lock()
	*list = append(*list, p)
	l.mu.Unlock()
	for ctx.Err() == nil {
		m := nats.NewMsg(subject)
		m.Data = []byte(p.id)
		m.Header.Set("Holdfast-Ack", p.level)
		m.Header.Set(jetstream.MsgIDHeader, p.id)
		try, cancel := context.WithTimeout(ctx, requestTimeout)
		ack, err := js.PublishMsg(try, m, jetstream.WithRetryAttempts(0))
		cancel()
		l.mu.Lock()
		if err == nil {
			p.acked, p.seq = true, ack.Sequence
		} else {
			l.saw.errors++
		}
		l.mu.Unlock()
		if err == nil || p.level == "none" {
			return
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// pause waits for a while or for the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (l *Load) work(ctx context.Context, js jetstream.JetStream) {
	for ctx.Err() == nil {
		l.fetch(ctx, js, 20, l.confirmed)
	}
}

// confirmed settles a message by a double ack, and notes when that was confirmed.
func (l *Load) confirmed(ctx context.Context, m jetstream.Msg) {
	try, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if m.DoubleAck(try) == nil {
		l.confirm(string(m.Data()))
	}
}

// plain settles a message by an ack that nobody confirms.
func (l *Load) plain(_ context.Context, m jetstream.Msg) { _ = m.Ack() }

// workers returns the consumer with its present state.
func workers(ctx context.Context, js jetstream.JetStream) (jetstream.Consumer, error) {
	try, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return js.Consumer(try, streamWork, durable)
}

// fetchWait is how long one fetch waits for its batch.
const fetchWait = time.Second

// fetch takes a batch of work and settles each message.
func (l *Load) fetch(ctx context.Context, js jetstream.JetStream, batch int, settle func(context.Context, jetstream.Msg)) {
	c, err := workers(ctx, js)
	if err != nil {
		pause(ctx, 50*time.Millisecond)
		return
	}
	b, err := c.Fetch(batch, jetstream.FetchMaxWait(fetchWait))
	if err != nil {
		pause(ctx, 50*time.Millisecond)
		return
	}
	for m := range b.Messages() {
		l.delivered(string(m.Data()))
		settle(ctx, m)
	}
	if err := b.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
		pause(ctx, 20*time.Millisecond)
	}
}

func (l *Load) delivered(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.saw.seen[id]++
	if at, ok := l.saw.confirmed[id]; ok && time.Since(at) > Grace {
		l.saw.afterAck = append(l.saw.afterAck, fmt.Sprintf("%s %v after its ack was confirmed", id, time.Since(at)))
	}
}

func (l *Load) confirm(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.saw.confirmed[id]; !ok {
		l.saw.confirmed[id] = time.Now()
	}
}
