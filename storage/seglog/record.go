package seglog

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
)

// Sizes and kinds of the batch and record format; the tables are in doc.go.
const (
	batchHeaderSize = 32
	batchAlign      = 8
	recordPrefix    = 8
	recordTrailer   = 4
	entryFixed      = 24
	headFixed       = 52
	voteFixed       = 16
	entryOverhead   = recordPrefix + entryFixed + recordTrailer
	maxHeadRecord   = recordPrefix + headFixed + MaxCandidate + MaxSealPayload + recordTrailer
)

type batchKind uint8

const (
	batchRecords batchKind = 1
	batchSeal    batchKind = 2
)

type recordKind uint8

const (
	recordEntry   recordKind = 1
	recordHead    recordKind = 2
	recordVote    recordKind = 3
	recordSuffix  recordKind = 4
	recordPrefixT recordKind = 5
	recordReset   recordKind = 6
	recordPayload recordKind = 7
)

// String names the kind for dumps and damage reports.
func (k recordKind) String() string {
	switch k {
	case recordEntry:
		return "entry"
	case recordHead:
		return "head"
	case recordVote:
		return "vote"
	case recordSuffix:
		return "truncate-suffix"
	case recordPrefixT:
		return "truncate-prefix"
	case recordReset:
		return "reset"
	case recordPayload:
		return "payload"
	default:
		return "unknown"
	}
}

var le = binary.LittleEndian //nolint:gochecknoglobals // a name for the byte order, never assigned

// crcTable returns the Castagnoli table; crc32 builds it once and uses the CPU's instruction.
func crcTable() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func checksum(b []byte) uint32 { return crc32.Checksum(b, crcTable()) }

func crcUpdate(crc uint32, b []byte) uint32 { return crc32.Update(crc, crcTable(), b) }

// chainSeed is the chain value before the first batch of a segment's use.
func chainSeed(use uint64) uint32 {
	var b [8]byte
	le.PutUint64(b[:], use)
	return checksum(b[:])
}

// Reasons why bytes are not a batch or record. They become the Reason of a DamageError.
var (
	errShort     = errors.New("ends before its length")
	errUse       = errors.New("no batch of this use of the segment")
	errOffset    = errors.New("batch header belongs to another offset")
	errHeaderCRC = errors.New("batch header checksum does not match")
	errRecordCRC = errors.New("record checksum does not match")
	errShape     = errors.New("batch does not hold the records its header announces")
	errPadding   = errors.New("padding behind the batch is not zero")
	errBody      = errors.New("record body is malformed")
)

// Entry is one log entry. Index and Term are Raft's; the rest is opaque to this package.
type Entry struct {
	// Index is the position in the log, from 1.
	Index uint64
	// Term is the leader's term.
	Term uint64
	// Type is the caller's entry type.
	Type uint8
	// AppendedAt is the leader's time in ns since 1970.
	AppendedAt int64
	// Ext is the caller's small annex, at most MaxExt bytes.
	Ext []byte
	// Data is the payload.
	Data []byte
}

// recordSize is the size on disk of e's record.
func (e *Entry) recordSize() int64 {
	return int64(entryOverhead + len(e.Ext) + len(e.Data))
}

// vote is what raft keeps in its stable store, in one value.
type vote struct {
	term      uint64
	votedTerm uint64
	candidate []byte
}

// head is the first record of a segment: all state a replay needs that entries of this segment do not give.
type head struct {
	first, last, lastTerm uint64
	vote                  vote
	truncTerm             uint64
	payload               []byte
}

// batch assembles the bytes of one batch in a buffer that is used again and again.
type batch struct {
	buf   []byte
	count uint32
	// version is that of the payload in the batch, 0 if it holds none.
	version uint64
}

func (b *batch) reset(room int64) {
	b.buf = slices.Grow(b.buf[:0], int(batchHeaderSize+room+batchAlign))[:batchHeaderSize]
	clear(b.buf)
	b.count = 0
}

// size is the room the batch takes in the file, padding included.
func (b *batch) size() int64 { return alignUp(int64(len(b.buf))) }

func alignUp(n int64) int64 { return (n + batchAlign - 1) &^ (batchAlign - 1) }

