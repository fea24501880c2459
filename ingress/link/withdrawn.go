package link

import (
	"strings"
	"time"
)

// maxWithdrawn bounds the subscriptions that are remembered after their end.
const maxWithdrawn = 1 << 16

// withdrawn remembers, for a while, subscriptions that have ended. Of a subject that is in no table it
// tells "was there, and left" from "may still be on its way". It forgets the oldest beyond its bound, and
// two ends of one subject at the end of the first: what is forgotten is unknown, which is always right to
// say.
type withdrawn struct {
	subs  sublist
	queue []withdrawal // oldest first, from head on
	head  int
}

type withdrawal struct {
	subject string
	at      time.Time
}

// add notes the end of a subscription and forgets what ended before the time.
func (w *withdrawn) add(subject string, now, before time.Time) {
	for len(w.queue) > w.head && (w.queue[w.head].at.Before(before) || len(w.queue)-w.head >= maxWithdrawn) {
		w.subs.remove(w.queue[w.head].subject, "")
		w.queue[w.head] = withdrawal{}
		w.head++
	}
	if w.head > len(w.queue)/2 {
		n := copy(w.queue, w.queue[w.head:])
		clear(w.queue[n:])
		w.queue, w.head = w.queue[:n], 0
	}
	w.subs.add(subject, "", 1)
	w.queue = append(w.queue, withdrawal{subject, now})
}

// since says that a subscription which matched subject, a literal one, has ended at or after the time.
func (w *withdrawn) since(subject string, t time.Time) bool {
	if !w.subs.match(subject, "") {
		return false
	}
	for i := len(w.queue) - 1; i >= w.head && !w.queue[i].at.Before(t); i-- {
		if covers(w.queue[i].subject, subject) {
			return true
		}
	}
	return false
}

// covers says that a subscription's subject matches a literal one.
func covers(pattern, subject string) bool {
	for {
		p, patternRest, patternMore := strings.Cut(pattern, ".")
		s, subjectRest, subjectMore := strings.Cut(subject, ".")
		switch {
		case p == ">":
			return true
		case p != "*" && p != s, patternMore != subjectMore:
			return false
		case !patternMore:
			return true
		}
		pattern, subject = patternRest, subjectRest
	}
}
