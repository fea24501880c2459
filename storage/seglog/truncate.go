package seglog

import (
	"fmt"

	"go.uber.org/zap"
)

// TruncatePrefix drops the entries <= upTo and returns when that is durable. Segments left without entries
// are kept for re-use or removed. An upTo below FirstIndex does nothing.
func (l *Log) TruncatePrefix(upTo uint64) error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.begin(); err != nil {
		return err
	}
	defer l.end()
	if l.view.st.last == 0 || upTo < l.view.st.first {
		return nil
	}
	if err := l.control(func(b *batch) { b.numbers(recordPrefixT, upTo+1) }, func(st *state) {
		st.truncatePrefix(upTo + 1)
		l.view.tail.cutBelow(upTo + 1)
	}); err != nil {
		return err
	}
	return l.dropSegments()
}

// TruncateSuffix drops the entries >= from and returns when that is durable. The record carries the current
// term, which TruncationTerm then returns. A from above LastIndex does nothing.
func (l *Log) TruncateSuffix(from uint64) error {
	if from == 0 {
		return fmt.Errorf("%w: suffix truncation from index 0, the first index is 1", ErrOutOfOrder)
	}
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.begin(); err != nil {
		return err
	}
	defer l.end()
	if from > l.view.st.last {
		return nil
	}
	term := l.view.st.vote.term
	return l.control(func(b *batch) { b.numbers(recordSuffix, from, term) }, func(st *state) {
		st.truncateSuffix(from, term)
		l.cutFrom(from)
	})
}

// cutFrom adapts to a suffix truncation what is kept beside the state.
func (l *Log) cutFrom(from uint64) {
	l.view.tail.cutFrom(from)
	l.view.oldestOf = 0
	l.view.cuts++
}

// Reset drops all entries because a snapshot replaces them, and returns when that is durable. The next Append
// may start at any index. Like a suffix truncation it records the current term, also if the log was empty.
func (l *Log) Reset() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if err := l.begin(); err != nil {
		return err
	}
	defer l.end()
	term := l.view.st.vote.term
	if err := l.control(func(b *batch) { b.numbers(recordReset, term) }, func(st *state) {
		st.reset(term)
		l.cutFrom(0)
	}); err != nil {
		return err
	}
	return l.dropSegments()
}

// TruncationTerm returns the term in which entries were last dropped by TruncateSuffix or Reset, 0 if never.
func (l *Log) TruncationTerm() uint64 {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return l.view.st.truncTerm
}

// dropSegments gives the oldest segments back as far as they hold no live entry. All other state they hold is
// repeated in the head of the segments behind them, of which the active one has just been written to.
func (l *Log) dropSegments() error {
	n := l.view.st.droppable()
	if n == 0 {
		return nil
	}
	dropped, kept := l.view.st.segs[:n], l.view.st.segs[n:]
	err := l.replaceList(kept)
	if err != nil && isNoSpace(err) && l.failed.Load() == nil {
		// The truncation itself is durable. The segments go with the next one.
		l.cfg.Logger.Warn("no space to give log segments back", zap.String("dir", l.cfg.Dir), zap.Error(err))
		return nil
	}
	if err != nil {
		return err
	}
	l.view.mu.Lock()
	l.view.st.segs = append([]*segment(nil), kept...)
	l.view.mu.Unlock()
	for _, seg := range dropped {
		if err := l.pool.recycle(seg); err != nil {
			// The file stays unlisted and is removed by the next Open.
			l.cfg.Logger.Warn("cannot remove a dropped log segment", zap.String("file", seg.name),
				zap.Error(err))
		}
	}
	return nil
}
