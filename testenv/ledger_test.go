package testenv

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// ledger publishes numbered messages one after the other, each of them until it is stored, and keeps every answer:
// a stock client looks at the first one of a request only, and a second one would go unseen.
type ledger struct {
	t    *testing.T
	name string
	nc   *nats.Conn
	stop context.CancelFunc
	done chan struct{}

	mu      sync.Mutex
	came    chan struct{}         // closed at the next answer
	answers map[string][]nats.Msg // by inbox
	stored  []uint64              // sequence of message i
	err     error
}

// answerWithin is how long the ledger waits for an answer before it publishes again: longer than a node takes to
// say that it does not know what became of a publish would hide what a change of leaders costs.
const answerWithin = time.Second

// newLedger publishes to q.NAME through one node, until end; the stream Q must exist.
func (g *gang) newLedger(name, id string) *ledger {
	g.t.Helper()
	nc, err := nats.Connect(g.nodes[id].URL(), nats.MaxReconnects(-1), nats.ReconnectWait(readyPoll))
	g.must(err)
	g.t.Cleanup(nc.Close)
	ctx, cancel := context.WithCancel(g.t.Context())
	l := &ledger{
		t: g.t, name: name, nc: nc, stop: cancel, done: make(chan struct{}), came: make(chan struct{}),
		answers: make(map[string][]nats.Msg),
	}
	_, err = nc.Subscribe("ledger."+name+".>", l.answered)
	g.must(err)
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			if err := l.publish(l.count()); err != nil {
				l.err = err
				return
			}
		}
	}()
	g.t.Cleanup(func() { l.stop(); <-l.done })
	return l
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.stored)
}

func (l *ledger) answered(m *nats.Msg) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[m.Subject] = append(l.answers[m.Subject], *m)
	close(l.came)
	l.came = make(chan struct{})
}

// pubAck is the sequence that an answer confirms, 0 if it is none.
func pubAck(m *nats.Msg) uint64 {
	var ack struct {
		Seq   uint64          `json:"seq"`
		Error json.RawMessage `json:"error"`
	}
	if len(m.Data) == 0 || json.Unmarshal(m.Data, &ack) != nil || ack.Error != nil {
		return 0
	}
	return ack.Seq
}

// publish publishes message i until it is stored.
func (l *ledger) publish(i int) error {
	until := time.Now().Add(soon)
	pause := time.NewTicker(readyPoll)
	defer pause.Stop()
	for try := 0; time.Now().Before(until); try++ {
		m := nats.NewMsg("q." + l.name)
		m.Reply = fmt.Sprintf("ledger.%s.%d.%d", l.name, i, try)
		m.Header.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s-%d", l.name, i))
		m.Data = fmt.Append(nil, i)
		if err := l.nc.PublishMsg(m); err != nil {
			return err
		}
		if seq := l.await(m.Reply); seq != 0 {
			l.mu.Lock()
			l.stored = append(l.stored, seq)
			l.mu.Unlock()
			return nil
		}
		<-pause.C
	}
	return fmt.Errorf("message %d of %s was never acknowledged", i, l.name)
}

// await waits for the first answer to an inbox.
func (l *ledger) await(inbox string) uint64 {
	late := time.NewTimer(answerWithin)
	defer late.Stop()
	for {
		l.mu.Lock()
		came, got := l.came, l.answers[inbox]
		l.mu.Unlock()
		if len(got) > 0 {
			return pubAck(&got[0])
		}
		select {
		case <-came:
		case <-late.C:
			return 0
		}
	}
}

// goesOn waits until n more messages are stored.
func (l *ledger) goesOn(g *gang, n int) {
	l.t.Helper()
	goal := l.count() + n
	g.until("publishes of "+l.name+" go on", func() string {
		select {
		case <-l.done:
			l.t.Fatal(l.err)
		default:
		}
		if got := l.count(); got < goal {
			return fmt.Sprintf("%d of %d are stored", got, goal)
		}
		return ""
	})
}

// refused waits until a publish is told that nobody serves.
func (l *ledger) refused(g *gang) {
	l.t.Helper()
	refusals := func() (n int) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, got := range l.answers {
			if got[0].Header.Get("Status") == "503" {
				n++
			}
		}
		return n
	}
	had := refusals()
	g.until("publishes of "+l.name+" are refused", func() string {
		if refusals() == had {
			return "not yet"
		}
		return ""
	})
}

// end ends the ledger and checks the answers, and that the stream holds what they said, once each and in order.
func (l *ledger) end(s jetstream.Stream) {
	l.t.Helper()
	l.stop()
	<-l.done
	if l.err != nil {
		l.t.Fatal(l.err)
	}
	if len(l.stored) == 0 {
		l.t.Fatal("nothing was published")
	}
	if err := l.nc.FlushWithContext(bounded(l.t)); err != nil {
		l.t.Fatal(err)
	}
	c, err := s.OrderedConsumer(bounded(l.t), jetstream.OrderedConsumerConfig{FilterSubjects: []string{"q." + l.name}})
	if err != nil {
		l.t.Fatal(err)
	}
	all, err := c.Messages()
	if err != nil {
		l.t.Fatal(err)
	}
	defer all.Stop()
	for i, seq := range l.stored {
		m, err := all.Next(jetstream.NextMaxWait(soon))
		if err != nil {
			l.t.Fatalf("message %d of %d of %s: %v", i, len(l.stored), l.name, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			l.t.Fatal(err)
		}
		if string(m.Data()) != fmt.Sprint(i) || meta.Sequence.Stream != seq {
			l.t.Fatalf("%q at %d where message %d of %s was acknowledged at %d: lost or twice",
				m.Data(), meta.Sequence.Stream, i, l.name, seq)
		}
		if i == len(l.stored)-1 && meta.NumPending != 0 {
			l.t.Errorf("%d messages of %s more than were published", meta.NumPending, l.name)
		}
	}
	l.once()
}

// once checks that no request was answered twice. That is told last: a second answer is a late one.
func (l *ledger) once() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for inbox, got := range l.answers {
		if len(got) == 1 {
			continue
		}
		var texts []string
		for i := range got {
			texts = append(texts, got[i].Header.Get("Status")+" "+string(got[i].Data))
		}
		l.t.Errorf("%d answers to %s: %s", len(got), inbox, strings.Join(texts, "; "))
	}
	l.t.Logf("%s: %d messages in %d requests", l.name, len(l.stored), len(l.answers))
}
