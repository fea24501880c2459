package replication

import (
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Recovered says what Recover made of the replica of one group.
type Recovered struct {
	Group uint32
	// Before are the voters of the configuration that was in force, by server id
	// (nodeID/incarnation).
	Before []string
	// Server is the one voter that is left: this replica.
	Server string
	// LastIndex and LastTerm are the last entry that this replica had: what others
	// had beyond it, acknowledged or not, is given up.
	LastIndex, LastTerm uint64
	// Changed is false if the replica was the only voter already.
	Changed bool
}

// Recover makes the replicas in the data directory of a stopped node the only voters
// of their groups, after the majority was lost for good, or the file NODE of the only voter
// was damaged: it is written anew then. Every other replica must never run again: it does
// not know that it was left out, and with others of its kind it would go on as the cluster
// that it was. The file NODE keeps which they are: this node takes no part in what they do,
// and tells those that come back; see Host.GivenUp.
//
// Nothing is written unless every group can be recovered: a replica that is damaged,
// or no member of its group, is an error that names it. It may be run again after a crash.
// Of cfg it uses NodeID, Dir, FS, Log, Store, MetaSegmentSize, Clock and Logger. The
// caller holds the directory's lock.
//
// The configuration is an entry of the log, in a term of its own, as the leader of a
// later term would have written it. So everything that this replica has stays, and
// what it holds uncommitted is committed when it leads.
func Recover(cfg Config) ([]Recovered, error) {
	cfg.Fatal = func(error) {} // failures come back as errors, too
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	names, err := cfg.FS.List(cfg.FS.PathJoin(cfg.Dir, "groups"))
	if err != nil {
		return nil, fmt.Errorf("%w: %s holds no groups: %w", errConfig, cfg.Dir, err)
	}
	cfg.Groups = max(len(names)-1, 1)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	h := &Host{cfg: cfg, log: cfg.Logger, ids: newIDSource()}
	if err := h.identify(); err != nil {
		return nil, err
	}
	all, err := h.openRecoveries(names)
	slices.SortFunc(all, func(a, b *recovery) int { return int(a.Group) - int(b.Group) })
	if err == nil {
		err = h.giveUp(all) // first: without the others this node can do nothing, with them it could lose what it has
	}
	var out []Recovered
	for _, r := range all {
		if err == nil {
			err = r.write()
		}
		if err == nil {
			out = append(out, r.Recovered)
		}
	}
	for _, r := range all {
		err = errors.Join(err, r.rep.close())
	}
	if err == nil {
		err = h.reinstate(all)
	}
	return out, err
}

// openRecoveries opens the replicas of the groups that are named, the metadata group first: it says how many groups the
// cluster has. What is left from a start with more is passed over. With an error come those that were opened.
func (h *Host) openRecoveries(names []string) ([]*recovery, error) {
	var all []*recovery
	last := uint64(MaxGroups)
	slices.Sort(names)
	for _, name := range names {
		id, err := strconv.ParseUint(name, 10, 32)
		if err != nil || id > last {
			continue
		}
		r, err := h.openRecovery(uint32(id))
		if err != nil {
			return all, fmt.Errorf("group %d: %w", id, err)
		}
		all = append(all, r)
		if row, err := r.rep.store.Meta(ClusterKey); id == Metadata && err == nil && row.Version != 0 {
			if cluster, err := decodeRow[ClusterRow](row); err == nil {
				last = uint64(cluster.Groups)
			}
		}
	}
	return all, nil
}

// identify reads whose directory it is. If the file that says so is damaged, it is that of
// the node that is given: the groups' configurations prove it, see recovery.look.
func (h *Host) identify() error {
	id, ok, err := readIdentity(h.cfg.FS, h.cfg.Dir)
	switch {
	case isDamage(err):
		id = identity{Version: identityVersion, Node: h.cfg.NodeID, Incarnation: newIncarnation(), Lost: true}
		id.fs, id.path = h.cfg.FS, h.cfg.FS.PathJoin(h.cfg.Dir, identityFile)
	case err != nil:
		return err
	case !ok || id.New:
		return fmt.Errorf("%w: %s never belonged to a cluster", errConfig, h.cfg.Dir)
	case id.Node != h.cfg.NodeID:
		return otherNode(h.cfg.Dir, id.Node, h.cfg.NodeID)
	}
	h.identity = id
	return nil
}

// giveUp notes the replicas that are left out. A damaged file NODE is written by reinstate.
func (h *Host) giveUp(all []*recovery) error {
	next := h.identity
	next.GivenUp = slices.Clone(next.GivenUp)
	for _, r := range all {
		next.GivenUp = append(next.GivenUp, r.others...)
	}
	slices.Sort(next.GivenUp)
	next.GivenUp = slices.Compact(next.GivenUp)
	same := len(next.GivenUp) == len(h.identity.GivenUp)
	h.identity = next
	if same || next.Lost {
		return nil
	}
	return next.write()
}

// reinstate ends the damage that the file NODE was, if it was: the replicas are sound.
func (h *Host) reinstate(all []*recovery) error {
	if !h.identity.Lost {
		return nil
	}
	for _, r := range all {
		if !r.marked {
			continue
		}
		dir := h.groupConfig(r.Group).Dir
		if err := h.cfg.FS.Remove(h.cfg.FS.PathJoin(dir, damageFile)); err != nil {
			return fmt.Errorf("group %d: remove its mark of damage: %w", r.Group, err)
		}
		if err := syncDir(h.cfg.FS, dir); err != nil {
			return err
		}
	}
	next := h.identity
	next.Lost = false
	if next.Cluster == "" {
		v := h.cfg.vestiges()
		next.Cluster = v.cluster // still empty: the node learns it when it leads
	}
	if _, ok, err := readIdentity(h.cfg.FS, h.cfg.Dir); err != nil || !ok {
		aside, err := nodeAside(h.cfg.FS, h.cfg.Dir, next.path)
		if err == nil {
			err = moveNode(h.cfg.FS, h.cfg.Dir, next.path, aside)
		}
		if err != nil {
			return err
		}
	}
	return next.write()
}

// recovery is a replica that is to be the only voter.
type recovery struct {
	Recovered

	rep    *replica
	marked bool // as damaged, because of the file NODE
	others []string
}

// openRecovery opens and checks a replica, and changes nothing that a start would not.
func (h *Host) openRecovery(id uint32) (*recovery, error) {
	g := &Group{
		id: id, cfg: h.groupConfig(id), host: h, log: h.log.With(zap.Uint32("group", id)), ids: h.ids, fatal: h.cfg.Fatal,
		harmed: make(chan struct{}, 1), recreats: make(chan string, 1),
	}
	d, err := markedDamage(g.cfg.FS, id, g.cfg.Dir)
	if err == nil && d != nil && (!h.identity.Lost || !d.ofIdentity(h.cfg.FS)) {
		err = d.err()
	}
	if err != nil {
		return nil, err
	}
	rep, err := g.openReplica("")
	if err != nil {
		return nil, err
	}
	r := &recovery{rep: rep, marked: d != nil, Recovered: Recovered{Group: id, Server: string(rep.server)}}
	if err = g.prepare(rep); err == nil {
		err = r.look()
	}
	if err != nil {
		return nil, errors.Join(err, rep.close())
	}
	return r, nil
}

// look finds the configuration in force, as Raft does.
func (r *recovery) look() error {
	snap := r.rep.store.Pointer().Snapshot
	var conf raft.Configuration
	if len(snap.Conf) > 0 {
		conf = raft.DecodeConfiguration(snap.Conf)
	}
	log := r.rep.logs
	r.LastIndex, r.LastTerm = snap.Index, snap.Term
	if last := log.log.LastIndex(); last > snap.Index {
		r.LastIndex, r.LastTerm = last, log.log.LastTerm()
	}
	for index := max(snap.Index+1, log.log.FirstIndex()); index <= r.LastIndex; index++ {
		var l raft.Log
		if err := log.GetLog(index, &l); err != nil {
			return fmt.Errorf("entry %d: %w", index, err)
		}
		if l.Type == raft.LogConfiguration {
			conf = raft.DecodeConfiguration(l.Data)
		}
	}
	member := false
	for _, s := range conf.Servers {
		if string(s.ID) == r.Server {
			member = true
		} else {
			r.others = append(r.others, string(s.ID))
		}
		if s.Suffrage == raft.Voter {
			r.Before = append(r.Before, string(s.ID))
		}
	}
	if !member {
		return fmt.Errorf("%w: this replica, %s, is no member; the voters are %v", errConfig, r.Server, r.Before)
	}
	r.Changed = len(conf.Servers) != 1
	return nil
}

// write appends the new configuration. A crash before it leaves a higher term behind, no more.
func (r *recovery) write() error {
	if !r.Changed {
		return nil
	}
	log := r.rep.logs
	current, _, _ := log.log.Vote()
	term := max(current, r.LastTerm) + 1
	if err := log.log.SetTerm(term); err != nil {
		return fmt.Errorf("%w: group %d: %w", record.ErrUnknownOutcome, r.Group, err)
	}
	only := raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(r.Server), Address: r.rep.server}
	return log.StoreLog(&raft.Log{
		Index: r.LastIndex + 1, Term: term, Type: raft.LogConfiguration,
		Data: raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{only}}),
	})
}
