package link

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A client that asked and then went away has no interest at once; one whose subscription has not arrived
// yet has.
func TestYoungInterestEndsWithItsSubscription(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tab := &table{grace: 2 * time.Second, limit: 10}
		young := func(subject string, since time.Time, want bool) {
			t.Helper()
			if got := tab.young(subject, since); got != want {
				t.Errorf("%s: %v, want %v", subject, got, want)
			}
		}
		asked := time.Now()
		young("inbox.a", asked, true) // there is no table yet
		tab.completed(asked)
		tab.add("inbox.a", "", 0)
		tab.add("mux.*", "", 0)
		pass(time.Millisecond)
		tab.remove("inbox.a", "")
		tab.remove("mux.*", "")
		young("inbox.a", asked, false)
		young("mux.7", asked, false)
		young("mux.7.x", asked, true) // nobody knows it
		young("_R_.x", asked, true)
		young("inbox.a", time.Now().Add(1), true) // asked after that: a new subscription is on its way
		tab.add("inbox.a", "", 0)
		young("inbox.a", asked, true) // it came back
		tab.remove("inbox.a", "")

		tab.reset()
		tab.completed(time.Now())
		young("inbox.a", asked, true) // the hub of a new connection has said nothing of it
		pass(2 * time.Second)
		young("inbox.a", asked, false) // too old to be on its way
	})
}

func TestWithdrawnIsBounded(t *testing.T) {
	t.Parallel()
	var w withdrawn
	t0 := time.Unix(100, 0)
	for i := range maxWithdrawn + 10 {
		w.add(fmt.Sprintf("s.%d", i), t0, t0.Add(-time.Second))
	}
	if w.since("s.9", t0) || !w.since("s.10", t0) || w.subs.count != maxWithdrawn {
		t.Errorf("%d are remembered, want the newest %d", w.subs.count, maxWithdrawn)
	}
	if w.since("s.10", t0.Add(1)) {
		t.Error("an end before the time counts")
	}
	later := t0.Add(time.Minute)
	w.add("last", later, later.Add(-time.Second))
	if w.subs.count != 1 || w.since("s.10", t0) || !w.since("last", t0) {
		t.Errorf("%d are remembered after a minute, want 1", w.subs.count)
	}
}

func TestCovers(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{"a", "a.b", "*", "a.*", "*.b", "a.>", ">", "*.*.c"} {
		for _, subject := range []string{"a", "b", "a.b", "a.c", "x.b", "a.b.c", "x.y.z"} {
			if got, want := covers(pattern, subject), matches(pattern, subject); got != want {
				t.Errorf("%s %s: %v, want %v", pattern, subject, got, want)
			}
		}
	}
}
