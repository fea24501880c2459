package lease

import (
	"testing"
	"time"
)

const hb = time.Second

// acks are send times of acknowledged appends by peer.
type acks map[string]float64

// at makes times readable: seconds on CLOCK_BOOTTIME.
func at(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func TestUntil(t *testing.T) {
	t.Parallel()
	abc, abcd := []string{"a", "b", "c"}, []string{"a", "b", "c", "d"}
	abcde := []string{"a", "b", "c", "d", "e"}
	for _, tc := range []struct {
		name   string
		voters []string
		acks   acks // peer → send time
		until  time.Duration
		ok     bool
	}{
		{"no configuration", nil, nil, 0, false},
		{"one voter, this one", []string{"a"}, nil, Always, true},
		{"one voter, another", []string{"b"}, acks{"b": 10}, at(10.8), true},
		{"one voter, another, unheard", []string{"b"}, nil, 0, false},
		{"two voters, silence", []string{"a", "b"}, nil, 0, false},
		{"two voters", []string{"a", "b"}, acks{"b": 10}, at(10.8), true},
		{"three voters, silence", abc, nil, 0, false},
		{"three voters, one answers", abc, acks{"c": 10}, at(10.8), true},
		{"three voters: the newest counts", abc, acks{"b": 10, "c": 12}, at(12.8), true},
		{"four voters: the second", abcd, acks{"b": 9, "c": 12, "d": 10}, at(10.8), true},
		{"five voters: the second", abcde, acks{"b": 9, "c": 12, "d": 10, "e": 8}, at(10.8), true},
		{"five voters, one answers", abcde, acks{"b": 9}, 0, false},
		{"others do not count", abc, acks{"x": 20, "b": 10}, at(10.8), true},
		{"leader is no voter", []string{"b", "c", "d"}, acks{"b": 10, "c": 12}, at(10.8), true},
		{"leader is no voter, one answers", []string{"b", "c", "d"}, acks{"c": 12}, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			l := New(hb)
			l.SetVoters("a", tc.voters)
			l.Enter(5)
			for p, s := range tc.acks {
				l.Acked(p, 5, at(s))
			}
			until, ok := l.Until()
			if until != tc.until || ok != tc.ok {
				t.Errorf("until %v, %v; want %v, %v", until, ok, tc.until, tc.ok)
			}
		})
	}
}

func TestEdge(t *testing.T) {
	t.Parallel()
	l := New(hb)
	l.SetVoters("a", []string{"a", "b", "c"})
	l.Enter(5)
	if s := l.Status(at(10)); s != (Status{Term: 5}) {
		t.Errorf("never valid: %+v", s)
	}
	l.Acked("b", 5, at(10))
	want := Status{Term: 5, Valid: true, Until: at(10.8)}
	if s := l.Status(at(10.8) - 1); s != want {
		t.Errorf("right before the end: %+v, want %+v", s, want)
	}
	want = Status{Term: 5, Until: at(10.8), Since: at(10.8)}
	if s := l.Status(at(10.8)); s != want {
		t.Errorf("at the end: %+v, want %+v", s, want)
	}
	l.Acked("b", 5, at(9)) // an answer that was overtaken
	if until, _ := l.Until(); until != at(10.8) {
		t.Errorf("an older acknowledgement moved the end to %v", until)
	}
}

func TestTermChangeForgets(t *testing.T) {
	t.Parallel()
	l := New(hb)
	l.SetVoters("a", []string{"a", "b", "c"})
	l.Enter(5)
	l.Acked("b", 5, at(10))
	l.Void("b", at(10))
	l.Enter(6)
	if s := l.Status(at(10.1)); s != (Status{Term: 6}) {
		t.Errorf("in the new term: %+v", s)
	}
	l.Acked("b", 5, at(10.1)) // late, of the old term
	if _, ok := l.Until(); ok {
		t.Error("an acknowledgement of the old term counts")
	}
	l.Acked("c", 6, at(10.2))
	if until, ok := l.Until(); !ok || until != at(11) {
		t.Errorf("until %v, %v", until, ok)
	}
	l.Enter(6)
	if _, ok := l.Until(); !ok {
		t.Error("the same term forgot")
	}
}

func TestVotersChange(t *testing.T) {
	t.Parallel()
	l := New(hb)
	l.SetVoters("a", []string{"a", "b", "c"})
	l.Enter(5)
	l.Acked("b", 5, at(10))
	l.Acked("d", 5, at(9))
	l.SetVoters("a", []string{"a", "b", "c", "d"})
	if until, ok := l.Until(); !ok || until != at(9.8) {
		t.Errorf("four voters: %v, %v; want the send time of d", until, ok)
	}
	l.SetVoters("a", []string{"a"})
	if until, ok := l.Until(); !ok || until != Always {
		t.Errorf("one voter: %v, %v", until, ok)
	}
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	l := New(hb)
	l.SetVoters("a", []string{"a", "b", "c"})
	l.Enter(5)
	l.Acked("b", 5, at(10))
	x := l.Void("b", at(10.1))
	l.Acked("b", 5, at(10.2)) // sent before the request was written, or not known to be after
	l.Acked("c", 5, at(10.2))
	want := Status{Term: 5, Until: at(11), Void: true, Since: at(10.1)}
	if s := l.Status(at(10.3)); s != want {
		t.Errorf("void: %+v, want %+v", s, want)
	}
	if _, ok := l.Until(); ok {
		t.Error("a void lease has an end")
	}
	y := l.Void("c", at(10.4))
	if got := l.Open("b"); len(got) != 1 || got[0] != x {
		t.Errorf("open to b: %v", got)
	}
	l.Settle(x)
	want.Since = at(10.4)
	if s := l.Status(at(10.5)); s != want {
		t.Errorf("one settled: %+v, want %+v", s, want)
	}
	l.Settle(x) // again: nothing
	l.Settle(99)
	l.Settle(y)
	want = Status{Term: 5, Valid: true, Until: at(11)}
	if s := l.Status(at(10.5)); s != want {
		t.Errorf("both settled: %+v, want %+v", s, want)
	}
}

func TestTransferOfASoleVoter(t *testing.T) {
	t.Parallel()
	l := New(hb)
	l.SetVoters("a", []string{"a"})
	l.Void("b", at(1))
	if s := l.Status(at(2)); s.Valid || !s.Void || s.Since != at(1) {
		t.Errorf("void: %+v", s)
	}
}
