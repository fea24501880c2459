package transport

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"
)

var testRoute = route{version: 3, from: "n1/i1", to: "n2/i7"}

func testEntries() []*raft.Log {
	return []*raft.Log{
		{
			Index:      5,
			Term:       2,
			Type:       raft.LogCommand,
			Data:       []byte("data"),
			Extensions: []byte("ext"),
			AppendedAt: time.Unix(3, 4),
		},
		{Index: 6, Term: 3, Type: raft.LogNoop},
		{
			Index:      7,
			Term:       3,
			Type:       raft.LogConfiguration,
			Data:       bytes.Repeat([]byte("x"), 1000),
			AppendedAt: time.Unix(0, 0),
		},
	}
}

func testAppend() *raft.AppendEntriesRequest {
	h := testRoute.header()
	return &raft.AppendEntriesRequest{
		RPCHeader: h, Term: 3, PrevLogEntry: 4, PrevLogTerm: 2, LeaderCommitIndex: 4,
		Entries: testEntries(),
	}
}

var testBeat = Beat{Clock: 1, AgeWait: 2, Wall: -3, Marks: []byte("marks")}

// payloads are one of each payload, with what decodes it and must give it back.
func payloads() map[string]struct {
	b      []byte
	decode func(*decoder) any
	want   any
} {
	type p = struct {
		b      []byte
		decode func(*decoder) any
		want   any
	}
	type openOf struct {
		ID  SnapshotID
		Req *raft.InstallSnapshotRequest
	}
	type routed struct {
		R route
		V any
		B Beat
	}
	h := testRoute.header()
	peer := raft.ServerAddress("n2/i7")
	ph := route{version: 3, from: peer}.header()
	hello := Hello{Term: 1, LastIndex: 2, LastTerm: 3, TruncTerm: 4, Beat: testBeat}
	vote := &raft.RequestVoteRequest{
		RPCHeader:          h,
		Term:               9,
		LastLogIndex:       8,
		LastLogTerm:        7,
		LeadershipTransfer: true,
	}
	pre := &raft.RequestPreVoteRequest{RPCHeader: h, Term: 9, LastLogIndex: 8, LastLogTerm: 7}
	snap := &raft.InstallSnapshotRequest{
		RPCHeader: h, SnapshotVersion: 1, Term: 2, LastLogIndex: 3, LastLogTerm: 4,
		Configuration: []byte("conf"), ConfigurationIndex: 5, Size: 6,
	}
	return map[string]p{
		"hello": {
			appendHello(appendRoute(nil, testRoute), hello),
			func(d *decoder) any { return routed{R: d.route(), V: d.hello()} },
			routed{R: testRoute, V: hello},
		},
		"append": {appendAppend(nil, testRoute, testAppend(), testBeat), func(d *decoder) any {
			r, a, b := d.appendEntries()
			return routed{r, a, b}
		}, routed{testRoute, testAppend(), testBeat}},
		"append answer": {
			appendAppendAnswer(
				nil,
				&raft.AppendEntriesResponse{RPCHeader: ph, Term: 1, LastLog: 2, Success: true},
				testBeat,
			),
			func(d *decoder) any {
				a, b := d.appendAnswer(peer)
				return routed{V: a, B: b}
			},
			routed{
				V: raft.AppendEntriesResponse{RPCHeader: ph, Term: 1, LastLog: 2, Success: true},
				B: Beat{Wall: -3},
			},
		},
		"vote": {appendVote(nil, testRoute, vote), func(d *decoder) any {
			r, v := d.vote()
			return routed{R: r, V: v}
		}, routed{R: testRoute, V: vote}},
		"pre-vote": {appendPreVote(nil, testRoute, pre), func(d *decoder) any {
			r, v := d.preVote()
			return routed{R: r, V: v}
		}, routed{R: testRoute, V: pre}},
		"ballot": {
			appendBallot(nil, ballot{3, 4, true}),
			func(d *decoder) any { return d.ballot() },
			ballot{3, 4, true},
		},
		"timeout now": {appendTimeoutNow(nil, testRoute, 12), func(d *decoder) any {
			r, term := d.timeoutNow()
			return routed{R: r, V: term}
		}, routed{R: testRoute, V: uint64(12)}},
		"snapshot": {appendSnapOpen(nil, testRoute, SnapshotID{1, 15: 2}, snap), func(d *decoder) any {
			r, id, s := d.snapOpen()
			return routed{R: r, V: openOf{id, s}}
		}, routed{R: testRoute, V: openOf{SnapshotID{1, 15: 2}, snap}}},
		"snapshot answer": {
			appendSnapAnswer(nil, &raft.InstallSnapshotResponse{RPCHeader: ph, Term: 5, Success: true}),
			func(d *decoder) any { return d.snapAnswer(peer) },
			raft.InstallSnapshotResponse{RPCHeader: ph, Term: 5, Success: true},
		},
	}
}

