package ingress

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// fakeGroup is the one replica of a group: a real store in memory, and entries
// that are applied to it as replication's state machine does.
type fakeGroup struct {
	t     *testing.T
	store *storage.Store
	ids   uint64

	mu sync.Mutex
	// entries are those applied, in order.
	entries []command.Envelope
	index   uint64
}

func newFakeGroup(t *testing.T) *fakeGroup {
	t.Helper()
	s, err := storage.Open(storage.Config{
		FS: vfs.NewMem(), Dir: "/group", MemTableSize: 1 << 20,
		Fatal: func(err error) { t.Errorf("store: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return &fakeGroup{t: t, store: s}
}

// apply applies a committed entry of a term; record.ErrStalePlan if the fence does not admit it.
func (g *fakeGroup) apply(entry []byte, term uint64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, err := command.ParseEnvelope(entry)
	if err != nil {
		g.t.Errorf("entry: %v", err)
		return record.ErrUnknownOutcome
	}
	g.index++
	fence := g.store.Applied().Fence
	b := g.store.NewBatch()
	admitted := fence.Admits(e.Fence, e.Base, term)
	if admitted {
		fence = e.Fence
		if err := e.Each(func(t command.Type, body []byte) error { return writeCommand(b, t, body) }); err != nil {
			g.t.Errorf("entry: %v", err)
		}
		g.entries = append(g.entries, e)
	}
	b.SetApplied(g.index, term, fence, e.Time)
	if err := b.Commit(); err != nil {
		g.t.Errorf("commit: %v", err)
	}
	if !admitted {
		return fmt.Errorf("%w: %v on %v", record.ErrStalePlan, e.Fence, e.Base)
	}
	return nil
}

// commandsOf lists the types of the commands in the entries applied from n on.
func (g *fakeGroup) commandsOf(n int) [][]command.Type {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out [][]command.Type
	for _, e := range g.entries[n:] {
		var types []command.Type
		_ = e.Each(func(t command.Type, _ []byte) error {
			types = append(types, t)
			return nil
		})
		out = append(out, types)
	}
	return out
}

func (g *fakeGroup) applied() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.entries)
}

func writeCommand(b *storage.Batch, t command.Type, body []byte) error {
	switch t {
	case command.StoreBatch:
		return command.EachItem(body, func(id record.StreamID, it *command.Item) error {
			if err := b.PutMessage(id, it.Seq, it.Body); err != nil || it.MsgID == "" {
				return err
			}
			at, err := record.MessageTime(it.Body)
			b.PutDedup(id, it.MsgID, it.Seq, at)
			return err
		})
	case command.DeleteBatch:
		d, err := command.ParseDeletes(body)
		for _, k := range d.Keys {
			b.DeleteMessage(k.Stream, k.Seq)
		}
		for _, r := range d.Ranges {
			b.DeleteMessages(r.Stream, r.First, r.Last)
		}
		return errors.Join(err, deleteEntries(b, d.Index))
	case command.PutStream:
		id, d, err := command.ParseStream(body)
		b.PutStream(id, d)
		return err
	case command.DeleteStream:
		id, _, err := command.ParseStream(body)
		b.DeleteStream(id)
		return err
	case command.PutConsumer:
		r, err := command.ParseConsumer(body)
		b.PutConsumer(r.Stream, r.Consumer, r.Description)
		return err
	case command.DeleteConsumer:
		r, err := command.ParseConsumer(body)
		b.DeleteConsumer(r.Stream, r.Consumer)
		return err
	case command.ConsumerBatch:
		return writeChange(b, body)
	case command.Sweep:
		s, err := command.ParseSweep(body)
		if s.Done {
			b.DeleteSweep(s.Stream, s.Kind)
		} else {
			b.PutSweep(s.Stream, s.Kind, s.Cursor)
		}
		return err
	case command.Counters:
		return writeState(b, body)
	case command.Index:
		puts, deletes, err := command.ParseIndex(body)
		for _, p := range puts {
			b.PutDue(p.Time, p.Stream, p.Seq, p.Value)
		}
		return errors.Join(err, deleteEntries(b, deletes))
	}
	return fmt.Errorf("command of type %d", t)
}

func writeChange(b *storage.Batch, body []byte) error {
	c, err := command.ParseConsumerBatch(body)
	b.PutConsumerState(c.Stream, c.Consumer, &c.State)
	for i := range c.Puts {
		b.PutPending(c.Stream, c.Consumer, &c.Puts[i])
	}
	for _, seq := range c.Deletes {
		b.DeletePending(c.Stream, c.Consumer, seq)
	}
	for _, r := range c.Ranges {
		b.DeletePendings(c.Stream, c.Consumer, r[0], r[1])
	}
	return err
}

func writeState(b *storage.Batch, body []byte) error {
	var rows []command.SubjectRow
	id, state, err := command.ParseCounters(body, func(r command.SubjectRow) error {
		rows = append(rows, r)
		return nil
	})
	b.PutStreamState(id, &state)
	for _, r := range rows {
		if r.Stat.Count == 0 {
			b.DeleteSubjectStat(id, r.Subject)
		} else {
			b.PutSubjectStat(id, r.Subject, r.Stat)
		}
	}
	return err
}

func deleteEntries(b *storage.Batch, entries []command.IndexEntry) error {
	for _, e := range entries {
		switch e.Kind {
		case command.IndexSubject:
			b.DeleteSubject(e.Stream, e.Name, e.Seq)
		case command.IndexDedup:
			b.DeleteDedup(e.Stream, e.Name, int64(e.Time))
		case command.IndexDue:
			b.DeleteDue(e.Time, e.Stream, e.Seq)
		default:
			return fmt.Errorf("delete of index kind %d", e.Kind)
		}
	}
	return nil
}

// fakeTerm is one term of leadership of a fakeGroup. While it is automatic, every
// proposal is durable and applied at once; otherwise the test says what becomes of
// the oldest one.
type fakeTerm struct {
	g      *fakeGroup
	number uint64

	mu       sync.Mutex
	manual   bool
	lease    bool
	checks   int // so many Checks are true, then the lease is over; 0 = it is not
	checked  int // Checks that were true
	ended    bool
	queue    []*record.Proposal
	barriers []error // the next answers of Barrier; then nil
	barred   int     // calls of Barrier
}

func newFakeTerm(g *fakeGroup, number uint64) *fakeTerm {
	return &fakeTerm{g: g, number: number, lease: true}
}

func (t *fakeTerm) Number() uint64     { return t.number }
func (t *fakeTerm) Base() record.Fence { return t.g.store.Applied().Fence }
func (t *fakeTerm) Now() int64         { return time.Now().UnixNano() }

func (t *fakeTerm) NextID() record.ProposalID {
	t.g.mu.Lock()
	defer t.g.mu.Unlock()
	t.g.ids++
	return record.NewProposalID(t.number, t.g.ids)
}

func (t *fakeTerm) Propose(p *record.Proposal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		go p.Done(record.ErrNotLeader)
		return
	}
	t.queue = append(t.queue, p)
	if !t.manual {
		go t.commitOne()
	}
}

func (t *fakeTerm) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended || !t.lease || t.checks > 0 && t.checked >= t.checks {
		return record.ErrNotLeader
	}
	t.checked++
	return nil
}

