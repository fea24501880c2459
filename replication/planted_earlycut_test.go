//go:build planted_earlycut

package replication

import (
	"regexp"
	"testing"
)

// TestPlantedEarlyCutIsCaught passes only if the simulation reports that replicas whose
// disk nobody touched are damaged after a power cut.
func TestPlantedEarlyCutIsCaught(t *testing.T) {
	t.Parallel()
	caught(t, "TestSim", 12, regexp.MustCompile(`is damaged, and nobody damaged its disk: .*the log starts at`))
}
