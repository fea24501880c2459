package ingress

import (
	"cmp"
	"slices"

	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// source is the stream as its consumers read it.
type source struct{ st *stream }

// scanLimit bounds the messages looked at by one search.
const scanLimit = 4096

// Next implements deliver.Source.
func (s source) Next(from uint64, filters []string) (*record.Message, uint64) {
	return s.st.plan().Search(from, filters, scanLimit)
}

// Message implements deliver.Source.
func (s source) Message(seq uint64) (*record.Message, bool) {
	m := s.st.plan().Get(seq)
	return m, m != nil
}

// LastOf implements deliver.Source.
func (s source) LastOf(subject string, upTo uint64) (uint64, bool) {
	return s.st.plan().AppliedLastOf(subject, upTo)
}

// First implements deliver.Source.
func (s source) First() uint64 { return s.st.plan().Applied().FirstSeq }

// Last implements deliver.Source.
func (s source) Last() uint64 { return s.st.plan().Applied().LastSeq }

// LastMatch implements deliver.Positions.
func (s source) LastMatch(filters []string) (last uint64, ok bool) {
	if len(filters) == 0 {
		filters = []string{">"}
	}
	for _, f := range filters {
		if seq, found := s.st.plan().AppliedLast(f); found && seq >= last {
			last, ok = seq, true
		}
	}
	return last, ok
}

// FirstMatch implements deliver.Positions.
func (s source) FirstMatch(filters []string) (first uint64, ok bool) {
	for _, f := range filters {
		if m := s.st.plan().AppliedNext(s.First(), f); m != nil && (!ok || m.Seq < first) {
			first, ok = m.Seq, true
		}
	}
	return first, ok
}

// LowestLast implements deliver.Positions.
func (s source) LowestLast(filters []string) (uint64, bool) {
	return s.st.plan().AppliedLowestLast(filters)
}

// AtTime implements deliver.Positions.
func (s source) AtTime(t int64) (uint64, bool) { return s.st.plan().AppliedAt(t) }

// numPending counts what a consumer with this cursor has still to deliver.
func (st *stream) numPending(cur *record.ConsumerState, filters []string) uint64 {
	if cur.SkipTo >= cur.Next {
		return deliver.CountPending(source{st}, cur, filters)
	}
	return st.plan().AppliedCount(cur.Next, filters)
}

func (e *engine) loadConsumers(st *stream) error {
	type row struct {
		id    record.ConsumerID
		d     *plan.ConsumerDescription
		state record.ConsumerState
	}
	var rows []row
	var bad error
	err := e.store.Consumers(st.row.ID, func(id record.ConsumerID, b []byte, state record.ConsumerState) bool {
		d, err := plan.ParseConsumerDescription(b)
		if err != nil {
			bad = err
			return false
		}
		rows = append(rows, row{id, d, state})
		return true
	})
	if err == nil {
		err = bad
	}
	if err != nil {
		return err
	}
	// In the order of their cursors, one count goes on where the one before ended.
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.state.Next, b.state.Next) })
	for _, r := range rows {
		from := &deliver.Loaded{Cursor: r.state, Now: e.term.Now()}
		err := e.store.Pendings(st.row.ID, r.id, func(p record.Pending) bool {
			from.Pending = append(from.Pending, p)
			return true
		})
		if err != nil {
			return err
		}
		from.NumPending = st.numPending(&r.state, r.d.Config.Filters())
		c := st.newConsumer(r.id, r.d, from)
		c.shown = c.cfg
		c.watchInactive(e)
		c.after(e, nil)
	}
	return nil
}

// newConsumer makes a consumer and puts it into its stream.
func (st *stream) newConsumer(id record.ConsumerID, d *plan.ConsumerDescription, from *deliver.Loaded) *consumer {
	c := &consumer{
		st: st, id: id, cfg: d.Config, nameless: d.Nameless, created: d.Created, first: st.plan().Applied().FirstSeq,
	}
	c.m = deliver.New(c.config(), source{st}, st.interest, from)
	st.consumers[d.Config.Name] = c
	st.match.add(c)
	return c
}

// shownConsumers is how many consumers infos count.
func (st *stream) shownConsumers() int {
	n := 0
	for _, c := range st.consumers {
		if c.shown != nil && !c.shown.Direct {
			n++
		}
	}
	return n
}

// plannedConsumers is how many consumers count for max_consumers.
func (st *stream) plannedConsumers() int {
	n := 0
	for _, c := range st.consumers {
		if !c.cfg.Direct && !c.gone {
			n++
		}
	}
	return n
}

func (st *stream) consumerNames() []string {
	var names []string
	for name, c := range st.consumers {
		if !c.cfg.Direct {
			names = append(names, name)
		}
	}
	return names
}

// configs iterates over the consumers' configurations, but for one.
func (st *stream) configs(except *consumer) func(func(*jsapi.ConsumerConfig) bool) {
	return func(yield func(*jsapi.ConsumerConfig) bool) {
		for _, c := range st.consumers {
			if c != except && !c.gone && !c.cfg.Direct && !yield(c.cfg) {
				return
			}
		}
	}
}