var allFields = cmp.AllowUnexported(route{}, ballot{}, handshake{}, welcome{}, frame{})

func TestPayloads(t *testing.T) {
	t.Parallel()
	for name, p := range payloads() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := decoder{b: p.b}
			got := p.decode(&d)
			if err := d.end(); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(
				p.want,
				got,
				cmp.Exporter(func(reflect.Type) bool { return true }),
			); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for n := range p.b {
				d := decoder{b: p.b[:n]}
				p.decode(&d)
				if err := d.end(); !errors.Is(err, ErrProtocol) {
					t.Fatalf("the first %d of %d bytes: %v, want ErrProtocol", n, len(p.b), err)
				}
			}
			d = decoder{b: append(bytes.Clone(p.b), 0)}
			p.decode(&d)
			if err := d.end(); !errors.Is(err, ErrProtocol) {
				t.Errorf("one byte too many: %v, want ErrProtocol", err)
			}
		})
	}
}

func TestEntriesAliasOneBuffer(t *testing.T) {
	t.Parallel()
	b := appendAppend(nil, testRoute, testAppend(), Beat{})
	d := decoder{b: b}
	_, a, _ := d.appendEntries()
	at := bytes.Index(b, []byte("data"))
	if &a.Entries[0].Data[0] != &b[at] {
		t.Error("the data was copied")
	}
	if cap(a.Entries[0].Data) != len(a.Entries[0].Data) {
		t.Error("appending to an entry would write into the next")
	}
}

func TestTrimEntries(t *testing.T) {
	t.Parallel()
	e := func(n int) *raft.Log { return &raft.Log{Data: make([]byte, n-entryFixed)} }
	for _, tc := range []struct {
		name    string
		entries []*raft.Log
		n, size int
	}{
		{"none", nil, 0, 0},
		{"all fit exactly", []*raft.Log{e(40), e(60)}, 2, 100},
		{"one byte over", []*raft.Log{e(40), e(61)}, 1, 40},
		{"the first alone is over", []*raft.Log{e(101), e(40)}, 1, 101},
		{"the rest waits", []*raft.Log{e(40), e(40), e(40)}, 2, 80},
	} {
		if n, size := trimEntries(tc.entries, 100); n != tc.n || size != tc.size {
			t.Errorf("%s: %d entries of %d bytes, want %d of %d", tc.name, n, size, tc.n, tc.size)
		}
	}
}

