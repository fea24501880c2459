package ingress

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestLoweredTimesHoldUnderTheNextLeader: the due rows that the first leader wrote are too
// late for lowered times, and the next one comes back to a stream that nobody touches by them.
func TestLoweredTimesHoldUnderTheNextLeader(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		const long = 6 * time.Hour
		n.stream(m{"max_age": long})
		n.consumer("C", m{"inactive_threshold": long})
		n.fill(1)
		// The due row of the stream is there; only now the times are lowered.
		up := n.send("$JS.API.STREAM.UPDATE.S", "", strings.Replace(createS, `{`, `{"max_age":3600000000000,`, 1))
		if body := n.answer(up).body; strings.Contains(body, `"error"`) {
			t.Fatal(body)
		}
		n.consumer("C", m{"inactive_threshold": time.Hour})
		n.endTerm()
		n.lead()
		pass(2*time.Hour + 5*time.Minute) // a consumer that is loaded counts from then on
		messages, _, _, _, _, _ := n.w.group.rows(t)
		if messages != 0 {
			t.Errorf("%d messages past the lowered max_age", messages)
		}
		consumers := 0
		if err := (storeView{n.w.group.store}).All(nothing, func(record.StreamID, []byte) { consumers++ }); err != nil || consumers != 0 {
			t.Errorf("%d consumers past the lowered threshold, %v", consumers, err)
		}
		pass(long)
		if _, _, _, _, _, due := n.w.group.rows(t); due != 0 {
			t.Errorf("%d due rows are left of a stream where nothing is due", due)
		}
	})
}

func nothing(record.StreamID, []byte, *record.StreamState) {}
