package node

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/replication"
)

const testToken = "0123456789abcdef"

// startNode starts a node alone, with a token for its admin listener, and waits until it serves.
func startNode(t *testing.T, change func(*Config)) *Node {
	t.Helper()
	c := claimable(t)
	c.AdminTokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(c.AdminTokenFile, []byte(testToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&c)
	}
	n, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for len(n.Readiness()) > 0 {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("not ready: %v", n.Readiness())
		}
	}
	return n
}

// ask sends a request with the token and returns status and body.
func ask(t *testing.T, n *Node, method, path string, header ...string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.AdminURL()+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+testToken)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestAdmin(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	n := startNode(t, func(c *Config) { c.Groups = 2 })
	t.Run("raft", func(t *testing.T) {
		status, body := ask(t, n, http.MethodGet, "/raft")
		var got []replication.Status
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		if len(got) != 3 {
			t.Fatalf("%d groups, want 3", len(got))
		}
		for i, g := range got {
			if g.Group != uint32(i) || g.Role != replication.RoleLeader || g.Leader != "n1" ||
				!g.Replicating ||
				g.Commit == 0 || g.Term == 0 || len(g.Members) != 1 || !g.Members[0].Voter {
				t.Errorf("group %d: %+v", i, g)
			}
		}
		for _, key := range []string{
			"group", "role", "term", "leader", "commit", "applied", "last_log", "members", "replicating",
		} {
			if !strings.Contains(body, `"`+key+`":`) {
				t.Errorf("no %q in %s", key, body)
			}
		}
	})
	t.Run("health", func(t *testing.T) {
		for _, path := range []string{"/healthz", "/readyz"} {
			status, body := ask(t, n, http.MethodGet, path)
			var got Health
			if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || !got.OK ||
				got.Reasons != nil {
				t.Errorf("%s: %d %s %v", path, status, body, err)
			}
		}
	})
	t.Run("members", func(t *testing.T) {
		var got []MemberStatus
		wait(t, func() bool { // the node registers itself a moment after it leads
			_, body := ask(t, n, http.MethodGet, "/members")
			got = nil
			return json.Unmarshal([]byte(body), &got) == nil && len(got) == 1 && got[0].NATS != ""
		})
		want := []MemberStatus{{
			ID: "n1", NATS: strings.TrimPrefix(n.ClientURL(),
				"nats://"), Admin: n.cfg.AdminListen, Raft: n.raftAddr(),
			Version: Version, Gossip: "alive", Votes: []uint32{
				0, 1,
				2,
			}, Follows: []uint32{}, Leads: []uint32{0, 1, 2},
		}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
	t.Run("metrics", func(t *testing.T) {
		status, body := ask(t, n, http.MethodGet, "/metrics")
		if status != http.StatusOK {
			t.Fatalf("%d %s", status, body)
		}
		lines := strings.Split(body, "\n")
		for _, line := range []string{
			`holdfast_build_info{node="n1",version="` + Version + `"} 1`, `holdfast_raft_leader{group="2"} 1`,
			`holdfast_raft_voters{group="0"} 1`, "holdfast_ready 1", "holdfast_hub_link_up 1",
			"holdfast_publishes_total 0",
		} {
			if !slices.Contains(lines, line) {
				t.Errorf("no line %q", line)
			}
		}
		for _, name := range []string{
			"holdfast_log_fsyncs_total{", "holdfast_store_disk_bytes{",
			"go_goroutines ", "process_open_fds ",
		} {
			if !strings.Contains(body, "\n"+name) {
				t.Errorf("no series %q", name)
			}
		}
	})
	t.Run("refused", func(t *testing.T) { testRefusedRequests(t, n) })
}

func testRefusedRequests(t *testing.T, n *Node) {
	t.Helper()
	for _, tt := range []struct {
		name, method, path string
		header             []string
		status             int
		text               string
	}{
		{
			"no token", http.MethodGet, "/raft",
			[]string{"Authorization", ""},
			http.StatusUnauthorized,
			"no valid token",
		},
		{
			"wrong token", http.MethodGet, "/healthz",
			[]string{"Authorization", "Bearer x"},
			http.StatusUnauthorized, "no valid token",
		},
		{"unknown path", http.MethodGet, "/nothing", nil, http.StatusNotFound, ""},
		{"GET of an action", http.MethodGet, "/leave", nil, http.StatusMethodNotAllowed, ""},
		{
			"other site", http.MethodPost, "/leave",
			[]string{"Sec-Fetch-Site", "cross-site"},
			http.StatusForbidden, "cross-origin",
		},
		{"no group", http.MethodPost, "/transfer", nil, http.StatusBadRequest, `group \"\": give 0 to 2`},
		{
			"unknown group", http.MethodPost, "/transfer?group=3", nil, http.StatusBadRequest,
			`group \"3\": give 0 to 2`,
		},
		{"nobody to transfer to", http.MethodPost, "/transfer?group=2", nil, http.StatusConflict, "refused"},
		{"no node", http.MethodPost, "/remove", nil, http.StatusBadRequest, "node: give the id"},
		{"unknown node", http.MethodPost, "/remove?node=n9", nil, http.StatusNotFound, "not found"},
		{"the only voter", http.MethodPost, "/remove?node=n1", nil, http.StatusConflict, "only voter"},
		{"leave of the only voter", http.MethodPost, "/leave", nil, http.StatusConflict, "only voter"},
	} {
		status, body := ask(t, n, tt.method, tt.path, tt.header...)
		if status != tt.status || !strings.Contains(body, tt.text) {
			t.Errorf("%s: %d %q, want %d %q", tt.name, status, body, tt.status, tt.text)
		}
	}
	select {
	case <-n.Left():
		t.Error("the node says that it has left")
	default:
	}
}

// TestUnreadyNode: a founder that waits for others is healthy, and does not serve.
func TestUnreadyNode(t *testing.T) {
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c := claimable(t)
	c.BootstrapExpect = 3
	n, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
	}()
	status, body := ask(t, n, http.MethodGet, "/readyz")
	var got Health
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusServiceUnavailable ||
		got.OK || len(got.Reasons) == 0 {
		t.Errorf("readyz: %d %s %v", status, body, err)
	}
	if status, body := ask(t, n, http.MethodGet, "/healthz"); status != http.StatusOK {
		t.Errorf("healthz: %d %s", status, body)
	}
}

// wait returns when f is true.
func wait(t *testing.T, f func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !f() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("not within 20 s")
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	for _, tt := range []struct {
		name, content, want, problem string
	}{
		{"shortest", strings.Repeat("a", MinAdminToken), strings.Repeat("a", MinAdminToken), ""},
		{"too short", strings.Repeat("a", MinAdminToken-1) + "\n", "", "holds 15 characters"},
		{"longest", strings.Repeat("a", MaxAdminToken) + "\r\n", strings.Repeat("a", MaxAdminToken), ""},
		{"too long", strings.Repeat("a", MaxAdminToken+1), "", "holds 1025 characters"},
	} {
		if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readToken(path)
		if got != tt.want || (err == nil) != (tt.problem == "") {
			t.Errorf("%s: %q, %v", tt.name, got, err)
		}
		if err != nil {
			if r := refusal(t, err); r.Setting != "--admin-token-file" ||
				!strings.Contains(r.Problem, tt.problem) {
				t.Errorf("%s: %+v", tt.name, r)
			}
		}
	}
	_, err := readToken(path + "x")
	if r := refusal(t, err); r.Setting != "--admin-token-file" ||
		!strings.Contains(r.Problem, "no such file") {
		t.Errorf("missing file: %+v", r)
	}
}

// TestOtherNodesDirectory: a data directory belongs to one node id.
func TestOtherNodesDirectory(t *testing.T) {
	c := claimable(t)
	n, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.NodeID = "n2"
	_, err = Start(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), c.DataDir) ||
		!strings.Contains(err.Error(), `belongs to node "n1", this one is "n2"`) {
		t.Errorf("started as another node: %v", err)
	}
	lock, err := LockDir(c.DataDir)
	if err != nil {
		t.Fatalf("the refused start holds the directory: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}
