package lease

import (
	"math"
	"slices"
	"time"
)

// Share is the part of the heartbeat timeout that a lease lasts, in percent.
const Share = 80

// Always is the end of a lease that does not run out: the leader is the only voter.
const Always = time.Duration(math.MaxInt64)

// Token names one transfer that made the lease void. The zero Token names none.
type Token uint64

// Status is what a lease says at one moment.
type Status struct {
	// Term is the term the lease belongs to; 0 = no append was sent yet.
	Term uint64
	// Valid: no other replica can have been elected.
	Valid bool
	// Until is the end on CLOCK_BOOTTIME; it says nothing while Void is true.
	Until time.Duration
	// Void: a transfer was begun and may still take effect.
	Void bool
	// Since is when the lease stopped being valid: the begin of the oldest open
	// transfer, or the end of the lease; 0 = it was never valid in this term.
	Since time.Duration
}

type void struct {
	token  Token
	target string
	since  time.Duration
}

// Lease is the lease of one group's leader. It is not safe for concurrent use.
type Lease struct {
	length time.Duration
	term   uint64
	self   string
	voters []string
	sent   map[string]time.Duration // newest acknowledged send time of each peer in term
	voids  []void                   // open transfers, oldest first
	last   Token
}

// New returns the lease of a group with this heartbeat timeout, which all
// replicas must share.
func New(heartbeat time.Duration) *Lease {
	return &Lease{length: heartbeat / 100 * Share, sent: map[string]time.Duration{}}
}

// SetVoters replaces the voters of the latest configuration. Send times of
// replicas that stay are kept.
func (l *Lease) SetVoters(self string, voters []string) {
	l.self, l.voters = self, slices.Clone(voters)
}

// Enter tells that this replica leads in term; a term other than the current one
// forgets all acknowledgements and open transfers.
func (l *Lease) Enter(term uint64) {
	if term == l.term {
		return
	}
	l.term = term
	l.voids = nil
	clear(l.sent)
}

// Acked records that peer acknowledged an append of term that was sent at the
// given time. Acknowledgements of another term and older ones change nothing.
func (l *Lease) Acked(peer string, term uint64, sent time.Duration) {
	if term != l.term {
		return
	}
	if old, ok := l.sent[peer]; !ok || sent > old {
		l.sent[peer] = sent
	}
}

// Void makes the lease void for a transfer to target, before its request is written.
func (l *Lease) Void(target string, now time.Duration) Token {
	l.last++
	l.voids = append(l.voids, void{token: l.last, target: target, since: now})
	return l.last
}

// Settle ends a transfer: its request was certainly never written, or the target
// has acknowledged an append of this term that was sent after it. An unknown
// token changes nothing.
func (l *Lease) Settle(t Token) {
	l.voids = slices.DeleteFunc(l.voids, func(v void) bool { return v.token == t })
}

// Open returns the open transfers to target.
func (l *Lease) Open(target string) []Token {
	var open []Token
	for _, v := range l.voids {
		if v.target == target {
			open = append(open, v.token)
		}
	}
	return open
}

// Until returns the end of the lease on CLOCK_BOOTTIME, and false while it is
// void or has no quorum. The leader counts as now, so the end depends on the
// acknowledgements of the others only.
func (l *Lease) Until() (time.Duration, bool) {
	if len(l.voids) > 0 {
		return 0, false
	}
	return l.end()
}

func (l *Lease) end() (time.Duration, bool) {
	need := len(l.voters)/2 + 1
	if len(l.voters) == 0 {
		return 0, false
	}
	times := make([]time.Duration, 0, len(l.voters))
	for _, v := range l.voters {
		if v == l.self {
			need--
		} else if t, ok := l.sent[v]; ok {
			times = append(times, t)
		}
	}
	if need == 0 {
		return Always, true
	}
	if len(times) < need {
		return 0, false
	}
	slices.Sort(times)
	return times[len(times)-need] + l.length, true
}

// Status says how the lease stands at now.
func (l *Lease) Status(now time.Duration) Status {
	end, ok := l.end()
	s := Status{Term: l.term, Until: end, Void: len(l.voids) > 0}
	switch {
	case s.Void:
		s.Since = l.voids[0].since
	case ok && now < end:
		s.Valid = true
	case ok:
		s.Since = end
	}
	return s
}
