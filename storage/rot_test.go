package storage

import (
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// TestRotFoundByACompaction: a table that went bad and that nobody reads is damage when a
// compaction comes to it: told once or more with its name, and never fatal, so that the
// owner marks it and a start does not run into it again and again.
func TestRotFoundByACompaction(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	cfg := testConfig(fs)
	cfg.MemTableSize = 1 << 20
	s := openStore(t, cfg)
	for range 3 {
		commit(t, s, func(b *Batch) {
			for i := range uint64(100) { // several blocks
				must(t, b.PutMessage(1, 1+i, noise(newRNG(i), 1000)))
			}
		})
		must(t, s.Flush())
	}
	closeStore(t, s)
	names, err := fs.List(testDir + "/db-1")
	must(t, err)
	slices.Sort(names)
	table := ""
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			table = testDir + "/db-1/" + name
		}
	}
	st, err := fs.Stat(table)
	must(t, err)
	must(t, flipBit(fs, table, st.Size()/2)) // an open does not read that
	told := make(chan error, 1)
	cfg.Damaged = func(err error) {
		select {
		case told <- err:
		default:
		}
	}
	s = openStore(t, cfg) // a fatal error fails the test
	for range 40 {
		fill(t, s, 1)
		if s.Flush() != nil {
			break
		}
	}
	if got := record.DamagedFile(<-told); got != table {
		t.Errorf("damage in %s, want %s", got, table)
	}
}
