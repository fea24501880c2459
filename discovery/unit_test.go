package discovery

import (
	"bytes"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
	"github.com/hashicorp/serf/serf"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// levelForTests keeps the library's debug lines out of test output.
const levelForTests = zapcore.WarnLevel

func TestConfigIsRefusedByName(t *testing.T) {
	t.Parallel()
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := []struct {
		name   string
		change func(*Config)
		want   string
	}{
		{"no id", func(c *Config) { c.NodeID = "" }, `node id ""`},
		{"underscore", func(c *Config) { c.NodeID = "a_b" }, `node id "a_b": want 1 to 128 letters`},
		{"slash", func(c *Config) { c.NodeID = "a/1" }, `node id "a/1"`},
		{"long id", func(c *Config) { c.NodeID = strings.Repeat("a", MaxNodeID+1) }, "1 to 128"},
		{"two ids", func(c *Config) { c.Tags.NodeID = "z" }, `the tags' node id is "z", the node's "a"`},
		{"no logger", func(c *Config) { c.Logger = nil }, "logger"},
		{"key size", func(c *Config) { c.SecretKey = make([]byte, 31) }, "31 bytes: want 16, 24 or 32"},
		{"accepted key size", func(c *Config) {
			c.SecretKey, c.AcceptKeys = make([]byte, 32), [][]byte{make([]byte, 1)}
		}, "1 bytes"},
		{"accepted only", func(c *Config) { c.AcceptKeys = [][]byte{make([]byte, 32)} }, "without a secret"},
		{"seed without port", func(c *Config) { c.Join = []string{"host"} }, `address to join "host"`},
		{"seed without host", func(c *Config) { c.Join = []string{":1"} }, `address to join ":1"`},
		{"seed with port 0", func(c *Config) { c.Join = []string{"h:0"} }, `address to join "h:0"`},
		{"too many seeds", func(c *Config) {
			c.Join = strings.Split(strings.Repeat("h:1,", MaxSeeds)+"h:1", ",")
		}, "65 addresses to join: want at most 64"},
		{"no bind", func(c *Config) { c.BindAddr = "" }, `bind address ""`},
		{"bind port", func(c *Config) { c.BindAddr = "127.0.0.1:70000" }, `not "70000"`},
		{"open bind", func(c *Config) { c.BindAddr = "0.0.0.0:0" }, "no secret key"},
		{"unspecified", func(c *Config) {
			c.BindAddr, c.SecretKey = "0.0.0.0:0", make([]byte, 32)
		}, "advertise address 0.0.0.0 means every interface"},
		{"advertise", func(c *Config) { c.AdvertiseAddr = "x" }, `advertise address "x"`},
		{"profile", func(c *Config) { c.Profile = "wan" }, `profile "wan": want "lan" or "local"`},
		{"expect", func(c *Config) { c.Tags.Expect = -1 }, "expect is -1"},
		{"snapshot", func(c *Config) {
			c.SnapshotPath = filepath.Join(t.TempDir(), "no", "file")
		}, "snapshot path: open "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := local(t, "a")
			tt.change(&c)
			d, err := Start(t.Context(), c)
			if err == nil {
				d.Shutdown()
			}
			if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v; want ErrConfig with %q", err, tt.want)
			}
		})
	}

	c := local(t, "a")
	c.BindAddr = taken.Addr().String()
	_, err = Start(t.Context(), c)
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("taken port: %v", err)
	}
	c = local(t, "a")
	c.Tags.Incarnations = strings.Repeat("i", MaxTagBytes)
	if _, err := Start(t.Context(), c); !errors.Is(err, ErrTagsTooLong) {
		t.Errorf("long tags: %v; want ErrTagsTooLong", err)
	}
}

func TestLongestNodeIDAndName(t *testing.T) {
	t.Parallel()
	c := local(t, strings.Repeat("a", MaxNodeID))
	c.BindAddr, c.AdvertiseAddr = "localhost:0", "localhost:0"
	d := start(t, c)
	if !d.Addr().Addr().IsLoopback() || d.Addr().Port() == 0 {
		t.Errorf("addr %v; want loopback and the bound port", d.Addr())
	}
}

// fullTags has every field set.
func fullTags() Tags {
	return Tags{
		ClusterID: "c1", NodeID: "n1", Expect: 3, RaftAddr: "10.0.0.1:7222", RouteAddr: "10.0.0.1:6222",
		AdminAddr: "10.0.0.1:8222", ClientAddr: "10.0.0.1:4222", Version: "1.0.0", Incarnations: "0:ab,1:cd",
		Draining: true, Feature: 2, Level: 1,
	}
}

