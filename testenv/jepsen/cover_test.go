package jepsen

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// within are the faults that a run of a length comes to, if each costs slower times what it should.
func within(plan []Step, length time.Duration, slower float64) []string {
	var out []string
	at := firstQuiet
	for _, s := range plan {
		if at += time.Duration(slower * float64(cost(s.Name))); at > length {
			break
		}
		out = append(out, s.Name)
	}
	return out
}

// TestHalfAnHourReachesEveryFault: also on a machine that is half as fast again.
func TestHalfAnHourReachesEveryFault(t *testing.T) {
	t.Parallel()
	names := defaults()
	for seed := range uint64(50) {
		got := within(NewPlan(seed, names, 3, maxSteps), 30*time.Minute, 1.5)
		if len(got) < len(names) {
			t.Fatalf("seed %d: %d of %d faults: %v", seed, len(got), len(names), got)
		}
		first := slices.Sorted(slices.Values(got[:len(names)]))
		if diff := cmp.Diff(names, first); diff != "" {
			t.Errorf("seed %d: one comes again before all have come (-want +got):\n%s", seed, diff)
		}
	}
}

// TestShortRunsReachEveryFaultTogether: as many as there are blocks, of seeds in a row.
func TestShortRunsReachEveryFaultTogether(t *testing.T) {
	t.Parallel()
	names := defaults()
	blocks := uint64(Blocks(names))
	for k := range uint64(50) {
		var got []string
		for seed := k * blocks; seed < (k+1)*blocks; seed++ {
			got = append(got, within(NewPlan(seed, names, 3, maxSteps), shortRun, 1.1)...)
		}
		slices.Sort(got)
		if diff := cmp.Diff(names, slices.Compact(got)); diff != "" {
			t.Errorf("%d seeds from %d on (-want +got):\n%s", blocks, k*blocks, diff)
		}
	}
	for _, list := range [][]string{{"kill"}, {"kill", "part"}, names} {
		if n := Blocks(list); n < 1 || n > len(list) {
			t.Errorf("%d blocks of %d faults", n, len(list))
		}
	}
}

// TestVariantsComeInTurn: within a run, under seeds in a row, and in short runs of the same block.
func TestVariantsComeInTurn(t *testing.T) {
	t.Parallel()
	names, all := defaults(), nemeses()
	blocks := uint64(Blocks(names))
	for _, name := range names {
		variants := all[name].variants
		if len(variants) == 0 {
			continue
		}
		shown := func(plan []Step) (out []string) {
			for _, s := range plan {
				if s.Name == name {
					out = append(out, s.Variant)
				}
			}
			return out
		}
		var short []string
		for k := range uint64(len(variants)) {
			first := shown(NewPlan(7+k*blocks, names, 3, len(names)))
			short = append(short, first...)
			if next := shown(NewPlan(8+k*blocks, names, 3, len(names))); (8+k*blocks)%blocks != 0 && next[0] == first[0] {
				t.Errorf("%s:%s comes first under two seeds in a row", name, first[0])
			}
		}
		long := shown(NewPlan(7, names, 3, len(variants)*len(names)))
		for what, got := range map[string][]string{"a long run": long, "short runs": short} {
			slices.Sort(got)
			if diff := cmp.Diff(slices.Sorted(slices.Values(variants)), got); diff != "" {
				t.Errorf("%s, %s (-want +got):\n%s", name, what, diff)
			}
		}
	}
}

// TestOneVariantCanBeAskedFor also checks that the variants of the same fault go on in turn.
func TestOneVariantCanBeAskedFor(t *testing.T) {
	t.Parallel()
	for _, s := range NewPlan(3, []string{"hang:cut-off"}, 3, 5) {
		if s.Name != "hang" || s.Variant != hangCut || s.fault() != "hang:cut-off" {
			t.Errorf("%s", s)
		}
	}
	got := NewPlan(3, []string{"hang"}, 3, 3)
	if got[0].Variant == got[1].Variant || got[1].Variant == got[2].Variant || got[0].Variant == got[2].Variant {
		t.Errorf("three hangs: %v", got)
	}
	for _, s := range NewPlan(3, defaults(), 3, 200) {
		if s.Variant == clockCorrect {
			t.Errorf("%s comes, and nobody asked for it", s)
		}
	}
}

// TestOneNodeOnly: a step that may hit one node only keeps a permutation.
func TestOneNodeOnly(t *testing.T) {
	t.Parallel()
	for _, size := range sizes() {
		for _, s := range NewPlan(3, []string{"bitflip"}, size, 20) {
			before := slices.Clone(s.Order)
			for node := range size {
				got := s.on(node)
				if got.Order[0] != node || !got.Fixed || !permutes(got.Order, size) {
					t.Errorf("%s on %d: %s", s, node, got)
				}
			}
			if !slices.Equal(s.Order, before) {
				t.Errorf("the order of the plan was %v and is %v", before, s.Order)
			}
		}
	}
}

// TestCostsAreOfFaults: a name that is gone would go unnoticed.
func TestCostsAreOfFaults(t *testing.T) {
	t.Parallel()
	for name, d := range costs() {
		if _, ok := nemeses()[name]; !ok || d <= 0 {
			t.Errorf("%s costs %v, and is no fault", name, d)
		}
	}
}

// permutes says whether an order names each of so many nodes once.
func permutes(order []int, size int) bool {
	sorted := slices.Sorted(slices.Values(order))
	for i, node := range sorted {
		if node != i {
			return false
		}
	}
	return len(sorted) == size
}
