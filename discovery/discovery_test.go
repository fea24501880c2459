package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// patience bounds every wait; a condition that holds ends it at once.
const patience = 30 * time.Second

// local returns a configuration for tests: a free loopback port and fast timings.
func local(t *testing.T, id string, seeds ...string) Config {
	t.Helper()
	return Config{
		NodeID: id, BindAddr: "127.0.0.1:0", Join: seeds, Profile: Local,
		Logger: zaptest.NewLogger(t, zaptest.Level(levelForTests)).Named(id),
	}
}

// start starts a node and stops it at the end of the test.
func start(t *testing.T, c Config) *Discovery {
	t.Helper()
	d, err := Start(context.WithoutCancel(t.Context()), c)
	if err != nil {
		t.Fatalf("start %s: %v", c.NodeID, err)
	}
	t.Cleanup(d.Shutdown)
	return d
}

// waitMembers reads the changes of d until a list satisfies want; it fails with the last list it saw.
func waitMembers(t *testing.T, d *Discovery, what string, want func([]Member) bool) []Member {
	t.Helper()
	timeout := time.After(patience)
	last := d.Members()
	for !want(last) {
		select {
		case list, ok := <-d.Changes():
			if !ok {
				t.Fatalf("%s: changes were closed while waiting for %s", d.Tags().NodeID, what)
			}
			last = list
		case <-timeout:
			t.Fatalf("%s: no %s within %v; members: %s; conflicts: %+v",
				d.Tags().NodeID, what, patience, describe(last), d.Conflicts())
		}
	}
	return last
}

// eventually polls a condition that no channel announces.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("no %s within %v", what, patience)
		}
	}
}

// is wants exactly these members, each "id=status".
func is(want ...string) func([]Member) bool {
	return func(list []Member) bool {
		var got []string
		for _, m := range list {
			got = append(got, m.NodeID+"="+m.Status.String())
		}
		return slices.Equal(got, want)
	}
}

func find(list []Member, id string) Member {
	for _, m := range list {
		if m.NodeID == id {
			return m
		}
	}
	return Member{}
}

func describe(list []Member) string {
	var b strings.Builder
	for _, m := range list {
		fmt.Fprintf(&b, "%s=%v@%v cid=%q ", m.NodeID, m.Status, m.Addr, m.Tags.ClusterID)
	}
	return b.String()
}

// freeAddr returns a loopback address that nobody listens on at the moment, for a seed that comes late.
func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func TestThreeNodesJoinOneSeedInAnyOrder(t *testing.T) {
	t.Parallel()
	all := is("a=alive", "b=alive", "c=alive")
	for _, order := range [][]string{{"a", "b", "c"}, {"b", "a", "c"}, {"c", "b", "a"}} {
		t.Run(strings.Join(order, ""), func(t *testing.T) {
			t.Parallel()
			seed := freeAddr(t)
			nodes := map[string]*Discovery{}
			for _, id := range order {
				c := local(t, id, seed)
				if id == "a" {
					c.BindAddr = seed
				}
				c.Tags = Tags{RaftAddr: "127.0.0.1:1" + id, Expect: 3}
				nodes[id] = start(t, c)
			}
			for id, d := range nodes {
				list := waitMembers(t, d, "three live members", all)
				for _, m := range list {
					want := Member{
						NodeID: m.NodeID, Addr: nodes[m.NodeID].Addr(), Status: Alive, Since: m.Since,
						Tags: Tags{NodeID: m.NodeID, RaftAddr: "127.0.0.1:1" + m.NodeID, Expect: 3},
					}
					if diff := cmp.Diff(want, m, cmp.Comparer(addrEqual)); diff != "" {
						t.Errorf("%s sees (-want +got):\n%s", id, diff)
					}
					if m.Since.IsZero() {
						t.Errorf("%s sees %s since never", id, m.NodeID)
					}
				}
			}
		})
	}
}

func addrEqual(a, b netip.AddrPort) bool { return a == b }

