//go:build planted_nofence

package replication

import (
	"regexp"
	"testing"
)

// TestPlantedMissingFenceIsCaught passes only if the simulation reports that a build
// without the fence loses messages, stores refused ones or gives sequences to nothing.
func TestPlantedMissingFenceIsCaught(t *testing.T) {
	t.Parallel()
	caught(t, "TestSim", 12, regexp.MustCompile(
		`was acknowledged and is lost|said not to be stored, is|was given to nothing|acknowledged as "`))
}
