package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// salvageReport is the file report.json; docs/formats.md describes it.
type salvageReport struct {
	Version int              `json:"version"`
	Dir     string           `json:"dir"`
	Sources []*salvageSource `json:"sources"`
	// Problems lists everything that does not verify.
	Problems []string `json:"problems"`
}

// salvageSource is one replica that was read: a group's own, or one that was set aside.
type salvageSource struct {
	Source string `json:"source"`
	Group  int    `json:"group"`
	// State and Log are "ok", "empty" or what does not verify.
	State string `json:"state"`
	Log   string `json:"log"`
	// Applied is the last entry that the state holds, LogLast the last one of the log that was read.
	Applied uint64 `json:"applied"`
	LogLast uint64 `json:"log_last"`
	// Gaps are where entries of the log are missing.
	Gaps    []salvageGap     `json:"gaps,omitempty"`
	Streams []*salvageStream `json:"streams"`
}

// salvageGap is where entries of a log do not verify: behind After, which is 0 at the start,
// and before Next, which is 0 at the end.
type salvageGap struct {
	After uint64 `json:"after"`
	Next  uint64 `json:"next"`
}

// salvageStream is what was copied out of one stream.
type salvageStream struct {
	ID   record.StreamID `json:"id"`
	File string          `json:"file"`
	// Messages were copied, FromLog of them out of log entries that the state does not hold.
	Messages uint64 `json:"messages"`
	FromLog  uint64 `json:"from_log"`
	// BehindGap of those are behind a gap of the log.
	BehindGap uint64 `json:"behind_gap,omitempty"`
	First     uint64 `json:"first"`
	Last      uint64 `json:"last"`
	// Unreadable are ranges of sequences in which messages may be that do not verify.
	Unreadable [][2]uint64 `json:"unreadable,omitempty"`
}

// salvageHead is the first line of a stream's file.
type salvageHead struct {
	Version     int             `json:"version"`
	Stream      record.StreamID `json:"stream"`
	Group       int             `json:"group"`
	Description json.RawMessage `json:"description,omitempty"`
	// Directory is the row of group 0 that names account, stream and subjects, if it could be read.
	Directory json.RawMessage `json:"directory,omitempty"`
}

// salvageLine is one message: every other line.
type salvageLine struct {
	Seq     uint64 `json:"seq"`
	Subject string `json:"subject"`
	Time    int64  `json:"time"`             // nanoseconds since 1970
	Header  []byte `json:"header,omitempty"` // raw NATS header block, base64
	Payload []byte `json:"payload"`          // base64
	// Entry is the log entry it was found in, 0 for the state. Such a message may not have been committed.
	Entry uint64 `json:"entry,omitempty"`
	// BehindGap: entries before it do not verify. It may have been deleted by one of them, or
	// may have been cut off from the log.
	BehindGap bool `json:"behind_gap,omitempty"`
}

const (
	salvageVersion = 1
	// streamRows starts the keys of the rows of group 0 that name streams.
	streamRows = replication.StreamPrefix
	// scratchDir is where a state is put together, in the output directory; it is removed.
	scratchDir = "scratch"
)

// Run copies out of a stopped node's files what verifies.
func (c *salvageCmd) Run(env *environment) error {
	s, err := openStopped(c.Dir)
	if err != nil {
		return err
	}
	if err := emptyDir(c.Out); err != nil {
		return errors.Join(usage(err), s.lock.Release())
	}
	r := &salvageReport{Version: salvageVersion, Dir: c.Dir, Problems: []string{}}
	if !s.identity(env) {
		r.Problems = append(r.Problems, filepath.Join(c.Dir, "NODE")+" does not verify")
	}
	names := s.directory(env, r, c.Out)
	for _, group := range s.groups {
		if group == 0 {
			continue
		}
		for _, source := range s.sources(group) {
			w := &salvager{env: env, report: r, group: group, dir: source, out: c.Out, names: names}
			if err := w.run(); err != nil {
				return errors.Join(err, s.lock.Release())
			}
		}
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(c.Out, "report.json"), append(b, '\n'), 0o600)
	}
	if err := errors.Join(err, s.lock.Release()); err != nil {
		return err
	}
	r.tell(env)
	if len(r.Problems) > 0 {
		return &exitError{exitDamaged, fmt.Errorf("%d things do not verify; %s has them", len(r.Problems),
			filepath.Join(c.Out, "report.json"))}
	}
	return nil
}

func (r *salvageReport) tell(env *environment) {
	for _, source := range r.Sources {
		env.say("%s: state %s, log %s", source.Source, source.State, source.Log)
		for _, st := range source.Streams {
			env.say("  %s: %d messages, sequences %d to %d, %d of them from the log only", st.File, st.Messages, st.First,
				st.Last, st.FromLog)
		}
	}
	for _, p := range r.Problems {
		env.say("does not verify: %s", p)
	}
}

// emptyDir makes a directory, or accepts one that is empty.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return os.MkdirAll(dir, 0o750)
	case err != nil:
		return err
	case len(entries) > 0:
		return fmt.Errorf("%s is not empty; give a directory that is, or a new one", dir)
	}
	return nil
}

