package jepsen

import (
	"slices"
	"testing"
	"time"
)

func TestKinds(t *testing.T) {
	t.Parallel()
	levels := map[Kind]string{HoldfastLeader: "leader", HoldfastNone: "none"}
	for _, k := range Kinds() {
		if got := k.message("a").Header.Get("Holdfast-Ack"); got != levels[k] {
			t.Errorf("writers of %s ask for level %q, want %q", k, got, levels[k])
		}
		if err := (&Cluster{Kind: k}).choose(); err != nil || k.head() == "" {
			t.Errorf("%s: named %q, %v", k, k.head(), err)
		}
		if want := k != Default && k != Always; k.Ours() != want {
			t.Errorf("%s is ours: %v", k, k.Ours())
		}
	}
	if err := (&Cluster{Kind: "kafka"}).choose(); err == nil {
		t.Error("kafka is a system")
	}
}

// TestSides: either minority is one, and a majority with the node between them.
func TestSides(t *testing.T) {
	t.Parallel()
	for _, size := range sizes() {
		w := &world{c: &Cluster{}, say: t.Logf}
		for range size {
			w.c.Nodes = append(w.c.Nodes, &Node{ID: "n"})
		}
		s := NewPlan(uint64(size), []string{"part-kill"}, size, 1)[0]
		a, b, c := w.sides(s)
		all := append(append(slices.Clone(a), b...), c)
		slices.SortFunc(all, func(x, y *Node) int { return slices.Index(w.c.Nodes, x) - slices.Index(w.c.Nodes, y) })
		if len(a) != size/2 || len(b) != len(a) || !slices.Equal(all, w.c.Nodes) {
			t.Errorf("of %d nodes: %d, %d and one", size, len(a), len(b))
		}
	}
}

// TestVictimsAreAMinority: as many as can be spared, each once, the first of the step among them where it is fixed.
func TestVictimsAreAMinority(t *testing.T) {
	t.Parallel()
	for _, size := range sizes() {
		w := &world{c: &Cluster{}, say: t.Logf}
		for range size {
			w.c.Nodes = append(w.c.Nodes, &Node{})
		}
		for _, s := range NewPlan(3, []string{"kill"}, size, 20) {
			s.Fixed = true
			hit := w.victims(t.Context(), s)
			if len(hit) != minority(size) || hit[0] != w.node(s, 0) || len(hit) == 2 && hit[0] == hit[1] {
				t.Errorf("%d nodes, %s: %d victims", size, s, len(hit))
			}
		}
	}
}

func TestSizeOfOldReports(t *testing.T) {
	t.Parallel()
	if got := (&Report{Seconds: time.Minute.Seconds()}).size(); got != 3 {
		t.Errorf("a report that does not say is of %d nodes", got)
	}
}
