//go:build planted_earlyack

package replication

import (
	"regexp"
	"testing"
)

// TestPlantedEarlyAckIsCaught passes only if the simulation reports that what was
// acknowledged is lost, or not done yet.
func TestPlantedEarlyAckIsCaught(t *testing.T) {
	t.Parallel()
	caught(t, "TestSim", 12, regexp.MustCompile(
		`was acknowledged and is (lost|not applied)|acknowledged as "|is there after its delete was acknowledged`))
}
