package replication

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// Keys of raft.StableStore that hashicorp/raft uses.
const (
	keyCurrentTerm  = "CurrentTerm"
	keyLastVoteTerm = "LastVoteTerm"
	keyLastVoteCand = "LastVoteCand"
)

// errNoKey is what raft.StableStore returns for a key that was never set; Raft compares its text.
var errNoKey = errors.New("not found")

// logStore is raft.LogStore, raft.MonotonicLogStore and raft.StableStore on the
// segment log of one group. Methods are safe for concurrent use, as those of the
// log are.
type logStore struct {
	log   *seglog.Log
	boot  uint64 // nonce of the proposals made here
	fatal func(error)
	// damaged is told of damaged local files, which take this replica alone out of service.
	damaged func(error)
	// reach is how far the state goes, durable how far it goes after a power cut.
	reach   func() uint64
	durable func() uint64
	// installed is the entry that the state in force stood for when it was taken here, or installed.
	installed func() (index, term uint64)
	// floor is the first entry that followers need which are being brought up.
	floor  func() uint64
	logger *zap.Logger

	// stored is told a configuration before the entry that holds it is stored.
	stored func(raft.Configuration)
	// astray is told why what Raft remembers of the log's end is not so any more. It reads the log when it is created,
	// and follows it from then on in its memory, which a cut that succeeds before an append that fails leaves behind:
	// see StoreLogs and drop.
	astray func(reason string)

	// tip is the last entry that StoreLogs has stored.
	tip atomic.Uint64
	// wanted is up to where Raft wanted a prefix cut and floor did not let it; 0 = nowhere.
	wanted atomic.Uint64
	// staged is the term of a vote whose candidate has not come yet.
	staged atomic.Uint64
	// cut: a suffix was cut, and what is to take its place is not stored yet.
	cut atomic.Bool

	mu      sync.Mutex // guards what follows
	waiters map[record.ProposalID]func()
}

func newLogStore(log *seglog.Log, boot uint64, logger *zap.Logger, fatal func(error)) *logStore {
	s := &logStore{
		log: log, boot: boot, fatal: fatal, damaged: fatal, logger: logger,
		stored: func(raft.Configuration) {}, astray: func(string) {},
		floor: func() uint64 { return math.MaxUint64 },
	}
	s.waiters = make(map[record.ProposalID]func())
	return s
}

// IsMonotonic implements raft.MonotonicLogStore: entries have no gaps.
func (s *logStore) IsMonotonic() bool { return true }

// FirstIndex implements raft.LogStore.
func (s *logStore) FirstIndex() (uint64, error) { return s.log.FirstIndex(), nil }

// LastIndex implements raft.LogStore.
func (s *logStore) LastIndex() (uint64, error) { return s.log.LastIndex(), nil }

