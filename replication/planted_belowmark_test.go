//go:build planted_belowmark

package replication

import (
	"regexp"
	"testing"
)

// TestPlantedBelowMarkIsCaught passes only if it is reported that a build in which a
// replica below its mark votes loses what was acknowledged.
func TestPlantedBelowMarkIsCaught(t *testing.T) {
	t.Parallel()
	caught(t, "TestOldDiskNeverDecides", 3, regexp.MustCompile(`was acknowledged and is lost`))
}
