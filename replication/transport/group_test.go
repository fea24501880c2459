package transport

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/lease"
	"github.com/holdfast-mq/holdfast/replication/transport/memnet"
)

// twoPuppets starts two nodes on a network of their own, in the current bubble.
func twoPuppets(t *testing.T) (a, b *puppet) {
	t.Helper()
	fab := memnet.New()
	return newPuppet(t, fab, "a", nil), newPuppet(t, fab, "b", nil)
}

func wait1(d time.Duration) { <-time.After(d) }

func TestAppendArrivesWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		a.src.hello.Beat = Beat{Clock: 5, AgeWait: 6, Wall: 7, Marks: []byte("m")}
		b.src.hello.Beat = Beat{Clock: 50, AgeWait: 60, Wall: 70, Marks: []byte("n")}
		req := testAppend()
		req.RPCHeader = a.header()
		resp, err := a.send(b.addr, req)
		if err != nil || !resp.Success || resp.Term != 3 || string(resp.ID) != string(b.addr) {
			t.Fatalf("%+v, %v", resp, err)
		}
		if diff := cmp.Diff([]any{req}, b.took()); diff != "" {
			t.Errorf("Raft got (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]Beat{a.src.hello.Beat}, b.src.beats); diff != "" {
			t.Errorf("the follower's beat (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]Beat{{Wall: 70}}, a.src.beats); diff != "" {
			t.Errorf("the leader's beat (-want +got):\n%s", diff)
		}
		want := []Progress{{Address: b.addr, Match: 7, Sent: a.g.Progress()[0].Sent, Contact: time.Now()}}
		if diff := cmp.Diff(want, a.g.Progress()); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	})
}

func TestMatchIsOfTheCurrentTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		matched := func() uint64 { return a.g.Progress()[0].Match }
		steps := []struct {
			name string
			req  raft.AppendEntriesRequest
			ok   bool
			want uint64
		}{
			{"heartbeat says nothing", raft.AppendEntriesRequest{Term: 3}, true, 0},
			{
				"empty append with a position",
				raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 10, PrevLogTerm: 2},
				true,
				10,
			},
			{"refused", raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 20, PrevLogTerm: 2}, false, 10},
			{
				"entries",
				raft.AppendEntriesRequest{
					Term:         3,
					PrevLogEntry: 10,
					PrevLogTerm:  2,
					Entries:      testEntries()[:1],
				},
				true,
				10,
			},
			{
				"further",
				raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 12, PrevLogTerm: 3, LeaderCommitIndex: 1},
				true,
				12,
			},
			{"new term", raft.AppendEntriesRequest{Term: 4}, true, 0},
			{
				"late, of the old term",
				raft.AppendEntriesRequest{Term: 3, PrevLogEntry: 12, PrevLogTerm: 3},
				true,
				0,
			},
			{
				"new term, position",
				raft.AppendEntriesRequest{Term: 4, PrevLogEntry: 12, PrevLogTerm: 3},
				true,
				12,
			},
		}
		for _, s := range steps {
			b.plays(func(any) (any, error) {
				return &raft.AppendEntriesResponse{Term: s.req.Term, Success: s.ok}, nil
			})
			s.req.RPCHeader = a.header()
			if _, err := a.send(b.addr, &s.req); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
			if got := matched(); got != s.want {
				t.Errorf("%s: match %d, want %d", s.name, got, s.want)
			}
		}
		want := []match{{b.addr, 3, 10}, {b.addr, 3, testEntries()[0].Index}, {b.addr, 3, 12}, {b.addr, 4, 12}}
		if diff := cmp.Diff(want, a.src.matches, cmp.AllowUnexported(match{})); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

func TestAppendIsTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		small := func(c *Config) { c.AppendBytes = 100 + entryFixed }
		a, b := newPuppet(t, fab, "a", small), newPuppet(t, fab, "b", nil)
		req := &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1, Entries: []*raft.Log{
			{Index: 1, Data: make([]byte, 100)}, {Index: 2, Data: []byte("x")}, {Index: 3, Data: []byte("x")},
		}}
		if _, err := a.send(b.addr, req); err != nil {
			t.Fatal(err)
		}
		got, _ := b.took()[0].(*raft.AppendEntriesRequest)
		if len(req.Entries) != 1 || len(got.Entries) != 1 || got.Entries[0].Index != 1 {
			t.Errorf("sent %d, args hold %d entries, want 1 and 1", len(got.Entries), len(req.Entries))
		}
		if m := a.g.Progress()[0].Match; m != 1 {
			t.Errorf("match %d, want 1", m)
		}
	})
}

func TestEntryBeyondTheFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		a := newPuppet(
			t,
			fab,
			"a",
			func(c *Config) { c.MaxFrameBytes, c.SnapshotChunk, c.AppendBytes = 1<<20, 1<<10, 1<<10 },
		)
		b := newPuppet(t, fab, "b", nil)
		_, err := a.send(
			b.addr,
			&raft.AppendEntriesRequest{
				RPCHeader: a.header(),
				Term:      1,
				Entries:   []*raft.Log{{Data: make([]byte, 1<<20)}},
			},
		)
		if !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v, want ErrTooLarge", err)
		}
	})
}

func TestIncarnations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		_, err := a.send(Address("b", "old"), &raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1})
		if !errors.Is(err, ErrRefused) {
			t.Errorf("wrong receiver: %v, want ErrRefused", err)
		}
		if n := b.tr.Counters().WrongReceiver.Load(); n != 1 {
			t.Errorf("counted %d wrong receivers, want 1", n)
		}
		if _, err := a.beat(b, 1); err != nil {
			t.Fatal(err)
		}
		// A frame that names another sender than the hello of its connection did.
		for _, from := range []raft.ServerAddress{"a/other", "c/i1"} {
			before := b.tr.Counters().WrongSender.Load()
			w, stop := newWait(time.Second, nil)
			c := a.tr.link("b").current()
			r, err := c.roundTrip(frameVote, testGroup, 0, w, func(dst []byte) []byte {
				return appendVote(
					dst,
					route{version: 3, from: from, to: b.addr},
					&raft.RequestVoteRequest{Term: 9},
				)
			})
			stop()
			if err != nil || r.status != statusSender || b.tr.Counters().WrongSender.Load() != before+1 {
				t.Errorf("sender %s: status %d, %v", from, r.status, err)
			}
		}
		w, stop := newWait(time.Second, nil)
		defer stop()
		r, err := a.tr.link("b").current().roundTrip(frameHello, testGroup, 0, w, func(dst []byte) []byte {
			return appendHello(appendRoute(dst, route{version: 3, from: "c/i1", to: b.addr}), Hello{})
		})
		if err != nil || r.status != statusSender {
			t.Errorf("hello in another's name: status %d, %v", r.status, err)
		}
		if n := len(b.took()); n != 1 {
			t.Errorf("Raft got %d requests, want the heartbeat only", n)
		}
		var resp raft.AppendEntriesResponse
		if err := a.g.AppendEntries("b/i1", "b/i2", &raft.AppendEntriesRequest{}, &resp); err == nil {
			t.Error("an id that is not the address was accepted")
		}
	})
}

func TestUnknownAndQuarantinedGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		b.tr.Quarantine(testGroup, "segment 3 is damaged")
		_, err := a.beat(b, 1)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "segment 3 is damaged") {
			t.Errorf("quarantined there: %v", err)
		}
		if p := a.g.Progress()[0]; !p.OutOfService {
			t.Errorf("quarantined there, and the leader has %+v", p)
		}
		if _, err := b.beat(a, 1); !errors.Is(err, ErrQuarantined) {
			t.Errorf("quarantined here: %v", err)
		}
		b.close()
		if _, err := b.tr.Group(GroupConfig{ID: testGroup, Local: b.addr}); !errors.Is(err, ErrQuarantined) {
			t.Errorf("a transport for a quarantined group: %v", err)
		}
		b.tr.Unquarantine(testGroup)
		if _, err := a.beat(b, 1); !errors.Is(err, ErrRefused) || b.tr.Counters().UnknownGroup.Load() == 0 {
			t.Errorf("unknown there: %v", err)
		}
		b.open()
		if _, err := b.tr.Group(GroupConfig{ID: testGroup, Local: b.addr}); !errors.Is(err, ErrGroupExists) {
			t.Errorf("a second transport: %v", err)
		}
		if _, err := a.beat(b, 1); err != nil {
			t.Errorf("open again: %v", err)
		}
		if p := a.g.Progress()[0]; p.OutOfService {
			t.Errorf("open again, and the leader has %+v", p)
		}
		if b.tr.Counters().Quarantined.Load() == 0 {
			t.Error("quarantined frames are not counted")
		}
	})
}

func TestGroupConfigIsChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := twoPuppets(t)
		for _, cfg := range []GroupConfig{
			{ID: 1, Local: "a"},
			{ID: 1, Local: "a/"},
			{ID: 1, Local: "/x"},
			{ID: 1, Local: "b/x"},
			{ID: 1, Local: raft.ServerAddress("a/" + strings.Repeat("i", maxID))},
			{ID: 1, Local: "a/x", Voters: []raft.ServerAddress{"b"}},
		} {
			if g, err := a.tr.Group(cfg); err == nil {
				g.Close()
				t.Errorf("%+v was accepted", cfg)
			}
		}
	})
}

func TestHelloIsJudgedOnBothSides(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		below := errors.New("below the mark of n3")
		a.src.refuse(below)
		if _, err := a.beat(b, 1); !errors.Is(err, ErrHello) || !errors.Is(err, below) {
			t.Errorf("refused here: %v", err)
		}
		a.src.refuse(nil)
		b.src.refuse(below)
		if _, err := a.beat(
			b,
			1,
		); !errors.Is(err, ErrRefused) ||
			!strings.Contains(err.Error(), below.Error()) {
			t.Errorf("refused there: %v", err)
		}
		if n := len(b.took()); n != 0 {
			t.Errorf("%d frames passed a refused hello", n)
		}
		if a.tr.Counters().HelloRefused.Load() != 2 || b.tr.Counters().HelloRefused.Load() != 1 {
			t.Error("refused hellos are not counted")
		}
		b.src.refuse(nil)
		if _, err := a.beat(b, 1); err != nil {
			t.Errorf("accepted: %v", err)
		}
		judged := len(b.src.judged)
		for range 3 {
			if _, err := a.beat(b, 1); err != nil {
				t.Fatal(err)
			}
		}
		if len(b.src.judged) != judged {
			t.Error("hellos are repeated on a connection")
		}
	})
}

// TestWhoeverIsBelowAMarkHears: the hello of one that is refused for a mark is answered
// with the other's, so that it finds it out itself; nothing else passes.
func TestWhoeverIsBelowAMarkHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		b.src.hello.Beat.Marks = []byte("marks")
		b.src.refuse(fmt.Errorf("%w: a", ErrBelow))
		if _, err := a.beat(b, 1); !errors.Is(err, ErrRefused) {
			t.Errorf("a frame behind a refused hello: %v", err)
		}
		if n := len(b.took()); n != 0 {
			t.Errorf("%d frames passed", n)
		}
		if n := len(a.src.judged); n == 0 {
			t.Error("the one that is refused never judged the other's hello")
		}
		own := errors.New("and so it is")
		a.src.refuse(fmt.Errorf("%w: %w", ErrBelow, own))
		if _, err := a.beat(b, 1); !errors.Is(err, own) {
			t.Errorf("refused here: %v", err)
		}
	})
}

func TestRecreatedInstanceSaysHelloAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		if _, err := a.beat(b, 1); err != nil {
			t.Fatal(err)
		}
		b.close()
		b.open()
		judged := len(b.src.judged)
		if _, err := a.beat(b, 1); err != nil || len(b.src.judged) != judged+1 {
			t.Errorf("receiver re-created: %v, %d new hellos", err, len(b.src.judged)-judged)
		}
		a.close()
		a.addr = Address("a", "i2")
		a.open()
		if _, err := a.beat(
			b,
			1,
		); err != nil || len(b.src.judged) != judged+2 ||
			b.src.judged[judged+1] != a.addr {
			t.Errorf("sender re-created: %v, hellos of %v", err, b.src.judged[judged:])
		}
		if n := a.tr.Counters().Dials.Load(); n != 1 {
			t.Errorf("%d dials, want 1: the connection stays", n)
		}
	})
}

