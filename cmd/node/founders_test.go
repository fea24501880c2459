package node

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestNoStreamsBeforeAllFoundersAreThere: a create is answered 10008, and the node is not
// ready, while a founder has not said that it holds the first configuration.
func TestNoStreamsBeforeAllFoundersAreThere(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	nc, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	create := func() string {
		t.Helper()
		m, err := nc.Request("$JS.API.STREAM.CREATE.F",
			[]byte(`{"name":"F","subjects":["f"],"retention":"limits","storage":"file"}`), 20*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		return string(m.Data)
	}
	put := func(key string, value any) {
		t.Helper()
		b, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		row, _ := n.meta.Get(key)
		err = n.meta.Write(t.Context(), []record.MetaCond{{Key: key, Version: row.Version}},
			[]record.MetaWrite{{Key: key, Value: b}})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(foundersKey, []string{n.cfg.NodeID, "late"})
	if body := create(); !strings.Contains(body, `"err_code":10008`) {
		t.Fatalf("created before all founders are there: %s", body)
	}
	if why := n.Readiness(); !slices.ContainsFunc(why, func(s string) bool { return strings.Contains(s, "founder late") }) {
		t.Fatalf("ready, or for another reason not: %q", why)
	}
	put(replication.NodeKey("late"), replication.NodeRow{})
	if body := create(); !strings.Contains(body, `"did_create":true`) {
		t.Fatalf("not created when all founders are there: %s", body)
	}
	if why := n.Readiness(); len(why) != 0 {
		t.Fatalf("not ready: %q", why)
	}
}
