package storage

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testDir = "/data/group-1"

// testConfig has memtables so small that flushes happen by themselves.
func testConfig(fs FS) Config {
	return Config{FS: fs, Dir: testDir, MemTableSize: 64 << 10}
}

// openStore opens a store that must never fail by itself and is closed at the end of the test.
func openStore(tb testing.TB, cfg Config) *Store {
	tb.Helper()
	if cfg.Fatal == nil {
		cfg.Fatal = func(err error) { tb.Errorf("fatal: %v", err) }
	}
	s, err := Open(cfg)
	if err != nil {
		tb.Fatalf("open: %v", err)
	}
	tb.Cleanup(func() { closeStore(tb, s) })
	return s
}

func closeStore(tb testing.TB, s *Store) {
	tb.Helper()
	if err := s.Close(); err != nil {
		tb.Errorf("close: %v", err)
	}
}

// thinned divides the size of an exhaustive test under the race detector.
func thinned(n int) int {
	if raceEnabled {
		return n / 4
	}
	return n
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// commit commits what fill puts into a batch as the entry after the last one.
func commit(tb testing.TB, s *Store, fill func(b *Batch)) uint64 {
	tb.Helper()
	b := s.NewBatch()
	fill(b)
	index := s.Applied().Index + 1
	b.SetApplied(index, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: index}, int64(index))
	must(tb, b.Commit())
	return index
}

func serialized(subject string, size int) []byte {
	return record.AppendMessage(nil, &record.Message{Time: 7, Subject: subject, Payload: make([]byte, size)})
}

func hashOf(tb testing.TB, s *Store) StateHash {
	tb.Helper()
	h, err := s.StateHash(tb.Context())
	must(tb, err)
	return h
}

func newRNG(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 99)) }

func exists(fs FS, path string) bool {
	_, err := fs.Stat(path)
	return err == nil
}

// filesOf returns the names in the group's directory.
func filesOf(tb testing.TB, fs vfs.FS) string {
	tb.Helper()
	names, err := fs.List(testDir)
	must(tb, err)
	slices.Sort(names)
	return fmt.Sprint(names)
}
