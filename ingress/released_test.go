package ingress

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// onRelease calls f when the row of S is about to give up subjects, with those that stay.
func (n *node) onRelease(f func(stay []string)) {
	n.w.meta.set(func() {
		n.w.meta.fail = func(writes []record.MetaWrite) error {
			for _, w := range writes {
				var row record.StreamRow
				if json.Unmarshal(w.Value, &row) == nil && row.Name == "S" &&
					row.Phase == record.StreamLive && row.Request == nil {
					f(row.Subjects)
				}
			}
			return nil
		}
	})
}

var renamed = strings.Replace(createS, `"s.>"`, `"t.>"`, 1)

// TestReleasedSubjectIsNotServed: once its row gives a subject up another stream may take
// it, so the server must have been told before, however long the engine takes afterwards.
func TestReleasedSubjectIsNotServed(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		stop := make(chan struct{})
		flushed, released := n.hub.conn.flushed(), 0
		n.onRelease(func(stay []string) {
			n.srv.engine(1).q.push(event{kind: evRun, fn: func(*engine) { <-stop }})
			released++
			if got := n.hub.conn.subjects(); !slices.Equal(got, stay) {
				t.Errorf("subscribed %v when all but %v are given up", got, stay)
			}
			if n.hub.conn.flushed() == flushed {
				t.Error("the server need not know of it")
			}
		})
		up := n.send("$JS.API.STREAM.UPDATE.S", "", renamed)
		if released != 1 {
			t.Fatalf("released %d times, want once", released)
		}
		if got := n.hub.conn.inject(Msg{Subject: "s.a"}); got != 0 {
			t.Errorf("a message on the subject that was given up reached %d subscriptions", got)
		}
		close(stop)
		wait()
		n.answer(up)
		n.wantAck(n.publish("t.a", "", "x"), `{"stream":"S","seq":1}`)
	})
}

// TestSubjectIsKeptUntilTheServerKnows: while it may still send messages on the old subject the row
// names it; the step is tried again.
func TestSubjectIsKeptUntilTheServerKnows(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.hub.conn.failFlush(errors.New("down"))
		up := n.send("$JS.API.STREAM.UPDATE.S", "", renamed)
		pass(3 * retryStep)
		n.silent(up, "the server may still know the old subject")
		if row, _ := n.srv.dir.row("A", "S"); !slices.Equal(row.Subjects, []string{"s.>", "t.>"}) {
			t.Errorf("the row has %v, want the old and the new subject", row.Subjects)
		}
		n.hub.conn.failFlush(nil)
		pass(2 * retryStep)
		if body := n.answer(up).body; strings.Contains(body, `"error"`) {
			t.Errorf("answered %s", body)
		}
		if row, _ := n.srv.dir.row("A", "S"); !slices.Equal(row.Subjects, []string{"t.>"}) || row.Request != nil {
			t.Errorf("the row has %v, want the new subject alone", row.Subjects)
		}
	})
}
