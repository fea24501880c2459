//go:build planted_nosync

package seglog

import (
	"strings"
	"testing"
)

// TestPlantedMissingSyncIsCaught passes only if the crash explorer reports that a build without the sync of
// batches loses what was acknowledged.
func TestPlantedMissingSyncIsCaught(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		lost := 0
		x := explore(seed, 40, false)
		for _, v := range x.violations {
			if strings.Contains(v, "acknowledged call lost") {
				lost++
			}
		}
		if lost == 0 {
			t.Errorf("seed %d: %d crashes and no loss reported: the crash test cannot fail; violations: %.2000v",
				seed, x.crashes, x.violations)
		}
		t.Logf("seed %d: %d crashes, %d losses caught", seed, x.crashes, lost)
	}
}