func encodeMeta(tb testing.TB, m map[string]string) []byte {
	tb.Helper()
	var buf bytes.Buffer
	buf.WriteByte(tagsMark)
	if err := codec.NewEncoder(&buf, &codec.MsgpackHandle{}).Encode(m); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func TestTagsRoundTrip(t *testing.T) {
	t.Parallel()
	for _, want := range []Tags{fullTags(), {NodeID: "n1"}} {
		m, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		m["later"] = "a tag of a newer version"
		got, err := decodeMeta("n1", encodeMeta(t, m))
		if err != nil || got != want {
			t.Errorf("got %+v, %v; want %+v", got, err, want)
		}
	}
}

func TestTagsLimit(t *testing.T) {
	t.Parallel()
	tags := fullTags()
	fits := 0
	for n := range MaxTagBytes {
		tags.Incarnations = strings.Repeat("x", n)
		if _, err := tags.encode(); err != nil {
			break
		}
		fits = n
	}
	tags.Incarnations = strings.Repeat("x", fits)
	m, err := tags.encode()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(encodeMeta(t, m)); n != MaxTagBytes {
		t.Errorf("the longest tags take %d bytes; want %d", n, MaxTagBytes)
	}
	tags.Incarnations += "x"
	if _, err := tags.encode(); !errors.Is(err, ErrTagsTooLong) {
		t.Errorf("one more byte: %v; want ErrTagsTooLong", err)
	}
}

func TestTagsOfStrangers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		meta []byte
	}{
		{"none", nil},
		{"serf role", []byte("web")},
		{"no node id", encodeMeta(t, map[string]string{"role": "consul"})},
		{"another name", encodeMeta(t, map[string]string{"id": "n2"})},
		{"expect", encodeMeta(t, map[string]string{"id": "n1", "expect": "many"})},
		{"cut", encodeMeta(t, map[string]string{"id": "n1"})[:4]},
		{"not a map", []byte{tagsMark, 0x07}},
	}
	for _, tt := range tests {
		if got, err := decodeMeta("n1", tt.meta); !errors.Is(err, ErrOtherCluster) {
			t.Errorf("%s: %+v, %v; want ErrOtherCluster", tt.name, got, err)
		}
	}
}

func FuzzDecodeMeta(f *testing.F) {
	tags := fullTags()
	m, err := tags.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encodeMeta(f, m))
	f.Add(encodeMeta(f, map[string]string{"id": "n1"}))
	f.Add([]byte{tagsMark, 0xdf, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, meta []byte) {
		if len(meta) > MaxTagBytes {
			return
		}
		tags, err := decodeMeta("n1", meta)
		if err == nil && tags.NodeID != "n1" {
			t.Errorf("accepted %+v", tags)
		}
		if err != nil && !errors.Is(err, ErrOtherCluster) {
			t.Errorf("error %v", err)
		}
	})
}

