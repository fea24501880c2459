package replication

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/raft"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication/transport"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// lose makes another identity for a data directory whose file NODE is damaged. Before it is
// there, every group of the directory is marked as damaged, durably, so that nothing of
// what they hold ever votes or answers under a name that may not be theirs; the file is set
// aside. A crash in between leaves a damaged, or missing, file and marked groups, and the
// next start does it again. Nothing is changed, and the start refused, where no other node
// is known to hold what this one does, and where the directory is another node's.
func (c *Config) lose(cause error) (identity, error) {
	v := c.vestiges()
	if owner := v.owner(); owner != "" && owner != c.NodeID {
		return identity{}, fmt.Errorf("%w (%w)", otherNode(c.Dir, owner, c.NodeID), cause)
	}
	if err := v.alone(c); err != nil {
		return identity{}, fmt.Errorf("%w: %w; nothing was changed: \"holdfast cluster recover %s --survivor %s\" writes "+
			"the file anew, \"holdfast salvage %s DIR\" copies out what verifies", cause, err, c.Dir, c.NodeID, c.Dir)
	}
	id := identity{
		Version: identityVersion, Node: c.NodeID, Cluster: v.cluster, Incarnation: newIncarnation(), Lost: true,
		fs: c.FS, path: c.FS.PathJoin(c.Dir, identityFile),
	}
	aside, err := nodeAside(c.FS, c.Dir, id.path)
	if err != nil {
		return id, err
	}
	why := cause
	if aside != "" {
		why = fmt.Errorf("%w; it is kept in %s", cause, aside)
	}
	c.Logger.Error("local data is damaged: all groups are out of service on this node",
		zap.String("file", id.path), zap.String("aside", aside), zap.Error(cause))
	if err := c.markAll(why); err != nil {
		return id, err
	}
	if err := moveNode(c.FS, c.Dir, id.path, aside); err != nil {
		return id, err
	}
	err = id.write()
	return id, err
}

// markAll marks every group of the directory as damaged; one that is marked for a reason of
// its own keeps that.
func (c *Config) markAll(why error) error {
	names, err := listDir(c.FS, c.FS.PathJoin(c.Dir, groupsDir))
	if err != nil {
		return err
	}
	for _, name := range names {
		group, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			continue
		}
		dir := c.FS.PathJoin(c.Dir, groupsDir, name)
		d, err := markedDamage(c.FS, uint32(group), dir)
		if err != nil {
			return err
		}
		if d != nil && !d.ofIdentity(c.FS) {
			continue
		}
		server := ""
		if inc, ok, err := readIncarnation(c.FS, dir); err == nil && ok {
			server = string(transport.Address(c.NodeID, inc))
		}
		if err := newDamage(uint32(group), dir, server, why).mark(c.FS, dir); err != nil {
			return fmt.Errorf("group %d: mark it as damaged (%w): %w", group, why, err)
		}
	}
	return nil
}

// ofIdentity says that not the group's own files are damaged, but the file NODE.
func (d *Damage) ofIdentity(fsys storage.FS) bool { return fsys.PathBase(d.File) == identityFile }

// nodeAside names a new directory for a damaged file NODE, "" if there is no file.
func nodeAside(fsys storage.FS, dir, path string) (string, error) {
	if there, err := exists(fsys, path); err != nil || !there {
		return "", err
	}
	return asideDir(fsys, dir, time.Now())
}

// moveNode moves a damaged file NODE into a directory that nodeAside named.
func moveNode(fsys storage.FS, dir, path, aside string) error {
	if aside == "" {
		return nil
	}
	if err := makeDirs(fsys, aside); err != nil {
		return err
	}
	if err := fsys.Rename(path, fsys.PathJoin(aside, identityFile)); err != nil {
		return fmt.Errorf("set %s aside: %w", path, err)
	}
	return errors.Join(syncDir(fsys, aside), syncDir(fsys, dir))
}