func TestJoinLate(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	b := start(t, local(t, "b"))
	nobody := freeAddr(t)
	if n, err := b.Join([]string{nobody}); n != 0 || err == nil {
		t.Fatalf("join of nobody: %d, %v; want 0 and an error", n, err)
	}
	if n, err := b.Join([]string{a.Addr().String()}); n != 1 || err != nil {
		t.Fatalf("join: %d, %v; want 1", n, err)
	}
	waitMembers(t, a, "both", is("a=alive", "b=alive"))
	waitMembers(t, b, "both", is("a=alive", "b=alive"))
}

func TestLeaveIsNotFailure(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	seed := a.Addr().String()
	b, c := start(t, local(t, "b", seed)), start(t, local(t, "c", seed))
	list := waitMembers(t, a, "all", is("a=alive", "b=alive", "c=alive"))
	waitMembers(t, c, "all", is("a=alive", "b=alive", "c=alive"))
	joined := find(list, "b").Since

	if err := b.Leave(t.Context()); err != nil {
		t.Fatalf("leave: %v", err)
	}
	if err := b.Leave(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("second leave: %v; want ErrStopped", err)
	}
	if _, err := b.Join([]string{seed}); !errors.Is(err, ErrStopped) {
		t.Errorf("join after leave: %v; want ErrStopped", err)
	}
	list = waitMembers(t, a, "b to have left", is("a=alive", "b=left", "c=alive"))
	if since := find(list, "b").Since; !since.After(joined) {
		t.Errorf("b left since %v, joined %v", since, joined)
	}
	b.Shutdown()
	c.Shutdown()
	waitMembers(t, a, "c to have failed", is("a=alive", "b=left", "c=failed"))

	if err := a.Forget("a"); !errors.Is(err, ErrAlive) {
		t.Errorf("forget a live member: %v; want ErrAlive", err)
	}
	if err := a.Forget("c"); err != nil {
		t.Errorf("forget: %v", err)
	}
	waitMembers(t, a, "c to be forgotten", is("a=alive", "b=left"))
}

func TestTagsSpread(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	b := start(t, local(t, "b", a.Addr().String()))
	waitMembers(t, a, "both", is("a=alive", "b=alive"))
	joined := find(a.Members(), "b").Since

	if err := b.SetTags(func(tags *Tags) { tags.ClusterID, tags.Draining = "c1", true }); err != nil {
		t.Fatalf("set tags: %v", err)
	}
	want := Tags{NodeID: "b", ClusterID: "c1", Draining: true}
	list := waitMembers(t, a, "b's tags", func(list []Member) bool { return find(list, "b").Tags == want })
	if since := find(list, "b").Since; !since.Equal(joined) {
		t.Errorf("new tags changed since from %v to %v", joined, since)
	}
	if got := b.Tags(); got != want {
		t.Errorf("b's own tags: %+v; want %+v", got, want)
	}

	// Past the limit nothing changes.
	err := b.SetTags(func(tags *Tags) { tags.Incarnations = strings.Repeat("x", MaxTagBytes) })
	if !errors.Is(err, ErrTagsTooLong) || !strings.Contains(err.Error(), `the longest is "inc" with 512`) {
		t.Errorf("too long: %v", err)
	}
	if err := b.SetTags(func(tags *Tags) { tags.NodeID = "x" }); !errors.Is(err, ErrConfig) {
		t.Errorf("node id: %v; want ErrConfig", err)
	}
	if got := b.Tags(); got != want {
		t.Errorf("b's own tags after refusals: %+v; want %+v", got, want)
	}
	b.Shutdown()
	if err := b.SetTags(func(*Tags) {}); !errors.Is(err, ErrStopped) {
		t.Errorf("set tags after the end: %v; want ErrStopped", err)
	}
}

