package link

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// dumb is the same as sublist, by the definition.
type dumb map[[2]string]bool

func (d dumb) match(subject, queue string) bool {
	for k := range d {
		if matches(k[0], subject) && (queue == "" || k[1] == queue) {
			return true
		}
	}
	return false
}

func matches(pattern, subject string) bool {
	p, s := strings.Split(pattern, "."), strings.Split(subject, ".")
	for i := range p {
		switch {
		case i >= len(s):
			return false
		case p[i] == ">":
			return true
		case p[i] != "*" && p[i] != s[i]:
			return false
		}
	}
	return len(p) == len(s)
}

func TestSublistAgainstDefinition(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		subject := func(tokens []string) string {
			out := make([]string, 1+r.IntN(4))
			for i := range out {
				out[i] = tokens[r.IntN(len(tokens))]
			}
			return strings.Join(out, ".")
		}
		var s sublist
		d := dumb{}
		for step := range 400 {
			sub, queue := subject([]string{"a", "b", "c", "*", ">"}), []string{"", "", "q", "r"}[r.IntN(4)]
			// A > that is not last is a literal token to nobody; the hub refuses such subscriptions.
			if i := strings.Index(sub, ">"); i >= 0 {
				sub = sub[:i+1]
			}
			if r.IntN(3) == 0 {
				s.remove(sub, queue)
				delete(d, [2]string{sub, queue})
			} else {
				s.add(sub, queue, 1+r.IntN(3))
				d[[2]string{sub, queue}] = true
			}
			if s.count != len(d) {
				t.Fatalf("seed %d step %d: %d subscriptions, want %d", seed, step, s.count, len(d))
			}
			ask := subject([]string{"a", "b", "c", "d"})
			for _, q := range []string{"", "q", "r", "none"} {
				if got, want := s.match(ask, q), d.match(ask, q); got != want {
					t.Fatalf("seed %d step %d: %s %q: %v, want %v in %v", seed, step, ask, q, got, want, d)
				}
			}
		}
		for k := range d {
			s.remove(k[0], k[1])
		}
		if s.count != 0 || len(s.literal) != 0 || !s.wild.empty() {
			t.Fatalf("seed %d: not empty: %+v", seed, s)
		}
	}
}

func TestQueueWeights(t *testing.T) {
	t.Parallel()
	var s sublist
	s.add("a", "q", 1)
	s.add("a", "q", 5)
	s.add("a.*", "q", 2)
	s.add("a.*", "q", 7)
	literal, wild := s.literal["a"].queues, s.wild.get("a").next.star.subs.queues
	if s.count != 2 || literal[0].weight != 5 || wild[0].weight != 7 {
		t.Errorf("%+v", s)
	}
	s.remove("a", "other")
	s.remove("b", "")
	s.remove("b.*", "")
	s.remove("a.*", "")
	if s.count != 2 {
		t.Errorf("removing what is not there: %d left of 2", s.count)
	}
}

func FuzzSublist(f *testing.F) {
	f.Add("foo.bar", "foo.*", "foo.bar")
	f.Add("_INBOX.x.*", ">", "_INBOX.x.1")
	f.Add("a..b", "*.", ".")
	f.Fuzz(func(t *testing.T, one, two, ask string) {
		if strings.ContainsAny(ask, "*>") {
			t.Skip() // not literal
		}
		var s sublist
		d := dumb{}
		for _, sub := range []string{one, two} {
			if sub == "" || strings.Contains(sub, ">.") || strings.Count(sub, ">") > 1 {
				t.Skip() // no subscription
			}
			s.add(sub, "", 1)
			d[[2]string{sub, ""}] = true
		}
		if got, want := s.match(ask, ""), d.match(ask, ""); got != want {
			t.Fatalf("%q %q: %q %v, want %v", one, two, ask, got, want)
		}
		s.remove(one, "")
		s.remove(two, "")
		if s.count != 0 || len(s.literal) != 0 || !s.wild.empty() {
			t.Fatalf("not empty: %+v", s)
		}
	})
}

func TestInterestRules(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tab := &table{grace: 2 * time.Second, limit: 10}
		has := func(subject string, want bool) {
			t.Helper()
			if got := tab.has(subject); got != want {
				t.Errorf("%s: %v, want %v", subject, got, want)
			}
		}
		hasQueue := func(subject string, want bool) {
			t.Helper()
			if got := tab.hasQueue(subject, "q"); got != want {
				t.Errorf("%s queue q: %v, want %v", subject, got, want)
			}
		}
		has("a", true) // nothing is known yet
		tab.add("a", "", 1)
		tab.add("w.*", "q", 1)
		pass(time.Hour)
		has("nobody", true) // still not complete
		tab.completed(time.Now())
		pass(2*time.Second - 1)
		has("nobody", true)
		pass(1)
		has("nobody", false)
		has("a", true)
		hasQueue("a", false)
		has("w.1", true)
		hasQueue("w.1", true)
		has("w.1.2", false)
		has("_R_.xyz", true)
		tab.remove("a", "")
		has("a", false)
		if !tab.settled {
			t.Error("the clock is still looked at")
		}
		tab.doubt()
		has("nobody", true)
		hasQueue("a", true)
		tab.reset()
		tab.completed(time.Now())
		has("nobody", true)
		pass(2 * time.Second)
		has("nobody", false)
		has("w.1", false)
	})
}

func TestInterestOverflow(t *testing.T) {
	t.Parallel()
	tab := &table{limit: 3}
	tab.completed(time.Now())
	for i := range 3 {
		tab.add(fmt.Sprint(i), "", 1)
	}
	tab.add("1", "", 1) // known already
	if tab.has("x") || tab.size() != 3 {
		t.Errorf("at the limit: %d", tab.size())
	}
	tab.add("x.*", "", 1)
	if !tab.has("y") || tab.size() != 3 {
		t.Errorf("past the limit: interest %v, %d subscriptions", tab.has("y"), tab.size())
	}
	tab.remove("1", "")
	if !tab.has("y") {
		t.Error("what was left out is still unknown")
	}
	tab.reset()
	tab.completed(time.Now())
	if tab.has("y") {
		t.Error("a new table starts afresh")
	}
}

func TestHundredThousandSubscriptions(t *testing.T) {
	const n = 100_000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tab := &table{limit: n}
	tab.completed(time.Now())
	for i := range n {
		if i%2 == 0 {
			tab.add(fmt.Sprintf("_INBOX.%022d.*", i), "", 1)
		} else {
			tab.add(fmt.Sprintf("_INBOX.%022d", i), "", 1)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if each := (after.HeapAlloc - before.HeapAlloc) / n; each > 600 {
		t.Errorf("%d bytes for a subscription", each)
	} else {
		t.Logf("%d bytes for a subscription", each)
	}
	allocs := testing.AllocsPerRun(1000, func() {
		if !tab.has("_INBOX.0000000000000000050000.7") || tab.has("_INBOX.0000000000000000050001.7") ||
			!tab.has("_INBOX.0000000000000000050001") {
			t.Error("wrong answer")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations for a lookup", allocs)
	}
	runtime.KeepAlive(tab)
}

func BenchmarkInterest(b *testing.B) {
	tab := &table{limit: 1 << 20}
	tab.completed(time.Now())
	for i := range 100_000 {
		tab.add(fmt.Sprintf("_INBOX.%d.*", i), "", 1)
		tab.add(fmt.Sprintf("literal.%d", i), "", 1)
	}
	for name, subject := range map[string]string{
		"literal": "literal.5000", "wildcard": "_INBOX.5000.17", "none": "_INBOX.x.17",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tab.has(subject)
			}
		})
	}
}
