//go:build planted_nosync

package chaos

import (
	"context"
	"testing"
	"time"
)

// TestPlantedMissingSyncIsCaught takes the power of all nodes of a build whose log
// does not sync, and passes only if the verdict says that acknowledged messages are lost.
func TestPlantedMissingSyncIsCaught(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c := newCluster(ctx, t, "powerloss", "planted_nosync")
	must(t, "starting", c.StartAll())
	must(t, "waiting for the cluster", c.WaitReady(ctx))
	load, err := NewLoad(ctx, c.URLs())
	must(t, "preparing the load", err)
	// A stop in order seals and syncs: what it leaves is durable, so that there is a cluster afterwards.
	for _, n := range c.Nodes {
		must(t, "stopping "+n.ID, n.Stop())
	}
	must(t, "starting again", c.StartAll())
	must(t, "waiting for the cluster", c.WaitReady(ctx))
	must(t, "starting the load", load.Start(ctx))
	must(t, "publishing", progress(ctx, load, 500))
	must(t, "killing all", c.KillAll())
	load.Stop()
	must(t, "starting all", c.StartAll())
	must(t, "waiting for the cluster", c.WaitReady(ctx))
	v, err := load.Judge(ctx)
	must(t, "judging", err)
	t.Logf("\n%s", v)
	lost := 0
	for _, counts := range []map[string]*Count{v.All, v.Work} {
		if q := counts["quorum"]; q != nil {
			lost += q.Lost
		}
	}
	if lost == 0 || v.Failed() == "" {
		t.Error("a log without syncs loses nothing at a power cut: the test cannot fail")
	}
}
