package node

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestHashSumsUpEveryGroup compares two answers of an idle node, and what they say with the stores.
func TestHashSumsUpEveryGroup(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	n := startNode(t, func(c *Config) { c.Groups = 2 })
	get := func() []ReplicaHash {
		t.Helper()
		status, body := ask(t, n, http.MethodGet, "/hash")
		var out []ReplicaHash
		if err := json.Unmarshal([]byte(body), &out); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		return out
	}
	first, second := get(), get()
	if len(first) != 3 {
		t.Fatalf("%d groups, want 3: %+v", len(first), first)
	}
	for i, h := range first {
		if h.Group != uint32(i) || len(h.Sum) != 64 {
			t.Errorf("group %d: %+v", i, h)
		}
		if second[i].Index == h.Index {
			if diff := cmp.Diff(h, second[i]); diff != "" {
				t.Errorf("two answers at one index differ:\n%s", diff)
			}
		}
	}
	if first[0].Rows == 0 || first[0].Sum == first[1].Sum {
		t.Errorf("group 0 holds rows, and others than group 1: %+v", first)
	}
}
