package cases

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

// What a worker in a process of its own does: workerVariable is where it connects.
const (
	workerVariable = "CASES_TEST_WORKER"
	workerTakes    = 10
	workerDoes     = 3 // of them; it goes on working on the others
	workerWait     = 500 * time.Millisecond
)

// TestWorker is that process: it takes messages, does some, says so, and works on the others until it is killed.
func TestWorker(t *testing.T) {
	url := os.Getenv(workerVariable)
	if url == "" {
		t.Skip("runs in a process of its own")
	}
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	cons, err := js.Consumer(t.Context(), "KILLED", "c")
	if err != nil {
		t.Fatal(err)
	}
	var msgs []jetstream.Msg
	for len(msgs) < workerTakes {
		m, err := cons.Next(jetstream.FetchMaxWait(soon))
		if err != nil {
			t.Fatal(err)
		}
		msgs = append(msgs, m)
	}
	for _, m := range msgs[:workerDoes] {
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	said := false
	tick := time.NewTicker(workerWait / 10)
	for range tick.C {
		for _, m := range msgs[workerDoes:] {
			if err := m.InProgress(); err != nil {
				t.Fatal(err)
			}
		}
		if !said && time.Since(begun) > 3*workerWait {
			said = true
			fmt.Println("at work") //nolint:forbidigo // to the test
		}
	}
}

// A worker is killed with messages in flight: they are its own while it works on them, and are delivered again, once
// each, soon after (https://github.com/nsqio/nsq/issues/390). What it had done is not.
func killedWorkersGiveBack(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{
		Name: "KILLED", Subjects: []string{"killed"}, Retention: jetstream.WorkQueuePolicy,
	})
	cons := c.consumer(s, &jetstream.ConsumerConfig{
		Durable: "c", AckPolicy: jetstream.AckExplicitPolicy, AckWait: workerWait,
	})
	for i := range workerTakes {
		c.publish("killed", fmt.Sprint(i))
	}
	log := filepath.Join(t.TempDir(), "log")
	worker, err := process.StartChild(log, []string{workerVariable + "=" + e.Nodes[0].URL()},
		os.Args[0], "-test.run=^TestWorker$")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Signal(syscall.SIGKILL); <-worker.Done() })
	eventually(t, func() error {
		if b, err := os.ReadFile(log); err != nil || !bytes.Contains(b, []byte("at work")) {
			return fmt.Errorf("the worker says %q, %w", b, err)
		}
		return nil
	})
	if m, err := cons.Next(jetstream.FetchMaxWait(workerWait)); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("delivered while it is worked on: %v, %v", m, err)
	}
	if in := c.info(cons); in.NumAckPending != workerTakes-workerDoes || in.NumRedelivered != 0 {
		t.Errorf("%+v, want %d messages out", in, workerTakes-workerDoes)
	}
	killed := time.Now()
	if err := worker.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-worker.Done()
	again := c.fetch(cons, workerTakes-workerDoes)
	if took := time.Since(killed); took > soon/3 {
		t.Errorf("delivered again after %v", took)
	}
	wantSequences(t, again, 4, 5, 6, 7, 8, 9, 10)
	for _, m := range again {
		if meta, err := m.Metadata(); err != nil || meta.NumDelivered != 2 {
			t.Errorf("%+v, %v; want the second delivery", meta, err)
		}
		c.ack(m)
	}
	c.wantHeld(s)
	if in := c.info(cons); in.NumAckPending != 0 || in.AckFloor.Stream != workerTakes {
		t.Errorf("%+v, want everything done", in)
	}
}
