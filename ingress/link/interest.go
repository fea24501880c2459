package link

import (
	"strings"
	"sync"
	"time"
)

// serviceReply starts the reply subjects that nats-server makes for service imports. They are in no table.
const serviceReply = "_R_."

// table is the interest of the account with the rules about when to believe it.
type table struct {
	grace time.Duration
	limit int

	mu       sync.RWMutex
	subs     sublist
	gone     withdrawn
	complete bool      // the hub has sent everything it had when the link came up
	believe  time.Time // from when on the table is believed, once complete
	settled  bool      // that time has passed
	overflow bool      // something was left out
}

// reset forgets everything: a new connection gets a new table.
func (t *table) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs, t.gone = sublist{}, withdrawn{}
	t.complete, t.settled, t.overflow = false, false, false
}

// completed starts the grace.
func (t *table) completed(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complete = true
	t.believe = now.Add(t.grace)
}

// doubt makes interest unknown until the next completed table.
func (t *table) doubt() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complete, t.settled = false, false
}

func (t *table) add(subject, queue string, weight int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs.add(subject, queue, weight)
	if t.subs.count > t.limit {
		t.subs.remove(subject, queue)
		t.overflow = true
	}
}

func (t *table) remove(subject, queue string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.subs.remove(subject, queue)
	now := time.Now()
	t.gone.add(subject, now, now.Add(-t.grace))
}

func (t *table) size() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.subs.count
}

// has reports whether somebody listens to subject, or whether that is unknown.
func (t *table) has(subject string) bool {
	return strings.HasPrefix(subject, serviceReply) || t.lookup(subject, "")
}

// young is has for a request that came at since. Within the grace of the request its subscription may still be
// on its way, but one that has ended since the request came is over, however young all of it is.
func (t *table) young(subject string, since time.Time) bool {
	age := time.Since(since)
	if age < t.grace && t.left(subject, since) {
		return false
	}
	return t.has(subject) || age < t.grace
}

// left says that nobody listens to subject any more, and that somebody did at or after the time.
func (t *table) left(subject string, since time.Time) bool {
	if strings.HasPrefix(subject, serviceReply) {
		return false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.complete && !t.overflow && t.gone.since(subject, since) && !t.subs.match(subject, "")
}

// hasQueue reports whether the queue group has a member on subject, or whether that is unknown.
func (t *table) hasQueue(subject, queue string) bool { return t.lookup(subject, queue) }

func (t *table) lookup(subject, queue string) bool {
	t.mu.RLock()
	known, settled := t.known()
	found := !known || t.subs.match(subject, queue)
	t.mu.RUnlock()
	if settled {
		t.settle()
	}
	return found
}

// known reports whether the table is to be believed, and whether that has just become so for good. The lock
// is held.
func (t *table) known() (known, settled bool) {
	switch {
	case !t.complete || t.overflow:
		return false, false
	case t.settled:
		return true, false
	default:
		now := !time.Now().Before(t.believe)
		return now, now
	}
}

// settle spares later lookups the look at the clock.
func (t *table) settle() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled = t.complete && !time.Now().Before(t.believe)
}
