package cases

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// What a message id says about a message does not end with the message, nor with the process
// (https://github.com/nats-io/nats-server/issues/3272, https://github.com/nats-io/nats-server/issues/7302).
func idsOutliveAPurge(t *testing.T, e *env) {
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "IDS", Subjects: []string{"ids"}})
	knownAfterPurge(c, s)
}

// knownAfterPurge publishes a message with an id, purges the stream and sends the message again.
func knownAfterPurge(c *client, s jetstream.Stream) {
	c.t.Helper()
	wantDuplicate(c, false)
	wantDuplicate(c, true)
	if err := s.Purge(bounded(c.t)); err != nil {
		c.t.Fatal(err)
	}
	wantDuplicate(c, true)
}

// wantDuplicate publishes a message with an id, which is the first of its stream or is known.
func wantDuplicate(c *client, known bool) {
	c.t.Helper()
	ack, err := c.js.Publish(bounded(c.t), "ids", nil, jetstream.WithMsgID("id"), jetstream.WithRetryAttempts(50))
	if err != nil || ack.Sequence != 1 || ack.Duplicate != known {
		c.t.Fatalf("answered %+v, %v, want sequence 1, duplicate: %v", ack, err, known)
	}
}

func TestRestartForgetsNoMessageID(t *testing.T) {
	t.Parallel()
	e := start(t, 1)
	c := e.client(t, 0)
	s := c.stream(&jetstream.StreamConfig{Name: "IDS", Subjects: []string{"ids"}})
	knownAfterPurge(c, s)
	if err := e.Nodes[0].Restart(bounded(t)); err != nil {
		t.Fatal(err)
	}
	c = e.client(t, 0)
	wantDuplicate(c, true)
	if st := c.state(s); st.Msgs != 0 || st.LastSeq != 1 {
		t.Errorf("%+v, want no message, and 1 as the last", st)
	}
}
