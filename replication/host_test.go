package replication

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestSingleNode(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		n := w.nodes[0]
		n.up()
		if err := n.host().BootstrapSingle(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if seq := w.put(fmt.Sprint("v", i)); seq != uint64(i+1) {
				t.Fatalf("value %d got sequence %d", i, seq)
			}
		}
		cluster := n.host().ClusterID()
		w.powerCut(nil, 0, n)
		n.up()
		begin := time.Now()
		w.leader()
		if d := time.Since(begin); d > 20*time.Millisecond {
			t.Errorf("the only voter leads after %v", d)
		}
		if got := n.host().ClusterID(); got != cluster || got == "" {
			t.Errorf("cluster id %q after a power cut, was %q", got, cluster)
		}
		if seq := w.put("after"); seq != 101 {
			t.Errorf("sequence %d after a power cut, want 101", seq)
		}
		for i := range 100 {
			m, err := n.host().Group(1).Reader().Message(testStream, uint64(i+1))
			if err != nil || string(m.Payload) != fmt.Sprint("v", i) {
				t.Fatalf("message %d is %q, %v", i+1, m.Payload, err)
			}
		}
	})
}

func TestDiskThatHangs(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		var hangs [3]atomic.Bool
		mend := make(chan struct{})
		for i, n := range w.nodes {
			n.wrap = func(fs vfs.FS) vfs.FS {
				return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
					sync := op.Kind == errorfs.OpFileSyncData && strings.Contains(op.Path, "groups/1/log")
					if sync && hangs[i].Load() {
						<-mend
					}
					return nil
				}))
			}
		}
		w.found()
		w.put("before")
		old := w.leader()
		term := old.group().Term()
		hangs[slices.Index(w.nodes, old)].Store(true)
		begin := time.Now()
		doubt := newProposer(term, 50).next(nil)
		w.eventually("another leader", func() bool { return w.leader() != old })
		if d := time.Since(begin); d > 10*Local().Heartbeat {
			t.Errorf("another leader after %v", d)
		}
		w.put("while it hangs")
		wantErr(t, "the one whose disk hangs", term.Check(), record.ErrNotLeader)
		w.pause(stuckWrite - time.Since(begin))
		select {
		case err := <-old.fatal:
			t.Errorf("fatal too early: %v", err)
		default:
		}
		w.pause(2 * Local().Election)
		select {
		case err := <-old.fatal:
			if !strings.Contains(err.Error(), "hangs") {
				t.Errorf("fatal: %v", err)
			}
		default:
			t.Error("a disk that hangs for ever is not fatal")
		}
		close(mend)
		wantErr(t, "its proposal", <-doubt, record.ErrUnknownOutcome)
		w.pause(time.Second)
		for len(old.fatal) > 0 { // it was told again and again
			err := <-old.fatal
			t.Log(err)
		}
	})
}