func (b *batch) begin(kind recordKind, typ uint8, ext uint16, body int) {
	b.buf = le.AppendUint32(b.buf, uint32(body))
	b.buf = append(b.buf, byte(kind), typ)
	b.buf = le.AppendUint16(b.buf, ext)
	b.count++
}

// end leaves room for the checksum, which finish fills in when the chain is known.
func (b *batch) end() { b.buf = append(b.buf, 0, 0, 0, 0) }

func (b *batch) entry(e *Entry) {
	b.begin(recordEntry, e.Type, uint16(len(e.Ext)), entryFixed+len(e.Ext)+len(e.Data))
	b.buf = le.AppendUint64(b.buf, e.Index)
	b.buf = le.AppendUint64(b.buf, e.Term)
	b.buf = le.AppendUint64(b.buf, uint64(e.AppendedAt))
	b.buf = append(b.buf, e.Ext...)
	b.buf = append(b.buf, e.Data...)
	b.end()
}

func (b *batch) head(h *head) {
	b.begin(recordHead, 0, 0, headFixed+len(h.vote.candidate)+len(h.payload))
	for _, v := range [...]uint64{h.first, h.last, h.lastTerm, h.vote.term, h.vote.votedTerm, h.truncTerm} {
		b.buf = le.AppendUint64(b.buf, v)
	}
	b.buf = le.AppendUint16(b.buf, uint16(len(h.vote.candidate)))
	b.buf = le.AppendUint16(b.buf, uint16(len(h.payload)))
	b.buf = append(b.buf, h.vote.candidate...)
	b.buf = append(b.buf, h.payload...)
	b.end()
}

func (b *batch) vote(v *vote) {
	b.begin(recordVote, 0, 0, voteFixed+len(v.candidate))
	b.buf = le.AppendUint64(b.buf, v.term)
	b.buf = le.AppendUint64(b.buf, v.votedTerm)
	b.buf = append(b.buf, v.candidate...)
	b.end()
}

// numbers writes the records that are one or two numbers.
func (b *batch) numbers(kind recordKind, vs ...uint64) {
	b.begin(kind, 0, 0, 8*len(vs))
	for _, v := range vs {
		b.buf = le.AppendUint64(b.buf, v)
	}
	b.end()
}

func (b *batch) payload(p []byte) {
	b.begin(recordPayload, 0, 0, len(p))
	b.buf = append(b.buf, p...)
	b.end()
}

// finish fills in the header and the checksums for a batch at offset behind the chain value prev. It returns
// the bytes to write and the chain value after the batch.
func (b *batch) finish(kind batchKind, use uint64, offset int64, prev uint32) ([]byte, uint32) {
	h := b.buf[:batchHeaderSize]
	le.PutUint64(h, use)
	le.PutUint32(h[8:], uint32(offset))
	le.PutUint32(h[12:], uint32(len(b.buf)-batchHeaderSize))
	le.PutUint32(h[16:], b.count)
	le.PutUint32(h[20:], uint32(kind))
	le.PutUint32(h[24:], prev)
	crc := crcUpdate(prev, h[:28])
	le.PutUint32(h[28:], crc)
	for rest := b.buf[batchHeaderSize:]; len(rest) > 0; {
		n := recordPrefix + int(le.Uint32(rest))
		crc = crcUpdate(crc, rest[:n])
		le.PutUint32(rest[n:], crc)
		rest = rest[n+recordTrailer:]
	}
	for len(b.buf)%batchAlign != 0 {
		b.buf = append(b.buf, 0)
	}
	return b.buf, crc
}

// batchHeader is a decoded batch header.
type batchHeader struct {
	offset int64
	length int64
	count  uint32
	kind   batchKind
	prev   uint32
	crc    uint32
}

