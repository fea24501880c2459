package replication

import (
	"fmt"
	"runtime"
)

// haltingStore is the stable store that Raft gets. Raft answers a term that cannot be
// stored with a panic, which would end the process with a stack instead of a reason,
// and before anybody else is told. Here the node is stopped and Raft's goroutine ends:
// it neither votes nor leads any more, and a shutdown does not wait for it.
type haltingStore struct{ *logStore }

// SetUint64 implements raft.StableStore. Raft calls it for the current term on its
// main goroutine; NewRaft, with the term that is stored already, which writes nothing.
func (s haltingStore) SetUint64(key []byte, val uint64) error {
	err := s.logStore.SetUint64(key, val)
	if err != nil && string(key) == keyCurrentTerm {
		s.fatal(fmt.Errorf("store term %d: %w", val, err))
		runtime.Goexit()
	}
	return err
}
