package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Keys of the directory in group 0. An account's row is written by every
// reservation, so that two of them never judge overlaps on the same state.
const (
	streamPrefix  = "stream/"
	accountPrefix = "account/"
	idKey         = "ids/stream"
)

func streamKey(account, name string) string {
	return streamPrefix + strings.ReplaceAll(account, "/", "%2F") + "/" + name
}

func accountKey(account string) string { return accountPrefix + account }

// directory is the typed view of the stream rows of group 0. It remembers what it has decoded, one row for each
// stream, because every change of any row makes everybody look at all of them.
type directory struct {
	meta Meta

	mu struct {
		sync.Mutex

		decoded map[string]decodedRow // by key
	}
}

type decodedRow struct {
	version uint64
	row     record.StreamRow
}

func newDirectory(meta Meta) *directory {
	d := &directory{meta: meta}
	d.mu.decoded = make(map[string]decodedRow)
	return d
}

var errNameTaken = errors.New("stream name is taken")

// row returns the row of a stream and its version, 0 if there is none. Its slices are shared.
func (d *directory) row(account, name string) (record.StreamRow, uint64) {
	key := streamKey(account, name)
	m, ok := d.meta.Get(key)
	if !ok {
		d.mu.Lock()
		delete(d.mu.decoded, key)
		d.mu.Unlock()
		return record.StreamRow{}, 0
	}
	return d.decode(m), m.Version
}

// decode reads a row that this product wrote; one that can not be read is shown as
// a row of no group, which nobody serves.
func (d *directory) decode(m record.MetaRow) record.StreamRow {
	d.mu.Lock()
	known, ok := d.mu.decoded[m.Key]
	d.mu.Unlock()
	if ok && known.version == m.Version {
		return known.row
	}
	var r record.StreamRow
	if err := json.Unmarshal(m.Value, &r); err != nil {
		r = record.StreamRow{}
	}
	d.mu.Lock()
	d.mu.decoded[m.Key] = decodedRow{m.Version, r}
	d.mu.Unlock()
	return r
}

// rows calls f for the rows of an account, of all if it is "", in order of their keys.
func (d *directory) rows(account string, f func(record.StreamRow) bool) {
	d.versions(account, func(r record.StreamRow, _ uint64) bool { return f(r) })
}

// versions is rows with the versions.
func (d *directory) versions(account string, f func(record.StreamRow, uint64) bool) {
	prefix := streamPrefix
	if account != "" {
		prefix = streamKey(account, "")
	}
	n, whole := 0, account == ""
	d.meta.Scan(prefix, func(m record.MetaRow) bool {
		n++
		more := f(d.decode(m), m.Version)
		whole = whole && more
		return more
	})
	if whole {
		d.forget(n)
	}
}

// decodedSlack is how many rows may be remembered beside those that there are.
const decodedSlack = 1024

// forget lets go of rows that are gone, when they have become as many as the n rows that there are.
func (d *directory) forget(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.mu.decoded) > 2*n+decodedSlack {
		d.mu.decoded = make(map[string]decodedRow)
	}
}

// overlap names a stream of the account whose subjects overlap, other than except.
func (d *directory) overlap(account, except string, subjects []string) (name string) {
	d.rows(account, func(r record.StreamRow) bool {
		if r.Name == except {
			return true
		}
		for _, have := range r.Subjects {
			if slices.ContainsFunc(subjects, func(s string) bool { return jsapi.SubjectsOverlap(have, s) }) {
				name = r.Name
				return false
			}
		}
		return true
	})
	return name
}

// reserve creates a row in phase creating, giving it an id. It returns
// errNameTaken, or 10065 when subjects overlap another stream's.
func (d *directory) reserve(ctx context.Context, row record.StreamRow) error {
	for {
		lock, _ := d.meta.Get(accountKey(row.Account))
		ids, _ := d.meta.Get(idKey)
		if _, v := d.row(row.Account, row.Name); v != 0 {
			return errNameTaken
		}
		if d.overlap(row.Account, row.Name, row.Subjects) != "" {
			return jsapi.NewError(jsapi.CodeStreamSubjectOverlap)
		}
		last := uint64(0)
		if len(ids.Value) > 0 {
			n, err := strconv.ParseUint(string(ids.Value), 10, 32)
			if err != nil {
				return fmt.Errorf("row %s: %w", idKey, err)
			}
			last = n
		}
		row.ID, row.Phase = record.StreamID(last+1), record.StreamCreating
		err := d.meta.Write(ctx, []record.MetaCond{
			{Key: accountKey(row.Account), Version: lock.Version},
			{Key: idKey, Version: ids.Version},
			{Key: streamKey(row.Account, row.Name)},
		}, []record.MetaWrite{
			{Key: accountKey(row.Account), Value: []byte{}},
			{Key: idKey, Value: strconv.AppendUint(nil, last+1, 10)},
			{Key: streamKey(row.Account, row.Name), Value: encodeRow(&row)},
		})
		if !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
}

// change rewrites the row of a stream, as long as it is the row of this id. A nil
// result of f removes it; an error of f ends the change.
func (d *directory) change(
	ctx context.Context, row record.StreamRow, f func(*record.StreamRow) (*record.StreamRow, error),
) error {
	key := streamKey(row.Account, row.Name)
	for {
		lock, _ := d.meta.Get(accountKey(row.Account))
		now, version := d.row(row.Account, row.Name)
		if version == 0 || now.ID != row.ID {
			return fmt.Errorf("stream %s: %w", row.Name, record.ErrNotFound)
		}
		next, err := f(&now)
		if err != nil {
			return err
		}
		w := record.MetaWrite{Key: key}
		if next != nil {
			w.Value = encodeRow(next)
		}
		err = d.meta.Write(ctx, []record.MetaCond{
			{Key: accountKey(row.Account), Version: lock.Version},
			{Key: key, Version: version},
		}, []record.MetaWrite{{Key: accountKey(row.Account), Value: []byte{}}, w})
		if !errors.Is(err, record.ErrConflict) {
			return err
		}
	}
}

func encodeRow(r *record.StreamRow) []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("directory row of plain strings: %v", err))
	}
	return b
}
