package jepsen

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

const (
	streamProbe = "CLOCK"
	// probes is how many messages a probe has: a third is acked, a third is left alone until it
	// comes again after probeWait, and a third is refused for probeDelay.
	probes     = 30
	probeWait  = 15 * time.Second
	probeDelay = 20 * time.Second
	// probeEarly is by how much a message may come before its time, as the two clocks that it is
	// measured by go: the cluster's, which a change of leaders may hold back, and this process'.
	probeEarly = 100 * time.Millisecond
	// probeLate is how much later than its time, or than the cluster serves again, a message may
	// come again.
	probeLate = 30 * time.Second
	// probeWindow is the window of duplicates. After probeKnown nothing is tried any more.
	probeWindow = 5 * time.Minute
	probeKnown  = probeWindow - 30*time.Second
	// probeTime bounds each part of a probe that needs the cluster.
	probeTime = 60 * time.Second
)

// probe is a stream of its own with what follows the time: messages with a max_age, that none
// reaches, ids, whose window is not over at the end, ack waits and delayed naks. What it finds
// wrong is a broken promise.
type probe struct {
	w       *world
	nc      *nats.Conn
	js      jetstream.JetStream
	subject string
	began   time.Time
	cancel  context.CancelFunc
	watched sync.WaitGroup

	mu    sync.Mutex
	back  time.Time              // the cluster served again, after it was stopped
	times map[string]*probeTimes // of messages that are to come again, until they have
	wrong []string
}

// probeTimes are of a message that is to come again.
type probeTimes struct {
	what       string
	from       time.Time     // it was sent, or refused, later than that
	wait       time.Duration // until it comes again
	first, got time.Time
}

// startProbe stores messages, has them delivered once, and watches for them.
func startProbe(ctx context.Context, w *world) (*probe, error) {
	p := &probe{w: w, began: time.Now(), times: map[string]*probeTimes{}, cancel: func() {}}
	p.subject = fmt.Sprintf("clock.%d", w.h.now().Milliseconds())
	var err error
	if p.nc, err = connectAny(w.c, "probe"); err != nil {
		return nil, err
	}
	if p.js, err = jetstream.New(p.nc, jetstream.WithDefaultTimeout(callTimeout)); err != nil {
		return nil, err
	}
	bound, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cons, err := p.store(bound)
	if err == nil {
		err = p.deliver(bound, cons)
	}
	if err != nil {
		p.close()
		return nil, fmt.Errorf("probe: %w", err)
	}
	watch, stop := context.WithCancel(ctx)
	p.cancel = stop
	p.watched.Go(func() { p.watch(watch, cons) })
	return p, nil
}

func (p *probe) id(i int) string { return fmt.Sprintf("%s-%d", p.subject, i) }

// publish stores a message, or stores it again; it tries until it is told what came of it.
func (p *probe) publish(ctx context.Context, i int) (*jetstream.PubAck, error) {
	var ack *jetstream.PubAck
	err := process.Until(ctx, func() (err error) {
		ack, err = p.js.Publish(ctx, p.subject, []byte(p.id(i)), jetstream.WithMsgID(p.id(i)))
		return err
	})
	return ack, err
}

