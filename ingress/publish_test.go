package ingress

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/publish"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestPublishIsAnsweredWhenItIsApplied(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.wantAck(n.publish("s.a", "", "one"), `{"stream":"S","seq":1}`)
		n.term.hold()
		two := n.publish("s.a", "", "two")
		n.silent(two, "nothing is committed")
		n.term.durable(0)
		n.silent(two, "a quorum ack does not follow from the leader's fsync")
		n.term.commit()
		n.wantAck(two, `{"stream":"S","seq":2}`)
		if st := n.state(); st.Msgs != 2 || st.LastSeq != 2 {
			t.Fatalf("state %+v", st)
		}
	})
}

// TestPublishOutcomes ends the envelope of a publish in every way there is.
func TestPublishOutcomes(t *testing.T) {
	t.Parallel()
	refused := fmt.Errorf("transfer: %w", record.ErrRefused)
	for name, tc := range map[string]struct {
		end  func(n *node)
		want string // PubAck
		text string // or text of 10008
		msgs uint64 // stored in the end
	}{
		"applied":               {func(n *node) { n.term.release() }, `{"stream":"S","seq":1}`, "", 1},
		"refused, then applied": {func(n *node) { n.term.refuse(refused); n.term.release() }, `{"stream":"S","seq":1}`, "", 1},
		"stale, then applied": {
			func(n *node) { n.term.refuse(record.ErrStalePlan); n.term.release() }, `{"stream":"S","seq":1}`, "", 1,
		},
		"outcome unknown and stored":     {func(n *node) { n.term.lose(); n.endTerm() }, "", publish.TextUnknown, 1},
		"outcome unknown and not stored": {func(n *node) { n.term.refuse(record.ErrUnknownOutcome) }, "", publish.TextUnknown, 0},
		"not the leader any more": {
			func(n *node) { n.term.refuse(record.ErrNotLeader); n.endTerm() }, "", publish.TextNotStored, 0,
		},
		"in flight at the end of the term": {func(n *node) { n.endTerm() }, "", publish.TextUnknown, 0},
		"failing barrier": {
			func(n *node) {
				n.term.set(func() { n.term.barriers = []error{record.ErrNotLeader} })
				n.term.refuse(refused)
				n.endTerm()
			}, "", publish.TextNotStored, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, Config{}, func(t *testing.T, n *node) {
				n.stream(nil)
				n.term.hold()
				inbox := n.publish("s.a", "", "x")
				n.silent(inbox, "it has no outcome yet")
				tc.end(n)
				wait()
				if tc.want != "" {
					n.wantAck(inbox, tc.want)
				} else {
					n.wantError(inbox, jsapi.CodeClusterNotAvail, tc.text)
				}
				pass(time.Minute) // nothing comes late
				n.answer(inbox)
				n.endTerm()
				n.lead()
				if st := n.state(); st.Msgs != tc.msgs {
					t.Fatalf("%d messages stored, want %d", st.Msgs, tc.msgs)
				}
			})
		})
	}
}
