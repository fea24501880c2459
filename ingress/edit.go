package ingress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Every change of the streams of an account replaces the account's row, so two that are
// made at once would refuse each other, and of many only one a round would succeed.
// Changes of one account that wait are written together instead.

// Bounds of the changes that are written together: their names have to leave room in the
// journal, and a failed write costs all of them another round.
const (
	maxEdits     = 64
	maxEditNames = journalBytes / 4
	editTimeout  = 5 * time.Second
)

// editQueue lines up changes. The first one that waits writes, with itself as many others
// as go together, and then hands over to the next.
type editQueue struct {
	mu      sync.Mutex
	waiting []*edit
	writing bool
}

// edit is a change of one row.
type edit struct {
	row record.StreamRow // what it is about: account and name, and id unless it makes the row
	// change returns what becomes of the row, nil if it goes; nil = row is made.
	change func(*record.StreamRow) (*record.StreamRow, error)
	// alone: change looks at other rows, too.
	alone bool

	next *record.StreamRow // what it came to, in the batch being written
	turn chan struct{}     // closed when it has to write
	done chan error        // of capacity one
}

// reserve creates a row in phase creating, giving it an id. It returns
// errNameTaken, or 10065 when subjects overlap another stream's.
func (d *directory) reserve(ctx context.Context, row record.StreamRow) error {
	return d.edit(ctx, &edit{row: row})
}

// change rewrites the row of a stream, as long as it is the row of this id. A nil
// result of f removes it; an error of f ends the change. f may be called more than once.
func (d *directory) change(
	ctx context.Context, row record.StreamRow, f func(*record.StreamRow) (*record.StreamRow, error),
) error {
	return d.edit(ctx, &edit{row: row, change: f})
}

// changeAlone is change for an f that looks at other rows: nothing else changes with it.
func (d *directory) changeAlone(
	ctx context.Context, row record.StreamRow, f func(*record.StreamRow) (*record.StreamRow, error),
) error {
	return d.edit(ctx, &edit{row: row, change: f, alone: true})
}

func (d *directory) edit(ctx context.Context, e *edit) error {
	e.turn, e.done = make(chan struct{}), make(chan error, 1)
	q := &d.edits
	q.mu.Lock()
	q.waiting = append(q.waiting, e)
	if !q.writing {
		q.writing = true
		close(e.turn)
	}
	q.mu.Unlock()
	select {
	case err := <-e.done:
		return err
	case <-e.turn:
		d.writeNext(ctx)
		return <-e.done
	case <-ctx.Done():
	}
	q.mu.Lock()
	mine := false
	select {
	case <-e.turn:
		mine = true // the others wait for it
	default:
		q.waiting = slices.DeleteFunc(q.waiting, func(o *edit) bool { return o == e })
	}
	q.mu.Unlock()
	if mine {
		d.writeNext(ctx)
		return <-e.done
	}
	select {
	case err := <-e.done:
		return err
	default:
		return ctx.Err() // the outcome of what is being written is not known
	}
}

// writeNext writes the edit whose turn it is and those that go with it.
func (d *directory) writeNext(ctx context.Context) {
	q := &d.edits
	q.mu.Lock()
	batch, rest := together(q.waiting)
	q.waiting = rest
	q.mu.Unlock()
	d.write(ctx, batch)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writing = len(q.waiting) > 0; q.writing {
		close(q.waiting[0].turn)
	}
}

// together splits off the edits that are written with the first one: those of its account,
// each of another name.
func together(waiting []*edit) (batch, rest []*edit) {
	first := waiting[0]
	if first.alone {
		return waiting[:1:1], waiting[1:]
	}
	names, size := make(map[string]bool), 0
	for _, e := range waiting {
		fits := len(batch) < maxEdits && size+len(e.row.Name) <= maxEditNames || len(batch) == 0
		if !fits || e.alone || names[e.row.Name] || e.row.Account != first.row.Account {
			rest = append(rest, e)
			names[e.row.Name] = names[e.row.Name] || e.row.Account == first.row.Account // later ones stay behind it
			continue
		}
		names[e.row.Name] = true
		size += len(e.row.Name)
		batch = append(batch, e)
	}
	return batch, rest
}

// write writes edits of one account until no other node was faster, and tells each what
// became of it.
func (d *directory) write(ctx context.Context, batch []*edit) {
	// The time of others does not end with that of the one who writes; its scope does.
	write, cancel := context.WithTimeout(context.WithoutCancel(ctx), editTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})
	defer stop()
	for len(batch) > 0 {
		entry, left, err := d.plan(batch)
		batch = left
		if err == nil && len(left) > 0 {
			err = d.meta.Write(write, entry.conds, entry.writes)
		}
		if errors.Is(err, record.ErrConflict) && write.Err() == nil {
			continue
		}
		for _, e := range batch {
			e.done <- err
		}
		return
	}
}

// metaEntry is a conditional write of rows.
type metaEntry struct {
	conds  []record.MetaCond
	writes []record.MetaWrite
}

func (e *metaEntry) put(key string, version uint64, value []byte) {
	e.conds = append(e.conds, record.MetaCond{Key: key, Version: version})
	e.writes = append(e.writes, record.MetaWrite{Key: key, Value: value})
}

// plan judges edits on the rows as they are, answers those that fail, and returns what
// writes the rest.
func (d *directory) plan(batch []*edit) (entry metaEntry, left []*edit, err error) {
	account := batch[0].row.Account
	lock, _ := d.meta.Get(accountKey(account))
	ids, _ := d.meta.Get(idKey)
	last := uint64(0)
	if len(ids.Value) > 0 {
		if last, err = strconv.ParseUint(string(ids.Value), 10, 32); err != nil {
			return entry, batch, fmt.Errorf("row %s: %w", idKey, err)
		}
	}
	var made subjectTree[string] // subjects of the rows that are made here
	var names []string
	first := last
	for _, e := range batch {
		version, fail := d.judge(e, &made, last+1)
		if fail != nil {
			e.done <- fail
			continue
		}
		if e.change == nil {
			last++
			made.add(e.row.Name, e.row.Subjects)
		}
		var value []byte
		if e.next != nil {
			value = encodeJSON(e.next)
		}
		entry.put(streamKey(account, e.row.Name), version, value)
		names, left = append(names, e.row.Name), append(left, e)
	}
	entry.put(accountKey(account), lock.Version, encodeJSON(readJournal(lock).with(names...)))
	if last != first {
		entry.put(idKey, ids.Version, strconv.AppendUint(nil, last, 10))
	}
	return entry, left, nil
}

// judge says what becomes of the row of an edit, which is at the version returned. made
// are the subjects of the rows that are made with it, id the one that a new row gets.
func (d *directory) judge(e *edit, made *subjectTree[string], id uint64) (version uint64, err error) {
	now, version := d.row(e.row.Account, e.row.Name)
	if e.change != nil {
		if version == 0 || now.ID != e.row.ID {
			return 0, fmt.Errorf("stream %s: %w", e.row.Name, record.ErrNotFound)
		}
		e.next, err = e.change(&now)
		return version, err
	}
	if version != 0 {
		return 0, errNameTaken
	}
	overlaps := d.overlap(e.row.Account, e.row.Name, e.row.Subjects) != ""
	for _, s := range e.row.Subjects {
		_, found := made.overlap(s, e.row.Name)
		overlaps = overlaps || found
	}
	if overlaps {
		return 0, jsapi.NewError(jsapi.CodeStreamSubjectOverlap)
	}
	row := e.row
	row.ID, row.Phase = record.StreamID(id), record.StreamCreating
	e.next = &row
	return 0, nil
}
