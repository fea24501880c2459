package seglog

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// loaded is everything that the files of a log say.
type loaded struct {
	st  state
	end scanResult
	// payloadSealed says that the newest payload is the one of the seal at the end.
	payloadSealed bool
	// unlisted are files of the directory that are ours and not live.
	unlisted []string
	// fresh means that there is no log yet.
	fresh bool
}

func (ld *loaded) close() {
	for _, seg := range ld.st.segs {
		seg.release()
	}
	ld.st.segs = nil
}

// loader reads a log's files and changes none.
type loader struct {
	fs    vfs.FS
	dir   string
	names []string
	out   *loaded
	// watch, when set, sees every listed segment before its batches, and every batch.
	watch loadWatcher
}

type loadWatcher interface {
	segment(seg *segment, listed listEntry)
	batch(h batchHeader, recs []record)
}

// load reads the log in dir. On an error that is damage, the result still holds what was read before it.
func load(fs vfs.FS, dir string, watch loadWatcher) (*loaded, error) {
	l := &loader{fs: fs, dir: dir, out: &loaded{}, watch: watch}
	var err error
	if l.names, err = fs.List(dir); err != nil {
		return l.out, fmt.Errorf("seglog: list %s: %w", dir, err)
	}
	slices.Sort(l.names)
	list, err := l.list()
	if err != nil {
		return l.out, err
	}
	l.sortOut(list)
	if list == nil {
		l.out.fresh = true
		return l.out, l.noRecordsIn(l.out.unlisted, 0, "segment list is missing while %s holds records")
	}
	newest := list[len(list)-1].number
	err = l.noRecordsIn(l.out.unlisted, newest, "segment list is older than %s, which holds records")
	if err != nil {
		return l.out, err
	}
	for i, e := range list {
		if err := l.segment(e, i == len(list)-1); err != nil {
			return l.out, err
		}
	}
	if missing, ok := l.out.st.covered(); !ok {
		return l.out, damaged(fs.PathJoin(dir, listName), 0, "no segment holds entry %d of %d..%d", missing,
			l.out.st.first, l.out.st.last)
	}
	return l.out, nil
}

func (l *loader) list() ([]listEntry, error) {
	if !slices.Contains(l.names, listName) {
		return nil, nil
	}
	name := l.fs.PathJoin(l.dir, listName)
	f, err := l.fs.Open(name)
	if err != nil {
		return nil, fmt.Errorf("seglog: open %s: %w", name, err)
	}
	defer func() { _ = f.Close() }()
	size, err := fileSize(f, name)
	if err != nil {
		return nil, err
	}
	if size > listHeaderSize+maxListed*listEntrySize+4 {
		return nil, damaged(name, 0, "segment list has %d bytes", size)
	}
	b := make([]byte, size)
	if err := readAt(f, name, b, 0); err != nil {
		return nil, err
	}
	return decodeList(name, b)
}

// sortOut finds what in the directory is ours and not listed. Other files are left alone.
func (l *loader) sortOut(list []listEntry) {
	for _, name := range l.names {
		number, isSegment := segmentNumber(name)
		live := slices.ContainsFunc(list, func(e listEntry) bool { return e.number == number })
		if isSegment && !live || strings.HasSuffix(name, tempSuffix) {
			l.out.unlisted = append(l.out.unlisted, name)
		}
	}
}

// noRecordsIn reports damage if an unlisted segment newer than the given one holds a valid first batch: the
// list is made durable before such a batch is written.
func (l *loader) noRecordsIn(names []string, newer uint64, format string) error {
	for _, name := range names {
		number, isSegment := segmentNumber(name)
		if !isSegment || number <= newer {
			continue
		}
		full := l.fs.PathJoin(l.dir, name)
		f, err := l.fs.Open(full)
		if err != nil {
			return fmt.Errorf("seglog: open %s: %w", full, err)
		}
		has, err := hasRecords(f, full, number)
		_ = f.Close()
		if err != nil {
			return err
		}
		if has {
			return damaged(l.fs.PathJoin(l.dir, listName), 0, format, name)
		}
	}
	return nil
}

