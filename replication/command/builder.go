package command

import (
	"encoding/binary"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Builder lays an envelope out in its final form: one buffer, presized, appended
// to in order. Store and the delete calls keep their command open while the next
// one fits it, so a run of messages of one stream is one command. Not safe for
// concurrent use.
type Builder struct {
	buf      []byte
	commands uint32
	open     Type
	start    int // offset of the open command's body, 0 = none open
	stream   record.StreamID
	count    uint32 // items in the open StoreBatch
}

// NewBuilder returns a Builder with room for size bytes.
func NewBuilder(size int) *Builder {
	return &Builder{buf: make([]byte, HeaderSize, max(size, HeaderSize))}
}

// Size returns the bytes laid out so far.
func (b *Builder) Size() int { return len(b.buf) }

// Empty says that there is no command yet.
func (b *Builder) Empty() bool { return b.commands == 0 }

func (b *Builder) begin(t Type) {
	b.end()
	b.buf = append(b.buf, byte(t), 0, 0, 0, 0)
	b.open, b.start, b.count = t, len(b.buf), 0
	b.commands++
}

func (b *Builder) end() {
	if b.start == 0 {
		return
	}
	binary.BigEndian.PutUint32(b.buf[b.start-4:], uint32(len(b.buf)-b.start))
	if b.open == StoreBatch {
		binary.BigEndian.PutUint32(b.buf[b.start+4:], b.count)
	}
	b.start = 0
}

// Item is one entry of a StoreBatch.
type Item struct {
	Seq    uint64
	Bucket uint64 // when it falls due, or 0
	Hash   uint64 // record.SubjectHash
	// Absent: the sequence is consumed and nothing is stored.
	Absent bool
	MsgID  string // at most MaxMsgID bytes; empty = no dedup row
	Body   []byte // serialized message; only its parts are read by Store
}

// MaxMsgID is the longest message id that makes a dedup row; a longer one is
// hashed by the planner.
const MaxMsgID = 255

const itemFixed = 8 + 8 + 8 + 1 + 1 + 4

const flagAbsent = 1

// Store appends a message of stream to the open StoreBatch, or opens one. The
// message is serialized in place from m; it.Body is not used.
func (b *Builder) Store(stream record.StreamID, it *Item, m *record.Message) {
	if b.start == 0 || b.open != StoreBatch || b.stream != stream {
		b.begin(StoreBatch)
		b.stream = stream
		b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(stream))
		b.buf = append(b.buf, 0, 0, 0, 0)
	}
	b.count++
	flags := byte(0)
	if it.Absent {
		flags = flagAbsent
	}
	b.buf = binary.BigEndian.AppendUint64(b.buf, it.Seq)
	b.buf = binary.BigEndian.AppendUint64(b.buf, it.Bucket)
	b.buf = binary.BigEndian.AppendUint64(b.buf, it.Hash)
	b.buf = append(b.buf, flags, byte(len(it.MsgID)), 0, 0, 0, 0)
	at := len(b.buf)
	b.buf = append(b.buf, it.MsgID...)
	body := len(b.buf)
	b.buf = record.AppendMessage(b.buf, m)
	binary.BigEndian.PutUint32(b.buf[at-4:], uint32(len(b.buf)-body))
}

// Delete appends a DeleteBatch.
func (b *Builder) Delete(d *Deletes) {
	b.begin(DeleteBatch)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(d.Keys)))
	for _, k := range d.Keys {
		b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(k.Stream))
		b.buf = append(b.buf, 0, 0, 0, 0)
		b.buf = binary.BigEndian.AppendUint64(b.buf, k.Bucket)
		b.buf = binary.BigEndian.AppendUint64(b.buf, k.Seq)
	}
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(d.Ranges)))
	for _, r := range d.Ranges {
		b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(r.Stream))
		b.buf = append(b.buf, 0, 0, 0, 0)
		b.buf = binary.BigEndian.AppendUint64(b.buf, r.First)
		b.buf = binary.BigEndian.AppendUint64(b.buf, r.Last)
	}
	b.buf = appendIndex(b.buf, d.Index)
	b.end()
}

