package testenv

import (
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A stop in order acknowledges the publishes that are on their way; what comes later
// finds nobody. Nothing is told "outcome unknown".
func TestStopAnswersWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	n := single(t)
	nc, _ := queue(t, n, 1)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	var acks []jetstream.PubAckFuture
	for range 500 {
		f, err := js.PublishAsync("q.a", []byte("hello"))
		if err != nil {
			t.Fatal(err)
		}
		acks = append(acks, f)
	}
	if err := nc.FlushWithContext(bounded(t)); err != nil { // the server has them
		t.Fatal(err)
	}
	stop(t, n.Stop)
	acked := 0
	for i, f := range acks {
		select {
		case <-f.Ok():
			acked++
		case err := <-f.Err():
			if !errors.Is(err, nats.ErrDisconnected) && !errors.Is(err, nats.ErrNoResponders) {
				t.Fatalf("publish %d: %v", i, err)
			}
		case <-bounded(t).Done():
			t.Fatalf("publish %d has no answer", i)
		}
	}
	if acked != len(acks) {
		t.Errorf("%d of %d publishes that the server had were acknowledged", acked, len(acks))
	}
}
