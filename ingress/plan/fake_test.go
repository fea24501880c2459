package plan

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// world is a group with one replica in memory: it applies envelopes as the state
// machine does, when the test says so.
type world struct {
	t      *testing.T
	term   uint64
	fence  record.Fence
	now    int64
	ids    uint64
	queue  []*record.Proposal
	states map[record.StreamID]record.StreamState
	msgs   map[record.StreamID]map[uint64][]byte
	stats  map[record.StreamID]map[string]record.SubjectStat
	ids2   map[record.StreamID]map[string]dedupEntry
	index  map[record.StreamID]map[subjectRow]struct{}
	sweeps map[uint8][]byte // cursors of long work
	due    map[[3]uint64]uint8

	p        *Planner
	ended    []Result
	barriers int
	gather   func(tick uint64)
	stored   func(s *Stream)
	failed   []uint64
	appliedT []uint64
	removed  []uint64
	rebuilt  int
	passed   uint64 // sequences that PrevBySubject went over: some are deleted rows in a real store
}

func newWorld(t *testing.T, cfg Config) *world {
	t.Helper()
	w := &world{
		t: t, term: 3, now: 1_000_000_000,
		states: map[record.StreamID]record.StreamState{}, msgs: map[record.StreamID]map[uint64][]byte{},
		stats: map[record.StreamID]map[string]record.SubjectStat{},
		ids2:  map[record.StreamID]map[string]dedupEntry{}, due: map[[3]uint64]uint8{},
		index: map[record.StreamID]map[subjectRow]struct{}{}, sweeps: map[uint8][]byte{},
	}
	w.lead(cfg)
	return w
}

// lead begins to plan in the term of w.
func (w *world) lead(cfg Config) {
	w.p = New(cfg, w, w, w, Notify{
		Ended: func(r Result) { w.ended = append(w.ended, r) }, Durable: func(uint64) {},
		Barrier: func() { w.barriers++ },
	})
}

func (w *world) Number() uint64     { return w.term }
func (w *world) Base() record.Fence { return w.fence }
func (w *world) Now() int64         { return w.now }
func (w *world) NextID() record.ProposalID {
	w.ids++
	return record.NewProposalID(1, w.ids)
}
func (w *world) Propose(p *record.Proposal) { w.queue = append(w.queue, p) }

func (w *world) Gather(tick uint64) {
	if w.gather != nil {
		w.gather(tick)
	}
}
func (w *world) Applied(tick uint64) { w.appliedT = append(w.appliedT, tick) }
func (w *world) Failed(tick uint64)  { w.failed = append(w.failed, tick) }
func (w *world) Stored(s *Stream) {
	if w.stored != nil {
		w.stored(s)
	}
}
func (w *world) Rebuilt()                                { w.rebuilt++ }
func (w *world) Removed(_ *Stream, seq uint64, _ string) { w.removed = append(w.removed, seq) }

// commit ends the oldest proposal: committed, and applied if the fence admits it.
func (w *world) commit() {
	w.t.Helper()
	p := w.take()
	e, err := command.ParseEnvelope(p.Entry)
	if err != nil {
		w.t.Fatal(err)
	}
	if !w.fence.Admits(e.Fence, e.Base, w.term) {
		p.Done(record.ErrStalePlan)
	} else {
		w.apply(&e)
		w.fence = e.Fence
		p.Done(nil)
	}
	w.feed()
}

// refuse ends the oldest proposal without dispatching it.
func (w *world) refuse(err error) {
	w.t.Helper()
	w.take().Done(err)
	w.feed()
}

func (w *world) take() *record.Proposal {
	w.t.Helper()
	if len(w.queue) == 0 {
		w.t.Fatal("nothing is proposed")
	}
	p := w.queue[0]
	w.queue = w.queue[1:]
	return p
}

func (w *world) feed() {
	for _, r := range w.ended {
		w.p.Ended(r)
	}
	w.ended = nil
	w.p.Flush()
}

func (w *world) commitAll() {
	w.t.Helper()
	for len(w.queue) > 0 {
		w.commit()
	}
}