func TestEmbargoInBothDirections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		embargoed := func(when string) {
			t.Helper()
			for name, err := range map[string]error{
				"asks for a vote": second(a.vote(b, 2)), "asks for a pre-vote": second(a.preVote(b, 2)),
				"is asked for a vote":     second(b.vote(a, 2)),
				"is asked for a pre-vote": second(b.preVote(a, 2)),
			} {
				if !errors.Is(err, ErrEmbargo) {
					t.Errorf("%s: %s: %v, want ErrEmbargo", when, name, err)
				}
			}
		}
		wait1(2 * time.Second) // b's is over
		a.close()
		a.open()
		wait1(time.Second - time.Millisecond)
		embargoed("one heartbeat timeout has not passed")
		a.g.SetVoters([]raft.ServerAddress{a.addr, "c/i1", "d/i1"}) // unreachable ones
		if _, err := b.beat(a, 2); err != nil {
			t.Fatal(err)
		}
		wait1(time.Hour)
		if _, err := b.beat(a, 2); err != nil {
			t.Fatal(err)
		}
		// b leads and hellos were exchanged with it: over.
		if ok, err := b.vote(a, 3); !ok || err != nil {
			t.Errorf("after the leader's hello: %v, %v", ok, err)
		}
		for _, cmd := range a.took() {
			if v, ok := cmd.(*raft.RequestVoteRequest); ok && v.Term == 2 {
				t.Error("an embargoed vote reached Raft")
			}
		}
		if ok, err := a.preVote(b, 4); !ok || err != nil {
			t.Errorf("asking: %v, %v", ok, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestEmbargoWaitsForAMajorityOfHellos(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		a.close()
		b.src.refuse(errors.New("below"))
		a.open(a.addr, b.addr, "c/i1")
		wait1(time.Minute)
		if !a.g.Embargoed() {
			t.Fatal("over without a hello")
		}
		b.src.refuse(nil)
		start := time.Now()
		for a.g.Embargoed() {
			wait1(10 * time.Millisecond)
		}
		if d := time.Since(start); d > time.Second {
			t.Errorf("over %v after a voter answers, want within a second", d)
		}
	})
}

func TestStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		a, b := newPuppet(t, fab, "a", nil), newPuppet(t, fab, "b", nil)
		a.close()
		var since time.Time
		inFlight := false
		g, err := a.tr.Group(
			GroupConfig{
				ID:    testGroup,
				Local: a.addr,
				Stall: func() (time.Time, bool) { return since, inFlight },
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		send := func() error {
			return g.AppendEntries(
				raft.ServerID(b.addr),
				b.addr,
				&raft.AppendEntriesRequest{RPCHeader: a.header(), Term: 1},
				&raft.AppendEntriesResponse{},
			)
		}
		since, inFlight = time.Now(), true
		wait1(DefaultHeartbeatTimeout / 2)
		if err := send(); err != nil {
			t.Errorf("at the edge: %v", err)
		}
		wait1(1)
		if err := send(); !errors.Is(err, ErrStalled) {
			t.Errorf("past the edge: %v, want ErrStalled", err)
		}
		inFlight = false
		if err := send(); err != nil {
			t.Errorf("written: %v", err)
		}
	})
}

func TestDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		wait1(2 * time.Second)
		if _, err := a.beat(b, 1); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		b.plays(func(cmd any) (any, error) {
			<-hold
			return accept(cmd)
		})
		defer close(hold)
		for name, tc := range map[string]struct {
			send func() error
			want time.Duration
		}{
			"heartbeat": {func() error { return second(a.beat(b, 1)) }, DefaultHeartbeatTimeout},
			"vote":      {func() error { return second(a.vote(b, 1)) }, DefaultHeartbeatTimeout},
			"pre-vote":  {func() error { return second(a.preVote(b, 1)) }, DefaultHeartbeatTimeout},
			"append": {func() error {
				return second(a.send(b.addr, a.at(1, 1)))
			}, DefaultAppendTimeout},
		} {
			start := time.Now()
			if err := tc.send(); !errors.Is(err, ErrTimeout) {
				t.Errorf("%s: %v, want ErrTimeout", name, err)
			}
			if d := time.Since(start); d != tc.want {
				t.Errorf("%s gave up after %v, want %v", name, d, tc.want)
			}
		}
		if n := a.tr.Counters().Dials.Load(); n != 1 {
			t.Errorf("%d dials: a slow Raft must not cost the connection", n)
		}
	})
}

func TestOneAppendInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		hold := make(chan struct{})
		b.plays(func(cmd any) (any, error) {
			<-hold
			return accept(cmd)
		})
		done := make(chan error, 3)
		for range 2 {
			go func() {
				_, err := a.send(
					b.addr,
					&raft.AppendEntriesRequest{
						RPCHeader:    a.header(),
						Term:         1,
						PrevLogEntry: 1,
						PrevLogTerm:  1,
					},
				)
				done <- err
			}()
		}
		go func() {
			_, err := a.beat(b, 1)
			done <- err
		}()
		synctest.Wait()
		// The handshake aside: hello, append, heartbeat, at most two pings.
		if n := a.tr.Counters().FramesSent.Load(); n > 5 {
			t.Errorf("%d frames sent while the first append is in flight", n)
		}
		close(hold)
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if n := len(b.took()); n != 3 {
			t.Errorf("Raft got %d requests, want 3", n)
		}
	})
}

func TestFullQueueIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		a := newPuppet(t, fab, "a", nil)
		b := newPuppet(t, fab, "b", func(c *Config) { c.GroupQueue = 3 })
		wait1(2 * time.Second)
		if _, err := a.beat(b, 1); err != nil {
			t.Fatal(err)
		}
		hold := make(chan struct{})
		b.plays(func(cmd any) (any, error) {
			<-hold
			return accept(cmd)
		})
		answers := make(chan error, 5)
		for i := range 5 { // one with Raft, three wait, one is over
			go func() { answers <- second(a.vote(b, uint64(i))) }()
			synctest.Wait()
		}
		if err := <-answers; !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "queue full") {
			t.Errorf("past the limit: %v", err)
		}
		if n := b.tr.Counters().Busy.Load(); n != 1 {
			t.Errorf("counted %d, want 1", n)
		}
		close(hold)
		for range 4 {
			if err := <-answers; err != nil {
				t.Errorf("at the limit: %v", err)
			}
		}
	})
}

func TestTimeoutNowOnlyFromTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		a, b, c := newPuppet(t, fab, "a", nil), newPuppet(t, fab, "b", nil), newPuppet(t, fab, "c", nil)
		wait1(2 * time.Second)
		refused := func(when string, p *puppet) {
			t.Helper()
			before := b.tr.Counters().TransfersRefused.Load()
			if err := p.timeoutNow(b); !errors.Is(err, ErrRefused) {
				t.Errorf("%s: %v, want ErrRefused", when, err)
			}
			if b.tr.Counters().TransfersRefused.Load() != before+1 {
				t.Errorf("%s: not counted", when)
			}
		}
		ok := func(p *puppet, term uint64) {
			t.Helper()
			if resp, err := p.beat(b, term); err != nil || !resp.Success {
				t.Fatalf("beat: %+v, %v", resp, err)
			}
		}
		refused("no leader yet", a)
		ok(a, 5)
		refused("not the leader", c)
		fab.Drop("a", "b")
		wait1(time.Second)
		refused("on a connection without an append", a)
		ok(a, 5)
		if _, err := c.vote(b, 6); err != nil {
			t.Fatal(err)
		}
		refused("a newer term was heard of", a)
		ok(a, 5) // b's Raft, played, still says yes
		if _, err := b.preVote(c, 7); err != nil {
			t.Fatal(err)
		}
		refused("it asks for votes itself", a)
		ok(a, 5)
		if err := a.timeoutNow(b); err != nil {
			t.Errorf("from the leader: %v", err)
		}
		if n := len(b.took()); n == 0 {
			t.Fatal("nothing reached Raft")
		}
		if _, is := b.took()[len(b.took())-1].(*raft.TimeoutNowRequest); !is {
			t.Error("the request did not reach Raft")
		}
	})
}

func TestNoAcknowledgementAfterATakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		wait1(2 * time.Second)
		if _, err := a.beat(b, 5); err != nil {
			t.Fatal(err)
		}
		if err := a.timeoutNow(b); err != nil {
			t.Fatal(err)
		}
		// Raft, played, still acknowledges the old term: a candidate in pre-vote does.
		var remote *RemoteError
		if _, err := a.beat(b, 5); !errors.As(err, &remote) {
			t.Errorf("an append of the old term: %v, want a RemoteError", err)
		}
		if resp, err := a.beat(b, 6); err != nil || !resp.Success {
			t.Errorf("an append of a newer term: %+v, %v", resp, err)
		}
	})
}

func TestLeaseOverATransfer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		wait1(2 * time.Second)
		a.g.SetVoters([]raft.ServerAddress{a.addr, b.addr})
		if a.g.LeaseValid(5) {
			t.Error("valid before an acknowledgement")
		}
		if _, err := a.beat(b, 5); err != nil {
			t.Fatal(err)
		}
		sent := time.Since(a.start)
		if !a.g.LeaseValid(5) || a.g.LeaseValid(4) {
			t.Error("not valid for its term only")
		}
		wait1(800*time.Millisecond - 1)
		if !a.g.LeaseValid(5) {
			t.Error("not valid to its end")
		}
		wait1(1)
		if a.g.LeaseValid(5) {
			t.Error("valid past its end")
		}
		want := lease.Status{Term: 5, Until: sent + 800*time.Millisecond, Since: sent + 800*time.Millisecond}
		if got := a.g.Lease(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}

		// A transfer that b refuses: void from before it is written, until the next acknowledgement.
		if _, err := a.beat(b, 5); err != nil {
			t.Fatal(err)
		}
		b.g.campaign()
		began := time.Since(a.start)
		if err := a.timeoutNow(b); !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		if s := a.g.Lease(); a.g.LeaseValid(5) || !s.Void || s.Since != began {
			t.Errorf("after TimeoutNow: %+v", s)
		}
		if _, err := a.beat(b, 5); err != nil || !a.g.LeaseValid(5) {
			t.Errorf("an append after it was acknowledged: %v, valid %v", err, a.g.LeaseValid(5))
		}

		// One that is not acknowledged stays void, however many of another peer are.
		b.plays(func(cmd any) (any, error) {
			if r, ok := cmd.(*raft.AppendEntriesRequest); ok {
				return &raft.AppendEntriesResponse{Term: r.Term}, nil
			}
			return accept(cmd)
		})
		b.g.campaign()
		if err := a.timeoutNow(b); !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		if _, err := a.beat(b, 5); err != nil || a.g.LeaseValid(5) {
			t.Errorf("a refused append counts as an acknowledgement: %v", err)
		}
		b.plays(accept)
		b.fab.Drop("a", "b")
		wait1(time.Second)
		if _, err := a.beat(b, 5); err != nil || !a.g.LeaseValid(5) {
			t.Errorf("acknowledged on a later connection: %v, valid %v", err, a.g.LeaseValid(5))
		}
	})
}

