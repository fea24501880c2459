package testenv

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A stop in order acknowledges the publishes that are on their way; what comes later
// finds nobody. Nothing is told "outcome unknown".
//
// The replies are read from a channel: jetstream.PublishAsync gives every future that
// its own goroutine has not served yet an error when the connection ends, though its
// answer was read before.
func TestStopAnswersWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	const count = 500
	n := single(t)
	queue(t, n, 1)
	down := make(chan struct{})
	nc, err := nats.Connect(n.URL(), nats.NoReconnect(), nats.ClosedHandler(func(*nats.Conn) { close(down) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	inbox := nc.NewInbox()
	replies := make(chan *nats.Msg, 2*count)
	if _, err := nc.ChanSubscribe(inbox+".*", replies); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if err := nc.PublishRequest("q.a", fmt.Sprintf("%s.%d", inbox, i), []byte("hello")); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.FlushWithContext(bounded(t)); err != nil { // the server has them
		t.Fatal(err)
	}
	stop(t, n.Stop)
	select {
	case <-down: // everything it sent was read
	case <-bounded(t).Done():
		t.Fatal("the client was not told of the end")
	}
	acked := make(map[string]uint64)
	for len(replies) > 0 {
		m := <-replies
		var ack jetstream.PubAck
		if err := json.Unmarshal(m.Data, &ack); err != nil || ack.Sequence == 0 {
			t.Fatalf("reply to %s: %q %v", m.Subject, m.Data, m.Header)
		}
		if _, twice := acked[m.Subject]; twice {
			t.Errorf("two replies to %s", m.Subject)
		}
		acked[m.Subject] = ack.Sequence
	}
	if len(acked) != count {
		t.Errorf("%d of %d publishes that the server had were acknowledged", len(acked), count)
	}
}
