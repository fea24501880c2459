package seglog

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Salvage calls f for the live entries of a log that no process has open, in order,
// as far as they verify, and changes nothing. f must not keep the entry's slices. An
// error of f ends it. The other errors are those of Open: entries behind the damage
// they name are not reported. The report says what was intact.
func Salvage(fs vfs.FS, dir string, f func(*Entry) error) (Report, error) {
	c := &checkWatcher{}
	ld, damage := load(fs, dir, c)
	defer ld.close()
	report := c.report(ld)
	st := &ld.st
	if st.last == 0 {
		return report, damage
	}
	var pool sync.Pool
	pool.New = func() any { return new([]byte) }
	for index := st.first; index <= st.last; index++ {
		seg, from, to := st.locate(index)
		if seg == nil {
			continue // its segment is gone; load has said so
		}
		if to <= from {
			to = seg.size // the scan of this segment did not come to its end
		}
		var e Entry
		if err := readEntry(seg, &pool, span{from: from, to: to, index: index}, &e); err != nil {
			return report, err
		}
		if err := f(&e); err != nil {
			return report, err
		}
	}
	return report, damage
}