func (w *world) apply(e *command.Envelope) {
	w.t.Helper()
	err := e.Each(func(typ command.Type, body []byte) error {
		switch typ {
		case command.PutStream:
			id, _, err := command.ParseStream(body)
			if w.msgs[id] == nil {
				w.msgs[id], w.stats[id], w.ids2[id] = map[uint64][]byte{}, map[string]record.SubjectStat{}, map[string]dedupEntry{}
				w.index[id] = map[subjectRow]struct{}{}
			}
			return err
		case command.DeleteStream:
			id, _, err := command.ParseStream(body)
			delete(w.states, id)
			delete(w.msgs, id)
			delete(w.index, id)
			return err
		case command.StoreBatch:
			return command.EachItem(body, func(id record.StreamID, it *command.Item) error {
				w.msgs[id][it.Seq] = it.Body
				subject, err := record.MessageSubject(it.Body)
				w.index[id][subjectRow{string(subject), it.Seq}] = struct{}{}
				if it.MsgID != "" {
					at, _ := record.MessageTime(it.Body)
					w.ids2[id][it.MsgID] = dedupEntry{it.Seq, at}
				}
				return err
			})
		case command.DeleteBatch:
			d, err := command.ParseDeletes(body)
			for _, k := range d.Keys {
				delete(w.msgs[k.Stream], k.Seq)
			}
			for _, r := range d.Ranges {
				for seq := range w.msgs[r.Stream] {
					if seq >= r.First && seq <= r.Last {
						delete(w.msgs[r.Stream], seq)
					}
				}
			}
			w.dropEntries(d.Index)
			return err
		case command.Counters:
			var rows []command.SubjectRow
			id, st, err := command.ParseCounters(body, func(r command.SubjectRow) error {
				rows = append(rows, r)
				return nil
			})
			w.states[id] = st
			for _, r := range rows {
				if r.Stat.Count == 0 {
					delete(w.stats[id], r.Subject)
				} else {
					w.stats[id][r.Subject] = r.Stat
				}
			}
			return err
		case command.Index:
			puts, dels, err := command.ParseIndex(body)
			for _, p := range puts {
				w.due[[3]uint64{p.Time, uint64(p.Stream), p.Seq}] = p.Value
			}
			w.dropEntries(dels)
			return err
		case command.Sweep:
			step, err := command.ParseSweep(body)
			if w.sweeps[step.Kind] = slices.Clone(step.Cursor); step.Done {
				delete(w.sweeps, step.Kind)
			}
			return err
		default:
			return nil
		}
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) dropEntries(dels []command.IndexEntry) {
	for _, d := range dels {
		switch d.Kind {
		case command.IndexDedup:
			delete(w.ids2[d.Stream], d.Name)
		case command.IndexSubject:
			delete(w.index[d.Stream], subjectRow{d.Name, d.Seq})
		default:
			delete(w.due, [3]uint64{d.Time, uint64(d.Stream), d.Seq})
		}
	}
}

func (w *world) StreamState(id record.StreamID) (record.StreamState, error) {
	st, ok := w.states[id]
	if !ok {
		return st, record.ErrNotFound
	}
	return st, nil
}

func (w *world) Message(id record.StreamID, seq uint64) (record.Message, error) {
	b, ok := w.msgs[id][seq]
	if !ok {
		return record.Message{}, record.ErrNotFound
	}
	return record.ParseMessage(seq, b)
}

func (w *world) sorted(id record.StreamID, from uint64) []uint64 {
	var out []uint64
	for seq := range w.msgs[id] {
		if seq >= from {
			out = append(out, seq)
		}
	}
	slices.Sort(out)
	return out
}

func (w *world) Scan(id record.StreamID, from uint64, f func(uint64, []byte) bool) error {
	for _, seq := range w.sorted(id, from) {
		if !f(seq, w.msgs[id][seq]) {
			break
		}
	}
	return nil
}

func (w *world) ScanKeys(id record.StreamID, from uint64, f func(uint64) bool) error {
	return w.Scan(id, from, func(seq uint64, _ []byte) bool { return f(seq) })
}

func (w *world) SubjectStat(id record.StreamID, subject string) (record.SubjectStat, bool, error) {
	st, ok := w.stats[id][subject]
	return st, ok, nil
}

func (w *world) Subjects(id record.StreamID, prefix, after string, f func(string, record.SubjectStat) bool) error {
	var names []string
	for s := range w.stats[id] {
		if strings.HasPrefix(s, prefix) && s > after {
			names = append(names, s)
		}
	}
	slices.Sort(names)
	for _, s := range names {
		if !f(s, w.stats[id][s]) {
			break
		}
	}
	return nil
}

func (w *world) Dedup(id record.StreamID, msg string) (uint64, int64, bool, error) {
	e, ok := w.ids2[id][msg]
	return e.seq, e.at, ok, nil
}

func (w *world) DedupUntil(id record.StreamID, from, until int64, f func(int64, string) bool) error {
	type row struct {
		at int64
		id string
	}
	var rows []row
	for k, e := range w.ids2[id] {
		if e.at >= from && e.at <= until {
			rows = append(rows, row{e.at, k})
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.at, b.at) })
	for _, r := range rows {
		if !f(r.at, r.id) {
			break
		}
	}
	return nil
}

// testOp is an operation made of functions.
type testOp struct {
	OpBase
	plan  func(p *Planner) uint64
	done  int
	fails []bool
	plans int
}

func (o *testOp) Base() *OpBase { return &o.OpBase }
func (o *testOp) Plan(p *Planner) uint64 {
	o.plans++
	return o.plan(p)
}
func (o *testOp) Done(*Planner)     { o.done++ }
func (o *testOp) Fail(certain bool) { o.fails = append(o.fails, certain) }

// create makes stream 1 and commits it.
func (w *world) create() *Stream {
	w.t.Helper()
	w.do(func(p *Planner) uint64 {
		p.Create(1, []byte("d"), 1)
		return p.Tick()
	})
	w.p.Flush()
	w.commitAll()
	s, err := w.p.Open(1)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) do(f func(p *Planner) uint64) *testOp {
	o := &testOp{plan: f, OpBase: OpBase{Size: 10}}
	w.p.Admit(o.Size)
	w.p.Submit(o)
	return o
}

func (w *world) store(subject, body, id string) (*testOp, *uint64) {
	seq := new(uint64)
	return w.do(func(p *Planner) uint64 {
		s, err := p.Open(1)
		if err != nil {
			w.t.Fatal(err)
		}
		*seq = s.Store(subject, nil, []byte(body), id).Seq
		return p.Tick()
	}), seq
}
