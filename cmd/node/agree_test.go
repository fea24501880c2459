package node

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-mq/holdfast/discovery"
)

// TestFoundersDiffer: who has which number of groups is said once, and again when it changes.
func TestFoundersDiffer(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	n := &Node{log: zap.New(core)}
	for _, c := range []struct {
		groups map[string]int
		want   string // empty: they agree
	}{
		{map[string]int{"n1": 2}, ""},
		{map[string]int{"n1": 2, "n2": 2}, ""},
		{map[string]int{"n1": 2, "n2": 1}, "n1 has 2, n2 has 1;"},
		{map[string]int{"n1": 2, "n2": 1, "n3": 3}, "n1 has 2, n2 has 1, n3 has 3;"},
		{map[string]int{"n1": 2, "n2": 2}, ""},
		{map[string]int{"n1": 2, "n2": 1}, "n1 has 2, n2 has 1;"},
	} {
		for range 3 {
			if got := n.agree(c.groups); got != (c.want == "") {
				t.Errorf("%v: agree: %t", c.groups, got)
			}
		}
		var said []string
		for _, entry := range logs.TakeAll() {
			reason, _ := entry.ContextMap()["reason"].(string)
			said = append(said, reason)
		}
		if c.want == "" && len(said) == 0 {
			continue
		}
		if len(said) != 1 || !strings.Contains(said[0], c.want) || !strings.Contains(said[0], "same --groups") {
			t.Errorf("%v: said %q, want %q once", c.groups, said, c.want)
		}
	}
}

// TestOtherFounders: those that are gone, join, or are members have no say.
func TestOtherFounders(t *testing.T) {
	t.Parallel()
	n := &Node{cfg: Config{NodeID: "n1"}}
	tags := discovery.Tags{Expect: 3}
	n.members.Store(&[]discovery.Member{
		{NodeID: "n1", Status: discovery.Alive, Tags: tags},
		{NodeID: "n2", Status: discovery.Alive, Tags: tags},
		{NodeID: "gone", Status: discovery.Failed, Tags: tags},
		{NodeID: "joins", Status: discovery.Alive},
		{NodeID: "member", Status: discovery.Alive, Tags: discovery.Tags{Expect: 3, ClusterID: "c"}},
	})
	if got := n.otherFounders(); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("%q, want n2 alone", got)
	}
	n = &Node{cfg: Config{NodeID: "n1"}, fixed: map[string]string{"n1": "a", "n2": "b"}}
	if got := n.otherFounders(); !slices.Equal(got, []string{"n2"}) {
		t.Errorf("fixed: %q, want n2 alone", got)
	}
}
