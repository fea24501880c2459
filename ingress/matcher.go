package ingress

import (
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// matcher finds the consumers of a stream that a subject is for, each once.
type matcher struct {
	all     []*consumer            // no filter
	literal map[string][]*consumer // one filter without wildcards
	other   []*consumer
}

func (m *matcher) add(c *consumer) {
	filters := c.cfg.Filters()
	switch {
	case len(filters) == 0:
		m.all = append(m.all, c)
	case len(filters) == 1 && !jsapi.HasWildcards(filters[0]):
		if m.literal == nil {
			m.literal = make(map[string][]*consumer)
		}
		m.literal[filters[0]] = append(m.literal[filters[0]], c)
	default:
		m.other = append(m.other, c)
	}
}

// remove takes out a consumer that was added with the configuration that it has.
func (m *matcher) remove(c *consumer) {
	is := func(o *consumer) bool { return o == c }
	filters := c.cfg.Filters()
	switch {
	case len(filters) == 0:
		m.all = slices.DeleteFunc(m.all, is)
	case len(filters) == 1 && !jsapi.HasWildcards(filters[0]):
		if left := slices.DeleteFunc(m.literal[filters[0]], is); len(left) > 0 {
			m.literal[filters[0]] = left
		} else {
			delete(m.literal, filters[0])
		}
	default:
		m.other = slices.DeleteFunc(m.other, is)
	}
}

func (m *matcher) each(subject string, f func(*consumer)) {
	for _, c := range m.all {
		f(c)
	}
	for _, c := range m.literal[subject] {
		f(c)
	}
	for _, c := range m.other {
		if c.m.Matches(subject) {
			f(c)
		}
	}
}
