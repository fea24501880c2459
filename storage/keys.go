package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// Key prefixes, in byte order: the batch and the state hash visit them in this order.
const (
	prefixMeta      = '!'
	prefixDue       = 'B'
	prefixConsumer  = 'C'
	prefixDedup     = 'D'
	prefixDedupTime = 'E'
	prefixSubject   = 'J'
	prefixMessage   = 'M'
	prefixStat      = 'N'
	prefixPending   = 'P'
	prefixRow       = 'R'
	prefixStream    = 'S'
	prefixSweep     = 'W'
)

// prefixOrder lists every prefix in byte order.
const prefixOrder = string(prefixMeta) + string(prefixDue) + string(prefixConsumer) + string(prefixDedup) +
	string(prefixDedupTime) + string(prefixSubject) + string(prefixMessage) + string(prefixStat) +
	string(prefixPending) + string(prefixRow) + string(prefixStream) + string(prefixSweep)

// streamPrefixes are the prefixes whose keys start with a stream id: all that
// DeleteStream removes.
const streamPrefixes = string(prefixConsumer) + string(prefixDedup) + string(prefixDedupTime) +
	string(prefixSubject) + string(prefixMessage) + string(prefixStat) + string(prefixPending) +
	string(prefixStream) + string(prefixSweep)

// Parts of a stream's or consumer's rows.
const (
	partDescription = 0
	partState       = 1
)

// Lengths of keys that have a fixed one.
const (
	streamKeySize   = 1 + 4 + 1
	messageKeySize  = 1 + 4 + 8
	dueKeySize      = 1 + 8 + 4 + 8
	consumerKeySize = 1 + 4 + 4 + 1
	pendingKeySize  = 1 + 4 + 4 + 8
	sweepKeySize    = 1 + 4 + 1
)

// Names of the rows under prefixMeta.
const (
	metaApplied = "applied"
	metaConf    = "conf"
	metaCovered = "covered"
	metaFormat  = "format"
)

// Order-preserving escape of a byte string that more key follows: a NUL becomes
// NUL 0xFF, and NUL 0x01 ends the string. The end sorts below every escaped
// byte, so a string sorts before all that it is a prefix of.
const (
	escByte = 0x00
	escNUL  = 0xff
	escEnd  = 0x01
)

func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	for i := range len(s) {
		if s[i] == escByte {
			dst = append(dst, escByte, escNUL)
			continue
		}
		dst = append(dst, s[i])
	}
	return append(dst, escByte, escEnd)
}

// cutEscaped reads an escaped string and returns it with what follows it.
func cutEscaped(b []byte) (s, rest []byte, err error) {
	for i := 0; i < len(b); i++ {
		if b[i] != escByte {
			s = append(s, b[i])
			continue
		}
		if i++; i == len(b) {
			break
		}
		switch b[i] {
		case escNUL:
			s = append(s, escByte)
		case escEnd:
			return s, b[i+1:], nil
		default:
			return nil, nil, fmt.Errorf("%w: escape %#x in a key", record.ErrFormat, b[i])
		}
	}
	return nil, nil, fmt.Errorf("%w: unterminated string in a key", record.ErrFormat)
}

func appendStream(dst []byte, prefix byte, stream record.StreamID) []byte {
	return binary.BigEndian.AppendUint32(append(dst, prefix), uint32(stream))
}

func metaKey(dst []byte, name string) []byte { return append(append(dst, prefixMeta), name...) }

func rowKey(dst []byte, key string) []byte { return append(append(dst, prefixRow), key...) }

func streamKey(dst []byte, stream record.StreamID, part byte) []byte {
	return append(appendStream(dst, prefixStream, stream), part)
}

func messageKey(dst []byte, stream record.StreamID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(appendStream(dst, prefixMessage, stream), seq)
}

func subjectPrefix[T string | []byte](dst []byte, stream record.StreamID, subject T) []byte {
	return appendEscaped(appendStream(dst, prefixSubject, stream), subject)
}

func subjectKey[T string | []byte](dst []byte, stream record.StreamID, subject T, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(subjectPrefix(dst, stream, subject), seq)
}

// parseSubjectKey reads what subjectKey wrote.
func parseSubjectKey(key []byte) (subject []byte, seq uint64, err error) {
	subject, rest, err := cutEscaped(key[5:])
	if err == nil && len(rest) != 8 {
		err = fmt.Errorf("%w: subject row with %d bytes behind the subject", record.ErrFormat, len(rest))
	}
	if err != nil {
		return nil, 0, err
	}
	return subject, binary.BigEndian.Uint64(rest), nil
}

func statKey(dst []byte, stream record.StreamID, subject string) []byte {
	return append(appendStream(dst, prefixStat, stream), subject...)
}

func dueKey(dst []byte, bucket uint64, stream record.StreamID, ticket uint64) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, prefixDue), bucket)
	dst = binary.BigEndian.AppendUint32(dst, uint32(stream))
	return binary.BigEndian.AppendUint64(dst, ticket)
}

func dedupKey(dst []byte, stream record.StreamID, id string) []byte {
	return append(appendStream(dst, prefixDedup, stream), id...)
}

// orderedTime maps a signed time to a word that sorts like it.
func orderedTime(t int64) uint64 { return uint64(t) ^ 1<<63 }

func timeOf(word uint64) int64 { return int64(word ^ 1<<63) }

func dedupTimeKey(dst []byte, stream record.StreamID, time int64, id string) []byte {
	dst = appendStream(dst, prefixDedupTime, stream)
	return append(binary.BigEndian.AppendUint64(dst, orderedTime(time)), id...)
}

func consumerKey(dst []byte, stream record.StreamID, consumer record.ConsumerID, part byte) []byte {
	dst = appendStream(dst, prefixConsumer, stream)
	return append(binary.BigEndian.AppendUint32(dst, uint32(consumer)), part)
}

func pendingPrefix(dst []byte, stream record.StreamID, consumer record.ConsumerID) []byte {
	return binary.BigEndian.AppendUint32(appendStream(dst, prefixPending, stream), uint32(consumer))
}

func pendingKey(dst []byte, stream record.StreamID, consumer record.ConsumerID, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(pendingPrefix(dst, stream, consumer), seq)
}

func sweepKey(dst []byte, stream record.StreamID, kind uint8) []byte {
	return append(appendStream(dst, prefixSweep, stream), kind)
}

// appendSuccessor appends the smallest key greater than every key that starts
// with prefix. The first byte of a key is never 0xFF, so there is one.
func appendSuccessor(dst, prefix []byte) []byte {
	n := len(prefix)
	for n > 1 && prefix[n-1] == 0xff {
		n--
	}
	dst = append(dst, prefix[:n]...)
	dst[len(dst)-1]++
	return dst
}

// lastWord returns the trailing 64-bit word of a key.
func lastWord(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

// keyStream returns the stream of a key whose prefix is one of streamPrefixes.
func keyStream(key []byte) record.StreamID { return record.StreamID(binary.BigEndian.Uint32(key[1:])) }
