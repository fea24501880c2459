package ingress

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/link"
)

// TestNotSentIsNotDelivered: a message of max_deliver 1 whose delivery was recorded and
// could not be sent is sent once that is possible again, and once only.
func TestNotSentIsNotDelivered(t *testing.T) {
	t.Parallel()
	lease := func(valid bool) func(*node) {
		return func(n *node) { n.term.set(func() { n.term.lease = valid }) }
	}
	refuse := func(err error) func(*node) { return func(n *node) { n.hub.link.refuse(err) } }
	for _, c := range []struct {
		name       string
		bad, again func(*node)
	}{
		{"no lease", lease(false), lease(true)},
		{"link down", refuse(fmt.Errorf("sending: %w", link.ErrDown)), refuse(nil)},
		{"link full", refuse(link.ErrOverflow), refuse(nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				n.consumer("C", m{"max_deliver": 1, "ack_wait": time.Minute})
				n.term.hold()
				in := n.pull("C", `{"batch":10,"expires":300000000000}`)
				n.publish("s.a", "", "x")
				n.publish("s.a", "", "y")
				n.term.commit() // the messages
				c.bad(n)
				n.term.release() // the deliveries
				pass(time.Second)
				wantSeqs(t, n, in)
				c.again(n)
				pass(time.Second)
				got := wantSeqs(t, n, in, 1, 2)
				n.ack(got[0].reply, "+ACK")
				pass(2 * time.Minute) // the other one is given up
				wantSeqs(t, n, in, 1, 2)
				ci := n.consumerInfo("C")
				if ci.NumAckPending != 0 || ci.NumPending != 0 || ci.NumRedelivered != 0 {
					t.Errorf("%d unacked, %d pending, %d redelivered, want none",
						ci.NumAckPending, ci.NumPending, ci.NumRedelivered)
				}
			})
		})
	}
}

// TestNeverSendableIsDelivered: what the link never takes is not tried for ever.
func TestNeverSendableIsDelivered(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", m{"max_deliver": 1})
		n.hub.link.refuse(link.ErrTooLarge)
		in := n.pull("C", `{"batch":10,"expires":300000000000}`)
		n.publish("s.a", "", "x")
		pass(time.Minute)
		n.hub.link.refuse(nil)
		pass(time.Minute)
		wantSeqs(t, n, in)
		if ci := n.consumerInfo("C"); ci.NumAckPending != 0 {
			t.Errorf("%d unacked, want none: it is given up", ci.NumAckPending)
		}
	})
}
