package cases

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// An ack settles the message that it names, whatever lies below it and whatever the filter is by then, on every
// replica; a work queue has no cumulative acks (https://github.com/nats-io/nats-server/issues/8423).
func ackStaysWithinItsFilter(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "WITHIN", Subjects: []string{"within.a.*", "within.b.*"}, Retention: jetstream.WorkQueuePolicy, Replicas: 3,
	})
	_, err := s.CreateConsumer(bounded(t), jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckAllPolicy})
	wantCode(t, err, 10098)
	cfg := jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "within.a.*",
	}
	cons := c.consumer(s, &cfg)
	for i := range 3 {
		c.publish(fmt.Sprint("within.a.", i), "a")
		c.publish(fmt.Sprint("within.b.", i), "b")
	}
	as := c.fetch(cons, 3)
	wantSequences(t, as, 1, 3, 5)
	c.ack(as[2])
	c.wantHeld(s, 1, 2, 3, 4, 6)
	cfg.FilterSubject = "within.b.*"
	cons = c.consumer(s, &cfg)
	bs := c.fetch(cons, 1) // an update does not go back
	wantSequences(t, bs, 6)
	c.ack(bs[0])
	c.wantHeld(s, 1, 2, 3, 4)
	e.replicasAgree(t)
	e.move(t, s)
	c.wantHeld(s, 1, 2, 3, 4)
	c.ack(as[1]) // a fact from before the filter changed
	c.wantHeld(s, 1, 2, 4)
	if in := c.info(cons); in.NumAckPending != 1 {
		t.Errorf("%d unacked, want 1", in.NumAckPending)
	}
	e.replicasAgree(t)

	// The same with cumulative acks, where there are some: those of b do not settle a.
	s = c.stream(&jetstream.StreamConfig{Name: "CUMULATIVE", Subjects: []string{"cumulative.*"}, Replicas: 3})
	cfg.AckPolicy, cfg.FilterSubject = jetstream.AckAllPolicy, "cumulative.a"
	cons = c.consumer(s, &cfg)
	for range 2 {
		c.publish("cumulative.a", "")
		c.publish("cumulative.b", "")
	}
	as = c.fetch(cons, 2)
	for range 2 {
		c.publish("cumulative.b", "")
	}
	cfg.FilterSubject = "cumulative.b"
	cons = c.consumer(s, &cfg)
	c.ack(c.fetch(cons, 2)[1])
	if in := c.info(cons); in.NumAckPending != len(as) {
		t.Errorf("%d unacked, want the two of a", in.NumAckPending)
	}
}

// Consumers of a part of a work queue take messages, ack none and are deleted, over and over: no message goes with
// them (https://github.com/nats-io/nats-server/issues/5612).
func nothingLostByConsumers(t *testing.T, e *env) {
	const subjects, messages, rounds = 10, 100, 20
	c, publisher := e.client(t, 0), e.client(t, 1)
	s := c.stream(&jetstream.StreamConfig{
		Name: "COME", Subjects: []string{"come.*"}, Retention: jetstream.WorkQueuePolicy, Replicas: 3,
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for i := range messages {
			if _, err := publisher.js.PublishAsync(fmt.Sprint("come.", i%subjects), fmt.Append(nil, i)); err != nil {
				t.Error(err)
			}
		}
		<-publisher.js.PublishAsyncComplete()
	})
	for i := range rounds {
		cons, err := s.CreateConsumer(bounded(t), jetstream.ConsumerConfig{
			AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: fmt.Sprint("come.", i%subjects),
		})
		if err != nil {
			t.Fatal(err)
		}
		subject := fmt.Sprint("come.", i%subjects)
		taken := c.fetch(cons, 1) // at least, so that there is something to lose
		batch, err := cons.FetchNoWait(messages)
		if err != nil {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			taken = append(taken, m)
		}
		if err := batch.Error(); err != nil {
			t.Fatal(err)
		}
		for _, m := range taken {
			if m.Subject() != subject {
				t.Errorf("a consumer of %s got %s", subject, m.Subject())
			}
		}
		if err := s.DeleteConsumer(bounded(t), cons.CachedInfo().Name); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	if st := c.state(s); st.Msgs != messages || st.LastSeq != messages {
		t.Fatalf("%+v, want %d messages", st, messages)
	}
	e.replicasAgree(t)
	all := c.consumer(s, &jetstream.ConsumerConfig{Durable: "all", AckPolicy: jetstream.AckExplicitPolicy})
	left, count := c.fetch(all, messages), make(map[string]int)
	for i, seq := range sequences(t, left) {
		if seq != uint64(i+1) {
			t.Fatalf("message %d is the %dth", seq, i+1)
		}
		count[left[i].Subject()]++
	}
	for i := range subjects {
		if subject := fmt.Sprint("come.", i); count[subject] != messages/subjects {
			t.Errorf("%d messages of %s, want %d", count[subject], subject, messages/subjects)
		}
	}
}

// Many consumers of one work queue work while its leader moves: nothing is given up, each message is done
// (https://github.com/nats-io/nats-server/issues/5638).
func movesEndNoDelivery(t *testing.T, e *env) {
	const consumers, each, moves = 250, 2, 2
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "MOVES", Subjects: []string{"moves.*"}, Retention: jetstream.WorkQueuePolicy, Replicas: 3,
	})
	advisories, err := c.nc.SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.MOVES.>")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	done := make(map[string]int)
	var workers []*client
	for i := range e.Nodes {
		workers = append(workers, e.client(t, i))
	}
	for i := range consumers {
		worker := workers[i%len(workers)]
		cons := worker.consumer(s, &jetstream.ConsumerConfig{
			Durable: fmt.Sprint("c", i), AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: fmt.Sprint("moves.", i),
			AckWait: soon / 10,
		})
		work, err := cons.Consume(func(m jetstream.Msg) {
			if err := m.Ack(); err != nil {
				t.Error(err)
			}
			mu.Lock()
			done[string(m.Data())]++
			mu.Unlock()
			// What is asked between two leaders is answered by nobody; heartbeats tell the client to ask again.
		}, jetstream.PullExpiry(2*time.Second), jetstream.PullHeartbeat(time.Second/2))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(work.Stop)
	}
	for i := range each {
		for k := range consumers {
			text := fmt.Sprintf("%d of %d", i, k)
			c.publishOnce(fmt.Sprint("moves.", k), text)
		}
		if i%(each/moves) == each/moves/2 {
			e.move(t, s)
		}
	}
	eventually(t, func() error {
		if n := c.state(s).Msgs; n != 0 {
			return fmt.Errorf("%d messages are not done", n)
		}
		return nil
	})
	mu.Lock()
	if len(done) != consumers*each {
		t.Errorf("%d messages were delivered, want %d", len(done), consumers*each)
	}
	mu.Unlock()
	e.replicasAgree(t)

	// The first word about an end is of the one that is meant.
	end := c.publish("moves.end", "")
	cons := c.consumer(s, &jetstream.ConsumerConfig{
		Durable: "end", AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: "moves.end",
	})
	if err := c.fetch(cons, 1)[0].Term(); err != nil {
		t.Fatal(err)
	}
	m, err := advisories.NextMsgWithContext(bounded(t))
	if err != nil || m.Subject != "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.MOVES.end" {
		t.Errorf("message %d was ended, told was %s %s, %v", end, m.Subject, m.Data, err)
	}
}

