package ingress

import (
	"sync/atomic"
	"testing"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestFullNodeRefuses: a node without room refuses new messages with one error,
// answers what is stored already, and goes on with everything else.
func TestFullNodeRefuses(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	inWorld(t, Config{Full: full.Load}, func(t *testing.T, n *node) {
		n.stream(nil)
		id := "NATS/1.0\r\nNats-Msg-Id: a\r\n\r\n"
		n.wantAck(n.publish("s.a", id, "x"), `{"stream":"S","seq":1}`)
		full.Store(true)
		n.wantError(n.publish("s.a", "", "y"), jsapi.CodeInsufficientResources, "insufficient resources")
		n.wantError(n.publish("s.a", withAck("none"), "y"), jsapi.CodeInsufficientResources, "insufficient resources")
		n.wantAck(n.publish("s.a", id, "x"), `{"stream":"S","seq":1,"duplicate": true}`)
		n.consumer("C", m{"ack_policy": "explicit"})
		if got := n.deliveries(n.pull("C", `{"batch":1,"no_wait":true}`)); len(got) == 0 {
			t.Error("nothing is delivered")
		}
		if st := n.state(); st.Msgs != 1 {
			t.Errorf("%d messages, want 1", st.Msgs)
		}
		full.Store(false)
		n.wantAck(n.publish("s.a", "", "z"), `{"stream":"S","seq":2}`)
	})
}

// TestFullNodeKeepsWhatItAcked: a message that a leader ack was given for is planned
// again after a rebuild, although there is no room any more.
func TestFullNodeKeepsWhatItAcked(t *testing.T) {
	t.Parallel()
	var full atomic.Bool
	inWorld(t, Config{Full: full.Load}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.term.hold()
		a := n.publish("s.a", withAck("leader"), "a")
		n.term.durable(0)
		wantLevel(t, n.answer(a), "leader", `{"stream":"S","seq":1}`)
		full.Store(true)
		n.term.refuse(record.ErrStalePlan)
		n.term.release()
		n.answer(a)
		if st := n.state(); st.Msgs != 1 {
			t.Errorf("%d messages, a leader-acked one is lost", st.Msgs)
		}
	})
}
