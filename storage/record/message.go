package record

import (
	"encoding/binary"
	"fmt"
)

// StreamID names a stream within the cluster. Group 0 hands them out; one is
// never used again, so rows of a deleted stream can be swept late.
type StreamID uint32

// ConsumerID names a consumer within its stream. One is never used again.
type ConsumerID uint32

// MaxSubject is the longest subject a message can have, in bytes: what the
// length field of a serialized message can hold.
const MaxSubject = 1<<16 - 1

const messageFixed = 8 + 2 + 4

// Message is one stored message. Header and Payload may alias the buffer that
// the message was parsed from.
type Message struct {
	Seq     uint64
	Time    int64 // nanoseconds since 1970, cluster time
	Subject string
	Header  []byte // raw NATS header block, or empty
	Payload []byte
}

// MessageSize returns the length of the serialized form of a message with these parts.
func MessageSize(subject string, header, payload []byte) int {
	return messageFixed + len(subject) + len(header) + len(payload)
}

// AppendMessage appends the serialized form of m. The subject must not be
// longer than MaxSubject; admission checks that.
func AppendMessage(dst []byte, m *Message) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(m.Time))
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Subject)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Header)))
	dst = append(dst, m.Subject...)
	dst = append(dst, m.Header...)
	return append(dst, m.Payload...)
}

// ParseMessage reads a serialized message. Header and Payload alias b.
func ParseMessage(seq uint64, b []byte) (Message, error) {
	s, h, err := messageParts(b)
	if err != nil {
		return Message{}, fmt.Errorf("message %d: %w", seq, err)
	}
	return Message{
		Seq:     seq,
		Time:    int64(binary.BigEndian.Uint64(b)),
		Subject: string(b[messageFixed : messageFixed+s]),
		Header:  b[messageFixed+s : messageFixed+s+h : messageFixed+s+h],
		Payload: b[messageFixed+s+h:],
	}, nil
}

// MessageSubject returns the subject of a serialized message, aliasing b.
func MessageSubject(b []byte) ([]byte, error) {
	s, _, err := messageParts(b)
	if err != nil {
		return nil, err
	}
	return b[messageFixed : messageFixed+s], nil
}

// MessageTime returns the time of a serialized message.
func MessageTime(b []byte) (int64, error) {
	if len(b) < messageFixed {
		return 0, fmt.Errorf("%w: serialized message of %d bytes", ErrFormat, len(b))
	}
	return int64(binary.BigEndian.Uint64(b)), nil
}

func messageParts(b []byte) (subject, header int, err error) {
	if len(b) < messageFixed {
		return 0, 0, fmt.Errorf("%w: serialized message of %d bytes", ErrFormat, len(b))
	}
	subject = int(binary.BigEndian.Uint16(b[8:]))
	h := uint64(binary.BigEndian.Uint32(b[10:]))
	if uint64(len(b)) < uint64(messageFixed+subject)+h {
		return 0, 0, fmt.Errorf("%w: serialized message of %d bytes says subject %d, header %d",
			ErrFormat, len(b), subject, h)
	}
	return subject, int(h), nil
}

// SubjectHash is the 64-bit FNV-1a hash of a subject, as StoreBatch carries it.
func SubjectHash(subject string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(subject) {
		h = (h ^ uint64(subject[i])) * 1099511628211
	}
	return h
}
