//go:build planted_nosync

package seglog

import (
	"strings"
	"testing"
)

// TestPlantedMissingSyncIsCaught passes only if the crash explorer reports that a build without the sync in
// writeBatch loses acknowledged entries.
func TestPlantedMissingSyncIsCaught(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		x := explore(seed, 60, false)
		if len(x.violations) == 0 {
			t.Fatalf("seed %d: %d crashes and no violation: the crash test cannot fail", seed, x.crashes)
		}
		t.Logf("caught: %s", x.violations[0])
	}
	x := explore(0, 60, false)
	if !strings.Contains(strings.Join(x.violations, "\n"), "acknowledged entries lost") {
		t.Fatalf("violations do not name the loss: %v", x.violations)
	}
}
