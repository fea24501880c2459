package main

import (
	"bufio"
	"cmp"
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

// openState opens the state in a replica's directory for reading. Where the pointer to it
// is damaged, it is the newest database that opens; the error comes with it then.
func openState(dir string) (*storage.Store, error) {
	told := func(error) {} // what is found is also an error of the read that found it
	c := storage.Config{Dir: filepath.Join(dir, "state"), ReadOnly: true, Damaged: told, Fatal: told}
	s, damage := storage.Open(c)
	if damage == nil || filepath.Base(record.DamagedFile(damage)) != "POINTER" {
		return s, damage
	}
	names, err := filepath.Glob(filepath.Join(c.Dir, "db-*"))
	if err != nil {
		return nil, damage
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(b, a)) })
	for _, name := range names {
		c.DB = filepath.Base(name)
		if s, err := storage.Open(c); err == nil {
			return s, damage
		}
	}
	return nil, damage
}

// directoryLog calls take for the stream rows that the log of group 0 puts.
func directoryLog(dir string, take func(value []byte)) error {
	_, err := seglog.Salvage(storage.DefaultFS(), filepath.Join(dir, "log"), func(e *seglog.Entry) error {
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

func (f *streamFile) message(m *record.Message, entry uint64) error {
	a := f.about
	a.Messages++
	if entry != 0 {
		a.FromLog++
	}
	if a.First == 0 {
		a.First = m.Seq
	}
	a.Last = m.Seq
	return f.write(salvageLine{
		Seq: m.Seq, Subject: m.Subject, Time: m.Time, Header: m.Header, Payload: m.Payload, Entry: entry,
	})
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
			failed = f.message(&m, 0)
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
			if err := f.message(&m, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// eachEnvelope calls f for the envelopes of the log that the state does not hold and that
// the fence admits. Its first error is of the log, the second one of f.
func (w *salvager) eachEnvelope(f func(index uint64, t command.Type, body []byte) error) (damage, failed error) {
	fence := w.fence
	_, damage = seglog.Salvage(storage.DefaultFS(), filepath.Join(w.dir, "log"), func(e *seglog.Entry) error {
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
		if !fence.Admits(envelope.Fence, envelope.Base, e.Term) {
			return nil
		}
		fence = envelope.Fence
		return envelope.Each(func(t command.Type, body []byte) error {
			failed = f(e.Index, t, body)
			return failed
		})
	})
	if failed != nil {
		damage = nil
	}
	return damage, failed
}

// scanLog notes what the log deletes and describes; the error says what of it does not verify.
func (w *salvager) scanLog() error {
	damage, failed := w.eachEnvelope(func(_ uint64, t command.Type, body []byte) error {
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

// copyLog copies the messages of the log that the state does not hold.
func (w *salvager) copyLog() error {
	_, failed := w.eachEnvelope(func(index uint64, t command.Type, body []byte) error {
		if t != command.StoreBatch {
			return nil
		}
		return command.EachItem(body, func(id record.StreamID, it *command.Item) error {
			if it.Absent || w.deleted[id].has(it.Seq) {
				return nil
			}
			m, err := record.ParseMessage(it.Seq, it.Body)
			if err != nil {
				w.problem(fmt.Errorf("entry %d: %w", index, err))
				return nil
			}
			f, err := w.file(id)
			if err != nil {
				return err
			}
			return f.message(&m, index)
		})
	})
	return failed
}
