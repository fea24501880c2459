package cases

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A works longer than its ack wait, B has got the message meanwhile. The work was done: A's ack settles the message,
// as JetStream has it, A is told so, and B's nak of what is settled brings nothing back. But what A only gives back
// is B's: A's nak and its sign of progress have no effect (https://github.com/nats-io/nats-server/issues/4786).
func lateWordOfTheFirst(t *testing.T, e *env) {
	a, b := e.client(t, 0), e.client(t, 0)
	s := a.stream(&jetstream.StreamConfig{Name: "LATE", Subjects: []string{"late"}, Retention: jetstream.WorkQueuePolicy})
	// The second delivery has an hour.
	cfg := jetstream.ConsumerConfig{
		Durable: "c", BackOff: []time.Duration{100 * time.Millisecond, time.Hour}, MaxDeliver: 5,
		AckPolicy: jetstream.AckExplicitPolicy,
	}
	ours, theirs := a.consumer(s, &cfg), b.consumer(s, &cfg)
	deliver := func() (slow, again jetstream.Msg) {
		a.publish("late", "work")
		slow = a.fetch(ours, 1)[0]
		return slow, b.fetch(theirs, 1)[0]
	}
	// answered sends a word about a delivery and waits until the server has taken it.
	answered := func(m jetstream.Msg, word string) {
		if r, err := a.nc.RequestWithContext(bounded(t), m.Reply(), []byte(word)); err != nil || len(r.Data) != 0 {
			t.Fatalf("%s: answered %v, %v", word, r, err)
		}
	}
	settled := func() {
		if in := a.info(ours); in.NumAckPending != 0 || in.NumPending != 0 || in.NumRedelivered != 0 {
			t.Fatalf("%d unacked, %d pending, %d redelivered, want none", in.NumAckPending, in.NumPending, in.NumRedelivered)
		}
		a.wantHeld(s)
	}
	slow, again := deliver()
	a.ack(slow)
	settled()
	answered(again, "-NAK")
	b.ack(again)
	settled()

	slow, again = deliver()
	answered(slow, "-NAK")
	answered(slow, "+WPI")
	a.wantHeld(s, 2)
	b.wantStatus(b.pullOnce("LATE", "c", `{"no_wait":true}`), "404", "No Messages")
	answered(again, "-NAK")
	third := b.fetch(theirs, 1)[0]
	if meta, err := third.Metadata(); err != nil || meta.NumDelivered != 3 {
		t.Fatalf("after B's nak: %+v, %v, want the third delivery", meta, err)
	}
	b.ack(third)
	settled()
}

// A nak that waits for its delay is unacked, and max_ack_pending bounds what is unacked, as in JetStream. Whoever
// wants the others now raises it: they come at once, not when something else happens
// (https://github.com/nats-io/nats-server/issues/6093, https://github.com/nats-io/nats.go/issues/968).
func waitingNaksKeepTheirPlace(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "NAKS", Subjects: []string{"naks"}})
	cfg := jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 2}
	cons := c.consumer(s, &cfg)
	for i := range 5 {
		c.publish("naks", fmt.Sprint(i))
	}
	for _, m := range c.fetch(cons, 2) {
		if err := m.NakWithDelay(time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	batch, err := cons.Fetch(3, jetstream.FetchMaxWait(soon))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if in := c.info(cons); in.NumWaiting != 1 || in.NumAckPending != 2 || in.NumPending != 3 {
			return fmt.Errorf("%d requests wait, %d messages are unacked, %d pending; want 1, 2 and 3",
				in.NumWaiting, in.NumAckPending, in.NumPending)
		}
		return nil
	})
	cfg.MaxAckPending = 5
	c.consumer(s, &cfg)
	var got []jetstream.Msg
	for m := range batch.Messages() {
		got = append(got, m)
	}
	wantSequences(t, got, 3, 4, 5)
}

// Messages that expire are not pending any more, so they cannot fill the window for ever
// (https://github.com/nats-io/nats-server/issues/2083).
func expiryFreesTheWindow(t *testing.T, e *env) {
	c := e.client(t, 0)
	cfg := jetstream.StreamConfig{Name: "EXPIRE", Subjects: []string{"expire"}}
	s := c.stream(&cfg)
	cons := c.consumer(s, &jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 2,
	})
	for i := range 3 {
		c.publish("expire", fmt.Sprint(i))
	}
	wantSequences(t, c.fetch(cons, 2), 1, 2)
	age := func(d time.Duration) {
		cfg.MaxAge, cfg.Duplicates = d, 100*time.Millisecond
		if _, err := c.js.UpdateStream(bounded(t), cfg); err != nil {
			t.Fatal(err)
		}
	}
	age(100 * time.Millisecond)
	eventually(t, func() error {
		if st, in := c.state(s), c.info(cons); st.Msgs != 0 || in.NumAckPending != 0 || in.NumPending != 0 {
			return fmt.Errorf("%d messages, %d unacked, %d pending, want none", st.Msgs, in.NumAckPending, in.NumPending)
		}
		return nil
	})
	age(0)
	for i := range 2 {
		c.publish("expire", fmt.Sprint(i))
	}
	wantSequences(t, c.fetch(cons, 2), 4, 5)
}
