package ingress

import (
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// Hush implements api.Purged and publish.Purged.
func (st *stream) Hush(seq uint64) {
	if st.hushed == nil {
		st.hushed = make(map[uint64]struct{})
	}
	st.hushed[seq] = struct{}{}
}

// Purged implements api.Purged and publish.Purged. A consumer that can want nothing
// but what was purged goes on behind it, one that wants more where the stream begins.
func (st *stream) Purged(subject string) {
	s := st.plan()
	if s == nil {
		return
	}
	first := s.Applied().FirstSeq
	next := first
	if subject != "" {
		next = s.Applied().LastSeq + 1
		if m := s.AppliedNext(first, subject); m != nil {
			next = m.Seq
		}
	}
	for _, c := range st.consumers {
		if c.shown == nil {
			continue
		}
		all, some := c.wants(subject)
		switch {
		case all:
			c.purgedTo(next)
		case some:
			c.purgedTo(first)
		}
	}
}

// wants reports whether all that a consumer's filters match lies within subject, and
// whether some of it does.
func (c *consumer) wants(subject string) (all, some bool) {
	filters := c.shown.Filters()
	within := func(f string) bool { return jsapi.SubjectIsSubset(f, subject) }
	switch {
	case subject == "":
		return true, true
	case len(filters) == 0:
		return false, true
	}
	outside := slices.ContainsFunc(filters, func(f string) bool { return !within(f) })
	return !outside, slices.ContainsFunc(filters, func(f string) bool {
		return within(f) || jsapi.SubjectIsSubset(subject, f)
	})
}

func (c *consumer) purgedTo(first uint64) {
	c.sync(c.st.e)
	c.m.PurgedTo(first)
	c.after(c.st.e, nil)
}