// GetLog implements raft.LogStore. An entry outside of the log is exactly
// raft.ErrLogNotFound (Raft compares with ==). One that does not verify is damage, and
// Raft panics where it cannot have an entry: it gets one of the same term that does
// nothing. Nobody is sent it and nothing is applied behind it, since damaged has taken
// the replica out of service when it returns.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	var e seglog.Entry
	err := s.log.Get(index, &e)
	switch {
	case err == nil:
	case errors.Is(err, seglog.ErrNotFound):
		return raft.ErrLogNotFound
	case errors.Is(err, seglog.ErrDamaged):
		s.damaged(fmt.Errorf("%w: %w", record.ErrDamaged, err))
		term, err := s.log.Term(index)
		if err != nil {
			return raft.ErrLogNotFound
		}
		*l = raft.Log{Index: index, Term: term, Type: raft.LogNoop}
		return nil
	default:
		return err
	}
	*l = raft.Log{
		Index: e.Index, Term: e.Term, Type: raft.LogType(e.Type), Data: e.Data, Extensions: e.Ext,
	}
	if e.AppendedAt != 0 {
		l.AppendedAt = time.Unix(0, e.AppendedAt)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore: one write and one fsync. Afterwards the
// proposals among the entries that were made by this process are reported durable.
//
// A follower that cuts what disagrees with its leader stores the leader's entries next. On a full disk the cut may
// go through and the append not: Raft then goes on with the end that the log had before the cut. It would take the
// leader's entries up to there for ones that it has, and store none of them ever.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	entries := make([]seglog.Entry, len(logs))
	for i, l := range logs {
		entries[i] = seglog.Entry{
			Index: l.Index, Term: l.Term, Type: uint8(l.Type), Ext: l.Extensions, Data: l.Data,
		}
		if !l.AppendedAt.IsZero() {
			entries[i].AppendedAt = l.AppendedAt.UnixNano()
		}
		if l.Type == raft.LogConfiguration {
			s.stored(raft.DecodeConfiguration(l.Data))
		}
	}
	err := s.written(s.log.Append(entries))
	if cut := s.cut.Swap(false); err != nil && (cut || errors.Is(err, seglog.ErrOutOfOrder)) {
		s.astray(fmt.Sprintf("its log ends at %d, which it does not know: %v", s.log.LastIndex(), err))
	}
	if err != nil {
		return fmt.Errorf("%w: append %d entries: %w", record.ErrUnknownOutcome, len(entries), err)
	}
	if len(logs) > 0 {
		s.tip.Store(logs[len(logs)-1].Index)
	}
	for _, l := range logs {
		s.report(l.Extensions)
	}
	return nil
}

// written stops the node after a write whose outcome on disk is unknown.
func (s *logStore) written(err error) error {
	if errors.Is(err, seglog.ErrFailed) {
		s.fatal(err)
	}
	return err
}

// await calls f, once, when the proposal id is durable in this log.
func (s *logStore) await(id record.ProposalID, f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiters[id] = f
}

// forget drops the waiter of a proposal that has ended.
func (s *logStore) forget(id record.ProposalID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiters, id)
}

