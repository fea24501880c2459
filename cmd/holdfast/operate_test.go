package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
)

// fakeAdmin answers like an admin listener and notes what it was asked.
func fakeAdmin(t *testing.T, answers map[string]any) (addr string, asked *[]string) {
	t.Helper()
	asked = new([]string)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.Method+" "+r.URL.String()+" "+r.Header.Get("Authorization"))
		answer, ok := answers[r.URL.Path]
		switch p, problem := answer.(node.Problem); {
		case !ok:
			w.WriteHeader(http.StatusNotFound)
			return
		case problem && p.Leader != "":
			w.WriteHeader(http.StatusMisdirectedRequest)
		case problem:
			w.WriteHeader(http.StatusConflict)
		}
		if h, health := answer.(node.Health); health && !h.OK {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(srv.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	return strings.TrimPrefix(srv.URL, "http://"), asked
}

func TestStatus(t *testing.T) {
	t.Parallel()
	groups := []replication.Status{
		{
			Role: replication.RoleFollower, Term: 3, Leader: "n2", Commit: 10, Applied: 9, LastLog: 11,
			Members: []replication.Member{{Node: "n1", Voter: true}, {Node: "n2", Voter: true}, {Node: "n3"}},
		},
		{Group: 1, Role: replication.RoleCandidate, Term: 7},
	}
	addr, _ := fakeAdmin(t, map[string]any{
		"/raft":   groups,
		"/readyz": node.Health{Reasons: []string{"group 1 has no leader"}},
	})
	code, out, errs := try(t, "cluster", "status", "--admin", addr)
	want := "" +
		"GROUP  HERE       LEADER  TERM  COMMIT  APPLIED  LAST  MEMBERS\n" +
		"0      follower   n2      3     10      9        11    n1 n2 n3(no vote)\n" +
		"1      candidate  -       7     0       0        0     -\n" +
		"\nThe node at " + addr + " does not serve: group 1 has no leader.\n"
	if diff := cmp.Diff(want, out); diff != "" || code != exitOK {
		t.Errorf("code %d, %s (-want +got):\n%s", code, errs, diff)
	}
}

func TestMembers(t *testing.T) {
	t.Parallel()
	members := []node.MemberStatus{
		{
			ID: "n1", NATS: "127.0.0.1:4222", Admin: "127.0.0.1:8222", Version: "1", Gossip: "alive",
			Votes: []uint32{0, 1}, Leads: []uint32{1},
		},
		{ID: "n2", Follows: []uint32{0}},
	}
	addr, _ := fakeAdmin(t, map[string]any{"/members": members})
	_, out, _ := try(t, "cluster", "members", "--admin", addr)
	want := "" +
		"NODE  GOSSIP  LEADS  VOTES IN  FOLLOWS  CLIENTS         ADMIN           VERSION\n" +
		"n1    alive   1      0,1       -        127.0.0.1:4222  127.0.0.1:8222  1\n" +
		"n2    -       -      -         0        -               -               -\n"
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, out, _ = try(t, "cluster", "members", "--admin", addr, "--json")
	var got []node.MemberStatus
	if err := json.Unmarshal([]byte(out), &got); err != nil || cmp.Diff(members, got) != "" {
		t.Errorf("--json: %v\n%s", err, out)
	}
}

// TestTransferFollowsTheLeader: the asked node says who leads; that one is asked then.
func TestTransferFollowsTheLeader(t *testing.T) {
	t.Parallel()
	leader, askedLeader := fakeAdmin(t, map[string]any{"/transfer": node.Health{OK: true}})
	addr, asked := fakeAdmin(t, map[string]any{"/transfer": node.Problem{
		Error: "not led here", Leader: "n2",
		Admin: leader,
	}})
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := try(t, "cluster", "transfer", "--group", "1", "--to", "n 3", "--admin", addr,
		"--admin-token-file", token)
	if code != exitOK || out != "Group 1 was handed over.\n" {
		t.Errorf("code %d, %q %q", code, out, errs)
	}
	want := []string{"POST /transfer?group=1&to=n+3 Bearer sesame"}
	if !cmp.Equal(*asked, want) || !cmp.Equal(*askedLeader, want) {
		t.Errorf("asked %q, then %q", *asked, *askedLeader)
	}
}

func TestAcceptClock(t *testing.T) {
	t.Parallel()
	addr, asked := fakeAdmin(t, map[string]any{"/accept-clock": []node.AcceptedClock{
		{Group: 0}, {Group: 1, CorrectedNS: int64(90 * time.Minute)},
	}})
	code, out, errs := try(t, "cluster", "accept-clock", "--admin", addr)
	want := "The clock of group 1 was corrected forward by 1h30m0s.\nAll 2 groups accept the wall clocks.\n"
	if code != exitOK || out != want {
		t.Errorf("code %d, %q %q", code, out, errs)
	}
	if !cmp.Equal(*asked, []string{"POST /accept-clock "}) {
		t.Errorf("asked %q", *asked)
	}
}

func TestOperatorsHearProblems(t *testing.T) {
	t.Parallel()
	addr, asked := fakeAdmin(t, map[string]any{
		"/remove": node.Problem{Error: "node n1 is the only voter"}, "/leave": node.Health{OK: true},
		"/transfer": node.Problem{Error: "group 1 is not led by n1", Leader: "n2"},
	})
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string
	}{
		{[]string{"cluster", "remove", "n1"}, exitFailed, "node n1 is the only voter"},
		{[]string{"cluster", "transfer", "--group", "1"}, exitFailed, "group 1 is not led by n1"},
		{[]string{"cluster", "members"}, exitFailed, "404"},
		{[]string{"cluster", "members", "--admin-token-file", "/nowhere"}, exitUsage, "--admin-token-file"},
		{[]string{"leave"}, exitOK, ""},
	} {
		code, _, errs := try(t, append(tt.args, "--admin", addr)...)
		if code != tt.code || !strings.Contains(errs, tt.stderr) {
			t.Errorf("%v: code %d, %q", tt.args, code, errs)
		}
	}
	if got := (*asked)[0]; got != "POST /remove?node=n1 " {
		t.Errorf("asked %q", got)
	}
}