func TestLeaseIsVoidBeforeTheFrameIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		wait1(2 * time.Second)
		a.g.SetVoters([]raft.ServerAddress{a.addr, b.addr})
		if _, err := a.beat(b, 5); err != nil {
			t.Fatal(err)
		}
		a.fab.Cut("a", "b")
		done := make(chan error, 1)
		go func() { done <- a.timeoutNow(b) }()
		synctest.Wait()
		if a.g.LeaseValid(5) {
			t.Error("valid while TimeoutNow is under way")
		}
		// A heartbeat that was sent before, and whose answer comes late, does not count:
		// only one that was queued after.
		if err := <-done; !errors.Is(err, ErrTimeout) || a.g.LeaseValid(5) {
			t.Errorf("unanswered: %v, valid %v", err, a.g.LeaseValid(5))
		}
		a.fab.Heal("a", "b")
		wait1(100 * time.Millisecond)
		// b took it: it acknowledges nothing of that term any more.
		if _, err := a.beat(b, 5); err == nil || a.g.LeaseValid(5) {
			t.Errorf("b has taken over: %v, valid %v", err, a.g.LeaseValid(5))
		}
	})
}

// The request waits for room in the connection's queue: the lease is void by then.
func TestLeaseIsVoidBeforeTheFrameIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		wait1(2 * time.Second)
		a.g.SetVoters([]raft.ServerAddress{a.addr, b.addr})
		if _, err := a.beat(b, 5); err != nil {
			t.Fatal(err)
		}
		a.fab.Cut("a", "b")
		c := a.tr.link("b").current()
		c.send(endFrame(append(beginFrame(nil, frameCall, 0, 1), make([]byte, memnet.Buffer)...)))
		synctest.Wait() // the writer waits for the network
		for range writeQueue {
			c.send(endFrame(beginFrame(nil, framePing, 0, 0)))
		}
		done := make(chan error, 1)
		go func() { done <- a.timeoutNow(b) }()
		synctest.Wait()
		if len(c.out) != writeQueue || a.g.LeaseValid(5) {
			t.Errorf("queue holds %d, lease valid: %v", len(c.out), a.g.LeaseValid(5))
		}
		// It was never queued, so the lease counts again.
		if err := <-done; !errors.Is(err, ErrTimeout) || a.g.Lease().Void {
			t.Errorf("%v, lease %+v", err, a.g.Lease())
		}
	})
}

// A new connection is welcomed only when nothing of the old one is under way.
func TestReplacedConnectionIsDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		hold := b.src.hold()
		go func() { _, _ = a.beat(b, 1) }()
		synctest.Wait() // the hello is being judged
		l := a.tr.link("b")
		l.mu.Lock()
		l.st.cur = nil
		l.mu.Unlock()
		done := make(chan error, 1)
		go func() {
			w, stop := newWait(time.Minute, nil)
			defer stop()
			_, err := l.acquire(w)
			done <- err
		}()
		synctest.Wait()
		select {
		case err := <-done:
			close(hold)
			t.Fatalf("connected while the old connection is served: %v", err)
		default:
		}
		close(hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestUnreachableTargetDoesNotVoidTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fab := memnet.New()
		a, b, c := newPuppet(t, fab, "a", nil), newPuppet(t, fab, "b", nil), newPuppet(t, fab, "c", nil)
		a.g.SetVoters([]raft.ServerAddress{a.addr, b.addr, c.addr})
		fab.Isolate("a", "c")
		if err := a.timeoutNow(c); !errors.Is(err, ErrUnreachable) {
			t.Fatal(err)
		}
		if _, err := a.beat(b, 5); err != nil || !a.g.LeaseValid(5) {
			t.Errorf("%v, valid %v", err, a.g.LeaseValid(5))
		}
	})
}

func TestReplacedConnectionsFramesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		wait1(2 * time.Second)
		if _, err := a.beat(b, 5); err != nil {
			t.Fatal(err)
		}
		old := a.tr.link("b").current()
		hold := make(chan struct{})
		b.plays(func(cmd any) (any, error) {
			if v, ok := cmd.(*raft.RequestVoteRequest); ok && v.Term == 10 {
				<-hold
			}
			return accept(cmd)
		})
		// Term 10 is with Raft, 11 and 12 wait in the old connection's queue.
		answers := make(chan error, 3)
		for term := range uint64(3) {
			go func() { answers <- second(a.vote(b, 10+term)) }()
			synctest.Wait()
		}
		// a makes a new connection, as after a fault that only it has seen.
		a.tr.link("b").mu.Lock()
		a.tr.link("b").st.cur = nil
		a.tr.link("b").mu.Unlock()
		go func() { answers <- second(a.vote(b, 20)) }()
		synctest.Wait()
		close(hold)
		for range 4 {
			if err := <-answers; err != nil && !errors.Is(err, ErrUnreachable) {
				t.Errorf("%v", err)
			}
		}
		var terms []uint64
		for _, cmd := range b.took() {
			if v, ok := cmd.(*raft.RequestVoteRequest); ok {
				terms = append(terms, v.Term)
			}
		}
		if !cmp.Equal(terms, []uint64{10, 20}) {
			t.Errorf("Raft got votes of terms %v, want 10 and 20", terms)
		}
		if old.alive() || b.tr.Counters().Replaced.Load() != 1 {
			t.Error("the old connection was not replaced")
		}
	})
}

func TestCloseEndsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		hold := make(chan struct{})
		defer close(hold)
		b.plays(func(any) (any, error) {
			<-hold
			return nil, errors.New("late")
		})
		done := make(chan error, 1)
		go func() { done <- second(a.beat(b, 1)) }()
		synctest.Wait()
		g := a.g
		a.close()
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("in flight: %v, want ErrClosed", err)
		}
		if err := g.Close(); err != nil {
			t.Errorf("closed twice: %v", err)
		}
		if err := g.RequestVote(
			"b/i1",
			"b/i1",
			&raft.RequestVoteRequest{},
			&raft.RequestVoteResponse{},
		); !errors.Is(
			err,
			ErrClosed,
		) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	})
}

func TestRaftErrorsTravelAndGrantNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		wait1(2 * time.Second)
		b.plays(func(any) (any, error) { return nil, errors.New("unexpected command") })
		if _, err := a.beat(b, 1); err == nil || !strings.Contains(err.Error(), "unexpected command") {
			t.Errorf("append: %v", err)
		}
		if ok, err := a.preVote(
			b,
			1,
		); ok || err == nil ||
			strings.Contains(err.Error(), "unexpected command") {
			t.Errorf("pre-vote: %v, %v: Raft would count this text as granted", ok, err)
		}
		b.close()
		b.src.refuse(errors.New("unexpected command"))
		b.open()
		if ok, err := a.preVote(
			b,
			1,
		); ok || err == nil ||
			strings.Contains(err.Error(), "unexpected command") {
			t.Errorf("pre-vote over a refused hello: %v, %v", ok, err)
		}
	})
}

func TestPipelineAndHeartbeatHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := twoPuppets(t)
		// Raft compares the value itself, so wrapping it would not do.
		_, err := a.g.AppendEntriesPipeline(raft.ServerID(b.addr), b.addr)
		if err != raft.ErrPipelineReplicationNotSupported { //nolint:errorlint // as Raft does
			t.Errorf("pipeline: %v", err)
		}
		b.g.SetHeartbeatHandler(func(raft.RPC) { t.Error("a heartbeat went beside the main loop") })
		if _, err := a.beat(b, 1); err != nil || len(b.took()) != 1 {
			t.Errorf("heartbeat: %v, Raft got %d", err, len(b.took()))
		}
		if got := a.g.DecodePeer(a.g.EncodePeer("x", b.addr)); got != b.addr || a.g.LocalAddr() != a.addr {
			t.Errorf("addresses: %q, %q", got, a.g.LocalAddr())
		}
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, err := New(
			Config{
				NodeID:  "a",
				Network: memnet.New().Host("a"),
				Listen:  "a:0",
				Resolve: func(string) (string, bool) { return "", false },
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- tr.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := tr.Run(t.Context()); !errors.Is(err, ErrClosed) {
			t.Errorf("a second Run: %v", err)
		}
		if _, err := tr.Group(GroupConfig{ID: 1, Local: "a/i"}); !errors.Is(err, ErrClosed) {
			t.Errorf("a group after the end: %v", err)
		}
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
}
