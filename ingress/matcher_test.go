package ingress

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// TestMatcherFindsEachOnce: also consumers two of whose filters match, as long as they are there.
func TestMatcherFindsEachOnce(t *testing.T) {
	t.Parallel()
	var m matcher
	add := func(name string, filters ...string) *consumer {
		c := &consumer{cfg: &jsapi.ConsumerConfig{Name: name, FilterSubjects: filters}}
		m.add(c)
		return c
	}
	find := func(subject string) string {
		var found []string
		m.each(subject, func(c *consumer) { found = append(found, c.cfg.Name) })
		slices.Sort(found)
		return strings.Join(found, " ")
	}
	add("all")
	add("one", "a.b")
	add("wild", "a.*")
	two, three := add("two", "a.*", "*.b"), add("three", "a.b", "*.c", "d.>")
	for range 2 {
		for subject, want := range map[string]string{
			"a.b": "all one three two wild", "a.c": "all three two wild", "d.b": "all three two", "d.c": "all three", "x": "all",
		} {
			if diff := cmp.Diff(want, find(subject)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", subject, diff)
			}
		}
	}
	m.remove(two)
	m.remove(two) // again
	if got := find("d.c"); got != "all three" {
		t.Errorf("found %q after the end of two", got)
	}
	m.remove(three)
	if got := find("a.b"); got != "all one wild" || len(m.several) != 0 {
		t.Errorf("found %q, and %d with several filters, after their end", got, len(m.several))
	}
}

// TestPendingOfOverlappingFilters: a message that two filters of a consumer match is one message, when it is
// stored and when it is removed, to this leader and to the next.
func TestPendingOfOverlappingFilters(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		n.stream(nil)
		n.consumer("C", m{"filter_subjects": []string{"s.a.*", "s.*.b"}})
		check := func(when string, want uint64) {
			t.Helper()
			if got := n.consumerInfo("C").NumPending; got != want {
				t.Errorf("%s: %d pending, want %d", when, got, want)
			}
		}
		for _, subject := range []string{"s.a.b", "s.a.x", "s.x.b", "s.x.x", "s.a.b"} {
			n.publish(subject, "", "")
		}
		check("stored", 4)
		n.send("$JS.API.STREAM.MSG.DELETE.S", "", `{"seq":1}`)
		check("removed", 3)
		wantSeqs(t, n, n.pull("C", pullMany(2)), 2, 3)
		check("delivered", 1)
		n.endTerm()
		n.lead()
		check("next leader", 1)
	})
}
