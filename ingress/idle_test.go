package ingress

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// TestRareMessageComesAtOnce: a consumer whose messages are rare among others waits for an hour, its client asking
// again whenever a request ends. That costs no entry and no call of the API, and the message is delivered when it
// is applied, not when the next request comes (https://github.com/nats-io/nats-server/issues/8500).
func TestRareMessageComesAtOnce(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", m{"filter_subject": "s.rare"})
		n.fill(3000)
		calls := func() uint64 { return must[jsapi.AccountInfoResponse](n, "INFO", nil).API.Total }
		const ask = `{"batch":10,"expires":30000000000,"idle_heartbeat":15000000000}`
		n.pull("C", ask)
		pass(time.Minute) // the cursor moved over the others, and that was recorded
		entries, before := n.w.group.applied(), calls()
		for range 120 {
			n.pull("C", ask)
			pass(30 * time.Second)
		}
		if got := calls(); got != before+1 { // the one that tells
			t.Errorf("%d calls of the API in an idle hour, want none", got-before-1)
		}
		if got := n.w.group.applied(); got != entries {
			t.Errorf("%d entries in an idle hour, want none", got-entries)
		}
		pull := n.pull("C", ask)
		begin := time.Now()
		n.publish("s.rare", "", "x")
		wantSeqs(t, n, pull, 3001)
		if d := time.Since(begin); d > 100*time.Millisecond {
			t.Errorf("delivered after %v", d)
		}
	})
}

// TestWindowDoesNotSlide: the duplicate window of an id begins with its first publish, and a duplicate does not
// extend it, whoever leads and whether the message is still there
// (https://github.com/nats-io/nats-server/issues/7302).
func TestWindowDoesNotSlide(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"duplicate_window": time.Minute})
		id := func() string { return n.publish("s.a", header("Nats-Msg-Id", "1"), "x") }
		for round := 1; round <= 3; round++ {
			n.wantAck(id(), fmt.Sprintf(`{"stream":"S","seq":%d}`, round))
			n.send("$JS.API.STREAM.PURGE.S", "", "")
			pass(30 * time.Second)
			known := fmt.Sprintf(`{"stream":"S","seq":%d,"duplicate": true}`, round)
			n.wantAck(id(), known)
			n.endTerm()
			n.lead()
			n.wantAck(id(), known)
			pass(30 * time.Second)
		}
	})
}