func TestRosterFlap(t *testing.T) {
	t.Parallel()
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	member := serf.Member{
		Name: "a", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Tags: map[string]string{"id": "a"},
		Status: serf.StatusAlive,
	}
	event := func(typ serf.EventType) serf.Event {
		return serf.MemberEvent{Type: typ, Members: []serf.Member{member}}
	}
	r := newRoster()
	since := func(now int) time.Time {
		list, strangers := r.list(at(now), []serf.Member{member}, "")
		if len(list) != 1 || len(strangers) != 0 {
			t.Fatalf("list %v, strangers %v", list, strangers)
		}
		return list[0].Since
	}
	r.observe(event(serf.EventMemberJoin), at(1))
	if got := since(5); got != at(1) {
		t.Errorf("joined at %v; want 1", got)
	}
	// Failed and back between two lists: not the same stay.
	r.observe(event(serf.EventMemberFailed), at(6))
	r.observe(event(serf.EventMemberJoin), at(7))
	r.observe(event(serf.EventMemberUpdate), at(8))
	if got := since(9); got != at(7) {
		t.Errorf("back since %v; want 7", got)
	}
	// The event of a failure was lost: it is noticed with the list.
	member.Status = serf.StatusFailed
	if got := since(20); got != at(20) {
		t.Errorf("failed since %v; want 20", got)
	}
	// Reaped and back: a new stay.
	r.list(at(21), nil, "")
	member.Status = serf.StatusAlive
	if got := since(30); got != at(30) {
		t.Errorf("new since %v; want 30", got)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	want := map[serf.MemberStatus]string{
		serf.StatusNone: "failed", serf.StatusAlive: "alive", serf.StatusLeaving: "left",
		serf.StatusLeft: "left", serf.StatusFailed: "failed",
	}
	got := map[serf.MemberStatus]string{}
	for s := range want {
		got[s] = statusOf(s).String()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if s := Status(0).String(); s != "unknown" {
		t.Errorf("zero status is %q", s)
	}
}

// testGate is a gate of the node "a" of cluster red, for which nobody answers.
func testGate() *gate {
	return &gate{
		self: nodeAt{"a", netip.MustParseAddrPort("127.0.0.1:1")}, cluster: "red",
		log:     newLibraryLog(zap.NewNop()),
		answers: func(string, netip.AddrPort) bool { return false }, changed: func() {}, keep: time.Minute,
		refusals: map[nodeAt]*Conflict{}, disputes: map[nodeAt]*dispute{},
	}
}

func TestGateForgetsAndIsBounded(t *testing.T) {
	t.Parallel()
	g := testGate()
	meta := encodeMeta(t, map[string]string{"id": "b", "cid": "blue"})
	for port := range maxConflicts + 1 {
		n := &memberlist.Node{Name: "b", Addr: net.IPv4(127, 0, 0, 1), Port: uint16(100 + port), Meta: meta}
		if err := g.NotifyAlive(n); !errors.Is(err, ErrOtherCluster) {
			t.Fatalf("port %d: %v; want ErrOtherCluster", port, err)
		}
		own := &memberlist.Node{Name: "a", Addr: n.Addr, Port: n.Port, Meta: meta}
		if err := g.NotifyAlive(own); err != nil {
			t.Fatalf("own name at %d: %v; memberlist must refute it", port, err)
		}
	}
	if n := len(g.conflicts()); n != maxConflicts {
		t.Errorf("%d conflicts remembered; want %d", n, maxConflicts)
	}
	if n := len(g.disputes); n != maxConflicts {
		t.Errorf("%d claims remembered; want %d", n, maxConflicts)
	}
	if g.forget(time.Now()) || len(g.conflicts()) != maxConflicts {
		t.Error("forgot what is fresh")
	}
	if !g.forget(time.Now().Add(2*time.Minute)) || len(g.conflicts()) != 0 || len(g.disputes) != 0 {
		t.Error("kept what is over")
	}
}

func TestGateIgnoresTheDead(t *testing.T) {
	t.Parallel()
	g := testGate()
	node := func(name, cluster string, state memberlist.NodeStateType) *memberlist.Node {
		return &memberlist.Node{
			Name: name, Addr: net.IPv4(127, 0, 0, 1), Port: 9, State: state,
			Meta: encodeMeta(t, map[string]string{"id": name, "cid": cluster}),
		}
	}
	tests := []struct {
		name  string
		nodes []*memberlist.Node
		want  error
	}{
		{"same", []*memberlist.Node{node("b", "red", memberlist.StateAlive)}, nil},
		{"fresh", []*memberlist.Node{node("b", "", memberlist.StateAlive)}, nil},
		{"dead stranger", []*memberlist.Node{node("b", "blue", memberlist.StateDead)}, nil},
		{"gone stranger", []*memberlist.Node{node("b", "blue", memberlist.StateLeft)}, nil},
		{"stranger", []*memberlist.Node{node("b", "blue", memberlist.StateAlive)}, ErrOtherCluster},
		{"silent stranger", []*memberlist.Node{node("b", "blue", memberlist.StateSuspect)}, ErrOtherCluster},
		{"own old life", []*memberlist.Node{node("a", "blue", memberlist.StateAlive)}, nil},
		{
			"bad name",
			[]*memberlist.Node{node("b", "red", memberlist.StateAlive), {Name: "x", Meta: []byte("y")}},
			ErrOtherCluster,
		},
	}
	for _, tt := range tests {
		if err := g.NotifyMerge(tt.nodes); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v; want %v", tt.name, err, tt.want)
		}
	}
	// Without an id of its own the node takes the first it meets as the one for all.
	g = testGate()
	g.cluster = ""
	both := []*memberlist.Node{
		node("b", "red", memberlist.StateAlive), node("c", "blue", memberlist.StateAlive),
	}
	if err := g.NotifyMerge(both); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("two clusters at once: %v; want ErrOtherCluster", err)
	}
	g.update([]Member{{NodeID: "d", Status: Alive, Tags: Tags{ClusterID: "green"}}})
	if err := g.NotifyAlive(both[0]); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("red, among green: %v; want ErrOtherCluster", err)
	}
}

func TestSeedsLimit(t *testing.T) {
	t.Parallel()
	s := newSeeds(nil)
	addr := func(i int) []string {
		return []string{netip.AddrPortFrom(netip.IPv6Loopback(), uint16(i+1)).String()}
	}
	for i := range MaxSeeds {
		if err := s.add(addr(i)); err != nil {
			t.Fatalf("seed %d: %v", i, err)
		}
	}
	if err := s.add(addr(0)); err != nil {
		t.Errorf("a seed again: %v", err)
	}
	if err := s.add(addr(MaxSeeds)); !errors.Is(err, ErrConfig) {
		t.Errorf("one more: %v; want ErrConfig", err)
	}
	if n := len(s.all()); n != MaxSeeds {
		t.Errorf("%d seeds; want %d", n, MaxSeeds)
	}
}

func TestLogLines(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.DebugLevel)
	w := newLibraryLog(zap.New(core))
	lines := []string{
		"2026/01/02 15:04:05 [DEBUG] memberlist: a", "[INFO] serf: b", "[WARN] c: [x] d", "[ERR] e",
		"f", "g [h", "[i] j",
	}
	for _, l := range lines {
		if n, err := w.Write([]byte(l + "\n")); err != nil || n != len(l)+1 {
			t.Errorf("write %q: %d, %v", l, n, err)
		}
	}
	w.silence()
	w.entry(zapcore.ErrorLevel, "late")
	var got []string
	for _, e := range logs.All() {
		got = append(got, e.Level.String()+" "+e.Message)
	}
	want := []string{
		"debug memberlist: a", "info serf: b", "warn c: [x] d", "error e",
		"info f", "info g [h", "info [i] j",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