// checksSoFar counts the Checks that were true.
func (t *fakeTerm) checksSoFar() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.checked
}

func (t *fakeTerm) Barrier(context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.barred++
	if len(t.barriers) == 0 {
		return nil
	}
	err := t.barriers[0]
	t.barriers = t.barriers[1:]
	return err
}

func (t *fakeTerm) set(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

func (t *fakeTerm) barriersAsked() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.barred
}

func (t *fakeTerm) pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue)
}

// take removes the oldest proposal, nil if there is none.
func (t *fakeTerm) take() *record.Proposal {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return nil
	}
	p := t.queue[0]
	t.queue = t.queue[1:]
	return p
}

// commitOne makes the oldest proposal durable, committed and applied.
func (t *fakeTerm) commitOne() {
	// Held over the apply, so that the order of the queue is the order of the log.
	t.mu.Lock()
	if len(t.queue) == 0 {
		t.mu.Unlock()
		return
	}
	p := t.queue[0]
	t.queue = t.queue[1:]
	if p.Durable != nil {
		p.Durable()
	}
	err := t.g.apply(p.Entry, t.number)
	t.mu.Unlock()
	p.Done(err)
}

// hold lets proposals wait for the test; release lets them go on by themselves.
func (t *fakeTerm) hold() { t.set(func() { t.manual = true }) }

