package ingress

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Keys of the directory in group 0. An account's row is written by every change of
// its streams, so that two of them never judge overlaps on the same state; it holds
// the journal of the last changes (see journal).
const (
	streamPrefix  = "stream/"
	accountPrefix = "account/"
	idKey         = "ids/stream"
)

func streamKey(account, name string) string {
	return streamPrefix + strings.ReplaceAll(account, "/", "%2F") + "/" + name
}

func accountKey(account string) string { return accountPrefix + account }

// directory is the typed view of the stream rows of group 0. It keeps what it read
// in memory: the journals tell what changed since, so that a change costs what it
// changes and not a scan of all streams. Safe for concurrent use.
type directory struct {
	meta  Meta
	edits editQueue

	mu struct {
		sync.Mutex
		accounts map[string]*accountRows
		groups   map[uint32]int // streams by group
		// changes are the streams that changed, oldest first; forgotten those before them.
		changes   []nameKey
		forgotten int
	}
}

// accountRows are the streams of one account.
type accountRows struct {
	version  uint64 // of the account's row
	count    uint64 // of the changes known, see journal
	rows     map[string]cachedRow
	names    []string // sorted; some may be gone
	fresh    []string // names since the last look at names
	unborn   int      // rows that are not live
	subjects subjectTree[string]
}

type cachedRow struct {
	version uint64
	row     record.StreamRow
}

// maxChanges bounds the changes that a directory remembers for those who follow it.
const maxChanges = 1 << 16

func newDirectory(meta Meta) *directory {
	d := &directory{meta: meta}
	d.mu.accounts = make(map[string]*accountRows)
	d.mu.groups = make(map[uint32]int)
	return d
}

var errNameTaken = errors.New("stream name is taken")

// row returns the row of a stream as this replica has it now, and its version, 0 if
// there is none. Its slices are shared.
func (d *directory) row(account, name string) (record.StreamRow, uint64) {
	m, ok := d.meta.Get(streamKey(account, name))
	if !ok {
		return record.StreamRow{}, 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.mu.accounts[account]; a != nil {
		if known, ok := a.rows[name]; ok && known.version == m.Version {
			return known.row, m.Version
		}
	}
	return decodeRow(m), m.Version
}

// decodeRow reads a row that this product wrote; one that can not be read is
// shown as a row of no group, which nobody serves.
func decodeRow(m record.MetaRow) record.StreamRow {
	var r record.StreamRow
	if err := json.Unmarshal(m.Value, &r); err != nil {
		return record.StreamRow{}
	}
	return r
}

// journal is the value of an account's row: how many changes its streams have had,
// and the names of the last ones, newest last.
type journal struct {
	Count uint64   `json:"count"`
	Names []string `json:"names"`
}

// Bounds of a journal: who has missed more reads all rows of the account.
const (
	journalNames = 1024
	journalBytes = 8 << 10
)

func readJournal(m record.MetaRow) journal {
	var j journal
	if err := json.Unmarshal(m.Value, &j); err != nil {
		return journal{}
	}
	return j
}

// with returns the journal after more changes.
func (j journal) with(names ...string) journal {
	out := journal{Count: j.Count + uint64(len(names)), Names: slices.Concat(j.Names, names)}
	size := 0
	for i, n := range slices.Backward(out.Names) {
		if size += len(n) + len(`"",`); size > journalBytes || len(out.Names)-i > journalNames {
			out.Names = out.Names[i+1:]
			break
		}
	}
	return out
}

// encodeJSON is for values of ours that have a JSON form in any case.
func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("directory row of plain strings: %v", err))
	}
	return b
}

// refresh reads what changed since the last call. d.mu is held.
func (d *directory) refresh() {
	d.meta.Scan(accountPrefix, func(m record.MetaRow) bool {
		d.refreshAccount(&m)
		return true
	})
}

// refreshed returns the streams of one account as they are now, nil if it never had any.
// It costs one read if nothing changed. d.mu is held.
func (d *directory) refreshed(account string) *accountRows {
	if m, ok := d.meta.Get(accountKey(account)); ok {
		d.refreshAccount(&m)
	}
	return d.mu.accounts[account]
}

// refreshAccount reads what changed, by the account's row. d.mu is held.
func (d *directory) refreshAccount(m *record.MetaRow) {
	name := strings.TrimPrefix(m.Key, accountPrefix)
	a := d.mu.accounts[name]
	if a == nil {
		a = &accountRows{rows: make(map[string]cachedRow)}
		d.mu.accounts[name] = a
	}
	if a.version == m.Version {
		return
	}
	j := readJournal(*m)
	a.version = m.Version
	missed := j.Count - a.count
	if j.Count < a.count || missed > uint64(len(j.Names)) {
		d.rescan(name, a)
	} else {
		for _, changed := range j.Names[uint64(len(j.Names))-missed:] {
			m, ok := d.meta.Get(streamKey(name, changed))
			d.note(nameKey{name, changed}, a, m, ok)
		}
	}
	a.count = j.Count
}

