package replication

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage"
)

// snapshots is raft.SnapshotStore on the pointer file of a store. It holds one
// snapshot: the state itself. Taking one is a flush and a new pointer; a copy is
// made only when a follower needs it, of the newest state.
type snapshots struct {
	store *storage.Store
	// logged is the index of the last entry of the log.
	logged func() uint64
	offers *offers

	mu sync.Mutex
	// stream is that of the install that Raft is handed next; guarded by mu.
	stream struct {
		id   storage.CheckpointID
		from int64
	}
}

// HeldSnapshot implements transport.SnapshotHolder.
func (s *snapshots) HeldSnapshot(id transport.SnapshotID, size int64) int64 {
	held := s.store.Held(storage.CheckpointID(id))
	if held >= size {
		held = 0 // it is not what it says it is
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stream.id, s.stream.from = storage.CheckpointID(id), held
	return held
}

// List implements raft.SnapshotStore.
func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	p := s.store.Pointer()
	if p.Snapshot.Index == 0 {
		return nil, nil
	}
	return []*raft.SnapshotMeta{raftMeta(&p.Snapshot)}, nil
}

func raftMeta(m *storage.SnapshotMeta) *raft.SnapshotMeta {
	out := &raft.SnapshotMeta{
		Version: raft.SnapshotVersionMax, ID: fmt.Sprintf("%d-%d", m.Term, m.Index),
		Index: m.Index, Term: m.Term, ConfigurationIndex: m.ConfIndex,
	}
	if len(m.Conf) > 0 {
		out.Configuration = raft.DecodeConfiguration(m.Conf)
	}
	return out
}

// Open implements raft.SnapshotStore. Raft calls it for two things: to hand an
// installed snapshot to the state machine, for which its state only has to be put
// in use, and to send one to a follower.
func (s *snapshots) Open(string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	if s.store.NeedsActivate() {
		p := s.store.Pointer()
		return raftMeta(&p.Snapshot), installed{}, nil
	}
	meta, r, err := s.offers.open()
	if err != nil {
		return nil, nil, err
	}
	return meta, r, nil
}

// installed stands for the state that the pointer names and that is not in use yet.
type installed struct{}

// Read implements io.Reader: there is nothing to read.
func (installed) Read([]byte) (int, error) { return 0, io.EOF }

// Close implements io.Closer.
func (installed) Close() error { return nil }

// activate puts an installed state in use. A checkpoint of the own state is in use already.
func (s *snapshots) activate(rc io.ReadCloser) error {
	for {
		w, ok := rc.(raft.ReadCloserWrapper)
		if !ok {
			break
		}
		rc = w.WrappedReadCloser()
	}
	switch rc.(type) {
	case installed:
		return s.store.Activate()
	case *offerReader:
		return nil
	default:
		return fmt.Errorf("restore from a %T", rc)
	}
}

// Create implements raft.SnapshotStore. Whether the sink is for a snapshot of the
// own state or for one of the leader shows when it is used.
func (s *snapshots) Create( //nolint:revive // the interface's arguments
	v raft.SnapshotVersion, index, term uint64, c raft.Configuration, confIndex uint64, _ raft.Transport,
) (raft.SnapshotSink, error) {
	if v != raft.SnapshotVersionMax {
		return nil, fmt.Errorf("snapshot version %d, this build knows %d", v, raft.SnapshotVersionMax)
	}
	return &sink{s: s, meta: storage.SnapshotMeta{
		Index: index, Term: term, ConfIndex: confIndex, Conf: raft.EncodeConfiguration(c),
	}}, nil
}

// sink is a snapshot in the making.
type sink struct {
	s         *snapshots
	meta      storage.SnapshotMeta
	install   *storage.Install
	published bool
}

// ID implements raft.SnapshotSink.
func (k *sink) ID() string { return raftMeta(&k.meta).ID }

// Write implements io.Writer: what is written is the checkpoint of another replica.
func (k *sink) Write(p []byte) (int, error) {
	if k.install == nil {
		if err := k.begin(); err != nil {
			return 0, err
		}
	}
	return k.install.Write(p)
}

// begin starts the install, or goes on with it where the sender was told to.
func (k *sink) begin() error {
	k.s.mu.Lock()
	stream := k.s.stream
	k.s.stream.id, k.s.stream.from = storage.CheckpointID{}, 0
	k.s.mu.Unlock()
	in, err := k.s.store.ContinueInstall(stream.id, k.meta)
	if err != nil {
		return err
	}
	if in.Written() != stream.from {
		return errors.Join(fmt.Errorf("the install goes on at %d, the stream at %d", in.Written(), stream.from),
			in.Abort())
	}
	k.install = in
	return nil
}

// Close implements raft.SnapshotSink: an install is verified and becomes the group's state.
func (k *sink) Close() error {
	switch {
	case k.install != nil:
		return k.install.Commit()
	case k.published:
		return nil
	default:
		return errors.New("snapshot without content")
	}
}

// Cancel implements raft.SnapshotSink: what came of a stream that was cut is kept.
func (k *sink) Cancel() error {
	if k.install == nil {
		return nil
	}
	return k.install.Suspend()
}

// localSnapshot is raft.FSMSnapshot of a state that is its own snapshot.
type localSnapshot struct{ s *snapshots }

// Persist implements raft.FSMSnapshot: flush, then the pointer. Raft cuts the log afterwards.
func (l localSnapshot) Persist(rs raft.SnapshotSink) error {
	k, ok := rs.(*sink)
	if !ok {
		return fmt.Errorf("persist to a %T", rs)
	}
	// Right after an install the log is empty, and a local snapshot on an empty log
	// would look at the next start as if the log had been lost.
	if logged := l.s.logged(); logged < k.meta.Index {
		return fmt.Errorf("the log ends at %d, before the snapshot at %d", logged, k.meta.Index)
	}
	if err := l.s.store.PublishLocal(k.meta); err != nil {
		return err
	}
	k.published = true
	return nil
}

// Release implements raft.FSMSnapshot.
func (localSnapshot) Release() {}

var (
	_ raft.SnapshotStore = (*snapshots)(nil)
	_ raft.BatchingFSM   = (*fsm)(nil)
)
