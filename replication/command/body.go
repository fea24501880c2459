package command

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Key is one message of a DeleteBatch.
type Key struct {
	Stream record.StreamID
	Bucket uint64 // its due row's bucket, or 0
	Seq    uint64
}

// Range is the messages First to Last of a stream, both included.
type Range struct {
	Stream      record.StreamID
	First, Last uint64
}

// Deletes is the content of a DeleteBatch.
type Deletes struct {
	Keys   []Key
	Ranges []Range
	Index  []IndexEntry
}

// ConsumerChange is the content of a ConsumerBatch: the cursor row as it is after
// it, and the pending rows that change.
type ConsumerChange struct {
	Stream   record.StreamID
	Consumer record.ConsumerID
	State    record.ConsumerState
	Puts     []record.Pending
	Deletes  []uint64
	Ranges   [][2]uint64 // inclusive
}

// SweepStep is the content of a Sweep.
type SweepStep struct {
	Stream record.StreamID
	Kind   uint8
	Done   bool
	Cursor []byte
}

// SubjectRow is a row of Counters; a Count of 0 deletes it.
type SubjectRow struct {
	Subject string
	Stat    record.SubjectStat
}

// IndexKind is the kind of a derived row.
type IndexKind uint8

// Kinds of index entries.
const (
	IndexSubject IndexKind = 1
	IndexDedup   IndexKind = 2
	IndexDue     IndexKind = 3
	// IndexSkipped is a dedup row whose message was not stored; a put only.
	IndexSkipped IndexKind = 4
)

// IndexEntry names one derived row.
type IndexEntry struct {
	Kind   IndexKind
	Value  uint8 // IndexDue puts: what falls due
	Stream record.StreamID
	Name   string // subject or message id
	Seq    uint64 // IndexSubject, IndexSkipped: sequence; IndexDue: ticket
	Time   uint64 // IndexDedup, IndexSkipped: time; IndexDue: bucket
}

func appendIndex(dst []byte, entries []IndexEntry) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(entries)))
	for i := range entries {
		dst = appendEntry(dst, &entries[i])
	}
	return dst
}

func appendEntry(dst []byte, e *IndexEntry) []byte {
	dst = append(dst, byte(e.Kind))
	switch e.Kind {
	case IndexSubject:
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.Stream))
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(e.Name)))
		dst = append(dst, e.Name...)
		dst = binary.BigEndian.AppendUint64(dst, e.Seq)
	case IndexDue:
		dst = binary.BigEndian.AppendUint64(dst, e.Time)
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.Stream))
		dst = binary.BigEndian.AppendUint64(dst, e.Seq)
	case IndexDedup, IndexSkipped:
		dst = binary.BigEndian.AppendUint32(dst, uint32(e.Stream))
		dst = append(dst, byte(len(e.Name)))
		dst = append(dst, e.Name...)
		dst = binary.BigEndian.AppendUint64(dst, e.Time)
		if e.Kind == IndexSkipped {
			dst = binary.BigEndian.AppendUint64(dst, e.Seq)
		}
	}
	return dst
}

// cursor reads a body; the first short read sets err and all later reads give zeros.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) take(n uint64) []byte {
	if c.err != nil || uint64(len(c.b)) < n {
		if c.err == nil {
			c.err = fmt.Errorf("%w: %d bytes left, want %d", record.ErrFormat, len(c.b), n)
		}
		return nil
	}
	p := c.b[:n:n]
	c.b = c.b[n:]
	return p
}

