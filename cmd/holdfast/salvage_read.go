package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// logCommand is the type of log entries that hold an envelope.
const logCommand = 0

// openState opens the state in a replica's directory for reading; it changes nothing there.
// Where the pointer to it is damaged, it is the newest database that opens, and where none
// does, what its tables hold is put together in scratch, which is made. The errors say what
// does not verify; without a store there is no state at all.
func openState(ctx context.Context, dir, scratch string) (*storage.Store, []error) {
	told := func(error) {} // what is found is also an error of the read that found it
	c := storage.Config{Dir: filepath.Join(dir, "state"), ReadOnly: true, Damaged: told, Fatal: told}
	s, damage := storage.Open(c)
	switch {
	case damage == nil:
		return s, nil
	case !errors.Is(damage, record.ErrDamaged):
		return nil, []error{damage}
	}
	dbs := databases(c.Dir)
	for _, db := range dbs {
		c.DB = db
		if s, err := storage.Open(c); err == nil {
			return s, []error{damage}
		}
	}
	found := []error{damage}
	for _, db := range dbs {
		to := storage.Config{Dir: filepath.Join(scratch, db), Damaged: told, Fatal: told}
		s, lost, err := storage.Rebuild(ctx, storage.DefaultFS(), filepath.Join(c.Dir, db), to)
		found = append(append(found, lost...), errOrNil(err)...)
		if err == nil {
			return s, append(found, fmt.Errorf("%w: %s is put together from its tables: deleted messages may be back",
				record.ErrDamaged, filepath.Join(c.Dir, db)))
		}
	}
	return nil, found
}

func errOrNil(err error) []error {
	if err == nil {
		return nil
	}
	return []error{err}
}

// databases names the database directories of a state, that in force first, then the newest.
func databases(state string) []string {
	names, err := filepath.Glob(filepath.Join(state, "db-*"))
	if err != nil {
		return nil
	}
	inForce, _ := storage.InForce(storage.DefaultFS(), state) // else there is none to prefer
	rank := func(name string) int {
		if filepath.Base(name) == inForce {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), len(b)-len(a), strings.Compare(b, a))
	})
	for i, name := range names {
		names[i] = filepath.Base(name)
	}
	return names
}

// directoryLog calls take for the stream rows that the log of group 0 puts.
func directoryLog(dir string, take func(value []byte)) error {
	_, gaps, err := seglog.Salvage(storage.DefaultFS(), filepath.Join(dir, "log"), func(e *seglog.Entry, _ int) error {
		if e.Type != logCommand {
			return nil
		}
		if t, err := command.TypeOf(e.Data); err != nil || t != command.EntryMeta {
			return err
		}
		m, err := command.ParseMetaBatch(e.Data)
		if err != nil {
			return err
		}
		for _, w := range m.Writes {
			if strings.HasPrefix(w.Key, streamRows) && w.Value != nil {
				take(w.Value)
			}
		}
		return nil
	})
	for _, g := range gaps {
		err = errors.Join(err, g.Cause)
	}
	return err
}

// streamFile is the output of one stream.
type streamFile struct {
	f     *os.File
	w     *bufio.Writer
	enc   *json.Encoder
	about *salvageStream
}

func newStreamFile(path string, about *salvageStream) (*streamFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	w := bufio.NewWriter(f)
	return &streamFile{f: f, w: w, enc: json.NewEncoder(w), about: about}, nil
}

func (f *streamFile) write(line any) error { return f.enc.Encode(line) }

func (f *streamFile) message(m *record.Message, from place) error {
	a := f.about
	a.Messages++
	if from.entry != 0 {
		a.FromLog++
	}
	if from.gaps > 0 {
		a.BehindGap++
	}
	if a.First == 0 {
		a.First = m.Seq
	}
	a.Last = m.Seq
	return f.write(salvageLine{
		Seq: m.Seq, Subject: m.Subject, Time: m.Time, Header: m.Header, Payload: m.Payload, Entry: from.entry,
		BehindGap: from.gaps > 0,
	})
}

// place is where a message was found; zero is the state.
type place struct {
	entry uint64 // of the log
	gaps  int    // damaged places of the log before it
}

// unreadable notes a sequence whose message does not verify.
func (f *streamFile) unreadable(seq uint64) {
	if n := len(f.about.Unreadable); n > 0 && f.about.Unreadable[n-1][1]+1 == seq {
		f.about.Unreadable[n-1][1] = seq
		return
	}
	f.about.Unreadable = append(f.about.Unreadable, [2]uint64{seq, seq})
}

func (f *streamFile) close() error { return errors.Join(f.w.Flush(), f.f.Sync(), f.f.Close()) }

// copyState copies the messages that the state holds and the log does not delete.
func (w *salvager) copyState(store *storage.Store) error {
	var rows []storage.StreamRow
	if err := store.Streams(func(row storage.StreamRow) bool {
		row.Description = slices.Clone(row.Description)
		rows = append(rows, row)
		return true
	}); err != nil {
		w.problem(fmt.Errorf("list of streams: %w", err))
	}
	for i := range rows {
		if w.descriptions[rows[i].ID] == nil {
			w.descriptions[rows[i].ID] = rows[i].Description
		}
		if err := w.copyStream(store, &rows[i]); err != nil {
			return err
		}
	}
	return nil
}

