package jepsen

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-mq/holdfast/replication"
)

// TestWhoVotes: all members, and the node that is asked among them. A damaged replica has none.
func TestWhoVotes(t *testing.T) {
	t.Parallel()
	group := func(server, but string, more ...replication.Member) replication.Status {
		s := replication.Status{Group: 1, Server: server, Members: more}
		for _, o := range []string{"n1/a", "n2/a", "n3/a"} {
			if o != but {
				s.Members = append(s.Members, replication.Member{Server: o, Voter: true})
			}
		}
		return s
	}
	for name, tt := range map[string]struct {
		status replication.Status
		ok     bool
	}{
		"three":         {group("n1/a", ""), true},
		"two":           {group("n1/a", "n3/a"), false},
		"a follower":    {group("n1/a", "n3/a", replication.Member{Server: "n3/a"}), false},
		"four":          {group("n1/a", "", replication.Member{Server: "n4/a", Voter: true}), false},
		"damaged":       {replication.Status{Group: 1, Server: "n1/a", Role: replication.RoleDamaged}, false},
		"not one of it": {group("n1/b", ""), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if err := json.NewEncoder(w).Encode([]replication.Status{group("n1/a", ""), tt.status}); err != nil {
					t.Error(err)
				}
			}))
			defer server.Close()
			n := &Node{ID: "n1", Admin: strings.TrimPrefix(server.URL, "http://")}
			if err := n.voting(t.Context(), 3); (err == nil) != tt.ok {
				t.Errorf("%+v: %v", tt.status, err)
			}
		})
	}
}
