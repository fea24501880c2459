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
		got := within(NewPlan(seed, names, maxSteps), 30*time.Minute, 1.5)
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
			got = append(got, within(NewPlan(seed, names, maxSteps), shortRun, 1.1)...)
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

// TestCostsAreOfFaults: a name that is gone would go unnoticed.
func TestCostsAreOfFaults(t *testing.T) {
	t.Parallel()
	for name, d := range costs() {
		if _, ok := nemeses()[name]; !ok || d <= 0 {
			t.Errorf("%s costs %v, and is no fault", name, d)
		}
	}
}
