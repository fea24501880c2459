//go:build planted_nofence || planted_belowmark || planted_earlycut || planted_earlyack || planted_nolease

package replication

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"
)

// caught runs a test of this binary, which has a planted bug, until one of some seeds
// fails with a message; anything else that goes wrong with it is not a catch.
func caught(t *testing.T, test string, seeds int, violation *regexp.Regexp) {
	t.Helper()
	for seed := 1; seed <= seeds; seed++ {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.count=1",
			"-test.timeout=2m")
		cmd.Env = append(os.Environ(), "SEED="+strconv.Itoa(seed))
		out, err := cmd.CombinedOutput()
		if found := violation.Find(out); err != nil && found != nil {
			t.Logf("seed %d: caught: %s", seed, found)
			return
		}
		t.Logf("seed %d: %v", seed, err)
	}
	t.Errorf("%s does not notice the planted bug in %d seeds: it cannot fail", test, seeds)
}
