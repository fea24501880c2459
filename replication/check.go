package replication

import (
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// check compares a replica's log with its state before Raft sees either, and
// finishes an install that a crash interrupted. What cannot have come from a crash
// is record.ErrDamaged: the log lost entries that it had fsynced, or the state is
// not the one that this log made. The rules are in doc.go.
func check(log *seglog.Log, store *storage.Store, logger *zap.Logger) error {
	a, p := store.Applied(), store.Pointer()
	snap := p.Snapshot
	if a.Reach() < snap.Index {
		return damaged("the state reaches entry %d, its snapshot stands for %d", a.Reach(), snap.Index)
	}
	first, last := log.FirstIndex(), log.LastIndex()
	differs, err := disagrees(log, snap.Index, snap.Term)
	if err != nil {
		return err
	}
	if last < snap.Index || differs {
		if !p.Installed {
			return damaged(
				"the log ends at %d, or disagrees with the snapshot at entry %d of term %d taken here",
				last,
				snap.Index,
				snap.Term,
			)
		}
		if last > 0 {
			logger.Info("dropping the log that an installed snapshot replaces",
				zap.Uint64("last", last), zap.Uint64("snapshot", snap.Index))
		}
		if a.Index > snap.Index {
			return damaged("the state reaches entry %d, the log ends at %d", a.Index, last)
		}
		if last == 0 {
			return nil
		}
		return log.Reset()
	}
	if last < a.Index {
		return damaged("the log ends at %d, the state has applied %d", last, a.Index)
	}
	if first > snap.Index+1 {
		return damaged("the log starts at %d, the snapshot before it stands for %d", first, snap.Index)
	}
	if differs, err = disagrees(log, a.Index, a.Term); err != nil {
		return err
	}
	if differs {
		return damaged(
			"the state has applied entry %d of term %d, the log holds another one there",
			a.Index,
			a.Term,
		)
	}
	if term, _, _ := log.Vote(); term < log.LastTerm() {
		return damaged("the last entry is of term %d, the current term is %d", log.LastTerm(), term)
	}
	return nil
}

// disagrees says that the log holds an entry at index, of another term.
func disagrees(log *seglog.Log, index, term uint64) (bool, error) {
	got, err := log.Term(index)
	if errors.Is(err, seglog.ErrNotFound) {
		return false, nil
	}
	return err == nil && got != term, err
}

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", record.ErrDamaged, fmt.Sprintf(format, args...))
}