// rescan reads all rows of an account.
func (d *directory) rescan(account string, a *accountRows) {
	prefix := streamKey(account, "")
	seen := make(map[string]bool, len(a.rows))
	d.meta.Scan(prefix, func(m record.MetaRow) bool {
		name := strings.TrimPrefix(m.Key, prefix)
		seen[name] = true
		d.note(nameKey{account, name}, a, m, true)
		return true
	})
	for name := range a.rows {
		if !seen[name] {
			d.note(nameKey{account, name}, a, record.MetaRow{}, false)
		}
	}
}

// note takes over one row as it was read; ok is false if there is none.
//
//nolint:revive // flag-parameter: what Meta.Get returned.
func (d *directory) note(key nameKey, a *accountRows, m record.MetaRow, ok bool) {
	old, had := a.rows[key.name]
	if had == ok && old.version == m.Version {
		return
	}
	if had {
		a.subjects.remove(key.name, old.row.Subjects)
		d.mu.groups[old.row.Group]--
		a.unborn -= unborn(&old.row)
		delete(a.rows, key.name)
	}
	if ok {
		row := decodeRow(m)
		a.rows[key.name] = cachedRow{m.Version, row}
		a.subjects.add(key.name, row.Subjects)
		d.mu.groups[row.Group]++
		a.unborn += unborn(&row)
		if !had {
			a.fresh = append(a.fresh, key.name)
		}
	}
	d.mu.changes = append(d.mu.changes, key)
	if n := len(d.mu.changes); n > maxChanges {
		d.mu.changes = slices.Clone(d.mu.changes[n/2:])
		d.mu.forgotten += n / 2
	}
}

// follow returns the streams that changed since an earlier call, and where to go on
// from. all: too much changed, or this is the first call (from is 0): every row is news.
func (d *directory) follow(from int) (changed []nameKey, next int, all bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	next = d.mu.forgotten + len(d.mu.changes) + 1
	if from == 0 || from-1 < d.mu.forgotten {
		return nil, next, true
	}
	return slices.Clone(d.mu.changes[from-1-d.mu.forgotten:]), next, false
}

// cached returns the row of a stream as it was read last.
func (d *directory) cached(key nameKey) (record.StreamRow, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.mu.accounts[key.account]
	if a == nil {
		return record.StreamRow{}, false
	}
	r, ok := a.rows[key.name]
	return r.row, ok
}

// rows returns the rows of an account for which keep says so, by name; of all
// accounts if it is "".
func (d *directory) rows(account string, keep func(*record.StreamRow) bool) []record.StreamRow {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	var out []record.StreamRow
	for name, a := range d.mu.accounts {
		if account != "" && name != account {
			continue
		}
		for _, stream := range a.sorted() {
			if r := a.rows[stream]; keep(&r.row) {
				out = append(out, r.row)
			}
		}
	}
	return out
}

// sorted returns the names of the streams, in order. What came since the last call is
// sorted in now: to keep the order with each change would cost the number of streams.
func (a *accountRows) sorted() []string {
	if len(a.fresh) > 0 || len(a.names) != len(a.rows) {
		a.names = append(a.names, a.fresh...)
		a.fresh = nil
		slices.Sort(a.names)
		a.names = slices.Compact(a.names)
		a.names = slices.DeleteFunc(a.names, func(name string) bool { _, there := a.rows[name]; return !there })
	}
	return a.names
}

func unborn(row *record.StreamRow) int {
	if row.Phase == record.StreamLive {
		return 0
	}
	return 1
}

// page returns the live rows of an account for which keep (nil: all) says so, by name,
// from an offset on and at most limit, and how many there are.
func (d *directory) page(account string, keep func(*record.StreamRow) bool, offset, limit int) ([]record.StreamRow, int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.refreshed(account)
	if a == nil {
		return nil, 0
	}
	names, total := a.sorted(), 0
	var out []record.StreamRow
	if keep == nil && a.unborn == 0 { // no need to look at those before and behind
		from := min(offset, len(names))
		for _, stream := range names[from:min(from+limit, len(names))] {
			out = append(out, a.rows[stream].row)
		}
		return out, len(names)
	}
	for _, stream := range names {
		r := a.rows[stream]
		if r.row.Phase != record.StreamLive || keep != nil && !keep(&r.row) {
			continue
		}
		if total >= offset && len(out) < limit {
			out = append(out, r.row)
		}
		total++
	}
	return out, total
}

// emptiest returns the group from 1 to n with the fewest streams.
func (d *directory) emptiest(n uint32) uint32 {
	if n == 1 {
		return 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refresh()
	best := uint32(1)
	for g := uint32(2); g <= n; g++ {
		if d.mu.groups[g] < d.mu.groups[best] {
			best = g
		}
	}
	return best
}

// overlap names a stream of the account whose subjects overlap, other than except.
func (d *directory) overlap(account, except string, subjects []string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.refreshed(account)
	if a == nil {
		return ""
	}
	for _, s := range subjects {
		if name, ok := a.subjects.overlap(s, except); ok {
			return name
		}
	}
	return ""
}
