//go:build planted_nolease

package replication

import (
	"regexp"
	"testing"
)

// TestPlantedNoLeaseIsCaught passes only if the simulation reports that a leader answers
// from a state that is behind what another one acknowledged.
func TestPlantedNoLeaseIsCaught(t *testing.T) {
	t.Parallel()
	caught(t, "TestSim", 12, regexp.MustCompile(`a read shows sequence \d+ after \d+ was acknowledged`))
}

// TestPlantedNoLeaseHasTwoLeaders is the same with a plan that always meets the fault.
func TestPlantedNoLeaseHasTwoLeaders(t *testing.T) {
	t.Parallel()
	caught(t, "TestATransferThatIsNotHeardOf", 1, regexp.MustCompile(`two nodes may act as the leader`))
}
