package transport

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport/memnet"
)

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := func() Config {
		return Config{
			NodeID:  "a",
			Network: memnet.New().Host("a"),
			Listen:  "a:1",
			Resolve: func(string) (string, bool) { return "", false },
		}
	}
	for name, edit := range map[string]func(*Config){
		"NodeID":           func(c *Config) { c.NodeID = "" },
		"node id":          func(c *Config) { c.NodeID = "a/b" },
		"127 bytes":        func(c *Config) { c.NodeID = strings.Repeat("n", maxNodeID+1) },
		"Resolve":          func(c *Config) { c.Resolve = nil },
		"listen":           func(c *Config) { c.Listen = "elsewhere:1" },
		"HeartbeatTimeout": func(c *Config) { c.HeartbeatTimeout = -1 },
		"AppendTimeout":    func(c *Config) { c.AppendTimeout = -1 },
		"SnapshotIdle":     func(c *Config) { c.SnapshotIdle = -1 },
		"RestoreTimeout":   func(c *Config) { c.RestoreTimeout = -1 },
		"HandshakeTimeout": func(c *Config) { c.HandshakeTimeout = -1 },
		"IdleTimeout":      func(c *Config) { c.IdleTimeout = -1 },
		"ProcessSilence":   func(c *Config) { c.ProcessSilence = DefaultIdleTimeout * 3 / 20 },
		"TwinPatience":     func(c *Config) { c.TwinPatience = 6*time.Second - 1 },
		"AppendBytes":      func(c *Config) { c.AppendBytes = -1 },
		"GroupQueue":       func(c *Config) { c.GroupQueue = -1 },
		"MaxCalls":         func(c *Config) { c.MaxCalls = -1 },
		"MaxInbound":       func(c *Config) { c.MaxInbound = -1 },
		"SnapshotChunk":    func(c *Config) { c.SnapshotChunk = -1 },
		"MaxFrameBytes":    func(c *Config) { c.MaxFrameBytes = DefaultAppendBytes - 1 },
		"snapshot chunk":   func(c *Config) { c.MaxFrameBytes, c.SnapshotChunk = 8<<20, 8<<20 },
		"SnapshotWindow":   func(c *Config) { c.SnapshotWindow = DefaultSnapshotChunk - 1 },
	} {
		c := good()
		edit(&c)
		tr, err := New(c)
		if err == nil {
			tr.Close()
			t.Errorf("%s: accepted", name)
			continue
		}
		if want := strings.Replace(name, "NodeID", "node id", 1); !strings.Contains(err.Error(), want) {
			t.Errorf("%s: the error does not name it: %v", name, err)
		}
	}
	for _, id := range []string{"a", strings.Repeat("n", maxNodeID)} {
		c := good()
		c.NodeID = id
		tr, err := New(c)
		if err != nil {
			t.Fatalf("node id of %d bytes: %v", len(id), err)
		}
		tr.Close()
		tr.Close()
	}
}

