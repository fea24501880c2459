package replication

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

const (
	// damageFile marks a group that is damaged here; doc.go has its form.
	damageFile    = "DAMAGED"
	damageVersion = 1
	// asidePrefix starts the names of the directories that keep what was damaged.
	asidePrefix = "damaged-"
	asideTime   = "20060102T150405Z"
)

// Damage says what was found wrong with a replica, and what became of it.
type Damage struct {
	Version int    `json:"version"`
	Group   uint32 `json:"group"`
	// Server is the replica that is damaged, empty if even that is lost.
	Server string `json:"server,omitempty"`
	// File is the damaged file, or the directory of what is missing.
	File   string    `json:"file"`
	Reason string    `json:"reason"`
	Found  time.Time `json:"found"`
	// Aside is the directory where the damaged files are kept once another replica
	// takes their place; empty before.
	Aside string `json:"aside,omitempty"`
	// Waits is why that has not begun, or what it is waiting for.
	Waits string `json:"waits,omitempty"`
}

// newDamage describes an error that wraps record.ErrDamaged or seglog.ErrDamaged.
func newDamage(group uint32, dir, server string, err error) *Damage {
	d := &Damage{
		Version: damageVersion, Group: group, Server: server, File: record.DamagedFile(err),
		Reason: err.Error(), Found: time.Now().UTC(),
	}
	if log, ok := errors.AsType[*seglog.DamageError](err); ok {
		d.File = log.File
	}
	if d.File == "" {
		d.File = dir
	}
	return d
}

// err is the error that a store in its place returns.
func (d *Damage) err() error {
	return fmt.Errorf("%w: group %d: %s", record.ErrDamaged, d.Group, d.Reason)
}

// isDamage says whether an error is of damaged local files.
func isDamage(err error) bool {
	return errors.Is(err, record.ErrDamaged) || errors.Is(err, seglog.ErrDamaged)
}

// mark makes the damage durable: from then on a start honours it.
func (d *Damage) mark(fsys storage.FS, dir string) error {
	b, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if err := makeDirs(fsys, dir); err != nil {
		return err
	}
	return replaceFile(fsys, fsys.PathJoin(dir, damageFile), append(b, '\n'))
}

// markedDamage returns what the marker of a group says, nil without one. A marker
// that cannot be read marks all the same.
func markedDamage(fsys storage.FS, group uint32, dir string) (*Damage, error) {
	path := fsys.PathJoin(dir, damageFile)
	b, ok, err := readFile(fsys, path)
	if err != nil || !ok {
		return nil, err
	}
	d := &Damage{}
	if err := json.Unmarshal(b, d); err != nil {
		return newDamage(group, dir, "", record.Damaged(path, "marker is unreadable: %w", err)), nil
	}
	if d.Version != damageVersion {
		return nil, fmt.Errorf("%w: %s has version %d, this build knows %d",
			record.ErrFormat, path, d.Version, damageVersion)
	}
	d.Group, d.Aside, d.Waits = group, "", ""
	return d, nil
}

// setAside moves everything of a damaged replica into a directory of its own within
// the group's, the marker last: a crash in between leaves the group damaged. Nothing
// is deleted. It returns the directory.
func setAside(fsys storage.FS, dir string, now time.Time) (string, error) {
	aside, err := asideDir(fsys, dir, now)
	if err != nil {
		return "", err
	}
	if err := makeDirs(fsys, aside); err != nil {
		return "", err
	}
	names, err := fsys.List(dir)
	if err != nil {
		return "", fmt.Errorf("list %s: %w", dir, err)
	}
	move := func(name string) error {
		if err := fsys.Rename(fsys.PathJoin(dir, name), fsys.PathJoin(aside, name)); err != nil {
			return fmt.Errorf("set %s aside: %w", fsys.PathJoin(dir, name), err)
		}
		return nil
	}
	for _, name := range names {
		if strings.HasPrefix(name, asidePrefix) || name == damageFile {
			continue
		}
		if err := move(name); err != nil {
			return "", err
		}
	}
	// Both directories, before the marker goes: what is in neither is lost.
	for _, d := range []string{aside, dir} {
		if err := syncDir(fsys, d); err != nil {
			return "", err
		}
	}
	if err := move(damageFile); err != nil {
		return "", err
	}
	return aside, errors.Join(syncDir(fsys, aside), syncDir(fsys, dir))
}

func asideDir(fsys storage.FS, dir string, now time.Time) (string, error) {
	name := fsys.PathJoin(dir, asidePrefix+now.UTC().Format(asideTime))
	path := name
	for n := 2; ; n++ {
		_, err := fsys.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", err
		}
		path = fmt.Sprintf("%s-%d", name, n)
	}
}

// vanished says that a group's replica is gone as a whole, where there should be one:
// its node is a member of a cluster that has the group, and nothing was set aside.
func vanished(fsys storage.FS, dir string) (bool, error) {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	for _, name := range names {
		if name == incarnationFile || name == logDir || name == stateDir || strings.HasPrefix(name, asidePrefix) {
			return false, nil
		}
	}
	return true, nil
}

// Damage says what was found wrong with this replica; nil for a sound one. It stays
// until a new replica has taken its place and has a vote, or follows, like the old one.
func (g *Group) Damage() *Damage { return g.hurt.Load() }

// damaged takes the replica out of service: it neither votes, leads nor answers from
// now on. What takes longer (the marker, the end of the Raft instance) is done by
// supervise. It never blocks on the disk and may be called from anywhere, with the
// locks of the store held. A failure to mark it stops the process.
func (g *Group) damaged(err error) {
	r := g.rep.Load()
	if r == nil {
		return // it is being opened, and whoever opens it is told the error
	}
	d := newDamage(g.id, g.cfg.Dir, string(r.server), err)
	// First, and by everybody who finds it, known or not: who returns from here may hand Raft something else in place
	// of what is damaged (logStore.GetLog), which must neither be sent nor applied.
	g.quarantine(d)
	if r.fsm != nil {
		r.fsm.stop(err)
	}
	for {
		old := g.hurt.Load()
		if old != nil && old.Aside == "" {
			return // known
		}
		if g.hurt.CompareAndSwap(old, d) {
			break
		}
	}
	g.log.Error("local data is damaged: the group is out of service on this node",
		zap.String("file", d.File), zap.Error(err))
	if in := g.inst.Load(); in != nil {
		in.resign()
	}
	g.host.directoryLost(g.id)
	select {
	case g.harmed <- struct{}{}:
	default:
	}
	g.changed()
}

// quarantine makes the port refuse the group's frames.
func (g *Group) quarantine(d *Damage) {
	g.host.trans.Quarantine(g.id, "damaged: "+d.File)
}

// retreat finishes what damaged began: the marker is durable before the instance
// stops, and nothing of the files is open afterwards. A full disk that has no room for the marker is waited for: the
// replica is out of service already, and mend tries again.
func (g *Group) retreat() error {
	d := g.hurt.Load()
	if d == nil || d.Aside != "" || g.rep.Load().logs == nil {
		return nil // done, by mend
	}
	if err := d.mark(g.cfg.FS, g.cfg.Dir); err != nil {
		return g.whenRoom(d, fmt.Errorf("group %d: mark it as damaged (%s): %w", g.id, d.Reason, err))
	}
	if in := g.inst.Swap(nil); in != nil {
		if err := in.stop(); err != nil {
			g.log.Warn("stop of the Raft instance", zap.Error(err))
		}
	}
	old := g.rep.Swap(g.absent(d))
	if err := old.close(); err != nil {
		g.log.Warn("closing damaged files", zap.Error(err))
	}
	g.changed()
	return nil
}
