package jepsen

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// telling is a cluster whose nodes answer with states, in the order of nodes; nil: with an error. asked is called
// before each answer of the last node.
func telling(t *testing.T, asked func(), states ...[]Hash) *Cluster {
	t.Helper()
	c := &Cluster{Kind: Holdfast}
	for i, list := range states {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if i == len(states)-1 {
				asked()
			}
			if list == nil {
				http.Error(w, "closed", http.StatusServiceUnavailable)
				return
			}
			if err := json.NewEncoder(w).Encode(list); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(srv.Close)
		slot := []string{"n1", "n2", "n3"}[i]
		c.Nodes = append(c.Nodes, &Node{Slot: slot, ID: slot, Admin: strings.TrimPrefix(srv.URL, "http://")})
	}
	return c
}

// TestReplicasAreAllDemanded looks at what a comparison takes for one that it has made.
func TestReplicasAreAllDemanded(t *testing.T) {
	t.Parallel()
	both := []Hash{{Group: 0, Index: 5, Sum: "aa"}, {Group: 1, Index: 9, Sum: "bb"}}
	behind := []Hash{{Group: 0, Index: 5, Sum: "aa"}, {Group: 1, Index: 8, Sum: "cc"}}
	for _, tt := range []struct {
		name   string
		states [][]Hash
		rounds int64 // after which the time is over
		want   []string
		why    string
	}{
		{"all", [][]Hash{both, both, both}, 2, nil, ""},
		{"one node does not tell", [][]Hash{both, nil, both}, 3, []string{"group 0 of n2", "group 1 of n2"}, "states of n2"},
		{"the first node does not tell", [][]Hash{nil, both, both}, 3, []string{"group 0 of n1", "group 1 of n1"}, "states of n1"},
		{"one node has a group less", [][]Hash{both, both, both[:1]}, 3, []string{"group 1 of n3"}, ""},
		{"nobody tells", [][]Hash{nil, nil, nil}, 2, []string{
			"group 0 of n1", "group 0 of n2", "group 0 of n3", "group 1 of n1", "group 1 of n2",
		}, "states of n1"},
		{"one is behind", [][]Hash{both, both, behind}, 3, []string{"group 1: n1 has applied 9, n3 8"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var rounds atomic.Int64
			c := telling(t, func() {
				if rounds.Add(1) == tt.rounds {
					cancel()
				}
			}, tt.states...)
			got, err := hashes(ctx, c)
			if (err != nil) != (tt.why != "") || err != nil && !strings.Contains(err.Error(), tt.why) {
				t.Errorf("error %v, want %q", err, tt.why)
			}
			var f Finding
			checkHashes(got, &f)
			checkAbsent(got, c.replicas(), &f)
			if diff := cmp.Diff(tt.want, f.Examples); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
}

// TestOnlyHoldfastIsCompared: nats-server has no states to tell.
func TestOnlyHoldfastIsCompared(t *testing.T) {
	t.Parallel()
	got, err := hashes(t.Context(), &Cluster{Kind: Default, Nodes: []*Node{{Slot: "n1"}}})
	if err != nil || got != nil {
		t.Errorf("%v, %v", got, err)
	}
}