func cmpOr(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func TestHandshakeIdentity(t *testing.T) {
	for _, tc := range []struct {
		name           string
		clusterA       string
		clusterB       string
		resolveTo      string // whom a's address for b leads to
		admitA, admitB error
		text           string // of a's error; empty = connected
	}{
		{name: "same cluster", clusterA: "x", clusterB: "x"},
		{name: "neither knows", clusterA: "", clusterB: ""},
		{name: "dialer does not know yet", clusterA: "", clusterB: "x"},
		{name: "acceptor does not know yet", clusterA: "x", clusterB: ""},
		{name: "another cluster", clusterA: "x", clusterB: "y", text: `cluster "x", this node of "y"`},
		{name: "another node", resolveTo: "c:1", text: `"c" answers where "b" was meant`},
		{name: "itself", resolveTo: "a:1", text: `"a" answers where "b" was meant`},
		{name: "nobody", resolveTo: "d:1", text: "refused"},
		{name: "not admitted there", admitB: errors.New("unknown"), text: `node "a" not admitted: unknown`},
		{name: "not admitted here", admitA: errors.New("bad key"), text: `node "b" not admitted: bad key`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fab := memnet.New()
				a := newPuppet(t, fab, "a", func(c *Config) {
					c.ClusterID = func() string { return tc.clusterA }
					c.Resolve = func(string) (string, bool) { return cmpOr(tc.resolveTo, "b:1"), true }
					c.Admit = func(string, net.Conn) error { return tc.admitA }
				})
				b := newPuppet(t, fab, "b", func(c *Config) {
					c.ClusterID = func() string { return tc.clusterB }
					c.Admit = func(string, net.Conn) error { return tc.admitB }
				})
				newPuppet(t, fab, "c", nil)
				_, err := a.beat(b, 1)
				if tc.text == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("%v, want ErrUnreachable and %q", err, tc.text)
				}
				if a.tr.Counters().DialErrors.Load() == 0 {
					t.Error("not counted")
				}
			})
		})
	}
}

// The dialer does not rely on the other side's checks.
func TestDialerChecksTheAnswer(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    welcome
		text string
	}{
		{"node", welcome{version: Protocol, cluster: "x", node: "z"}, `"z" answers where "b" was meant`},
		{"cluster", welcome{version: Protocol, cluster: "y", node: "b"}, `cluster "y", this node of "x"`},
		{"refusal", welcome{version: 2, cluster: "x", node: "b", refusal: "too new"}, "too new"},
		{"another version", welcome{version: 2, cluster: "x", node: "b"}, "version 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fab := memnet.New()
				a := newPuppet(t, fab, "a", func(c *Config) { c.ClusterID = func() string { return "x" } })
				l, err := fab.Host("b").Listen("b:1")
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				go func() {
					nc, err := l.Accept()
					if err != nil {
						return
					}
					defer nc.Close()
					_, _ = readFrame(bufio.NewReader(nc), maxHandshake)
					_, _ = nc.Write(endFrame(appendWelcome(beginFrame(nil, frameWelcome, 0, 0), tc.w)))
				}()
				_, err = a.send("b/i1", &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1})
				if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("%v, want ErrUnreachable and %q", err, tc.text)
				}
			})
		})
	}
}

func TestUnknownAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newPuppet(
			t,
			memnet.New(),
			"a",
			func(c *Config) { c.Resolve = func(string) (string, bool) { return "", false } },
		)
		_, err := a.send("b/i1", &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1})
		if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "no address known") {
			t.Error(err)
		}
		// A failed dial is not repeated at once, and is after a tenth of a heartbeat timeout.
		before := a.tr.Counters().Dials.Load()
		_, _ = a.send("b/i1", &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1})
		if n := a.tr.Counters().Dials.Load(); n != before {
			t.Errorf("%d more dials", n-before)
		}
		wait1(DefaultHeartbeatTimeout / 10)
		_, _ = a.send("b/i1", &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1})
		if n := a.tr.Counters().Dials.Load(); n != before+1 {
			t.Errorf("%d more dials, want 1", n-before)
		}
	})
}

// A connection made before a side knew its cluster ends when the side learns it.
func TestProvisionalConnection(t *testing.T) {
	for _, learner := range []string{"dialer", "acceptor"} {
		t.Run(learner, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fab := memnet.New()
				var mu sync.Mutex
				id := ""
				learns := func(c *Config) {
					c.ClusterID = func() string {
						mu.Lock()
						defer mu.Unlock()
						return id
					}
				}
				knows := func(c *Config) { c.ClusterID = func() string { return "x" } }
				edits := map[bool]func(*Config){true: learns, false: knows}
				a := newPuppet(t, fab, "a", edits[learner == "dialer"])
				b := newPuppet(t, fab, "b", edits[learner == "acceptor"])
				if _, err := a.beat(b, 1); err != nil {
					t.Fatal(err)
				}
				wait1(time.Minute)
				c := a.tr.link("b").current()
				if c == nil {
					t.Fatal("the connection ended before anyone learned anything")
				}
				mu.Lock()
				id = "y" // as it turns out, another one
				mu.Unlock()
				wait1(DefaultIdleTimeout)
				if c.alive() {
					t.Error("the connection lives on")
				}
				if _, err := a.beat(
					b,
					1,
				); !errors.Is(err, ErrUnreachable) ||
					!strings.Contains(err.Error(), "cluster") {
					t.Errorf("the next one: %v", err)
				}
			})
		})
	}
}

func TestStrangersAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		b := newPuppet(t, fab, "b", nil)
		call := func(hello []byte) []byte {
			nc, err := fab.Host("x").Dial(t.Context(), "b:1")
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_, _ = nc.Write(hello)
			got, _ := io.ReadAll(nc)
			return got
		}
		start := time.Now()
		if got := call(nil); len(got) != 0 || time.Since(start) != DefaultHandshakeTimeout {
			t.Errorf("silence: answered %q after %v", got, time.Since(start))
		}
		if got := call([]byte("GET / HTTP/1.1\r\nHost: b\r\n\r\n")); len(got) != 0 {
			t.Errorf("HTTP: answered %q", got)
		}
		own := handshake{version: Protocol, kind: kindControl, from: "b", to: "b"}
		if got := call(
			endFrame(appendHandshake(beginFrame(nil, frameHandshake, 0, 0), own)),
		); !strings.Contains(
			string(got),
			"this node's id",
		) {
			t.Errorf("its own id: answered %q", got)
		}
		big := endFrame(append(beginFrame(nil, frameHandshake, 0, 0), make([]byte, maxHandshake+1)...))
		if got := call(big); len(got) != 0 {
			t.Errorf("too long: answered %q", got)
		}
		if n := b.tr.Counters().HandshakeRefused.Load(); n != 4 {
			t.Errorf("counted %d, want 4", n)
		}
	})
}

func TestMaxInbound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		b := newPuppet(t, fab, "b", func(c *Config) { c.MaxInbound = 2 })
		nodes := []*puppet{
			newPuppet(t, fab, "p", nil),
			newPuppet(t, fab, "q", nil),
			newPuppet(t, fab, "r", nil),
		}
		for i, p := range nodes {
			_, err := p.beat(b, uint64(i+1))
			if (err == nil) != (i < 2) {
				t.Errorf("connection %d: %v", i+1, err)
			}
		}
		fab.Crash("p")
		wait1(time.Second)
		if _, err := nodes[2].beat(b, 9); err != nil {
			t.Errorf("after one ended: %v", err)
		}
	})
}

func TestMalformedFramesEndTheConnection(t *testing.T) {
	raw := func(head ...byte) []byte { return append(head, make([]byte, 12)...) }
	empty := func(typ frameType, group uint32) []byte { return endFrame(beginFrame(nil, typ, group, 1)) }
	for name, frame := range map[string][]byte{
		"unknown type":            empty(99, 0),
		"answer on request":       empty(frameReply, 0),
		"length below the header": raw(0, 0, 0, 1, 7),
		"beyond the limit":        raw(255, 255, 255, 255, 7),
		"append of nothing":       empty(frameAppend, testGroup),
		"hello of nothing":        empty(frameHello, testGroup),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := twoPuppets(t)
				if _, err := a.beat(b, 1); err != nil {
					t.Fatal(err)
				}
				c := a.tr.link("b").current()
				c.send(frame)
				synctest.Wait()
				if c.alive() || b.tr.Counters().ProtocolErrors.Load() != 1 {
					t.Errorf("alive: %v, counted %d", c.alive(), b.tr.Counters().ProtocolErrors.Load())
				}
				if _, err := a.beat(b, 1); err != nil {
					t.Errorf("the next connection: %v", err)
				}
			})
		})
	}
}

func TestSilentPeerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		if _, err := a.beat(b, 1); err != nil {
			t.Fatal(err)
		}
		wait1(time.Hour)
		first := a.tr.link("b").current()
		if first == nil {
			t.Fatal("an idle connection was closed")
		}
		// A request that times out makes the transport look at once.
		a.fab.Isolate("a", "b")
		_, _ = a.beat(b, 1)
		wait1(2 * DefaultHeartbeatTimeout)
		if first.alive() {
			t.Error("a dead connection is kept after a request timed out")
		}
		a.fab.Rejoin("a", "b")
		if _, err := a.beat(b, 1); err != nil {
			t.Fatal(err)
		}
		// Without a request it is noticed after the idle timeout, on both sides.
		a.fab.Isolate("a", "b")
		wait1(2 * DefaultIdleTimeout)
		for _, p := range a.tr.Peers() {
			if p.Connected {
				t.Errorf("still connected: %+v", p)
			}
		}
		for _, p := range b.tr.Peers() {
			if p.Accepted {
				t.Errorf("still accepted: %+v", p)
			}
		}
	})
}

func TestPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		if _, err := a.send(
			b.addr,
			&raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1, PrevLogEntry: 8, PrevLogTerm: 1},
		); err != nil {
			t.Fatal(err)
		}
		now := time.Now()
		_, _ = a.send("gone/i1", &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1})
		want := []PeerStats{
			{
				NodeID:    "b",
				Connected: true,
				Heard:     now,
				Groups:    []GroupPeerStats{{Group: testGroup, Address: b.addr, Match: 8, Contact: now}},
			},
			{
				NodeID: "gone", Error: "peer unreachable: gone: memnet: dial gone:1: connection refused",
				Groups: []GroupPeerStats{{Group: testGroup, Address: "gone/i1"}},
			},
		}
		if diff := cmp.Diff(want, a.tr.Peers(), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("a's peers (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(
			[]PeerStats{{NodeID: "a", Accepted: true, Heard: now}},
			b.tr.Peers(),
		); diff != "" {
			t.Errorf("b's peers (-want +got):\n%s", diff)
		}
	})
}

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		const kind = 3
		for _, p := range []*puppet{a, b} {
			p.tr.Handle(
				kind,
				func(_ context.Context, from string, group uint32, payload []byte) ([]byte, error) {
					if string(payload) == "fail" {
						return nil, errors.New("no such stream")
					}
					return fmt.Appendf(nil, "%s %d %s", from, group, payload), nil
				},
			)
		}
		for _, to := range []string{"a", "b"} { // itself too
			got, err := a.tr.Call(t.Context(), to, 9, kind, []byte("hi"))
			if err != nil || string(got) != "a 9 hi" {
				t.Errorf("to %s: %q, %v", to, got, err)
			}
			var remote *RemoteError
			if _, err := a.tr.Call(
				t.Context(),
				to,
				9,
				kind,
				[]byte("fail"),
			); !errors.As(err, &remote) ||
				*remote != (RemoteError{to, "no such stream"}) {
				t.Errorf("handler's error at %s: %v", to, err)
			}
			if _, err := a.tr.Call(t.Context(), to, 9, 4, nil); !errors.Is(err, ErrRefused) {
				t.Errorf("no handler at %s: %v", to, err)
			}
		}
		b.tr.Handle(kind, nil)
		if _, err := a.tr.Call(t.Context(), "b", 9, kind, nil); !errors.Is(err, ErrRefused) {
			t.Errorf("a removed handler: %v", err)
		}
		if _, err := a.tr.Call(t.Context(), "nobody", 9, kind, nil); !errors.Is(err, ErrUnreachable) {
			t.Errorf("nobody there: %v", err)
		}
		if _, err := a.tr.Call(
			t.Context(),
			"b",
			9,
			kind,
			make([]byte, DefaultMaxFrameBytes),
		); !errors.Is(
			err,
			ErrTooLarge,
		) {
			t.Errorf("too large: %v", err)
		}
	})
}

