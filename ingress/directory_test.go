package ingress

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// rowMap is a Meta that is read only.
type rowMap map[string]record.MetaRow

func (m rowMap) put(version uint64, r record.StreamRow) {
	key := streamKey(r.Account, r.Name)
	m[key] = record.MetaRow{Key: key, Version: version, Value: encodeRow(&r)}
}

func (m rowMap) Get(key string) (record.MetaRow, bool) {
	r, ok := m[key]
	return r, ok
}

func (m rowMap) Scan(prefix string, f func(record.MetaRow) bool) {
	var keys []string
	for key := range m {
		if strings.HasPrefix(key, prefix) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		if !f(m[key]) {
			return
		}
	}
}

func (rowMap) Write(context.Context, []record.MetaCond, []record.MetaWrite) error { return nil }
func (rowMap) Changed() <-chan struct{}                                           { return nil }
func (rowMap) Leading() bool                                                      { return true }
func (rowMap) GroupLeader(uint32) string                                          { return "" }

func TestDirectoryShowsTheRowsAsTheyAre(t *testing.T) {
	t.Parallel()
	m := rowMap{}
	d := newDirectory(m)
	look := func(account string) (out []string) {
		d.versions(account, func(r record.StreamRow, version uint64) bool {
			out = append(out, fmt.Sprint(r.Account, " ", r.Name, " ", r.Subjects, " ", version))
			return true
		})
		return out
	}
	want := func(account string, rows ...string) {
		t.Helper()
		if diff := cmp.Diff(rows, look(account)); diff != "" {
			t.Errorf("rows of %q (-want +got):\n%s", account, diff)
		}
	}
	m.put(1, record.StreamRow{Account: "A", Name: "s", Subjects: []string{"x"}})
	m.put(2, record.StreamRow{Account: "A/B", Name: "s", Subjects: []string{"y"}})
	want("", "A/B s [y] 2", "A s [x] 1")
	want("A", "A s [x] 1")
	m.put(3, record.StreamRow{Account: "A", Name: "s", Subjects: []string{"z"}}) // changed under the same key
	want("A", "A s [z] 3")
	if r, version := d.row("A", "s"); version != 3 || r.Subjects[0] != "z" {
		t.Errorf("row %v of version %d", r, version)
	}
	delete(m, streamKey("A", "s"))
	want("A")
	if _, version := d.row("A", "s"); version != 0 || len(d.mu.decoded) != 1 {
		t.Errorf("a row that is gone has version %d, %d are remembered", version, len(d.mu.decoded))
	}
}

// What is remembered is bounded by what there is, on nodes that never look a name up, too.
func TestDirectoryForgets(t *testing.T) {
	t.Parallel()
	m := rowMap{}
	d := newDirectory(m)
	for i := range uint64(3) {
		for n := range decodedSlack {
			m.put(i+1, record.StreamRow{Account: "A", Name: fmt.Sprint(i, ".", n)})
		}
		d.rows("", func(record.StreamRow) bool { return true })
		clear(m)
	}
	d.rows("A", func(record.StreamRow) bool { return true }) // of one account: says nothing of the others
	if len(d.mu.decoded) < decodedSlack {
		t.Errorf("%d rows are remembered after a look at one account", len(d.mu.decoded))
	}
	d.rows("", func(record.StreamRow) bool { return true })
	if len(d.mu.decoded) != 0 {
		t.Errorf("%d rows are remembered of streams that are gone", len(d.mu.decoded))
	}
}
