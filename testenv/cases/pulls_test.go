package cases

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// inactive is the threshold of consumers here; a server may take up to a second longer.
const inactive = 200 * time.Millisecond

// Somebody works on a message for longer than inactive_threshold: the consumer is in use until he acks
// (https://github.com/nats-io/nats-server/issues/7052).
func workIsNotIdle(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "IDLE", Subjects: []string{"idle"}})
	unused := func(name string) jetstream.Consumer {
		return c.consumer(s, &jetstream.ConsumerConfig{
			Durable: name, AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: inactive,
		})
	}
	gone := func(cons jetstream.Consumer) {
		eventually(t, func() error {
			_, err := cons.Info(bounded(t))
			if errors.Is(err, jetstream.ErrConsumerNotFound) {
				return nil
			}
			return fmt.Errorf("not deleted after %v: %w", inactive, err)
		})
	}
	c.publish("idle", "work")
	worker := unused("worker")
	m := c.fetch(worker, 1)[0]
	gone(unused("other")) // it was there for a shorter time
	if in := c.info(worker); in.NumAckPending != 1 {
		t.Fatalf("%d unacked, want 1", in.NumAckPending)
	}
	c.ack(m)
	gone(worker)
}

// pullOnce asks with a body of its own and returns what comes, and the subscription.
func (c *client) pullOnce(stream, consumer, body string) *nats.Subscription {
	c.t.Helper()
	sub, err := c.nc.SubscribeSync(nats.NewInbox())
	if err == nil {
		err = c.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+stream+"."+consumer, sub.Subject, []byte(body))
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return sub
}

func (c *client) wantStatus(sub *nats.Subscription, status, text string) *nats.Msg {
	c.t.Helper()
	m, err := sub.NextMsgWithContext(bounded(c.t))
	if err != nil {
		c.t.Fatalf("waiting for %s: %v", status, err)
	}
	if m.Header.Get("Status") != status || m.Header.Get("Description") != text {
		c.t.Fatalf("%q with header %v, want %s %s", m.Data, m.Header, status, text)
	}
	return m
}

// A request that does not wait is told that there is nothing, never left in silence: on an empty stream, after
// the last message, and by the next leader (https://github.com/nats-io/nats-server/issues/7457,
// https://github.com/nats-io/nats-server/issues/5373).
func noWaitIsAnswered(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "NOWAIT", Subjects: []string{"nowait"}, Replicas: 3})
	c.consumer(s, &jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	ask := func() *nats.Subscription { return c.pullOnce("NOWAIT", "c", `{"batch":2,"no_wait":true}`) }
	nothing := func() { c.wantStatus(ask(), "404", "No Messages") }
	nothing()
	c.publish("nowait", "only")
	sub := ask()
	if m, err := sub.NextMsgWithContext(bounded(t)); err != nil || string(m.Data) != "only" {
		t.Fatalf("got %v, %v, want the message", m, err)
	}
	c.wantStatus(sub, "404", "No Messages")
	nothing()
	e.move(t, s)
	nothing()
}

// Requests with a budget take turns. Each pays for what it got and for nothing else: not for its turns, and not for
// messages that were too big for another one (https://github.com/nats-io/nats-server/issues/8314).
func budgetPaysForWhatCame(t *testing.T, e *env) {
	const budget, small, messages = 4000, 10, 60
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "BUDGET", Subjects: []string{"budget"}})
	c.consumer(s, &jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
	ask := func(bytes int) *nats.Subscription {
		return c.pullOnce("BUDGET", "c", fmt.Sprintf(`{"batch":%d,"max_bytes":%d,"expires":60000000000}`, messages, bytes))
	}
	waiting := []*nats.Subscription{ask(budget), ask(budget)}
	var passed []*nats.Subscription
	for i := range messages {
		if i%(messages/small) == 0 {
			passed = append(passed, ask(small))
		}
		c.publish("budget", strings.Repeat("x", 100))
	}
	for _, sub := range passed {
		c.wantStatus(sub, "409", "Message Size Exceeds MaxBytes")
	}
	for i, sub := range waiting {
		left := budget
		for {
			m, err := sub.NextMsgWithContext(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			if m.Header.Get("Status") == "" {
				left -= len(m.Subject) + len(m.Reply) + len(m.Data)
				continue
			}
			if got := m.Header.Get("Nats-Pending-Bytes"); got != strconv.Itoa(left) || left > 200 {
				t.Errorf("request %d ended with %v, %d bytes are left", i, m.Header, left)
			}
			break
		}
	}
}
