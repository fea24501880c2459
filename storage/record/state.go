package record

import (
	"encoding/binary"
	"fmt"
)

// Sizes of the fixed rows, in bytes.
const (
	StreamStateSize   = 8 * 8
	SubjectStatSize   = 3 * 8
	ConsumerStateSize = 9 * 8
	PendingSize       = 4*8 + 4 + 4
)

// StreamState is the counters row of a stream.
type StreamState struct {
	FirstSeq uint64 // of the oldest message; LastSeq+1 when empty; rows below it are dead
	LastSeq  uint64 // last sequence given out, also for a body-less one
	Messages uint64
	Bytes    uint64
	// FirstTime is the time of the message FirstSeq, 0 when empty; LastTime that of LastSeq. Nanoseconds.
	FirstTime, LastTime int64
	Subjects            uint64     // distinct subjects
	NextConsumer        ConsumerID // id for the next consumer created
}

// AppendStreamState appends the binary form: eight big-endian 64-bit words, in field order.
func AppendStreamState(dst []byte, s *StreamState) []byte {
	for _, v := range [...]uint64{
		s.FirstSeq, s.LastSeq, s.Messages, s.Bytes,
		uint64(s.FirstTime), uint64(s.LastTime), s.Subjects, uint64(s.NextConsumer),
	} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return dst
}

// ParseStreamState reads what AppendStreamState wrote.
func ParseStreamState(b []byte) (StreamState, error) {
	if len(b) != StreamStateSize {
		return StreamState{}, fmt.Errorf("%w: stream state of %d bytes, want %d", ErrFormat, len(b), StreamStateSize)
	}
	w := words(b)
	return StreamState{
		FirstSeq: w(0), LastSeq: w(1), Messages: w(2), Bytes: w(3),
		FirstTime: int64(w(4)), LastTime: int64(w(5)), Subjects: w(6), NextConsumer: ConsumerID(w(7)),
	}, nil
}

// SubjectStat is the row of one subject of a stream. First is a lower bound:
// deleting the oldest message of a subject need not look for the next one.
// Last is exact.
type SubjectStat struct {
	Count, First, Last uint64
}

// AppendSubjectStat appends the binary form: three big-endian 64-bit words, in field order.
func AppendSubjectStat(dst []byte, s SubjectStat) []byte {
	dst = binary.BigEndian.AppendUint64(dst, s.Count)
	dst = binary.BigEndian.AppendUint64(dst, s.First)
	return binary.BigEndian.AppendUint64(dst, s.Last)
}

// ParseSubjectStat reads what AppendSubjectStat wrote.
func ParseSubjectStat(b []byte) (SubjectStat, error) {
	if len(b) != SubjectStatSize {
		return SubjectStat{}, fmt.Errorf("%w: subject row of %d bytes, want %d", ErrFormat, len(b), SubjectStatSize)
	}
	w := words(b)
	return SubjectStat{Count: w(0), First: w(1), Last: w(2)}, nil
}

// ConsumerState is the cursor row of a consumer. Times are nanoseconds of cluster time, 0 = never.
type ConsumerState struct {
	Next              uint64 // next stream sequence to look at for a first delivery
	DeliveredConsumer uint64 // consumer sequence of the last delivery
	DeliveredStream   uint64 // highest stream sequence delivered
	AckFloorConsumer  uint64
	AckFloorStream    uint64
	DeliveredTime     int64
	AckTime           int64
	Redelivered       uint64 // messages given up after max_deliver: no longer pending, still counted
	SkipTo            uint64 // last_per_subject: history ends at this sequence; 0 when not used
}

// AppendConsumerState appends the binary form: nine big-endian 64-bit words, in field order.
func AppendConsumerState(dst []byte, s *ConsumerState) []byte {
	for _, v := range [...]uint64{
		s.Next, s.DeliveredConsumer, s.DeliveredStream, s.AckFloorConsumer, s.AckFloorStream,
		uint64(s.DeliveredTime), uint64(s.AckTime), s.Redelivered, s.SkipTo,
	} {
		dst = binary.BigEndian.AppendUint64(dst, v)
	}
	return dst
}

// ParseConsumerState reads what AppendConsumerState wrote.
func ParseConsumerState(b []byte) (ConsumerState, error) {
	if len(b) != ConsumerStateSize {
		return ConsumerState{}, fmt.Errorf("%w: consumer state of %d bytes, want %d",
			ErrFormat, len(b), ConsumerStateSize)
	}
	w := words(b)
	return ConsumerState{
		Next: w(0), DeliveredConsumer: w(1), DeliveredStream: w(2), AckFloorConsumer: w(3), AckFloorStream: w(4),
		DeliveredTime: int64(w(5)), AckTime: int64(w(6)), Redelivered: w(7), SkipTo: w(8),
	}, nil
}

// PendingKind says why a consumer has a row for a sequence.
type PendingKind uint32

// Kinds of pending rows.
const (
	// PendingAck: delivered, waits for its ack until Due.
	PendingAck PendingKind = iota
	// PendingNak: given back; redelivered when Due has come, before new messages.
	PendingNak
	// PendingSettled: acked ahead of the cursor (its delivery by an earlier term
	// was not recorded); the cursor steps over it.
	PendingSettled
	// PendingExhausted: max_deliver reached; not delivered again, counted in num_redelivered.
	PendingExhausted
)

// Pending is the row of one delivered and not settled message of a consumer.
type Pending struct {
	Seq         uint64 // stream sequence: part of the key, not of the value
	ConsumerSeq uint64 // of its first delivery
	Delivered   int64  // time of the last delivery, nanoseconds
	Due         int64  // when it is redelivered if nothing comes, nanoseconds
	LastSeq     uint64 // consumer sequence of the last delivery
	Count       uint32 // deliveries so far
	Kind        PendingKind
}

// AppendPending appends the binary form of p without its sequence.
func AppendPending(dst []byte, p *Pending) []byte {
	dst = binary.BigEndian.AppendUint64(dst, p.ConsumerSeq)
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.Delivered))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.Due))
	dst = binary.BigEndian.AppendUint64(dst, p.LastSeq)
	dst = binary.BigEndian.AppendUint32(dst, p.Count)
	return binary.BigEndian.AppendUint32(dst, uint32(p.Kind))
}

// ParsePending reads what AppendPending wrote.
func ParsePending(seq uint64, b []byte) (Pending, error) {
	if len(b) != PendingSize {
		return Pending{}, fmt.Errorf("%w: pending row of %d bytes, want %d", ErrFormat, len(b), PendingSize)
	}
	w := words(b)
	p := Pending{
		Seq: seq, ConsumerSeq: w(0), Delivered: int64(w(1)), Due: int64(w(2)), LastSeq: w(3),
		Count: binary.BigEndian.Uint32(b[32:]), Kind: PendingKind(binary.BigEndian.Uint32(b[36:])),
	}
	if p.Kind > PendingExhausted {
		return Pending{}, fmt.Errorf("%w: pending row of unknown kind %d", ErrFormat, p.Kind)
	}
	return p, nil
}

func words(b []byte) func(int) uint64 {
	return func(i int) uint64 { return binary.BigEndian.Uint64(b[8*i:]) }
}