func hasRecords(f vfs.File, name string, number uint64) (bool, error) {
	h, err := readSegmentHeader(f, name)
	if errors.Is(err, ErrVersion) {
		return false, err
	}
	if err != nil || h.number != number {
		return false, nil //nolint:nilerr // a spare without a good header is re-made, whatever its content is
	}
	seg := newSegment(h, name, f)
	size, err := fileSize(f, name)
	if err != nil {
		return false, err
	}
	s := &scanner{
		win:    window{file: f, name: name, size: min(size, h.size)},
		listed: listEntry{use: h.use}, pos: seg.end, chain: seg.chain,
	}
	_, _, err = s.batch()
	return err == nil, nil
}

func (l *loader) segment(e listEntry, last bool) error {
	name := l.fs.PathJoin(l.dir, segmentName(e.number))
	if !slices.Contains(l.names, segmentName(e.number)) {
		return damaged(name, 0, "listed segment is missing")
	}
	f, err := l.fs.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return damaged(name, 0, "listed segment is missing")
	}
	if err != nil {
		return fmt.Errorf("seglog: open %s: %w", name, err)
	}
	h, err := readSegmentHeader(f, name)
	if err == nil && (h.number != e.number || h.use != e.use) {
		err = damaged(name, 0, "file is from another use of the segment")
	}
	if err != nil {
		_ = f.Close()
		return err
	}
	seg := newSegment(h, name, f)
	l.out.st.segs = append(l.out.st.segs, seg)
	if l.watch != nil {
		l.watch.segment(seg, e)
	}
	l.out.end, err = scanSegment(seg, e, last, func(h batchHeader, recs []record) error {
		if l.watch != nil {
			l.watch.batch(h, recs)
		}
		return l.apply(seg, h, recs)
	})
	if err == nil {
		seg.end, seg.chain = l.out.end.end, l.out.end.chain
	}
	return err
}

// apply replays one batch.
func (l *loader) apply(seg *segment, h batchHeader, recs []record) error {
	for i := range recs {
		err := errHeadFirst
		if first := h.offset == segmentHeaderSize && i == 0; (recs[i].kind == recordHead) == first {
			err = l.record(seg, h, &recs[i])
		}
		if err != nil {
			return damaged(seg.name, h.offset+batchHeaderSize+recs[i].at, "%v record: %v", recs[i].kind, err)
		}
	}
	return nil
}

var (
	errHeadFirst  = errors.New("a head must be a segment's first record and nothing else may be")
	errHeadState  = errors.New("head contradicts the segments before it")
	errContiguous = errors.New("does not continue the log")
	errKind       = errors.New("unknown kind")
)

func (l *loader) record(seg *segment, h batchHeader, rec *record) error {
	st := &l.out.st
	switch rec.kind {
	case recordEntry:
		e, err := rec.entry()
		if err != nil {
			return err
		}
		if !st.follows(e.Index) {
			return errContiguous
		}
		st.push(seg, e.Index, e.Term, h.offset+batchHeaderSize+rec.at)
	case recordHead:
		return l.head(seg, rec)
	case recordVote:
		v, err := rec.vote()
		st.vote = v
		return err
	case recordSuffix:
		from, err := rec.number(0, 2)
		if err != nil {
			return err
		}
		term, err := rec.number(1, 2)
		st.truncateSuffix(from, term)
		return err
	case recordPrefixT:
		n, err := rec.number(0, 1)
		st.truncatePrefix(n)
		return err
	case recordReset:
		term, err := rec.number(0, 1)
		st.reset(term)
		return err
	case recordPayload:
		st.payload = slices.Clone(rec.body)
		l.out.payloadSealed = h.kind == batchSeal
	default:
		return errKind
	}
	return nil
}

func (l *loader) head(seg *segment, rec *record) error {
	hd, err := rec.head()
	if err != nil {
		return err
	}
	st := &l.out.st
	// Only the oldest segment's head says something new; the others are checked against what was replayed.
	// A log's very first segment may have lost its only batch to a crash and then holds none: the head of
	// the next one is that of an empty log, which is what it is checked against.
	if st.segs[0] == seg {
		st.start(&hd)
		return nil
	}
	if !st.agrees(&hd) {
		return errHeadState
	}
	st.payload = hd.payload
	l.out.payloadSealed = false
	return nil
}
