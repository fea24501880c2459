package ingress

import (
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// matcher finds the consumers of a stream that a subject is for, each once: the
// filters of one consumer do not overlap. What it costs depends on how many there
// are, not on how many the stream has.
type matcher struct {
	all     []*consumer            // no filter
	literal map[string][]*consumer // one filter without wildcards
	other   subjectTree[*consumer]
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
	}
}

func (m *matcher) each(subject string, f func(*consumer)) {
	for _, c := range m.all {
		f(c)
	}
	for _, c := range m.literal[subject] {
		f(c)
	}
	if !m.other.empty() {
		m.other.each(subject, f)
	}
}