func (c *cursor) u8() uint8 {
	if p := c.take(1); p != nil {
		return p[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if p := c.take(2); p != nil {
		return binary.BigEndian.Uint16(p)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if p := c.take(4); p != nil {
		return binary.BigEndian.Uint32(p)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if p := c.take(8); p != nil {
		return binary.BigEndian.Uint64(p)
	}
	return 0
}

// length reads a count of elements of at least size bytes and refuses one that
// cannot fit, so that a forged count allocates nothing.
func (c *cursor) length(size int) int {
	n := c.u32()
	if c.err == nil && uint64(n)*uint64(size) > uint64(len(c.b)) {
		c.err = fmt.Errorf("%w: %d elements of %d bytes in %d bytes", record.ErrFormat, n, size, len(c.b))
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

func (c *cursor) end() error {
	if c.err == nil && len(c.b) != 0 {
		c.err = fmt.Errorf("%w: %d bytes too many", record.ErrFormat, len(c.b))
	}
	return c.err
}

// EachItem calls f for every item of a StoreBatch; it.Body and what f makes of it alias body.
func EachItem(body []byte, f func(stream record.StreamID, it *Item) error) error {
	c := cursor{b: body}
	stream := record.StreamID(c.u32())
	var it Item
	for range c.length(itemFixed) {
		it.Seq, it.Bucket, it.Hash = c.u64(), c.u64(), c.u64()
		flags := c.u8()
		ids := c.u8()
		n := c.u32()
		it.MsgID = string(c.take(uint64(ids)))
		it.Body = c.take(uint64(n))
		it.Absent = flags&flagAbsent != 0
		if c.err == nil && flags&^flagAbsent != 0 {
			c.err = fmt.Errorf("%w: unknown item flags %#x", record.ErrFormat, flags)
		}
		if c.err != nil {
			return c.err
		}
		if err := f(stream, &it); err != nil {
			return err
		}
	}
	return c.end()
}

// ParseDeletes reads the body of a DeleteBatch.
func ParseDeletes(body []byte) (Deletes, error) {
	c := cursor{b: body}
	var d Deletes
	n := c.length(24)
	d.Keys = make([]Key, 0, n)
	for range n {
		stream := record.StreamID(c.u32())
		c.zero(c.u32())
		d.Keys = append(d.Keys, Key{Stream: stream, Bucket: c.u64(), Seq: c.u64()})
	}
	n = c.length(24)
	for range n {
		stream := record.StreamID(c.u32())
		c.zero(c.u32())
		d.Ranges = append(d.Ranges, Range{Stream: stream, First: c.u64(), Last: c.u64()})
	}
	d.Index = c.index()
	return d, c.end()
}

func (c *cursor) zero(flags uint32) {
	if flags != 0 && c.err == nil {
		c.err = fmt.Errorf("%w: unknown key flags %#x", record.ErrFormat, flags)
	}
}

func (c *cursor) index() []IndexEntry {
	n := c.length(1 + 4 + 1)
	if n == 0 {
		return nil
	}
	out := make([]IndexEntry, 0, n)
	for range n {
		e := c.entry()
		if e.Kind == IndexSkipped && c.err == nil {
			c.err = fmt.Errorf("%w: index kind %d can not be deleted", record.ErrFormat, e.Kind)
		}
		if c.err != nil {
			return nil
		}
		out = append(out, e)
	}
	return out
}

func (c *cursor) entry() IndexEntry {
	e := IndexEntry{Kind: IndexKind(c.u8())}
	switch e.Kind {
	case IndexSubject:
		e.Stream = record.StreamID(c.u32())
		e.Name = string(c.take(uint64(c.u16())))
		e.Seq = c.u64()
	case IndexDue:
		e.Time = c.u64()
		e.Stream = record.StreamID(c.u32())
		e.Seq = c.u64()
	case IndexDedup, IndexSkipped:
		e.Stream = record.StreamID(c.u32())
		e.Name = string(c.take(uint64(c.u8())))
		e.Time = c.u64()
		if e.Kind == IndexSkipped {
			e.Seq = c.u64()
		}
	default:
		if c.err == nil {
			c.err = fmt.Errorf("%w: unknown index kind %d", record.ErrFormat, uint8(e.Kind))
		}
	}
	return e
}

// ParseIndex reads the body of an Index command.
func ParseIndex(body []byte) (puts, deletes []IndexEntry, err error) {
	c := cursor{b: body}
	for range c.length(1 + 4 + 1) {
		e := c.entry()
		if e.Kind == IndexDue {
			e.Value = c.u8()
		}
		if c.err == nil && e.Kind != IndexDue && e.Kind != IndexSkipped {
			c.err = fmt.Errorf("%w: index kind %d can not be put", record.ErrFormat, uint8(e.Kind))
		}
		if c.err != nil {
			return nil, nil, c.err
		}
		puts = append(puts, e)
	}
	deletes = c.index()
	return puts, deletes, c.end()
}

// ParseStream reads the body of PutStream or DeleteStream; description aliases it.
func ParseStream(body []byte) (stream record.StreamID, description []byte, err error) {
	c := cursor{b: body}
	stream = record.StreamID(c.u32())
	return stream, c.b, c.err
}

// ConsumerRow is the body of PutConsumer or DeleteConsumer.
type ConsumerRow struct {
	Stream      record.StreamID
	Consumer    record.ConsumerID
	Description []byte // aliases the body
}

// ParseConsumer reads the body of PutConsumer or DeleteConsumer.
func ParseConsumer(body []byte) (ConsumerRow, error) {
	c := cursor{b: body}
	r := ConsumerRow{Stream: record.StreamID(c.u32()), Consumer: record.ConsumerID(c.u32())}
	r.Description = c.b
	return r, c.err
}

// ParseConsumerBatch reads the body of a ConsumerBatch.
func ParseConsumerBatch(body []byte) (ConsumerChange, error) {
	c := cursor{b: body}
	ch := ConsumerChange{Stream: record.StreamID(c.u32()), Consumer: record.ConsumerID(c.u32())}
	if p := c.take(record.ConsumerStateSize); p != nil {
		ch.State, c.err = record.ParseConsumerState(p)
	}
	for range c.length(8 + record.PendingSize) {
		seq := c.u64()
		p, err := record.ParsePending(seq, c.take(record.PendingSize))
		if err != nil {
			return ConsumerChange{}, err
		}
		ch.Puts = append(ch.Puts, p)
	}
	for range c.length(8) {
		ch.Deletes = append(ch.Deletes, c.u64())
	}
	for range c.length(16) {
		ch.Ranges = append(ch.Ranges, [2]uint64{c.u64(), c.u64()})
	}
	return ch, c.end()
}

// ParseSweep reads the body of a Sweep; Cursor aliases it.
func ParseSweep(body []byte) (SweepStep, error) {
	c := cursor{b: body}
	s := SweepStep{Stream: record.StreamID(c.u32()), Kind: c.u8()}
	done := c.u8()
	if done > 1 && c.err == nil {
		c.err = fmt.Errorf("%w: sweep done flag %d", record.ErrFormat, done)
	}
	s.Done = done == 1
	s.Cursor = c.take(uint64(c.u16()))
	return s, c.end()
}

// ParseCounters reads the body of Counters, calling f for each subject row.
func ParseCounters(body []byte, f func(SubjectRow) error) (record.StreamID, record.StreamState, error) {
	c := cursor{b: body}
	stream := record.StreamID(c.u32())
	var state record.StreamState
	if p := c.take(record.StreamStateSize); p != nil {
		state, c.err = record.ParseStreamState(p)
	}
	for range c.length(2 + record.SubjectStatSize) {
		var r SubjectRow
		r.Subject = string(c.take(uint64(c.u16())))
		if p := c.take(record.SubjectStatSize); p != nil {
			r.Stat, c.err = record.ParseSubjectStat(p)
		}
		if c.err != nil {
			return 0, state, c.err
		}
		if err := f(r); err != nil {
			return 0, state, err
		}
	}
	return stream, state, c.end()
}