func TestOtherClusterIsRefused(t *testing.T) {
	t.Parallel()
	with := func(id, cluster string, seeds ...string) *Discovery {
		c := local(t, id, seeds...)
		c.Tags.ClusterID = cluster
		return start(t, c)
	}
	a := with("a", "red")
	stranger := with("s", "blue", a.Addr().String())
	fresh := with("f", "", a.Addr().String())

	waitMembers(t, a, "only the fresh node let in", is("a=alive", "f=alive"))
	eventually(t, "a's refusal", func() bool { return len(a.Conflicts()) == 1 })
	got := a.Conflicts()[0]
	const why = `discovery: another cluster: node "s" belongs to cluster "blue", this node to "red"`
	if got.NodeID != "s" || got.Other != stranger.Addr() || got.Reason != why {
		t.Errorf("a reports %+v; want %q at %v: %s", got, "s", stranger.Addr(), why)
	}
	_, err := stranger.Join([]string{a.Addr().String()})
	const told = `node "a" belongs to cluster "red", this node to "blue"`
	if err == nil || !strings.Contains(err.Error(), told) {
		t.Errorf("the stranger is told: %v; want %s", err, told)
	}
	// The fresh node has no id of its own, but knows where it is: it is no bridge to the other cluster.
	waitMembers(t, fresh, "both", is("a=alive", "f=alive"))
	if _, err := fresh.Join([]string{stranger.Addr().String()}); err == nil ||
		!strings.Contains(err.Error(), `node "s" belongs to cluster "blue", this node to "red"`) {
		t.Errorf("the fresh node joins the stranger: %v", err)
	}
	if list := stranger.Members(); !is("s=alive")(list) {
		t.Errorf("the stranger knows %s", describe(list))
	}
}

func TestStrangerIsDroppedOnceTheClusterHasAnID(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	c := local(t, "b", a.Addr().String())
	c.Tags.ClusterID = "blue"
	start(t, c)
	waitMembers(t, a, "both", is("a=alive", "b=alive"))
	if err := a.SetTags(func(tags *Tags) { tags.ClusterID = "red" }); err != nil {
		t.Fatal(err)
	}
	waitMembers(t, a, "the stranger to go", is("a=alive"))
	if got := a.Conflicts(); len(got) != 1 || got[0].NodeID != "b" {
		t.Errorf("conflicts: %+v; want b", got)
	}
}

func TestRestartOnAnotherPort(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	first := start(t, local(t, "b", a.Addr().String()))
	was := find(waitMembers(t, a, "both", is("a=alive", "b=alive")), "b")
	first.Shutdown()

	second := start(t, local(t, "b", a.Addr().String()))
	// The name is not in use, so the node itself is not kept waiting.
	waitMembers(t, second, "both", is("a=alive", "b=alive"))
	list := waitMembers(t, a, "b at its new address", func(list []Member) bool {
		m := find(list, "b")
		return m.Status == Alive && m.Addr == second.Addr()
	})
	if now := find(list, "b"); !now.Since.After(was.Since) {
		t.Errorf("b is back since %v, was there since %v", now.Since, was.Since)
	}
	for _, d := range []*Discovery{a, second} {
		if got := d.Conflicts(); len(got) != 0 {
			t.Errorf("%s reports %+v; want nothing", d.Tags().NodeID, got)
		}
	}
}

func TestTwoLiveNodesWithOneID(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	first := start(t, local(t, "b", a.Addr().String()))
	waitMembers(t, a, "both", is("a=alive", "b=alive"))

	second := start(t, local(t, "b", a.Addr().String()))
	_, err := second.Join([]string{a.Addr().String()})
	if err == nil || !strings.Contains(err.Error(), `two live nodes call themselves "b"`) {
		t.Errorf("the newcomer is told: %v", err)
	}
	for _, d := range []*Discovery{a, second} {
		eventually(t, "conflict", func() bool { return len(d.Conflicts()) == 1 })
	}
	if got := a.Conflicts()[0]; got.NodeID != "b" || got.Addr != first.Addr() || got.Other != second.Addr() {
		t.Errorf("a reports %+v; want b at %v and %v", got, first.Addr(), second.Addr())
	}
	if got := second.Conflicts()[0]; got.Addr != second.Addr() || got.Other != first.Addr() {
		t.Errorf("the newcomer reports %+v; want %v and %v", got, second.Addr(), first.Addr())
	}
	waitMembers(t, second, "the newcomer alone", is("b=alive"))
	if m := find(a.Members(), "b"); m.Addr != first.Addr() || m.Status != Alive {
		t.Errorf("a holds b=%v at %v; want the first, alive", m.Status, m.Addr)
	}

	if c, ok := second.Twin(); !ok || c.Other != first.Addr() {
		t.Errorf("the newcomer does not know that it is the second: %+v, %v", c, ok)
	}
	for name, d := range map[string]*Discovery{"the seed": a, "the first": first} {
		if c, ok := d.Twin(); ok {
			t.Errorf("%s takes itself for the second: %+v", name, c)
		}
	}

	// Once the first is gone the second gets its place, and nothing is in conflict any more.
	first.Shutdown()
	waitMembers(t, a, "the second b", func(list []Member) bool {
		m := find(list, "b")
		return m.Status == Alive && m.Addr == second.Addr()
	})
	for _, d := range []*Discovery{a, second} {
		eventually(t, "end of the conflict", func() bool { return len(d.Conflicts()) == 0 })
	}
}

