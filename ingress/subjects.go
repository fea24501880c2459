package ingress

import (
	"slices"
	"strings"
)

// subjectTree holds values by subjects that may have wildcards. It finds those that
// a subject matches, or that a subject with wildcards overlaps, in time that depends
// on the number of tokens and hits, not on the number of values. The zero tree is ready.
type subjectTree[T comparable] struct{ root subjectNode[T] }

type subjectNode[T comparable] struct {
	next map[string]*subjectNode[T] // by token; "*" and ">" are tokens, too
	here []T                        // values whose subject ends here
}

func (t *subjectTree[T]) empty() bool { return len(t.root.next) == 0 }

func (t *subjectTree[T]) add(value T, subjects []string) {
	for _, s := range subjects {
		n := &t.root
		for token := range strings.SplitSeq(s, ".") {
			if n.next == nil {
				n.next = make(map[string]*subjectNode[T])
			}
			child := n.next[token]
			if child == nil {
				child = &subjectNode[T]{}
				n.next[token] = child
			}
			n = child
		}
		n.here = append(n.here, value)
	}
}

func (t *subjectTree[T]) remove(value T, subjects []string) {
	for _, s := range subjects {
		t.root.remove(value, strings.Split(s, "."))
	}
}

// remove says that the node is empty after it.
func (n *subjectNode[T]) remove(value T, tokens []string) bool {
	if len(tokens) == 0 {
		if i := slices.Index(n.here, value); i >= 0 {
			n.here = slices.Delete(n.here, i, i+1)
		}
	} else if child := n.next[tokens[0]]; child != nil && child.remove(value, tokens[1:]) {
		delete(n.next, tokens[0])
	}
	return len(n.here) == 0 && len(n.next) == 0
}

// each calls f for the values that a subject without wildcards matches, once for
// each of their subjects that it matches.
func (t *subjectTree[T]) each(subject string, f func(T)) { t.root.each(subject, f) }

func (n *subjectNode[T]) each(rest string, f func(T)) {
	if n.next == nil {
		return
	}
	if all := n.next[">"]; all != nil {
		all.tell(f)
	}
	token, rest, more := strings.Cut(rest, ".")
	for _, child := range [2]*subjectNode[T]{n.next[token], n.next["*"]} {
		switch {
		case child == nil:
		case more:
			child.each(rest, f)
		default:
			child.tell(f)
		}
	}
}

func (n *subjectNode[T]) tell(f func(T)) {
	for _, v := range n.here {
		f(v)
	}
}

// overlap returns a value other than except one of whose subjects overlaps subject.
func (t *subjectTree[T]) overlap(subject string, except T) (T, bool) {
	return t.root.overlap(strings.Split(subject, "."), except)
}

func (n *subjectNode[T]) overlap(tokens []string, except T) (v T, ok bool) {
	if len(tokens) == 0 {
		return n.other(except)
	}
	if v, ok = n.next[">"].other(except); ok {
		return v, true
	}
	switch tokens[0] {
	case ">":
		return n.below(except)
	case "*":
		for token, child := range n.next {
			if token == ">" {
				continue
			}
			if v, ok = child.overlap(tokens[1:], except); ok {
				return v, true
			}
		}
		return v, false
	}
	for _, token := range [2]string{tokens[0], "*"} {
		if child := n.next[token]; child != nil {
			if v, ok = child.overlap(tokens[1:], except); ok {
				return v, true
			}
		}
	}
	return v, false
}

// other is a value of this node that is not except.
func (n *subjectNode[T]) other(except T) (v T, ok bool) {
	if n == nil {
		return v, false
	}
	for _, v := range n.here {
		if v != except {
			return v, true
		}
	}
	return v, false
}

// below is other for everything below the node.
func (n *subjectNode[T]) below(except T) (v T, ok bool) {
	for _, child := range n.next {
		if v, ok = child.other(except); ok {
			return v, true
		}
		if v, ok = child.below(except); ok {
			return v, true
		}
	}
	return v, false
}
