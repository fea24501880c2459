package ingress

import (
	"context"
	"sync"
	"time"
)

// DefaultLimboMax is how many publishes may wait to be told "outcome unknown".
const DefaultLimboMax = 1 << 18

// limbo answers publishes that were not planned because the lease was not valid:
// another leader may have stored them, so its answer has the first word. Each is
// told "outcome unknown" when its time is over. One goroutine does that; above max
// the oldest are told early, which is as true.
type limbo struct {
	after time.Duration
	max   int
	tell  func(*lost)
	wake  chan struct{}

	mu      sync.Mutex
	waiting []lost // by the time they came in here
}

// lost is one publish whose outcome is unknown.
type lost struct {
	acct          *account
	reply, stream string
	at            time.Time // of arrival
}

func newLimbo(after time.Duration, limit int, tell func(*lost)) *limbo {
	return &limbo{after: after, max: limit, tell: tell, wake: make(chan struct{}, 1)}
}

func (l *limbo) add(p lost) {
	l.mu.Lock()
	l.waiting = append(l.waiting, p)
	first := len(l.waiting) == 1 || len(l.waiting) > l.max
	l.mu.Unlock()
	if first {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// run tells what is due until ctx ends, then the rest.
func (l *limbo) run(ctx context.Context) {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-l.wake:
		case <-ctx.Done():
			for _, p := range l.due(time.Now().Add(2 * l.after)) {
				l.tell(&p)
			}
			return
		}
		now := time.Now()
		for _, p := range l.due(now) {
			l.tell(&p)
		}
		t.Reset(l.next(now))
	}
}

// due takes out what is due, and what is too much.
func (l *limbo) due(now time.Time) []lost {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for n < len(l.waiting) && (len(l.waiting)-n > l.max || !l.waiting[n].at.Add(l.after).After(now)) {
		n++
	}
	out := l.waiting[:n:n]
	l.waiting = l.waiting[n:]
	return out
}

// next is how long to wait.
func (l *limbo) next(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return time.Hour
	}
	return max(l.waiting[0].at.Add(l.after).Sub(now), 0)
}
