package command

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Version is the format version of every entry.
const Version = 1

// EntryType tells the two kinds of entries apart.
type EntryType uint8

// Entry types.
const (
	EntryEnvelope EntryType = 1
	EntryMeta     EntryType = 2
)

// Type is the type byte of a command within an envelope.
type Type uint8

// Command types.
const (
	StoreBatch Type = iota
	DeleteBatch
	PutStream
	DeleteStream
	PutConsumer
	DeleteConsumer
	ConsumerBatch
	Sweep
	Counters
	Index
	typeCount
)

// String names the type as the package comment does.
func (t Type) String() string {
	names := [typeCount]string{
		"StoreBatch", "DeleteBatch", "PutStream", "DeleteStream", "PutConsumer",
		"DeleteConsumer", "ConsumerBatch", "Sweep", "Counters", "Index",
	}
	if t >= typeCount {
		return fmt.Sprintf("command %d", uint8(t))
	}
	return names[t] //nolint:gosec // t was judged above
}

// HeaderSize is the length of an envelope's header.
const HeaderSize = 80

const (
	offFence    = 4
	offBase     = offFence + record.FenceSize
	offProposal = offBase + record.FenceSize
	offTime     = offProposal + record.ProposalIDSize
	offCount    = offTime + 8
	frameSize   = 1 + 4
)

// Header is the head of an envelope.
type Header struct {
	Fence    record.Fence
	Base     record.Fence // only for ordinal 1
	Proposal record.ProposalID
	Time     int64 // cluster time at planning, nanoseconds
}

// Envelope is a decoded envelope; Commands are read with Each.
type Envelope struct {
	Header
	Count int
	body  []byte
}

// TypeOf returns the entry type of an entry, checking the version.
func TypeOf(entry []byte) (EntryType, error) {
	if len(entry) < 4 {
		return 0, fmt.Errorf("%w: entry of %d bytes", record.ErrFormat, len(entry))
	}
	if entry[0] != Version {
		return 0, fmt.Errorf("%w: entry version %d, this build knows %d", record.ErrFormat, entry[0], Version)
	}
	t := EntryType(entry[1])
	if t != EntryEnvelope && t != EntryMeta {
		return 0, fmt.Errorf("%w: unknown entry type %d", record.ErrFormat, entry[1])
	}
	return t, nil
}

// ParseEnvelope reads the header of an envelope. The result aliases entry.
func ParseEnvelope(entry []byte) (Envelope, error) {
	t, err := TypeOf(entry)
	if err != nil {
		return Envelope{}, err
	}
	if t != EntryEnvelope || len(entry) < HeaderSize {
		return Envelope{}, fmt.Errorf("%w: entry of type %d, %d bytes is no envelope", record.ErrFormat, t, len(entry))
	}
	var e Envelope
	e.Fence, _ = record.ParseFence(entry[offFence:offBase])
	e.Base, _ = record.ParseFence(entry[offBase:offProposal])
	copy(e.Proposal[:], entry[offProposal:])
	e.Time = int64(binary.BigEndian.Uint64(entry[offTime:]))
	e.Count = int(binary.BigEndian.Uint32(entry[offCount:]))
	e.body = entry[HeaderSize:]
	return e, nil
}

// Each calls f for every command of the envelope, in order, with a body that
// aliases the entry. It stops at the first error. Trailing bytes are an error.
func (e *Envelope) Each(f func(t Type, body []byte) error) error {
	b := e.body
	for i := range e.Count {
		if len(b) < frameSize {
			return fmt.Errorf("%w: envelope %v ends in command %d of %d", record.ErrFormat, e.Fence, i, e.Count)
		}
		t, n := Type(b[0]), uint64(binary.BigEndian.Uint32(b[1:]))
		b = b[frameSize:]
		if uint64(len(b)) < n {
			return fmt.Errorf("%w: %v of %d bytes in an envelope with %d left", record.ErrFormat, t, n, len(b))
		}
		if t >= typeCount {
			return fmt.Errorf("%w: unknown command type %d", record.ErrFormat, uint8(t))
		}
		if err := f(t, b[:n]); err != nil {
			return fmt.Errorf("%v: %w", t, err)
		}
		b = b[n:]
	}
	if len(b) != 0 {
		return fmt.Errorf("%w: %d bytes after the last command", record.ErrFormat, len(b))
	}
	return nil
}