func TestCallsAreLargeAndConcurrent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		a := newPuppet(t, fab, "a", nil)
		b := newPuppet(t, fab, "b", func(c *Config) { c.MaxCalls = 2 })
		hold := make(chan struct{})
		b.tr.Handle(1, func(_ context.Context, _ string, _ uint32, payload []byte) ([]byte, error) {
			<-hold
			return payload, nil
		})
		large := bytes.Repeat([]byte("x"), 20<<20)
		results := make(chan error, 3)
		for range 3 {
			go func() {
				got, err := a.tr.Call(t.Context(), "b", 0, 1, large)
				if err == nil && !bytes.Equal(got, large) {
					err = fmt.Errorf("%d bytes came back", len(got))
				}
				results <- err
			}()
		}
		if err := <-results; !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "too many calls") {
			t.Errorf("past the limit: %v", err)
		}
		// Raft's frames pass calls that are slow.
		if _, err := a.beat(b, 1); err != nil {
			t.Error(err)
		}
		close(hold)
		for range 2 {
			if err := <-results; err != nil {
				t.Errorf("at the limit: %v", err)
			}
		}
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		ended := make(chan error, 1)
		b.tr.Handle(1, func(ctx context.Context, _ string, _ uint32, _ []byte) ([]byte, error) {
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := a.tr.Call(ctx, "b", 0, 1, nil)
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) ||
			time.Since(start) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		// The handler's context ends with the caller's connection.
		a.fab.Drop("a", "b")
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// silent is a Raft that takes requests and the snapshot's bytes as told.
func TestInstallEnds(t *testing.T) {
	const size = 3 << 20
	snapshot := func() *raft.InstallSnapshotRequest {
		return &raft.InstallSnapshotRequest{
			SnapshotVersion: 1,
			Term:            1,
			LastLogIndex:    9,
			LastLogTerm:     1,
			Size:            size,
		}
	}
	for _, tc := range []struct {
		name  string
		data  io.Reader
		take  func(r io.Reader, release chan struct{}) (any, error)
		err   error
		after time.Duration
	}{
		{
			name: "whole", data: bytes.NewReader(make([]byte, size)),
			take: func(r io.Reader, _ chan struct{}) (any, error) {
				n, err := io.Copy(io.Discard, r)
				if n != size {
					return nil, fmt.Errorf("%d bytes, %w", n, err)
				}
				return &raft.InstallSnapshotResponse{Term: 1, Success: true}, err
			},
		},
		{
			name: "slow but steady", data: bytes.NewReader(make([]byte, size)),
			take: func(r io.Reader, _ chan struct{}) (any, error) {
				for n := int64(1); n > 0; {
					wait1(DefaultSnapshotIdle - time.Second)
					n, _ = io.CopyN(io.Discard, r, DefaultSnapshotChunk)
				}
				return &raft.InstallSnapshotResponse{Term: 1, Success: true}, nil
			},
			after: (size/DefaultSnapshotChunk + 1) * (DefaultSnapshotIdle - time.Second),
		},
		{
			name: "stuck in the middle", data: bytes.NewReader(make([]byte, size)),
			take: func(r io.Reader, release chan struct{}) (any, error) {
				_, _ = io.CopyN(io.Discard, r, DefaultSnapshotChunk)
				<-release
				return nil, errors.New("late")
			},
			err: ErrTimeout, after: DefaultSnapshotIdle,
		},
		{
			name: "long restore", data: bytes.NewReader(make([]byte, size)),
			take: func(r io.Reader, _ chan struct{}) (any, error) {
				_, _ = io.Copy(io.Discard, r)
				wait1(DefaultRestoreTimeout - time.Second)
				return &raft.InstallSnapshotResponse{Term: 1, Success: true}, nil
			},
			after: DefaultRestoreTimeout - time.Second,
		},
		{
			name: "endless restore", data: bytes.NewReader(make([]byte, size)),
			take: func(r io.Reader, release chan struct{}) (any, error) {
				_, _ = io.Copy(io.Discard, r)
				<-release
				return nil, errors.New("late")
			},
			err: ErrUnreachable, after: DefaultRestoreTimeout + 2*DefaultSnapshotIdle/4,
		},
		{
			name: "source ends early", data: bytes.NewReader(make([]byte, size-1)),
			take: func(r io.Reader, _ chan struct{}) (any, error) {
				_, err := io.Copy(io.Discard, r)
				return nil, err
			},
			err: io.ErrUnexpectedEOF,
		},
		{
			name: "refused by Raft", data: bytes.NewReader(make([]byte, size)),
			take: func(r io.Reader, _ chan struct{}) (any, error) {
				_, _ = io.Copy(io.Discard, r)
				return &raft.InstallSnapshotResponse{Term: 7}, nil
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, b := twoPuppets(t)
				release := make(chan struct{})
				free := sync.OnceFunc(func() { close(release) })
				defer free()
				b.close()
				g, err := b.tr.Group(
					GroupConfig{
						ID:       testGroup,
						Local:    b.addr,
						Boottime: func() time.Duration { return time.Since(b.start) },
					},
				)
				if err != nil {
					t.Fatal(err)
				}
				defer g.Close()
				beat := make(chan any, 1)
				go func() {
					rpc := <-g.Consumer()
					rpc.Respond(tc.take(rpc.Reader, release))
					rpc = <-g.Consumer()
					rpc.Respond(&raft.AppendEntriesResponse{Term: 1, Success: true}, nil)
					beat <- rpc.Command
				}()
				// In the term of the install, so that its match counts.
				a.g.mu.Lock()
				a.g.enterTerm(1)
				a.g.mu.Unlock()
				start := time.Now()
				var resp raft.InstallSnapshotResponse
				req := snapshot()
				req.RPCHeader = a.header()
				err = a.g.InstallSnapshot(raft.ServerID(b.addr), b.addr, req, &resp, tc.data)
				if !errors.Is(err, tc.err) {
					t.Errorf("%v, want %v", err, tc.err)
				}
				if d := time.Since(start); d != tc.after {
					t.Errorf("after %v, want %v", d, tc.after)
				}
				free()
				want := &raft.AppendEntriesRequest{RPCHeader: req.RPCHeader, Term: req.Term}
				if diff := cmp.Diff(any(want), <-beat); diff != "" {
					t.Errorf("Raft is to hear of the leader again (-want +got):\n%s", diff)
				}
				if err == nil {
					want := uint64(0)
					if resp.Success {
						want = 9
					}
					if got := a.g.Progress()[0].Match; got != want {
						t.Errorf("match %d, want %d", got, want)
					}
				}
			})
		})
	}
}

func TestInstallIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		install := func(to raft.ServerAddress) error {
			req := &raft.InstallSnapshotRequest{RPCHeader: a.header(), Term: 1, Size: 1 << 20}
			return a.g.InstallSnapshot(
				raft.ServerID(to),
				to,
				req,
				&raft.InstallSnapshotResponse{},
				bytes.NewReader(make([]byte, 1<<20)),
			)
		}
		if err := install(
			Address("b", "old"),
		); !errors.Is(err, ErrRefused) ||
			b.tr.Counters().WrongReceiver.Load() != 1 {
			t.Errorf("wrong receiver: %v", err)
		}
		b.src.refuse(errors.New("below"))
		if err := install(b.addr); !errors.Is(err, ErrRefused) {
			t.Errorf("hello: %v", err)
		}
		b.src.refuse(nil)
		b.tr.Quarantine(testGroup, "damaged")
		if err := install(b.addr); !errors.Is(err, ErrRefused) {
			t.Errorf("quarantined there: %v", err)
		}
		a.tr.Quarantine(testGroup, "damaged")
		if err := install(b.addr); !errors.Is(err, ErrQuarantined) {
			t.Errorf("quarantined here: %v", err)
		}
		a.tr.Unquarantine(testGroup)
		if err := install("nobody/i1"); !errors.Is(err, ErrUnreachable) {
			t.Errorf("nobody there: %v", err)
		}
		if n := len(b.took()); n != 0 {
			t.Errorf("Raft got %d requests", n)
		}
	})
}

