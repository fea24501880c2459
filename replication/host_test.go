package replication

import (
	"fmt"
	"testing"
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