func TestFrames(t *testing.T) {
	t.Parallel()
	b := endFrame(append(beginFrame(nil, frameCall, 9, 77), "payload"...))
	want := frame{typ: frameCall, group: 9, req: 77, payload: []byte("payload")}
	f, err := readFrame(bufio.NewReader(bytes.NewReader(b)), 7)
	if err != nil || !cmp.Equal(f, want, allFields) {
		t.Fatalf("%+v, %v; want %+v", f, err, want)
	}
	if _, err := readFrame(
		bufio.NewReader(bytes.NewReader(b)),
		6,
	); !errors.Is(err, ErrTooLarge) ||
		!errors.Is(err, ErrProtocol) {
		t.Errorf("one byte over the limit: %v", err)
	}
	for n := range b {
		_, err := readFrame(bufio.NewReader(bytes.NewReader(b[:n])), 7)
		if n == 0 && !errors.Is(err, io.EOF) || n > 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	short := bytes.Clone(b)
	short[3] = lengthBase - 1
	if _, err := readFrame(bufio.NewReader(bytes.NewReader(short)), 7); !errors.Is(err, ErrProtocol) {
		t.Errorf("a length that does not cover the header: %v", err)
	}
}

func TestLargeFrameGrowsAsItArrives(t *testing.T) {
	t.Parallel()
	want := bytes.Repeat([]byte("0123456789abcdef"), (2*eagerRead+100)/16)
	got, err := readPayload(bytes.NewReader(want), len(want))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := readPayload(
		bytes.NewReader(want[:eagerRead+1]),
		len(want),
	); !errors.Is(
		err,
		io.ErrUnexpectedEOF,
	) {
		t.Errorf("an early end: %v", err)
	}
}

func TestHandshakeFrames(t *testing.T) {
	t.Parallel()
	hs := handshake{
		version: Protocol,
		kind:    kindSnapshot,
		cluster: "c",
		from:    "n1",
		to:      "n2",
		boot:    3,
		dial:    4,
	}
	got, err := parseHandshake(appendHandshake(nil, hs))
	if err != nil || got != hs {
		t.Fatalf("%+v, %v; want %+v", got, err, hs)
	}
	bad := func(edit func(*handshake)) []byte {
		h := hs
		edit(&h)
		return appendHandshake(nil, h)
	}
	for name, tc := range map[string]struct {
		b    []byte
		text string
	}{
		"stranger":       {[]byte("GET / HTTP/1.1"), "not a peer"},
		"empty":          {nil, "not a peer"},
		"other version":  {bad(func(h *handshake) { h.version = 2 }), "version 2"},
		"kind":           {bad(func(h *handshake) { h.kind = 3 }), "kind 3"},
		"no node id":     {bad(func(h *handshake) { h.from = "" }), "node id"},
		"slash in id":    {bad(func(h *handshake) { h.from = "n/1" }), "node id"},
		"node id length": {bad(func(h *handshake) { h.from = strings.Repeat("n", maxNodeID+1) }), "node id"},
		"cut":            {appendHandshake(nil, hs)[:20], "early"},
		"long":           {append(appendHandshake(nil, hs), 0), "after the end"},
	} {
		if _, err := parseHandshake(
			tc.b,
		); !errors.Is(err, ErrProtocol) ||
			!strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v, want ErrProtocol and %q", name, err, tc.text)
		}
	}
	w := welcome{version: Protocol, cluster: "c", node: "n2", boot: 5, twin: "host:1", refusal: strings.Repeat("r", maxID+1)}
	gotW, err := parseWelcome(appendWelcome(nil, w))
	w.refusal = w.refusal[:maxID]
	if err != nil || gotW != w {
		t.Errorf("%+v, %v; want %+v", gotW, err, w)
	}
	if _, err := parseWelcome([]byte("HTTP/1.1 400")); !errors.Is(err, ErrProtocol) {
		t.Errorf("stranger: %v", err)
	}
}

func FuzzPayloads(f *testing.F) {
	all := payloads()
	for _, p := range all {
		f.Add(p.b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, p := range all {
			d := decoder{b: b}
			p.decode(&d)
		}
		d := decoder{b: b}
		if r, a, beat := d.appendEntries(); d.end() == nil {
			if again := appendAppend(nil, r, a, beat); !bytes.Equal(again, b) {
				t.Fatalf("encodes to %x, was %x", again, b)
			}
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(endFrame(append(beginFrame(nil, frameCall, 9, 77), "payload"...)))
	f.Add(
		endFrame(
			appendHandshake(
				beginFrame(nil, frameHandshake, 0, 0),
				handshake{version: Protocol, kind: 1, from: "a", to: "b"},
			),
		),
	)
	f.Add(
		endFrame(
			appendWelcome(
				beginFrame(nil, frameWelcome, 0, 0),
				welcome{version: Protocol, node: "b", boot: 1 << 40, twin: "host:1", refusal: "no"},
			),
		),
	)
	f.Add(endFrame(appendWelcome(beginFrame(nil, frameWelcome, 0, 0), welcome{version: Protocol, node: "b", boot: 7})))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := readFrame(bufio.NewReader(bytes.NewReader(b)), 1<<16)
		if err != nil {
			return
		}
		if again := endFrame(
			append(beginFrame(nil, fr.typ, fr.group, fr.req), fr.payload...),
		); !bytes.Equal(
			again,
			b[:len(again)],
		) {
			t.Fatalf("encodes to %x, was %x", again, b)
		}
		if hs, err := parseHandshake(fr.payload); err == nil {
			if again := appendHandshake(nil, hs); !bytes.Equal(again, fr.payload) {
				t.Fatalf("handshake encodes to %x, was %x", again, fr.payload)
			}
		}
		if w, err := parseWelcome(fr.payload); err == nil {
			if again := appendWelcome(nil, w); !bytes.Equal(again, fr.payload) {
				t.Fatalf("welcome encodes to %x, was %x", again, fr.payload)
			}
		}
	})
}