// decodeBatchHeader verifies that b starts with a header written at offset during the given use. It does not
// look at the chain: a header vouches for itself, so that one behind a damaged batch is still recognized.
func decodeBatchHeader(b []byte, use uint64, offset int64) (batchHeader, error) {
	if len(b) < batchHeaderSize {
		return batchHeader{}, errShort
	}
	if le.Uint64(b) != use {
		return batchHeader{}, errUse
	}
	h := batchHeader{
		offset: int64(le.Uint32(b[8:])),
		length: int64(le.Uint32(b[12:])),
		count:  le.Uint32(b[16:]),
		kind:   batchKind(b[20]),
		prev:   le.Uint32(b[24:]),
		crc:    le.Uint32(b[28:]),
	}
	switch {
	case crcUpdate(h.prev, b[:28]) != h.crc:
		return batchHeader{}, errHeaderCRC
	case h.offset != offset:
		return batchHeader{}, errOffset
	case h.kind != batchRecords && h.kind != batchSeal, b[21]|b[22]|b[23] != 0, h.count == 0:
		return batchHeader{}, errShape
	}
	return h, nil
}

// record is one verified record of a batch.
type record struct {
	kind recordKind
	typ  uint8
	ext  int
	// body aliases the buffer it was decoded from.
	body []byte
	// at is the record's position behind the batch header.
	at int64
}

// decodeRecord verifies the record at the start of b against the chain value before it. It returns the
// record's size and its checksum, which is the chain value after it.
func decodeRecord(b []byte, chain uint32) (rec record, size int64, err error) {
	if len(b) < recordPrefix+recordTrailer {
		return record{}, 0, errShort
	}
	n := int64(le.Uint32(b))
	if n > int64(len(b)-recordPrefix-recordTrailer) {
		return record{}, 0, errShort
	}
	end := recordPrefix + n
	if crcUpdate(chain, b[:end]) != le.Uint32(b[end:]) {
		return record{}, 0, errRecordCRC
	}
	rec = record{kind: recordKind(b[4]), typ: b[5], ext: int(le.Uint16(b[6:])), body: b[recordPrefix:end]}
	return rec, end + recordTrailer, nil
}

// decodeRecords verifies a whole batch body and appends its records to recs. It returns the chain value
// after the batch.
func decodeRecords(h batchHeader, body []byte, recs []record) ([]record, uint32, error) {
	chain, at := h.crc, int64(0)
	for range h.count {
		rec, size, err := decodeRecord(body[at:], chain)
		if err != nil {
			return recs, 0, err
		}
		rec.at = at
		recs = append(recs, rec)
		at += size
		chain = le.Uint32(body[at-recordTrailer:])
	}
	if at != int64(len(body)) {
		return recs, 0, errShape
	}
	return recs, chain, nil
}

// entry decodes an entry whose slices alias the record's body.
func (r *record) entry() (Entry, error) {
	if r.kind != recordEntry || len(r.body) < entryFixed+r.ext {
		return Entry{}, errBody
	}
	return Entry{
		Index:      le.Uint64(r.body),
		Term:       le.Uint64(r.body[8:]),
		Type:       r.typ,
		AppendedAt: int64(le.Uint64(r.body[16:])),
		Ext:        r.body[entryFixed : entryFixed+r.ext : entryFixed+r.ext],
		Data:       r.body[entryFixed+r.ext:],
	}, nil
}

func (r *record) head() (head, error) {
	if r.kind != recordHead || len(r.body) < headFixed {
		return head{}, errBody
	}
	cand, payload := int(le.Uint16(r.body[48:])), int(le.Uint16(r.body[50:]))
	if len(r.body) != headFixed+cand+payload {
		return head{}, errBody
	}
	u := func(i int) uint64 { return le.Uint64(r.body[8*i:]) }
	return head{
		first: u(0), last: u(1), lastTerm: u(2), truncTerm: u(5),
		vote: vote{
			term: u(3), votedTerm: u(4),
			candidate: slices.Clone(r.body[headFixed : headFixed+cand]),
		},
		payload: slices.Clone(r.body[headFixed+cand:]),
	}, nil
}

func (r *record) vote() (vote, error) {
	if r.kind != recordVote || len(r.body) < voteFixed {
		return vote{}, errBody
	}
	return vote{
		term: le.Uint64(r.body), votedTerm: le.Uint64(r.body[8:]),
		candidate: slices.Clone(r.body[voteFixed:]),
	}, nil
}

// number returns the i-th of the want numbers that make up the body.
func (r *record) number(i, want int) (uint64, error) {
	if len(r.body) != 8*want {
		return 0, errBody
	}
	return le.Uint64(r.body[8*i:]), nil
}
