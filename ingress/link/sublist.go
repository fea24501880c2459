package link

import "strings"

// sublist holds the subscriptions of the account by subject. Literal subjects, the great majority, are a
// map; subjects with wildcards are a tree by token. A lookup costs one map access and a walk over the
// tree's nodes that match, and does not allocate. It is not safe for concurrent use.
type sublist struct {
	literal map[string]listeners
	wild    level
	count   int // subscriptions; each queue group of a subject is one
}

// listeners are the subscriptions of one subject.
type listeners struct {
	plain  bool
	queues []queueGroup
}

type queueGroup struct {
	name   string
	weight int
}

func (l listeners) empty() bool { return !l.plain && len(l.queues) == 0 }

// wanted reports whether there is any subscription, or one of the queue group if one is named.
func (l listeners) wanted(queue string) bool {
	if queue == "" {
		return !l.empty()
	}
	for i := range l.queues {
		if l.queues[i].name == queue {
			return true
		}
	}
	return false
}

// with returns l with a subscription added; a known queue group gets its new weight.
func (l listeners) with(queue string, weight int) listeners {
	if queue == "" {
		l.plain = true
		return l
	}
	for i := range l.queues {
		if l.queues[i].name == queue {
			l.queues[i].weight = weight
			return l
		}
	}
	l.queues = append(l.queues, queueGroup{name: queue, weight: weight})
	return l
}

// without returns l with a subscription removed.
func (l listeners) without(queue string) listeners {
	if queue == "" {
		l.plain = false
		return l
	}
	for i := range l.queues {
		if l.queues[i].name == queue {
			l.queues = append(l.queues[:i], l.queues[i+1:]...)
			return l
		}
	}
	return l
}

// size is the number of subscriptions.
func (l listeners) size() int {
	if l.plain {
		return len(l.queues) + 1
	}
	return len(l.queues)
}

// level is the set of tokens that may follow a prefix.
type level struct {
	tokens map[string]*node
	star   *node // *
	rest   *node // >
}

type node struct {
	next level
	subs listeners
}

func (l *level) empty() bool { return len(l.tokens) == 0 && l.star == nil && l.rest == nil }

// get returns the node of a token, or nil.
func (l *level) get(token string) *node {
	switch token {
	case "*":
		return l.star
	case ">":
		return l.rest
	default:
		return l.tokens[token]
	}
}

func (l *level) set(token string, n *node) {
	switch token {
	case "*":
		l.star = n
	case ">":
		l.rest = n
	default:
		if n == nil {
			delete(l.tokens, token)
			return
		}
		if l.tokens == nil {
			l.tokens = map[string]*node{}
		}
		l.tokens[token] = n
	}
}

// hasWildcard reports whether a subscription's subject has a * or > token.
func hasWildcard(subject string) bool {
	for rest := subject; rest != ""; {
		var token string
		if token, rest, _ = strings.Cut(rest, "."); token == "*" || token == ">" {
			return true
		}
	}
	return false
}

func (s *sublist) add(subject, queue string, weight int) {
	if hasWildcard(subject) {
		n := s.wild.node(subject)
		s.count -= n.subs.size()
		n.subs = n.subs.with(queue, weight)
		s.count += n.subs.size()
		return
	}
	if s.literal == nil {
		s.literal = map[string]listeners{}
	}
	l := s.literal[subject]
	s.count -= l.size()
	l = l.with(queue, weight)
	s.count += l.size()
	s.literal[subject] = l
}

// node finds or makes the node of a subject.
func (l *level) node(subject string) *node {
	for {
		token, rest, more := strings.Cut(subject, ".")
		n := l.get(token)
		if n == nil {
			n = &node{}
			l.set(token, n)
		}
		if !more {
			return n
		}
		l, subject = &n.next, rest
	}
}

func (s *sublist) remove(subject, queue string) {
	if hasWildcard(subject) {
		s.count -= s.wild.remove(subject, queue)
		return
	}
	l, ok := s.literal[subject]
	if !ok {
		return
	}
	s.count -= l.size()
	l = l.without(queue)
	s.count += l.size()
	if l.empty() {
		delete(s.literal, subject)
		return
	}
	s.literal[subject] = l
}

// remove takes a subscription out, cuts the branch if it has become bare, and returns how many were taken
// out.
func (l *level) remove(subject, queue string) int {
	token, rest, more := strings.Cut(subject, ".")
	n := l.get(token)
	if n == nil {
		return 0
	}
	var removed int
	if more {
		removed = n.next.remove(rest, queue)
	} else {
		removed = n.subs.size()
		n.subs = n.subs.without(queue)
		removed -= n.subs.size()
	}
	if n.subs.empty() && n.next.empty() {
		l.set(token, nil)
	}
	return removed
}

// match reports whether a subscription matches subject, a literal one: any subscription if queue is empty,
// else one of that queue group.
func (s *sublist) match(subject, queue string) bool {
	return s.literal[subject].wanted(queue) || s.wild.match(subject, queue)
}

func (l *level) match(subject, queue string) bool {
	for {
		if l.rest != nil && l.rest.subs.wanted(queue) {
			return true
		}
		token, rest, more := strings.Cut(subject, ".")
		star, literal := l.star, l.tokens[token]
		if !more {
			return star != nil && star.subs.wanted(queue) || literal != nil && literal.subs.wanted(queue)
		}
		switch {
		case star != nil && literal != nil:
			if star.next.match(rest, queue) {
				return true
			}
			l = &literal.next
		case star != nil:
			l = &star.next
		case literal != nil:
			l = &literal.next
		default:
			return false
		}
		subject = rest
	}
}