func (t *fakeTerm) release() {
	t.set(func() { t.manual = false })
	t.commitAll()
}

// commit commits the oldest proposal, commitAll all of them and what follows.
func (t *fakeTerm) commit() {
	t.commitOne()
	synctest.Wait()
}

func (t *fakeTerm) commitAll() {
	synctest.Wait()
	for t.pending() > 0 {
		t.commit()
	}
}

// durable tells that the nth waiting proposal is fsynced by the leader.
func (t *fakeTerm) durable(n int) {
	t.mu.Lock()
	p := t.queue[n]
	t.mu.Unlock()
	p.Durable()
	synctest.Wait()
}

// refuse ends the oldest proposal with an error; it is not in the log.
func (t *fakeTerm) refuse(err error) {
	t.take().Done(err)
	synctest.Wait()
}

// lose ends the oldest proposal with an unknown outcome after it was applied by others.
func (t *fakeTerm) lose() {
	p := t.take()
	_ = t.g.apply(p.Entry, t.number)
	p.Done(record.ErrUnknownOutcome)
	synctest.Wait()
}

// storeView shows a store as ingress reads it, as cmd/node does.
type storeView struct{ *storage.Store }

func (v storeView) StreamState(id record.StreamID) (record.StreamState, error) {
	row, err := v.Store.Stream(id)
	return row.State, err
}

func (v storeView) Stream(id record.StreamID) ([]byte, record.StreamState, error) {
	row, err := v.Store.Stream(id)
	return row.Description, row.State, err
}

func (v storeView) All(
	stream func(record.StreamID, []byte, *record.StreamState), consumer func(record.StreamID, []byte),
) error {
	err := v.Streams(func(row storage.StreamRow) bool {
		stream(row.ID, row.Description, &row.State)
		return true
	})
	if err != nil {
		return err
	}
	return v.AllConsumers(func(row storage.ConsumerRow) bool {
		consumer(row.Stream, row.Description)
		return true
	})
}

func (v storeView) Dedup(id record.StreamID, msgID string) (seq uint64, at int64, ok bool, err error) {
	row, ok, err := v.Store.Dedup(id, msgID)
	return row.Seq, row.Time, ok, err
}

func (v storeView) DedupUntil(id record.StreamID, from, until int64, f func(int64, string) bool) error {
	return v.Store.DedupUntil(id, from, until, func(d storage.DedupRow) bool { return f(d.Time, d.ID) })
}

func (v storeView) Consumers(
	id record.StreamID, f func(record.ConsumerID, []byte, record.ConsumerState) bool,
) error {
	return v.Store.Consumers(id, func(c storage.ConsumerRow) bool { return f(c.ID, c.Description, c.State) })
}

func (v storeView) Pendings(id record.StreamID, c record.ConsumerID, f func(record.Pending) bool) error {
	return v.Store.Pendings(id, c, 0, f)
}

func (v storeView) Sweeps(f func(SweepRow) bool) error {
	return v.Store.Sweeps(func(w storage.SweepRow) bool { return f(SweepRow(w)) })
}

func (v storeView) Due(until int64, f func(DueRow) bool) error {
	return v.Store.Due(0, func(d storage.DueRow) bool {
		if int64(d.Bucket) > until {
			return false
		}
		return f(DueRow{Bucket: int64(d.Bucket), Stream: d.Stream, Ticket: d.Ticket, Kind: d.Kind})
	})
}