// vestiges is what group 0 of a data directory says of a node whose file NODE does not.
type vestiges struct {
	cluster     string        // its id, if the state has it
	servers     []raft.Server // the newest configuration; nil if none could be read
	incarnation string        // of the replica; empty if it could not be read
}

// vestiges reads what there is, and changes nothing. What cannot be read says nothing.
func (c *Config) vestiges() vestiges {
	var v vestiges
	dir := c.FS.PathJoin(c.Dir, groupsDir, strconv.Itoa(Metadata))
	if inc, ok, err := readIncarnation(c.FS, dir); err == nil && ok {
		v.incarnation = inc
	}
	var index uint64
	conf := func(at uint64, b []byte) {
		if at >= index && len(b) > 0 {
			index, v.servers = at, raft.DecodeConfiguration(b).Servers
		}
	}
	told := func(error) {} // what is found is also an error of the read that found it
	s, err := storage.Open(storage.Config{
		FS: c.FS, Dir: c.FS.PathJoin(dir, stateDir), ReadOnly: true, Damaged: told, Fatal: told,
	})
	if err == nil {
		snap, a := s.Pointer().Snapshot, s.Applied()
		conf(snap.ConfIndex, snap.Conf)
		conf(a.ConfIndex, a.Conf)
		// Not from the log: what that holds need not be committed.
		if row, err := s.Meta(ClusterKey); err == nil && row.Version != 0 {
			if cluster, err := decodeRow[ClusterRow](row); err == nil {
				v.cluster = cluster.ID
			}
		}
		_ = s.Close() // it was read only
	}
	_, _, _ = seglog.Salvage(c.FS, c.FS.PathJoin(dir, logDir), func(e *seglog.Entry, _ int) error {
		if raft.LogType(e.Type) == raft.LogConfiguration {
			conf(e.Index, e.Data)
		}
		return nil
	})
	return v
}

// owner is the node that the replica of group 0 is of, "" if that is unknown.
func (v *vestiges) owner() string {
	for _, s := range v.servers {
		node, err := transport.NodeOf(s.Address)
		if err == nil && v.incarnation != "" && s.Address == transport.Address(node, v.incarnation) {
			return node
		}
	}
	return ""
}

// alone says why nobody can be expected to hold what this node does; nil if others can.
func (v *vestiges) alone(c *Config) error {
	others := slices.ContainsFunc(v.servers, func(s raft.Server) bool {
		node, _ := transport.NodeOf(s.Address)
		return s.Suffrage == raft.Voter && node != c.NodeID
	})
	switch {
	case others:
		return nil
	case len(v.servers) > 0:
		return errors.New("this node is the only voter of its cluster")
	case !c.Others:
		return errors.New("no other node is known")
	}
	return nil
}

// listDir lists a directory; one that is not there is empty.
func listDir(fsys storage.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", dir, err)
	}
	return names, nil
}

// Lost says that the file NODE of the data directory was damaged, and that not every group
// has a replica in the place of the old one yet. The node belongs to a cluster then, even
// if ClusterID does not say to which: it must found none.
func (h *Host) Lost() bool { return h.lost.Load() }

// regain ends Lost once every group has a replica that came after the loss, and is what the
// old one was.
func (h *Host) regain() error {
	if !h.Lost() || h.ClusterID() == "" {
		return nil
	}
	for _, g := range h.groups {
		if in := g.inst.Load(); g.hurt.Load() != nil || in == nil || !in.member() {
			return nil
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	next := h.identity
	next.Lost = false
	if err := next.write(); err != nil {
		return err
	}
	h.identity.Lost = false
	h.lost.Store(false)
	h.log.Info("every group has a new replica, the damaged file is replaced", zap.String("file", h.identity.path))
	return nil
}

// member says that the replica is in the configuration that it has.
func (in *instance) member() bool {
	servers := in.raft.GetConfiguration().Configuration().Servers
	return slices.ContainsFunc(servers, func(s raft.Server) bool { return s.Address == in.rep.server })
}