// sources are the replicas of a group: its own, then those that were set aside.
func (s *stopped) sources(group int) []string {
	own := s.part(group, "")
	aside, err := filepath.Glob(filepath.Join(own, "damaged-*"))
	if err != nil {
		aside = nil
	}
	slices.Sort(aside)
	return append([]string{own}, aside...)
}

// directory reads the rows of group 0 that name streams, from every replica of it.
func (s *stopped) directory(env *environment, r *salvageReport, to string) map[record.StreamID]json.RawMessage {
	out := make(map[record.StreamID]json.RawMessage)
	if !slices.Contains(s.groups, 0) {
		return out
	}
	take := func(value []byte) {
		var row record.StreamRow
		if json.Unmarshal(value, &row) == nil {
			out[row.ID] = slices.Clone(value)
		}
	}
	for _, dir := range slices.Backward(s.sources(0)) {
		scratch := filepath.Join(to, scratchDir)
		store, found := openState(env.ctx, dir, scratch)
		if store != nil {
			found = append(found, store.ScanMeta(streamRows, func(row record.MetaRow) bool {
				take(row.Value)
				return true
			}), store.Close())
		}
		found = append(found, os.RemoveAll(scratch))
		// What the state does not have yet, or cannot be read of it, is in the log.
		for _, err := range append(found, directoryLog(dir, take)) {
			if err != nil && !errors.Is(err, record.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) {
				r.Problems = append(r.Problems, err.Error())
			}
		}
	}
	return out
}

// deletion is what the log deletes beyond the state.
type deletion struct {
	all    bool
	seqs   map[uint64]bool
	ranges [][2]uint64
}

func (d *deletion) has(seq uint64) bool {
	return d != nil && (d.all || d.seqs[seq] ||
		slices.ContainsFunc(d.ranges, func(r [2]uint64) bool { return r[0] <= seq && seq <= r[1] }))
}

// salvager reads one replica.
type salvager struct {
	env    *environment
	report *salvageReport
	group  int
	dir    string // holds log and state
	out    string
	names  map[record.StreamID]json.RawMessage

	source       *salvageSource
	pieced       *storage.Store // the state if it was put together from tables
	fence        record.Fence
	descriptions map[record.StreamID][]byte
	deleted      map[record.StreamID]*deletion
	files        map[record.StreamID]*streamFile
}

// run copies a replica's messages. Its error is of the output; what does not verify is
// in the report.
func (w *salvager) run() error {
	name, err := filepath.Rel(w.report.Dir, w.dir)
	if err != nil {
		name = w.dir
	}
	w.source = &salvageSource{Source: name, Group: w.group, Streams: []*salvageStream{}}
	w.report.Sources = append(w.report.Sources, w.source)
	w.descriptions, w.deleted = make(map[record.StreamID][]byte), make(map[record.StreamID]*deletion)
	w.files = make(map[record.StreamID]*streamFile)
	scratch := filepath.Join(w.out, scratchDir)
	store, found := openState(w.env.ctx, w.dir, scratch)
	w.source.State = w.verdict(found...)
	if store != nil {
		a := store.Applied()
		w.fence, w.source.Applied = a.Fence, a.Index
		if len(found) > 0 {
			w.pieced = store
		}
	}
	w.source.Log = w.verdict(w.scanLog()) // what it deletes is not copied out of the state
	err = nil
	if store != nil {
		err = w.copyState(store)
	}
	if err == nil {
		err = w.copyLog()
	}
	if store != nil {
		if closed := store.Close(); closed != nil {
			w.problem(closed)
		}
	}
	err = errors.Join(err, os.RemoveAll(scratch))
	for _, id := range slices.Sorted(maps.Keys(w.files)) {
		f := w.files[id]
		err = errors.Join(err, f.close())
		w.source.Streams = append(w.source.Streams, f.about)
	}
	return err
}

// verdict is what the report says of a part.
func (w *salvager) verdict(found ...error) string {
	err := errors.Join(found...)
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, record.ErrNotFound), errors.Is(err, fs.ErrNotExist) && !errors.Is(err, record.ErrDamaged):
		return "empty"
	}
	for _, e := range found {
		if e != nil {
			w.problem(e)
		}
	}
	return err.Error()
}

func (w *salvager) problem(err error) {
	w.report.Problems = append(w.report.Problems, err.Error())
}

// file returns the output of a stream, with its first line.
func (w *salvager) file(id record.StreamID) (*streamFile, error) {
	if f := w.files[id]; f != nil {
		return f, nil
	}
	dir := filepath.Join(w.out, "group-"+strconv.Itoa(w.group))
	if base := filepath.Base(w.dir); base != strconv.Itoa(w.group) {
		dir += "-" + base
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, fmt.Sprintf("stream-%d.jsonl", id))
	f, err := newStreamFile(path, &salvageStream{ID: id, File: path})
	if err != nil {
		return nil, err
	}
	w.files[id] = f
	head := salvageHead{Version: salvageVersion, Stream: id, Group: w.group, Directory: w.names[id]}
	if d := w.descriptions[id]; json.Valid(d) {
		head.Description = d
	}
	err = f.write(head)
	return f, err
}