func (p *probe) store(ctx context.Context) (jetstream.Consumer, error) {
	err := process.Until(ctx, func() error {
		_, err := p.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: streamProbe, Subjects: []string{"clock.*"}, Replicas: len(p.w.c.Nodes), Duplicates: probeWindow,
			MaxAge: ageSlack,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	var cons jetstream.Consumer
	err = process.Until(ctx, func() (err error) {
		cons, err = p.js.CreateOrUpdateConsumer(ctx, streamProbe, jetstream.ConsumerConfig{
			Durable: strings.ReplaceAll(p.subject, ".", "-"), FilterSubject: p.subject,
			AckPolicy: jetstream.AckExplicitPolicy, AckWait: probeWait,
		})
		return err
	})
	for i := 0; i < probes && err == nil; i++ {
		_, err = p.publish(ctx, i)
	}
	return cons, err
}

// deliver has every message delivered, and says to each of the thirds what it is for.
func (p *probe) deliver(ctx context.Context, cons jetstream.Consumer) error {
	for got := 0; got < probes; {
		asked := time.Now()
		b, err := cons.Fetch(probes-got, jetstream.FetchMaxWait(fetchWait))
		if err != nil {
			return err
		}
		for m := range b.Messages() {
			id, t := string(m.Data()), &probeTimes{what: "its ack wait", from: asked, wait: probeWait, first: time.Now()}
			switch p.times[id] = t; got % 3 {
			case 0:
				delete(p.times, id)
				err = m.DoubleAck(ctx)
			case 1:
				t.what, t.from, t.wait = "the delay of its nak", time.Now(), probeDelay
				err = m.NakWithDelay(probeDelay)
			}
			if err != nil {
				return err
			}
			got++
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%d of %d messages were delivered: %w", got, probes, ctx.Err())
		}
	}
	return p.nc.FlushWithContext(ctx)
}

// watch takes what comes again.
func (p *probe) watch(ctx context.Context, cons jetstream.Consumer) {
	for ctx.Err() == nil {
		b, err := cons.Fetch(probes, jetstream.FetchMaxWait(fetchWait))
		if err != nil {
			pause(ctx, retryPause)
			continue
		}
		for m := range b.Messages() {
			p.again(string(m.Data()), time.Now())
			call, cancel := context.WithTimeout(ctx, callTimeout)
			_ = m.DoubleAck(call) // if not, it comes once more
			cancel()
		}
	}
}

func (p *probe) again(id string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.times[id]
	switch {
	case t == nil:
		p.wrong = append(p.wrong, id+" was delivered again after its ack was confirmed")
	case t.got.IsZero():
		t.got = now
		if early := t.wait - now.Sub(t.from); early > probeEarly {
			p.wrong = append(p.wrong, fmt.Sprintf("%s came again %v before %s of %v was over", id,
				early.Round(time.Millisecond), t.what, t.wait))
		}
	}
}

// missing is how many are still to come again, and the last time at which one must have.
func (p *probe) missing() (n int, due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range p.times {
		if t.got.IsZero() {
			n++
		}
		if at := t.first.Add(t.wait); at.After(due) {
			due = at
		}
	}
	if p.back.After(due) {
		due = p.back
	}
	return n, due.Add(probeLate)
}

// restarted says that the cluster serves again after nodes were stopped. While it does not,
// nothing can come: how long that may take is not the clocks' matter.
func (p *probe) restarted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.back = time.Now()
}

// finish waits for what is to come again, and looks at ids and messages.
func (p *probe) finish(ctx context.Context) error {
	_, due := p.missing()
	await(ctx, max(time.Until(due), lookEvery), func() bool { n, _ := p.missing(); return n == 0 })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.cancel()
	p.watched.Wait()
	late, _ := p.missing()
	if late > 0 {
		p.wrong = append(p.wrong, fmt.Sprintf("%d of %d messages did not come again within %v of their time", late,
			len(p.times), probeLate))
	}
	bound, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	stored := 0
	for i := range probes {
		ack, err := p.publish(bound, i)
		if err != nil {
			return fmt.Errorf("probe: %w", err)
		}
		if !ack.Duplicate {
			stored++
		}
	}
	if age := time.Since(p.began); stored > 0 && age < probeKnown {
		p.wrong = append(p.wrong, fmt.Sprintf("%d ids were not known any more after %v, the window is %v", stored,
			age.Round(time.Second), probeWindow))
	}
	err := p.count(bound, uint64(probes+stored))
	p.tell(late)
	return err
}

// count looks whether messages have gone.
func (p *probe) count(ctx context.Context, want uint64) error {
	return process.Until(ctx, func() error {
		st, err := p.js.Stream(ctx, streamProbe)
		if err != nil {
			return err
		}
		info, err := st.Info(ctx, jetstream.WithSubjectFilter(p.subject))
		if err != nil {
			return err
		}
		if got := info.State.Subjects[p.subject]; got != want {
			p.wrong = append(p.wrong, fmt.Sprintf("the stream holds %d of %d messages", got, want))
		}
		return nil
	})
}

// tell says what was found.
func (p *probe) tell(late int) {
	for _, what := range p.wrong {
		if p.w.c.Kind.Ours() {
			p.w.broken("%s", what)
		} else {
			p.w.say("%s", what)
		}
	}
	p.w.say("probe: %d messages, %d came again, %d things wrong", probes, len(p.times)-late, len(p.wrong))
}

func (p *probe) close() {
	p.cancel()
	p.watched.Wait()
	p.nc.Close()
}
