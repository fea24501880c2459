package ingress

import (
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// matcher finds the consumers of a stream that a subject is for, each once. What it
// costs depends on how many there are, not on how many the stream has.
type matcher struct {
	all     []*consumer            // no filter
	literal map[string][]*consumer // one filter without wildcards
	other   subjectTree[*consumer]
	// several are the consumers with more than one filter, of which a subject may match two: no filter of a
	// consumer covers another one, but a.* and *.b overlap.
	several map[*consumer]struct{}
	round   uint64 // of looking for them
}

// plain says that the filters are one subject.
func plain(filters []string) bool { return len(filters) == 1 && !jsapi.HasWildcards(filters[0]) }

func (m *matcher) add(c *consumer) {
	filters := c.cfg.Filters()
	switch {
	case len(filters) == 0:
		m.all = append(m.all, c)
	case plain(filters):
		if m.literal == nil {
			m.literal = make(map[string][]*consumer)
		}
		m.literal[filters[0]] = append(m.literal[filters[0]], c)
	default:
		m.other.add(c, filters)
		if len(filters) > 1 {
			if m.several == nil {
				m.several = make(map[*consumer]struct{})
			}
			m.several[c] = struct{}{}
		}
	}
}

// remove takes out a consumer that was added with the configuration that it has.
func (m *matcher) remove(c *consumer) {
	is := func(o *consumer) bool { return o == c }
	filters := c.cfg.Filters()
	switch {
	case len(filters) == 0:
		m.all = slices.DeleteFunc(m.all, is)
	case plain(filters):
		if left := slices.DeleteFunc(m.literal[filters[0]], is); len(left) > 0 {
			m.literal[filters[0]] = left
		} else {
			delete(m.literal, filters[0])
		}
	default:
		m.other.remove(c, filters)
		delete(m.several, c)
	}
}

func (m *matcher) each(subject string, f func(*consumer)) {
	for _, c := range m.all {
		f(c)
	}
	for _, c := range m.literal[subject] {
		f(c)
	}
	switch {
	case m.other.empty():
	case len(m.several) == 0:
		m.other.each(subject, f)
	default:
		m.round++
		round := m.round
		m.other.each(subject, func(c *consumer) {
			if c.found != round {
				c.found = round
				f(c)
			}
		})
	}
}
