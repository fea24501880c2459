package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// rebuilt makes a state of the tables in db-1 of a disk, and says what was damaged.
func rebuilt(tb testing.TB, fs vfs.FS) (*Store, []error) {
	tb.Helper()
	before := listing(tb, fs)
	s, damage, err := Rebuild(tb.Context(), fs, testDir+"/db-1", testConfig(vfs.NewMem()))
	must(tb, err)
	tb.Cleanup(func() { closeStore(tb, s) })
	if after := listing(tb, fs); !slices.Equal(after, before) {
		tb.Errorf("the source was changed from %s to %s", before, after)
	}
	return s, damage
}

// listing names the files of db-1 with their content.
func listing(tb testing.TB, fs vfs.FS) []string {
	tb.Helper()
	names, err := fs.List(testDir + "/db-1")
	must(tb, err)
	for i, name := range names {
		b, err := readFile(fs, testDir+"/db-1/"+name)
		must(tb, err)
		names[i] = fmt.Sprintf("%s %08x", name, castagnoliSum(b))
	}
	slices.Sort(names)
	return names
}

// TestRebuild: without a manifest the state of the tables comes back as it was, whatever
// was overwritten, deleted and compacted before.
func TestRebuild(t *testing.T) {
	t.Parallel()
	tables := 0
	for seed := range uint64(3) {
		fs := vfs.NewMem()
		cfg := testConfig(fs)
		cfg.MemTableSize = 16 << 10
		s := openStore(t, cfg)
		input := &script{seed: seed}
		for range 3 {
			must(t, input.apply(s, 50))
			must(t, s.Flush()) // for a table more, however fast the machine flushes
		}
		commit(t, s, func(b *Batch) {
			for id := range record.StreamID(16) { // else they are made up
				b.PutStreamState(id, &record.StreamState{FirstSeq: 1, LastSeq: 1000})
			}
		})
		must(t, s.PublishLocal(SnapshotMeta{Index: 151, Term: 1}))
		want, applied := hashOf(t, s), s.Applied()
		closeStore(t, s)
		names, err := fs.List(testDir + "/db-1")
		must(t, err)
		for _, name := range names {
			if strings.HasPrefix(name, "MANIFEST") {
				must(t, flipBit(fs, testDir+"/db-1/"+name, 20))
			}
			if strings.HasSuffix(name, ".sst") {
				tables++
			}
		}
		got, damage := rebuilt(t, fs)
		if h := hashOf(t, got); h != want || len(damage) != 0 {
			t.Errorf("seed %d: state %v, want %v; damage %v", seed, h, want, damage)
		}
		if a := got.Applied(); a.Index != applied.Index || a.Fence != applied.Fence {
			t.Errorf("seed %d: applied %+v, want %+v", seed, a, applied)
		}
	}
	if tables < 6 {
		t.Errorf("%d tables: the run does too little", tables)
	}
}

// TestRebuildBehindDamage: of a table with damaged blocks, the rows of all other blocks come.
func TestRebuildBehindDamage(t *testing.T) {
	t.Parallel()
	const messages = 600
	payload := func(i int) []byte {
		r := newRNG(uint64(i))
		return noise(r, 1000)
	}
	for name, at := range map[string][]float64{
		"first block": {0.001}, "middle": {0.5}, "two": {0.3, 0.7}, "last": {0.97},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewMem()
			cfg := testConfig(fs)
			cfg.MemTableSize = 4 << 20
			s := openStore(t, cfg)
			commit(t, s, func(b *Batch) {
				for i := 1; i <= messages; i++ {
					must(t, b.PutMessage(7, uint64(i), payload(i)))
				}
			})
			must(t, s.Flush())
			closeStore(t, s)
			table := ""
			var size int64
			names, err := fs.List(testDir + "/db-1")
			must(t, err)
			for _, n := range names {
				st, err := fs.Stat(testDir + "/db-1/" + n)
				must(t, err)
				if strings.HasSuffix(n, ".sst") && st.Size() > size {
					table, size = testDir+"/db-1/"+n, st.Size()
				}
			}
			for _, f := range at {
				must(t, flipBit(fs, table, int64(float64(size)*f)))
			}
			got, damage := rebuilt(t, fs)
			var rows []StreamRow
			must(t, got.Streams(func(r StreamRow) bool { rows = append(rows, r); return true }))
			n := 0
			must(t, got.Scan(7, 0, func(seq uint64, b []byte) bool {
				m, err := record.ParseMessage(seq, b)
				if err != nil || m.Subject != "noise" {
					t.Errorf("message %d: %v", seq, err)
				}
				n++
				return true
			}))
			lost := messages - n
			if lost < 1 || lost > 20*len(at) || len(damage) != len(at) {
				t.Errorf("%d messages are lost, %d blocks damaged: %v", lost, len(at), damage)
			}
			if len(rows) != 1 || rows[0].ID != 7 || rows[0].State.Messages != uint64(n) {
				t.Errorf("streams %+v, want one of %d messages", rows, n)
			}
			for _, d := range damage {
				if record.DamagedFile(d) != table {
					t.Errorf("%v does not name %s", d, table)
				}
			}
		})
	}
}
