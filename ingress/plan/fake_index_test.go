package plan

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// subjectRow is the row of a message in the index of subjects.
type subjectRow struct {
	subject string
	seq     uint64
}

func (r subjectRow) compare(o subjectRow) int {
	return cmp.Or(strings.Compare(r.subject, o.subject), cmp.Compare(r.seq, o.seq))
}

// rows is the index from a row on, dead ones too.
func (w *world) rows(id record.StreamID, from subjectRow) []subjectRow {
	all := slices.SortedFunc(maps.Keys(w.index[id]), subjectRow.compare)
	at, _ := slices.BinarySearchFunc(all, from, subjectRow.compare)
	return all[at:]
}

// rowsOf are the sequences of a subject in the index from a sequence on.
func (w *world) rowsOf(id record.StreamID, subject string, from uint64) []uint64 {
	var out []uint64
	for _, r := range w.rows(id, subjectRow{subject, from}) {
		if r.subject != subject {
			break
		}
		out = append(out, r.seq)
	}
	return out
}

func (w *world) SubjectRows(
	id record.StreamID, subject string, from, below uint64, f func(subject string, seq uint64) bool,
) error {
	behind := map[string]bool{}
	for _, r := range w.rows(id, subjectRow{subject, from}) {
		if behind[r.subject] {
			continue
		}
		if !f(r.subject, r.seq) {
			break
		}
		behind[r.subject] = r.seq >= below
	}
	return nil
}

func (w *world) ScanSubject(id record.StreamID, subject string, from uint64, f func(uint64) bool) error {
	for _, seq := range w.rowsOf(id, subject, from) {
		if !f(seq) {
			break
		}
	}
	return nil
}

func (w *world) NextBySubject(id record.StreamID, subject string, from uint64) (uint64, bool, error) {
	if rows := w.rowsOf(id, subject, from); len(rows) > 0 {
		return rows[0], true, nil
	}
	return 0, false, nil
}

func (w *world) PrevBySubject(id record.StreamID, subject string, floor, upTo uint64) (uint64, bool, error) {
	for _, seq := range slices.Backward(w.rowsOf(id, subject, floor)) {
		if seq <= upTo {
			w.passed += upTo - seq
			return seq, true, nil
		}
	}
	w.passed += upTo - floor
	return 0, false, nil
}
