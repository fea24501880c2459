package ingress

import (
	"testing"
	"time"
)

// TestRollupsInOneEnvelopeLeaveNothing: neither messages nor notes of those that left with the
// envelope that stored them.
func TestRollupsInOneEnvelopeLeaveNothing(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(m{"allow_rollup_hdrs": true})
		n.consumer("C", nil)
		rollup := Msg{Subject: "s.a", Header: []byte(header("Nats-Rollup", "sub")), Data: []byte("x")}
		goOn := n.stall()
		for range 100 {
			n.hub.conn.inject(rollup)
		}
		goOn()
		pass(time.Second)
		if st := n.state(); st.Msgs != 1 || st.LastSeq != 100 {
			t.Fatalf("%d messages up to %d, want the last of 100", st.Msgs, st.LastSeq)
		}
		defer n.stall()()
		if st := n.srv.engine(1).byName[nameKey{"A", "S"}]; len(st.hushed) != 0 {
			t.Errorf("%d notes are left", len(st.hushed))
		}
	})
}
