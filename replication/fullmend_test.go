package replication

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/disk"
	"github.com/holdfast-mq/holdfast/testenv/faultfs"
)

// TestDamageOnAFullDisk: a replica is found damaged where there is no room for the marker, or, some bytes later, for a
// new replica. That is no reason to stop the other groups of the node; with room again the replica is replaced, without
// a restart.
func TestDamageOnAFullDisk(t *testing.T) {
	for _, left := range []int64{0, 20 << 10} {
		t.Run(fmt.Sprint(left, " bytes left"), func(t *testing.T) {
			bubble(t, 3, func(w *world) { damageOnAFullDisk(w, left) })
		})
	}
}

func damageOnAFullDisk(w *world, left int64) {
	t := w.t
	quotas := make([]*faultfs.Quota, len(w.nodes))
	for i, n := range w.nodes {
		n.wrap = func(fs vfs.FS) vfs.FS {
			q, err := faultfs.NewQuota(fs, "data", anyRoom)
			if err != nil {
				t.Fatal(err)
			}
			quotas[i] = q
			if err := fs.MkdirAll("data", 0o755); err != nil {
				t.Fatal(err)
			}
			g, err := disk.New(disk.Config{FS: q, Dir: "data"})
			if err != nil {
				t.Fatal(err)
			}
			return g.FS()
		}
	}
	end := w.careFor()
	defer end()
	victim := w.flushedFollower(50)
	q := quotas[slices.Index(w.nodes, victim)]
	q.Fill(left)
	victim.rotTables(1)
	if _, err := victim.group().Reader().StateHash(t.Context()); err == nil {
		t.Error("the damage is not found")
	}
	w.eventually("it waits for room", func() bool {
		d := victim.group().Damage()
		return len(victim.fatal) > 0 || d != nil && d.Waits == noRoomToMend
	})
	for i := range 50 {
		w.put(value(50 + i))
	}
	w.pause(20 * time.Second)
	if len(victim.fatal) > 0 {
		t.Fatalf("the node stops: %v", <-victim.fatal)
	}
	if meta := victim.host().Group(Metadata); meta.Damage() != nil || meta.Status().Leader == "" {
		t.Errorf("its other group: %+v", meta.Status())
	}
	q.SetLimit(anyRoom)
	w.eventually("all to be sound", w.sound)
	w.eventually("even", w.even)
}
