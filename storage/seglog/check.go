package seglog

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// SegmentReport is what Check found in one listed segment.
type SegmentReport struct {
	// File is the full name, Number and Use are of its header.
	File        string
	Number, Use uint64
	// Size is that of the file; End is where its valid batches end.
	Size, End int64
	// Batches and Entries were verified, entries that are truncated by now included.
	Batches, Entries int
}

// Report is what Check found.
type Report struct {
	// Segments are the listed segments up to the first damaged one, oldest first.
	Segments []SegmentReport
	// Unlisted are spare segments and left-overs of a crash.
	Unlisted []string
	// FirstIndex, LastIndex and LastTerm are 0 for an empty log.
	FirstIndex, LastIndex, LastTerm uint64
	// Term, VotedTerm and Candidate are the stored vote.
	Term, VotedTerm uint64
	Candidate       []byte
	// TruncationTerm is that of the newest suffix truncation or reset.
	TruncationTerm uint64
	// SealPayload is the newest one.
	SealPayload []byte
	// Sealed says that a seal covers the last batch; Torn that an unfinished batch lies behind it, which
	// Open will cut.
	Sealed, Torn bool
}

// Check reads and verifies all of a log that no process has open, and changes nothing. A log that does not
// exist yet gives an empty report. The error is what Open would return; the report then says what was intact
// before the damage.
func Check(fs vfs.FS, dir string) (Report, error) {
	c := &checkWatcher{}
	ld, err := load(fs, dir, c)
	defer ld.close()
	return c.report(ld), err
}

type checkWatcher struct {
	segs    []*segment
	reports []SegmentReport
}

func (c *checkWatcher) segment(seg *segment, _ listEntry) {
	c.segs = append(c.segs, seg)
	c.reports = append(c.reports, SegmentReport{
		File: seg.name, Number: seg.number, Use: seg.use, Size: seg.size,
	})
}

func (c *checkWatcher) batch(h batchHeader, recs []record) {
	r := &c.reports[len(c.reports)-1]
	r.End = h.offset
	if h.kind == batchSeal {
		return
	}
	r.End = alignUp(h.offset + batchHeaderSize + h.length)
	r.Batches++
	for i := range recs {
		if recs[i].kind == recordEntry {
			r.Entries++
		}
	}
}

func (c *checkWatcher) report(ld *loaded) Report {
	st := &ld.st
	for i := range c.reports {
		c.reports[i].End = max(c.reports[i].End, segmentHeaderSize)
	}
	return Report{
		Segments: c.reports, Unlisted: ld.unlisted,
		FirstIndex: st.first, LastIndex: st.last, LastTerm: st.lastTerm(),
		Term: st.vote.term, VotedTerm: st.vote.votedTerm, Candidate: slices.Clone(st.vote.candidate),
		TruncationTerm: st.truncTerm, SealPayload: slices.Clone(st.payload),
		Sealed: ld.end.sealed, Torn: ld.end.torn,
	}
}

// Dump writes a readable listing of the files, batches and records of a log that no process has open, and
// changes nothing. Payloads are shown by their length. Damage ends the listing: it is the last line and the
// returned error.
func Dump(fs vfs.FS, dir string, w io.Writer) error {
	d := &dumper{w: w}
	ld, err := load(fs, dir, d)
	defer ld.close()
	for _, name := range ld.unlisted {
		d.line("unlisted %s", name)
	}
	if err != nil {
		d.line("error %v", err)
		return errors.Join(err, d.err)
	}
	st := &ld.st
	d.line("log %d..%d last term %d, term %d, vote %q in term %d, truncation term %d, sealed %t, torn %t",
		st.first, st.last, st.lastTerm(), st.vote.term, st.vote.candidate, st.vote.votedTerm, st.truncTerm,
		ld.end.sealed, ld.end.torn)
	return d.err
}

type dumper struct {
	w   io.Writer
	err error
}

func (d *dumper) line(format string, args ...any) {
	if d.err == nil {
		_, d.err = fmt.Fprintf(d.w, format+"\n", args...)
	}
}

func (d *dumper) segment(seg *segment, listed listEntry) {
	d.line("segment %s use %016x size %d listed end %d chain %08x", seg.name, seg.use, seg.size, listed.end,
		listed.chain)
}

func (d *dumper) batch(h batchHeader, recs []record) {
	kind := "batch"
	if h.kind == batchSeal {
		kind = "seal"
	}
	d.line("  %8d %s of %d bytes, %d records, after chain %08x", h.offset, kind, h.length, h.count, h.prev)
	for i := range recs {
		d.line("  %8d   %s", h.offset+batchHeaderSize+recs[i].at, recs[i].describe())
	}
}

// describe is the record's line in a dump.
func (r *record) describe() string {
	switch r.kind {
	case recordEntry:
		if e, err := r.entry(); err == nil {
			return fmt.Sprintf("entry %d term %d type %d at %s ext %d data %d", e.Index, e.Term, e.Type,
				time.Unix(0, e.AppendedAt).UTC().Format(time.RFC3339Nano), len(e.Ext), len(e.Data))
		}
	case recordHead:
		if h, err := r.head(); err == nil {
			return fmt.Sprintf("head %d..%d last term %d, term %d, vote %q in term %d, "+
				"truncation term %d, payload %d", h.first, h.last, h.lastTerm,
				h.vote.term, h.vote.candidate, h.vote.votedTerm, h.truncTerm, len(h.payload))
		}
	case recordVote:
		if v, err := r.vote(); err == nil {
			return fmt.Sprintf("vote term %d, vote %q in term %d", v.term, v.candidate, v.votedTerm)
		}
	case recordSuffix:
		from, err1 := r.number(0, 2)
		term, err2 := r.number(1, 2)
		if err1 == nil && err2 == nil {
			return fmt.Sprintf("truncate-suffix from %d in term %d", from, term)
		}
	case recordPrefixT:
		if first, err := r.number(0, 1); err == nil {
			return fmt.Sprintf("truncate-prefix, first is %d", first)
		}
	case recordReset:
		if term, err := r.number(0, 1); err == nil {
			return fmt.Sprintf("reset in term %d", term)
		}
	case recordPayload:
		return fmt.Sprintf("payload %d", len(r.body))
	}
	return fmt.Sprintf("malformed record of kind %d with %d bytes", r.kind, len(r.body))
}
