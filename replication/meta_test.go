package replication

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// metaLeader waits for a node that serves the metadata group.
func (w *world) metaLeader() *node {
	w.t.Helper()
	var leader *node
	w.eventually("a leader of the metadata group", func() bool {
		for _, n := range w.nodes {
			if h := n.host(); h != nil && h.Group(Metadata).Term() != nil {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

func put(key, value string) []record.MetaWrite {
	return []record.MetaWrite{{Key: key, Value: []byte(value)}}
}

func at(key string, version uint64) []record.MetaCond {
	return []record.MetaCond{{Key: key, Version: version}}
}

func TestMetaFromEveryNode(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		ctx := t.Context()
		for _, n := range w.nodes {
			m := n.host().Meta()
			if err := m.Write(ctx, at("k/"+n.name, 0), put("k/"+n.name, "v")); err != nil {
				t.Fatal(err)
			}
			row, err := m.Get("k/" + n.name)
			if err != nil || string(row.Value) != "v" || row.Version == 0 {
				t.Errorf("%s does not see its own write: %+v, %v", n.name, row, err)
			}
			err = m.Write(ctx, at("k/"+n.name, 0), put("k/"+n.name, "again"))
			wantErr(t, "the row is there", err, record.ErrConflict)
			if err := m.Write(ctx, at("k/"+n.name, row.Version), put("k/"+n.name, "new")); err != nil {
				t.Error(err)
			}
		}
		last := w.nodes[len(w.nodes)-1].host().Meta()
		var got []string
		if err := last.Scan("k/", func(r record.MetaRow) bool {
			got = append(got, r.Key+"="+string(r.Value))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"k/a=new", "k/b=new", "k/c=new"}, got); diff != "" {
			t.Errorf("rows (-want +got):\n%s", diff)
		}
	})
}

func TestMetaRetryOfAWriteThatWon(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		m := w.metaLeader().host().Meta()
		entry, err := command.AppendMetaBatch(nil, &command.MetaBatch{
			Proposal: record.NewProposalID(77, 1), Conditions: at("once", 0), Writes: put("once", "v"),
		})
		if err != nil {
			t.Fatal(err)
		}
		serve := func(entry []byte) writeReply {
			t.Helper()
			b, err := m.serveWrite(t.Context(), "b", Metadata, entry)
			if err != nil {
				t.Fatal(err)
			}
			r, err := parseWriteReply(b)
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		// The answer to the first try was lost.
		for try := range 3 {
			if r := serve(entry); r.verdict != verdictWritten || r.applied == 0 {
				t.Errorf("try %d: %+v", try, r)
			}
		}
		if row, _ := m.Get("once"); string(row.Value) != "v" {
			t.Errorf("row %+v", row)
		}
		if r := serve([]byte("nonsense")); r.verdict != verdictBad || r.text == "" {
			t.Errorf("nonsense: %+v", r)
		}
		for _, n := range w.nodes {
			if n == w.metaLeader() {
				continue
			}
			b, err := n.host().Meta().serveWrite(t.Context(), "b", Metadata, entry)
			if err != nil {
				t.Fatal(err)
			}
			if r, _ := parseWriteReply(b); r.verdict != verdictRetry || r.hint != w.metaLeader().name {
				t.Errorf("a follower answers %+v", r)
			}
		}
	})
}

func TestMetaWithoutLeader(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.metaLeader()
		alone := w.nodes[0]
		for _, n := range w.nodes[1:] {
			n.down()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		err := alone.host().Meta().Write(ctx, nil, put("k", "v"))
		wantErr(t, "without a majority", err, record.ErrUnknownOutcome)
		wantErr(t, "without a majority", err, context.DeadlineExceeded)

		// One that waits gets through when there is a leader again.
		done := make(chan error, 1)
		go func() { done <- alone.host().Meta().Write(t.Context(), nil, put("k2", "v")) }()
		w.pause(3 * time.Second)
		w.nodes[1].up()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestMetaWriteEndsWithTheHost(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		for _, n := range w.nodes[1:] {
			n.down()
		}
		done := make(chan error, 1)
		m := w.nodes[0].host().Meta()
		go func() { done <- m.Write(t.Context(), nil, put("k", "v")) }()
		w.pause(time.Second)
		w.nodes[0].down()
		wantErr(t, "a write when the host ends", <-done, record.ErrUnknownOutcome)
	})
}

func TestMetaLimits(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		w.found()
		m := w.nodes[0].host().Meta()
		// The segments of this test are small; the limit of the write itself comes first.
		err := m.Write(t.Context(), nil, put("k", strings.Repeat("x", MaxMetaWrite)))
		wantErr(t, "too large", err, record.ErrFormat)
		err = m.Write(t.Context(), nil, put(strings.Repeat("k", command.MaxMetaKey+1), "v"))
		wantErr(t, "key too long", err, record.ErrFormat)
		if err := m.Write(t.Context(), nil, put(strings.Repeat("k", 4096), "v")); err != nil {
			t.Error(err)
		}
	})
}