// A message that several filters of a consumer match is delivered once, and counted once
// (https://github.com/nats-io/nats-server/issues/7779).
func overlappingFiltersDeliverOnce(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "OVERLAP", Subjects: []string{"e.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	cons := c.consumer(s, &jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, FilterSubjects: []string{"e.foo.*", "e.*.foo"},
	})
	for _, subject := range []string{"e.foo.foo", "e.foo.bar", "e.bar.bar", "e.bar.foo", "e.foo.foo"} {
		c.publish(subject, "")
	}
	if in := c.info(cons); in.NumPending != 4 {
		t.Errorf("%d pending, want 4", in.NumPending)
	}
	got := c.fetch(cons, 4)
	wantSequences(t, got, 1, 2, 4, 5)
	if in := c.info(cons); in.NumPending != 0 || in.Delivered.Consumer != 4 {
		t.Errorf("%+v", in)
	}
	for _, m := range got {
		c.ack(m)
	}
	c.wantHeld(s, 3)
}

// The rule that filters of a work queue's consumers do not overlap is the same for a new consumer, for an old one
// that is created anew, and for an update (https://github.com/nats-io/nats-server/issues/4653,
// https://github.com/nats-io/nats-server/issues/3639).
func oneConsumerOnEveryPath(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "PATHS", Subjects: []string{"p.>"}, Retention: jetstream.WorkQueuePolicy,
	})
	with := func(name string, filters ...string) jetstream.ConsumerConfig {
		cfg := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}
		if len(filters) == 1 {
			cfg.FilterSubject = filters[0]
		} else {
			cfg.FilterSubjects = filters
		}
		return cfg
	}
	one := with("one", "p.foo.*")
	c.consumer(s, &one)
	two := with("two", "p.bar.x", "p.bar.y")
	c.consumer(s, &two)
	type path func(context.Context, jetstream.ConsumerConfig) (jetstream.Consumer, error)
	for name, f := range map[string]path{
		"create": s.CreateConsumer, "update": s.UpdateConsumer, "either": s.CreateOrUpdateConsumer,
	} {
		consumer := "two"
		if name == "create" {
			consumer = "three"
		}
		for _, filters := range [][]string{{"p.*.foo"}, {"p.foo.*"}, {"p.bar.z", "p.foo.foo"}, {">"}} {
			if _, err := f(bounded(t), with(consumer, filters...)); err == nil {
				t.Errorf("%s: a second consumer for %q", name, filters)
			} else {
				wantCode(t, err, 10100)
			}
		}
	}
	if _, err := c.js.CreateOrUpdateConsumer(bounded(t), "PATHS", with("two", "p.bar.*")); err != nil {
		t.Error(err)
	}
	none := with("three", "p.baz")
	none.FilterSubject = ""
	_, err := s.CreateConsumer(bounded(t), none)
	wantCode(t, err, 10099)
	if in, err := s.Consumer(bounded(t), "three"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("a refused consumer is there: %v, %v", in, err)
	}
}