func (s *logStore) report(extensions []byte) {
	if len(extensions) != record.ProposalIDSize {
		return
	}
	id := record.ProposalID(extensions)
	if id.Boot() != s.boot {
		return
	}
	s.mu.Lock()
	f := s.waiters[id]
	delete(s.waiters, id)
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

// DeleteRange implements raft.LogStore. Raft cuts a prefix behind a snapshot, a
// suffix that disagrees with the leader, and everything after an install.
func (s *logStore) DeleteRange(lo, hi uint64) error {
	first, last := s.log.FirstIndex(), s.log.LastIndex()
	switch {
	case last == 0 || hi < first || lo > last:
		return nil
	case lo <= first && hi >= last:
		return s.drop(first, last)
	case lo <= first:
		return s.cutPrefix(hi)
	case hi >= last:
		return s.cutSuffix(lo)
	default:
		return fmt.Errorf("delete of entries %d to %d out of %d to %d would leave a gap", lo, hi, first, last)
	}
}

// cutPrefix never goes beyond what the state keeps over a power cut, whatever Raft
// asks for: a clipped cut costs space, one that went too far costs the entries.
func (s *logStore) cutPrefix(hi uint64) error {
	if durable := s.durable(); hi > durable {
		s.logger.Warn("log cut clipped", zap.Uint64("asked", hi), zap.Uint64("durable", durable))
		hi = durable
	}
	s.wanted.Store(0)
	if floor := s.floor(); hi >= floor {
		s.wanted.Store(hi)
		hi = floor - 1
	}
	if hi < s.log.FirstIndex() {
		return nil
	}
	return s.written(s.log.TruncatePrefix(hi))
}

// cutAgain cuts the prefix that was kept for followers, as far as they let it now.
func (s *logStore) cutAgain() error {
	hi := s.wanted.Load()
	if first := s.log.FirstIndex(); hi == 0 || s.log.LastIndex() <= hi || hi < first {
		return nil
	}
	return s.cutPrefix(hi)
}

// cutSuffix refuses to cut applied entries: no leader can ask for that.
func (s *logStore) cutSuffix(lo uint64) error {
	s.tip.Store(0) // before: nobody may take it for what is still stored
	if reach := s.reach(); lo <= reach {
		err := fmt.Errorf(
			"%w: told to cut the log from %d on, but %d is applied",
			record.ErrDamaged,
			lo,
			reach,
		)
		s.fatal(err)
		return err
	}
	err := s.written(s.log.TruncateSuffix(lo))
	if err == nil {
		s.cut.Store(true)
	}
	return err
}

// drop empties the log for a snapshot. Raft goes on behind the snapshot, whatever the outcome is. What follows the
// snapshot's own entry in the log stays (rule 6 of InstallSnapshot in the Raft paper): it may have been acknowledged, and
// counted for a majority. Raft would drop it, as of any log that may have no gaps, and remembers it all the same.
func (s *logStore) drop(first, last uint64) error {
	reach := s.reach()
	if first > reach {
		return s.cutSuffix(first)
	}
	follows, err := s.follows(last)
	if err != nil {
		s.astray(fmt.Sprintf("whether its log, which ends at %d, follows a snapshot, cannot be told: %v", last, err))
		return err
	}
	if index, _ := s.installed(); follows {
		s.astray(fmt.Sprintf("a snapshot of entry %d was installed, and the log goes on to %d", index, last))
		return s.cutPrefix(index)
	}
	if err := s.reset(first, last); err != nil {
		s.astray(fmt.Sprintf("its log, which ends at %d, was not dropped for a snapshot: %v", last, err))
		return err
	}
	if last >= reach {
		s.astray(fmt.Sprintf("a snapshot was installed over a log that reached %d", last))
	}
	return nil
}

// follows says whether the log, which ends at last, goes on behind the entry that the state stands for.
func (s *logStore) follows(last uint64) (bool, error) {
	index, term := s.installed()
	if last <= index {
		return false, nil
	}
	got, err := s.log.Term(index)
	if errors.Is(err, seglog.ErrNotFound) {
		return false, nil
	}
	return got == term, err
}

// reset drops all entries. Only an install drops ones that are applied, and what it installed is durable.
func (s *logStore) reset(first, last uint64) error {
	if durable := s.durable(); first > durable {
		return fmt.Errorf("drop of entries %d to %d, but only %d is durable", first, last, durable)
	}
	s.tip.Store(0)
	return s.written(s.log.Reset())
}

// Set implements raft.StableStore. Term and vote are one record of the log; a vote
// comes as its term and then its candidate, and is written with the second.
func (s *logStore) Set(key, val []byte) error {
	if string(key) != keyLastVoteCand {
		return fmt.Errorf("%w: stable key %q", record.ErrFormat, key)
	}
	return s.written(s.log.SetVote(s.staged.Load(), val))
}

// Get implements raft.StableStore.
func (s *logStore) Get(key []byte) ([]byte, error) {
	if string(key) != keyLastVoteCand {
		return nil, errNoKey
	}
	_, _, candidate := s.log.Vote()
	if candidate == nil {
		return nil, errNoKey
	}
	return candidate, nil
}

// SetUint64 implements raft.StableStore.
func (s *logStore) SetUint64(key []byte, val uint64) error {
	switch string(key) {
	case keyCurrentTerm:
		return s.written(s.log.SetTerm(val))
	case keyLastVoteTerm:
		s.staged.Store(val)
		return nil
	default:
		return fmt.Errorf("%w: stable key %q", record.ErrFormat, key)
	}
}

// GetUint64 implements raft.StableStore.
func (s *logStore) GetUint64(key []byte) (uint64, error) {
	term, voted, _ := s.log.Vote()
	var v uint64
	switch string(key) {
	case keyCurrentTerm:
		v = term
	case keyLastVoteTerm:
		v = voted
	}
	if v == 0 {
		return 0, errNoKey
	}
	return v, nil
}

var (
	_ raft.LogStore          = (*logStore)(nil)
	_ raft.MonotonicLogStore = (*logStore)(nil)
	_ raft.StableStore       = (*logStore)(nil)
)