func TestMetaCounter(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		const each = 10
		var work sync.WaitGroup
		for _, n := range w.nodes {
			work.Go(func() {
				for added := 0; added < each; {
					err := addOne(t.Context(), n.host().Meta())
					switch {
					case err == nil:
						added++
					case !errors.Is(err, record.ErrConflict):
						t.Error(err)
						return
					}
				}
			})
		}
		work.Wait()
		// Whoever wrote sees it at once, the others soon, and it stays.
		want := strconv.Itoa(each * len(w.nodes))
		for _, n := range w.nodes {
			w.eventually("the counter of "+n.name, func() bool {
				row, err := n.host().Meta().Get(counterKey)
				return err == nil && string(row.Value) == want
			})
		}
		w.pause(time.Second)
		if row, _ := w.nodes[0].host().Meta().Get(counterKey); string(row.Value) != want {
			t.Errorf("counter %s, want %s", row.Value, want)
		}
	})
}

func TestMetaWatch(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		m := w.nodes[1].host().Meta()
		changes, stop := m.Watch()
		for range 5 {
			if err := w.nodes[0].host().Meta().Write(t.Context(), nil, put("k", "v")); err != nil {
				t.Fatal(err)
			}
		}
		<-changes
		w.eventually("the row", func() bool {
			row, err := m.Get("k")
			return err == nil && row.Version != 0
		})
		stop()
		select {
		case <-changes: // one may have been underway
		default:
		}
		if err := m.Write(t.Context(), nil, put("k", "v2")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changes:
			t.Error("told after stop")
		default:
		}
	})
}