// testTLS returns a Secure hook: both sides of one self-signed key, pinned.
func testTLS(t *testing.T) func(net.Conn, bool) (net.Conn, error) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(
		rand.Reader,
		&x509.Certificate{SerialNumber: big.NewInt(1)},
		&x509.Certificate{},
		pub,
		key,
	)
	if err != nil {
		t.Fatal(err)
	}
	cfg := &tls.Config{
		MinVersion:         tls.VersionTLS13,
		Certificates:       []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:         tls.RequireAnyClientCert,
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if got, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !got.Equal(pub) {
				return errors.New("another key")
			}
			return nil
		},
	}
	return func(nc net.Conn, client bool) (net.Conn, error) {
		c := tls.Server(nc, cfg)
		if client {
			c = tls.Client(nc, cfg)
		}
		err := c.Handshake()
		return c, err
	}
}

// Real sockets: three Raft nodes over loopback, plain and with TLS.
func TestLoopback(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%v", secure), func(t *testing.T) {
			t.Parallel()
			var hook func(net.Conn, bool) (net.Conn, error)
			if secure {
				hook = testTLS(t)
			}
			c := &cluster{t: t, start: time.Now()}
			var mu sync.Mutex
			addrs := map[string]string{}
			for i := range 3 {
				nd := c.add(fmt.Sprintf("n%d", i+1))
				c.conf.Servers = append(
					c.conf.Servers,
					raft.Server{ID: raft.ServerID(nd.addr), Address: nd.addr},
				)
			}
			for _, nd := range c.nodes {
				tr, err := New(Config{
					NodeID: nd.id, Listen: "127.0.0.1:0", Secure: hook,
					Resolve: func(id string) (string, bool) {
						mu.Lock()
						defer mu.Unlock()
						a, ok := addrs[id]
						return a, ok
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				mu.Lock()
				addrs[nd.id] = tr.Addr().String()
				mu.Unlock()
				nd.run(tr)
				if err := raft.BootstrapCluster(
					nd.config(),
					nd.log,
					nd.log,
					nd.snaps,
					nd.g,
					c.conf,
				); err != nil {
					t.Fatal(err)
				}
				nd.raft()
			}
			defer func() {
				for _, nd := range c.nodes {
					nd.stop()
				}
			}()
			l := c.leader()
			l.apply(1, 200)
			c.holds(200, c.nodes...)
			if !l.g.LeaseValid(l.r.CurrentTerm()) {
				t.Error("no lease")
			}
			target := c.others(l)[0]
			if err := l.r.LeadershipTransferToServer(raft.ServerID(target.addr), target.addr).
				Error(); err != nil {
				t.Fatal(err)
			}
			c.leader(target).apply(201, 210)
			c.holds(210, c.nodes...)
		})
	}
}

func TestSecureRefusesAnotherKey(t *testing.T) {
	t.Parallel()
	start := func(id string, hook func(net.Conn, bool) (net.Conn, error), peer func() string) *Transport {
		tr, err := New(
			Config{
				NodeID:  id,
				Listen:  "127.0.0.1:0",
				Secure:  hook,
				Resolve: func(string) (string, bool) { return peer(), true },
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = tr.Run(context.Background())
		}()
		t.Cleanup(func() { tr.Close(); <-done })
		return tr
	}
	b := start("b", testTLS(t), func() string { return "" })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	hooks := map[string]func(net.Conn, bool) (net.Conn, error){"another key": testTLS(t), "plain": nil}
	for name, hook := range hooks {
		a := start("a", hook, func() string { return b.Addr().String() })
		if _, err := a.Call(ctx, "b", 0, 1, nil); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
