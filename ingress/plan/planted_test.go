//go:build planted_earlyack

package plan

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPlantedEarlyAckIsCaught passes only if the test of the answers fails, and says so,
// in a build that answers before the envelope is applied.
func TestPlantedEarlyAckIsCaught(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAnswersWaitForTheirEnvelope$")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "answered when the leader alone has it") {
		t.Errorf("the planted bug is not noticed: %v\n%s", err, out)
	}
}