func TestTopology(t *testing.T) {
	bubble(t, 3, func(w *world) {
		t := w.t
		w.found()
		w.put("x")
		ctx := t.Context()
		h := w.nodes[0].host()
		var cluster string
		for _, n := range w.nodes {
			if err := n.host().Register(
				ctx,
				NodeRow{Raft: n.name + ":1", NATS: n.name + ":4222"},
			); err != nil {
				t.Fatal(err)
			}
			w.eventually("the cluster id", func() bool { return n.host().ClusterID() != "" })
			if id := n.host().ClusterID(); cluster != "" && id != cluster {
				t.Errorf("two clusters: %s and %s", cluster, id)
			} else {
				cluster = id
			}
		}
		w.eventually("the rows everywhere", func() bool {
			row, err := h.Meta().Get(NodeKey("c"))
			return err == nil && row.Version != 0
		})
		row, first, err := Row[NodeRow](h.Meta(), NodeKey("b"))
		want := NodeRow{ID: "b", Raft: "b:1", NATS: "b:4222", Incarnation: w.nodes[1].host().Incarnation(), Servers: map[uint32]string{
			0: w.nodes[1].host().Group(0).Server(), 1: w.nodes[1].host().Group(1).Server(),
		}}
		if diff := cmp.Diff(want, row); diff != "" || err != nil {
			t.Errorf("row of b, %v (-want +got):\n%s", err, diff)
		}
		if err := w.nodes[1].host().Register(ctx, NodeRow{Raft: "b:1", NATS: "b:4222"}); err != nil {
			t.Fatal(err)
		}
		if again, _ := h.Meta().Get(NodeKey("b")); again.Version != first.Version {
			t.Error("an unchanged row was written again")
		}
		if addr, ok := h.Meta().raftAddress("c"); !ok || addr != "c:1" {
			t.Errorf("address of c: %q, %v", addr, ok)
		}
		if addr, ok := h.Meta().raftAddress("x"); ok {
			t.Errorf("address of a stranger: %q", addr)
		}
		at := &Host{meta: h.meta}
		at.cfg.Transport.Resolve = func(node string) (string, bool) { return "gossip:1", node == "b" }
		at.cfg.LastAddress = func(node string) (string, bool) { return node + ":0", node != "y" }
		for node, want := range map[string]string{"b": "gossip:1", "c": "c:1", "x": "x:0", "y": ""} {
			if addr, ok := at.address(node); ok != (want != "") || ok && addr != want {
				t.Errorf("address of %s: %q, %v, want %q", node, addr, ok, want)
			}
		}
		epoch := uint64(0)
		for range 3 {
			leader := w.leader()
			var got GroupRow
			w.eventually("the row of the group", func() bool {
				got, _, err = Row[GroupRow](h.Meta(), GroupKey(1))
				return err == nil && got.Leader == leader.name && got.Term == leader.group().Status().Term
			})
			if diff := cmp.Diff(leader.group().Status().Members, got.Members); diff != "" {
				t.Errorf("members (-want +got):\n%s", diff)
			}
			if got.Epoch <= epoch {
				t.Errorf("epoch %d after %d", got.Epoch, epoch)
			}
			epoch = got.Epoch
			w.eventually("a transfer", func() bool { return leader.group().Transfer(ctx, "") == nil })
		}
		w.pause(10 * topologyCheck)
		_, settled, _ := Row[GroupRow](h.Meta(), GroupKey(1))
		w.pause(10 * topologyCheck)
		if _, now, _ := Row[GroupRow](h.Meta(), GroupKey(1)); now.Version != settled.Version {
			t.Error("an unchanged group's row is written again and again")
		}
	})
}

func TestDesiredIsKept(t *testing.T) {
	bubble(t, 1, func(w *world) {
		t := w.t
		w.found()
		m := w.nodes[0].host().Meta()
		var row GroupRow
		var at record.MetaRow
		w.eventually("the row of the group", func() bool {
			row, at, _ = Row[GroupRow](m, GroupKey(1))
			return at.Version != 0
		})
		row.Desired = json.RawMessage(`{"voters":["a"]}`)
		b, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		cond := []record.MetaCond{{Key: at.Key, Version: at.Version}}
		if err := m.Write(t.Context(), cond, []record.MetaWrite{{Key: at.Key, Value: b}}); err != nil {
			t.Fatal(err)
		}
		w.nodes[0].group().recreate("a new term")
		w.eventually("the row of the new term", func() bool {
			now, _, _ := Row[GroupRow](m, GroupKey(1))
			return now.Term > row.Term && string(now.Desired) == string(row.Desired)
		})
	})
}

func FuzzWriteReply(f *testing.F) {
	f.Add(writeReply{verdict: verdictConflict, applied: 9, hint: "a", text: "row"}.encode())
	f.Add(writeReply{}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseWriteReply(b)
		if err != nil {
			return
		}
		if diff := cmp.Diff(b, r.encode()); diff != "" {
			t.Errorf("read and written again (-want +got):\n%s", diff)
		}
	})
}
