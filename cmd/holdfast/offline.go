package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
	"github.com/holdfast-mq/holdfast/storage/seglog"
)

// stopped is the data directory of a node that does not run.
type stopped struct {
	dir    string
	who    replication.Identity // what the file NODE says
	lost   error                // why it says nothing
	groups []int
	lock   *node.DirLock
}

// openStopped looks at a data directory and makes sure that no node uses it.
func openStopped(dir string) (*stopped, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "groups"))
	if err != nil {
		return nil, usage(fmt.Errorf("%s is no data directory of a node: %w", dir, err))
	}
	s := &stopped{dir: dir}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() {
			s.groups = append(s.groups, n)
		}
	}
	slices.Sort(s.groups)
	s.who, _, s.lost = replication.ReadIdentity(storage.DefaultFS(), dir)
	if s.lost != nil && !errors.Is(s.lost, record.ErrDamaged) {
		return nil, s.lost
	}
	if _, err := os.Stat(filepath.Join(dir, node.LockFile)); err != nil {
		return s, nil //nolint:nilerr // no node ever ran here
	}
	s.lock, err = node.LockDir(dir)
	if errors.Is(err, node.ErrInUse) {
		err = usage(fmt.Errorf("%s is %w; stop the node first", dir, err))
	}
	return s, err
}

func (s *stopped) logDir(group int) string { return s.part(group, "log") }

func (s *stopped) part(group int, name string) string {
	return filepath.Join(s.dir, "groups", strconv.Itoa(group), name)
}

// store opens the state of a group for reading.
func (s *stopped) store(group int, damaged func(error)) (*storage.Store, error) {
	return storage.Open(storage.Config{
		Dir: s.part(group, "state"), ReadOnly: true, Damaged: damaged,
		Fatal: damaged,
	})
}

// identity prints whose directory it is; false if the file that says so is damaged.
func (s *stopped) identity(env *environment) bool {
	if s.lost != nil {
		env.say("NODE: DAMAGED: %v", s.lost)
		return false
	}
	env.say("node %s, cluster %s, incarnation %s", s.who.Node, dash(s.who.Cluster), s.who.Incarnation)
	return true
}

// Run verifies the files of a stopped node.
func (c *checkCmd) Run(env *environment) error {
	s, err := openStopped(c.Dir)
	if err != nil {
		return err
	}
	bad := 0
	if !s.identity(env) {
		bad++
	}
	marked, err := filepath.Glob(filepath.Join(s.dir, "groups", "*", "DAMAGED"))
	for _, path := range marked {
		bad++
		env.say("marked as damaged when it ran: %s", path)
	}
	if err != nil {
		return errors.Join(err, s.lock.Release())
	}
	for _, group := range s.groups {
		summary, err := s.check(env, group)
		if err != nil {
			bad++
			env.say("group %d: DAMAGED: %v", group, err)
			continue
		}
		env.say("group %d: ok: %s", group, summary)
	}
	aside, err := filepath.Glob(filepath.Join(s.dir, "groups", "*", "damaged-*"))
	nodes, also := filepath.Glob(filepath.Join(s.dir, "damaged-*"))
	aside, err = append(nodes, aside...), errors.Join(err, also)
	for _, path := range aside {
		env.say("set aside earlier: %s", path)
	}
	if err := errors.Join(err, s.lock.Release()); err != nil {
		return err
	}
	if bad > 0 {
		return &exitError{exitDamaged, fmt.Errorf("%d damaged; nothing was changed", bad)}
	}
	env.say("Everything that can be verified, was.")
	return nil
}

// check reads every byte of a group's log and every row of its state, and compares the two.
func (s *stopped) check(env *environment, group int) (summary string, err error) {
	log, err := seglog.Check(storage.DefaultFS(), s.logDir(group))
	if err != nil {
		return "", fmt.Errorf("log: %w", err)
	}
	store, err := s.store(group, func(error) {}) // what is found is also an error of the read that found it
	if errors.Is(err, record.ErrNotFound) && log.LastIndex == 0 {
		return "empty", nil
	}
	if err != nil {
		return "", fmt.Errorf("state: %w", err)
	}
	hash, err := store.StateHash(env.ctx)
	applied, ptr := store.Applied(), store.Pointer()
	if err := errors.Join(err, store.Close()); err != nil {
		return "", fmt.Errorf("state: %w", err)
	}
	if applied.Index > log.LastIndex && (!ptr.Installed || ptr.Snapshot.Index < applied.Index) {
		return "", record.Damaged(s.logDir(group), "the log ends at %d, the state has applied entry %d",
			log.LastIndex, applied.Index)
	}
	tail := "sealed"
	switch {
	case log.Torn:
		tail = "a torn write at the end, which the next start cuts off"
	case !log.Sealed:
		tail = "not sealed"
	}
	return fmt.Sprintf("log %d..%d, term %d, in %d segments, %s; state at %d, %d rows, hash %s",
		log.FirstIndex,
		log.LastIndex, log.LastTerm, len(log.Segments), tail, applied.Index, hash.Rows, hash), nil
}

// Run lists what the files of a stopped node hold.
func (c *dumpCmd) Run(env *environment) error {
	s, err := openStopped(c.Dir)
	if err != nil {
		return err
	}
	if c.Group >= 0 && !slices.Contains(s.groups, c.Group) {
		return errors.Join(usage(fmt.Errorf("--group: there is no group %d; there are %v", c.Group,
			s.groups)),
			s.lock.Release())
	}
	s.identity(env)
	var failed []error
	for _, group := range s.groups {
		if c.Group >= 0 && group != c.Group {
			continue
		}
		env.say("\ngroup %d", group)
		if c.Log {
			err := seglog.Dump(storage.DefaultFS(), s.logDir(group), env.stdout)
			failed = append(failed, err)
		}
		failed = append(failed, s.dumpState(env, group))
	}
	err = errors.Join(failed...)
	if err != nil {
		err = &exitError{exitDamaged, err}
	}
	return errors.Join(err, s.lock.Release())
}

func (s *stopped) dumpState(env *environment, group int) error {
	store, err := s.store(group, func(error) {})
	if err != nil {
		return fmt.Errorf("state of group %d: %w", group, err)
	}
	a, p := store.Applied(), store.Pointer()
	env.say("state %s: applied %d in term %d, fence (%d, %d, %d); snapshot at %d, installed %t", p.DB,
		a.Index, a.Term,
		a.Fence.Term, a.Fence.Epoch, a.Fence.Ordinal, p.Snapshot.Index, p.Installed)
	err = store.ScanMeta("", func(row record.MetaRow) bool {
		env.say("row %s, version %d: %s", row.Key, row.Version, row.Value)
		return true
	})
	var streams []storage.StreamRow
	err = errors.Join(err, store.Streams(func(row storage.StreamRow) bool {
		streams = append(streams, row)
		return true
	}))
	for _, row := range streams {
		env.say("stream %d: %d messages (%d bytes), sequences %d to %d, %d subjects: %s", row.ID,
			row.State.Messages,
			row.State.Bytes, row.State.FirstSeq, row.State.LastSeq, row.State.Subjects, row.Description)
		err = errors.Join(err, store.Consumers(row.ID, func(c storage.ConsumerRow) bool {
			env.say("  consumer %d: next %d, floor %d: %s", c.ID, c.State.Next, c.State.AckFloorStream,
				c.Description)
			return true
		}))
	}
	return errors.Join(err, store.Close())
}