// A second node with the id of a live one joins that very node: the holder of the id sees its members all along.
func TestSecondNodeComesToTheHolder(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	first := start(t, local(t, "b", a.Addr().String()))
	for _, d := range []*Discovery{a, first} {
		waitMembers(t, d, "both", is("a=alive", "b=alive"))
	}
	until := func(conflicts int) {
		t.Helper()
		waitMembers(t, first, fmt.Sprintf("%d conflicts", conflicts), func(list []Member) bool {
			if len(list) != 2 {
				t.Errorf("the first lists %s", describe(list))
			}
			return len(first.Conflicts()) == conflicts
		})
	}

	second := start(t, local(t, "b", first.Addr().String()))
	until(1)
	if c, ok := first.Twin(); ok {
		t.Errorf("the first takes itself for the second: %+v", c)
	}
	second.Shutdown()
	until(0)
}

func TestSnapshotFindsTheClusterAgain(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	c := local(t, "b", a.Addr().String())
	c.SnapshotPath = filepath.Join(t.TempDir(), "serf.snapshot")
	first := start(t, c)
	waitMembers(t, a, "both", is("a=alive", "b=alive"))
	c.BindAddr = first.Addr().String()
	first.Shutdown()

	c.Join = nil
	second := start(t, c)
	waitMembers(t, second, "both, without a seed", is("a=alive", "b=alive"))
}

func TestGossipKey(t *testing.T) {
	t.Parallel()
	key := func(b byte) []byte { return slices.Repeat([]byte{b}, 32) }
	keyed := func(id string, secret []byte, accept [][]byte, seeds ...string) *Discovery {
		c := local(t, id, seeds...)
		c.SecretKey, c.AcceptKeys = secret, accept
		return start(t, c)
	}
	a := keyed("a", key(1), [][]byte{key(2)})
	seed := a.Addr().String()
	keyed("b", key(1), [][]byte{key(2)}, seed)
	waitMembers(t, a, "b, who has the key", is("a=alive", "b=alive"))
	keyed("c", key(2), [][]byte{key(1)}, seed)
	waitMembers(t, a, "c, who has the next key", is("a=alive", "b=alive", "c=alive"))

	stranger := keyed("s", key(3), nil)
	if n, err := stranger.Join([]string{seed}); n != 0 || err == nil {
		t.Errorf("join with another key: %d, %v; want an error", n, err)
	}
	open := start(t, local(t, "o"))
	if n, err := open.Join([]string{seed}); n != 0 || err == nil {
		t.Errorf("join without a key: %d, %v; want an error", n, err)
	}
	if list := a.Members(); !is("a=alive", "b=alive", "c=alive")(list) {
		t.Errorf("a knows %s", describe(list))
	}
}

func TestEndOfContextIsShutdown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d, err := Start(ctx, local(t, "a"))
	if err != nil {
		t.Fatal(err)
	}
	addr := d.Addr().String()
	cancel()
	for range d.Changes() { // until it is closed
	}
	d.Shutdown()
	if err := d.Leave(t.Context()); !errors.Is(err, ErrStopped) {
		t.Errorf("leave after the end: %v; want ErrStopped", err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatalf("the port is still taken: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func TestShutdownDuringLeave(t *testing.T) {
	t.Parallel()
	a := start(t, local(t, "a"))
	b := start(t, local(t, "b", a.Addr().String()))
	waitMembers(t, b, "both", is("a=alive", "b=alive"))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Leave(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("leave: %v; want the context's error", err)
	}
	b.Shutdown()
	waitMembers(t, a, "b to have left", is("a=alive", "b=left"))
}