// PutStream appends the description of a stream, opaque to this layer.
func (b *Builder) PutStream(stream record.StreamID, description []byte) {
	b.begin(PutStream)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(stream))
	b.buf = append(b.buf, description...)
	b.end()
}

// DeleteStream appends the removal of every row of a stream.
func (b *Builder) DeleteStream(stream record.StreamID) {
	b.begin(DeleteStream)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(stream))
	b.end()
}

// PutConsumer appends the description of a consumer, opaque to this layer.
func (b *Builder) PutConsumer(stream record.StreamID, consumer record.ConsumerID, description []byte) {
	b.begin(PutConsumer)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(stream))
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(consumer))
	b.buf = append(b.buf, description...)
	b.end()
}

// DeleteConsumer appends the removal of every row of a consumer.
func (b *Builder) DeleteConsumer(stream record.StreamID, consumer record.ConsumerID) {
	b.begin(DeleteConsumer)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(stream))
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(consumer))
	b.end()
}

// Consumer appends a ConsumerBatch.
func (b *Builder) Consumer(c *ConsumerChange) {
	b.begin(ConsumerBatch)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(c.Stream))
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(c.Consumer))
	b.buf = record.AppendConsumerState(b.buf, &c.State)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(c.Puts)))
	for i := range c.Puts {
		b.buf = binary.BigEndian.AppendUint64(b.buf, c.Puts[i].Seq)
		b.buf = record.AppendPending(b.buf, &c.Puts[i])
	}
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(c.Deletes)))
	for _, s := range c.Deletes {
		b.buf = binary.BigEndian.AppendUint64(b.buf, s)
	}
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(c.Ranges)))
	for _, r := range c.Ranges {
		b.buf = binary.BigEndian.AppendUint64(b.buf, r[0])
		b.buf = binary.BigEndian.AppendUint64(b.buf, r[1])
	}
	b.end()
}

// Sweep appends the cursor of unfinished long work; done removes it. The
// cursor is at most 65,535 bytes.
func (b *Builder) Sweep(s *SweepStep) {
	b.begin(Sweep)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(s.Stream))
	done := byte(0)
	if s.Done {
		done = 1
	}
	b.buf = append(b.buf, s.Kind, done)
	b.buf = binary.BigEndian.AppendUint16(b.buf, uint16(len(s.Cursor)))
	b.buf = append(b.buf, s.Cursor...)
	b.end()
}

// Counters appends the counters of a stream and the rows of its subjects, as
// they are after this envelope.
func (b *Builder) Counters(stream record.StreamID, state *record.StreamState, subjects []SubjectRow) {
	b.begin(Counters)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(stream))
	b.buf = record.AppendStreamState(b.buf, state)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(subjects)))
	for i := range subjects {
		b.buf = binary.BigEndian.AppendUint16(b.buf, uint16(len(subjects[i].Subject)))
		b.buf = append(b.buf, subjects[i].Subject...)
		b.buf = record.AppendSubjectStat(b.buf, subjects[i].Stat)
	}
	b.end()
}

// Index appends puts and deletes of derived rows that no other command carries.
func (b *Builder) Index(puts, deletes []IndexEntry) {
	b.begin(Index)
	b.buf = binary.BigEndian.AppendUint32(b.buf, uint32(len(puts)))
	for i := range puts {
		b.buf = appendEntry(b.buf, &puts[i])
		if puts[i].Kind == IndexDue {
			b.buf = append(b.buf, puts[i].Value)
		}
	}
	b.buf = appendIndex(b.buf, deletes)
	b.end()
}

// Finish writes the header and returns the entry. The Builder must not be used after it.
func (b *Builder) Finish(h *Header) []byte {
	b.end()
	e := b.buf
	e[0], e[1] = Version, byte(EntryEnvelope)
	record.AppendFence(e[offFence:offFence], h.Fence)
	record.AppendFence(e[offBase:offBase], h.Base)
	copy(e[offProposal:], h.Proposal[:])
	binary.BigEndian.PutUint64(e[offTime:], uint64(h.Time))
	binary.BigEndian.PutUint32(e[offCount:], b.commands)
	return e
}