func (w *salvager) copyStream(store *storage.Store, row *storage.StreamRow) error {
	f, err := w.file(row.ID)
	if err != nil {
		return err
	}
	next := row.State.FirstSeq
	var failed error
	err = store.Scan(row.ID, next, func(seq uint64, b []byte) bool {
		m, err := record.ParseMessage(seq, b)
		switch {
		case err != nil:
			f.unreadable(seq)
			w.problem(err)
		case !w.deleted[row.ID].has(seq):
			failed = f.message(&m, place{})
		}
		next = seq + 1
		return failed == nil
	})
	if err == nil || failed != nil {
		return failed
	}
	// A block does not verify: what is in others is found one by one.
	w.problem(fmt.Errorf("stream %d from sequence %d on: %w", row.ID, next, err))
	for seq := next; seq <= row.State.LastSeq; seq++ {
		m, err := store.Message(row.ID, seq)
		switch {
		case errors.Is(err, record.ErrNotFound):
		case err != nil:
			f.unreadable(seq)
		case !w.deleted[row.ID].has(seq):
			if err := f.message(&m, place{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachEnvelope calls f for the envelopes of the log that the state does not hold and that
// the fence admits; the first one behind a gap is admitted if it is newer than the last one
// before. Its first error is of the log, the second one of f.
func (w *salvager) eachEnvelope(f func(at place, t command.Type, body []byte) error) (damage, failed error) {
	fence, gapsBefore := w.fence, 0
	dir := filepath.Join(w.dir, "log")
	_, gaps, damage := seglog.Salvage(storage.DefaultFS(), dir, func(e *seglog.Entry, gaps int) error {
		w.source.LogLast = e.Index
		if e.Index <= w.source.Applied || e.Type != logCommand {
			return nil
		}
		if t, err := command.TypeOf(e.Data); err != nil || t != command.EntryEnvelope {
			return err
		}
		envelope, err := command.ParseEnvelope(e.Data)
		if err != nil {
			return err
		}
		leap := gaps > gapsBefore && envelope.Fence.Term == e.Term && envelope.Fence.Compare(fence) > 0
		if !leap && !fence.Admits(envelope.Fence, envelope.Base, e.Term) {
			return nil
		}
		fence, gapsBefore = envelope.Fence, gaps
		return envelope.Each(func(t command.Type, body []byte) error {
			failed = f(place{entry: e.Index, gaps: gaps}, t, body)
			return failed
		})
	})
	if failed != nil {
		return nil, failed
	}
	w.source.Gaps = w.source.Gaps[:0]
	for _, g := range gaps {
		damage = errors.Join(damage, g.Cause)
		w.source.Gaps = append(w.source.Gaps, salvageGap{After: g.After, Next: g.Next})
	}
	return damage, nil
}

// scanLog notes what the log deletes and describes; the error says what of it does not verify.
func (w *salvager) scanLog() error {
	damage, failed := w.eachEnvelope(func(_ place, t command.Type, body []byte) error {
		switch t {
		case command.DeleteBatch:
			return w.noteDeletes(body)
		case command.PutStream, command.DeleteStream:
			id, description, err := command.ParseStream(body)
			if err != nil {
				return err
			}
			if t == command.DeleteStream {
				w.deletions(id).all = true
			} else {
				w.descriptions[id] = slices.Clone(description)
			}
			return nil
		default:
			return nil
		}
	})
	return errors.Join(damage, failed)
}

func (w *salvager) deletions(id record.StreamID) *deletion {
	if w.deleted[id] == nil {
		w.deleted[id] = &deletion{seqs: make(map[uint64]bool)}
	}
	return w.deleted[id]
}

func (w *salvager) noteDeletes(body []byte) error {
	d, err := command.ParseDeletes(body)
	if err != nil {
		return err
	}
	for _, k := range d.Keys {
		w.deletions(k.Stream).seqs[k.Seq] = true
	}
	for _, r := range d.Ranges {
		at := w.deletions(r.Stream)
		at.ranges = append(at.ranges, [2]uint64{r.First, r.Last})
	}
	return nil
}

// copied says that the state holds a message of an entry that it does not reach, by its
// own account: one that was put together from tables may.
func (w *salvager) copied(id record.StreamID, seq uint64) bool {
	if w.pieced == nil {
		return false
	}
	_, err := w.pieced.Message(id, seq)
	return err == nil
}

// copyLog copies the messages of the log that the state does not hold.
func (w *salvager) copyLog() error {
	_, failed := w.eachEnvelope(func(at place, t command.Type, body []byte) error {
		if t != command.StoreBatch {
			return nil
		}
		return command.EachItem(body, func(id record.StreamID, it *command.Item) error {
			if it.Absent || w.deleted[id].has(it.Seq) || w.copied(id, it.Seq) {
				return nil
			}
			m, err := record.ParseMessage(it.Seq, it.Body)
			if err != nil {
				w.problem(fmt.Errorf("entry %d: %w", at.entry, err))
				return nil
			}
			f, err := w.file(id)
			if err != nil {
				return err
			}
			return f.message(&m, at)
		})
	})
	return failed
}
