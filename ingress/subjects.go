package ingress

import (
	"slices"
	"strings"
)

// subjectTree finds among the subjects of many streams one that overlaps a given
// one, in time that depends on the number of tokens for subjects without wildcards.
type subjectTree struct{ root subjectNode }

type subjectNode struct {
	next  map[string]*subjectNode // by token; "*" and ">" are tokens, too
	names []string                // streams with a subject that ends here
}

func (t *subjectTree) add(name string, subjects []string) {
	for _, s := range subjects {
		n := &t.root
		for token := range strings.SplitSeq(s, ".") {
			if n.next == nil {
				n.next = make(map[string]*subjectNode)
			}
			child := n.next[token]
			if child == nil {
				child = &subjectNode{}
				n.next[token] = child
			}
			n = child
		}
		n.names = append(n.names, name)
	}
}

func (t *subjectTree) remove(name string, subjects []string) {
	for _, s := range subjects {
		t.root.remove(name, strings.Split(s, "."))
	}
}

// remove says that the node is empty after it.
func (n *subjectNode) remove(name string, tokens []string) bool {
	if len(tokens) == 0 {
		if i := slices.Index(n.names, name); i >= 0 {
			n.names = slices.Delete(n.names, i, i+1)
		}
	} else if child := n.next[tokens[0]]; child != nil && child.remove(name, tokens[1:]) {
		delete(n.next, tokens[0])
	}
	return len(n.names) == 0 && len(n.next) == 0
}

// overlap names a stream other than except one of whose subjects overlaps subject, "" if none.
func (t *subjectTree) overlap(subject, except string) string {
	return t.root.overlap(strings.Split(subject, "."), except)
}

func (n *subjectNode) overlap(tokens []string, except string) string {
	if len(tokens) == 0 {
		return n.other(except)
	}
	if name := n.next[">"].other(except); name != "" {
		return name
	}
	switch tokens[0] {
	case ">":
		for _, child := range n.next {
			if name := child.any(except); name != "" {
				return name
			}
		}
	case "*":
		for token, child := range n.next {
			if token == ">" {
				continue
			}
			if name := child.overlap(tokens[1:], except); name != "" {
				return name
			}
		}
	default:
		for _, token := range []string{tokens[0], "*"} {
			child := n.next[token]
			if child == nil {
				continue
			}
			if name := child.overlap(tokens[1:], except); name != "" {
				return name
			}
		}
	}
	return ""
}

// other is a name of this node that is not except, "" if there is none.
func (n *subjectNode) other(except string) string {
	if n == nil {
		return ""
	}
	for _, name := range n.names {
		if name != except {
			return name
		}
	}
	return ""
}

// any is other for the node and everything below it.
func (n *subjectNode) any(except string) string {
	if name := n.other(except); name != "" {
		return name
	}
	for _, child := range n.next {
		if name := child.any(except); name != "" {
			return name
		}
	}
	return ""
}
