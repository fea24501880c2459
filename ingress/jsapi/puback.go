package jsapi

import "strconv"

// PubAck is the answer to a stored message, or to one that was stored before.
type PubAck struct {
	// Stream is the stream's name.
	Stream string
	// Domain is the JetStream domain, if any.
	Domain string
	// Seq is the message's sequence, the last one's of a batch.
	Seq uint64
	// Duplicate says that the message id was known and nothing was stored.
	Duplicate bool
	// Value is the new total of a counter.
	Value string
	// BatchID and BatchSize are set when a batch was committed.
	BatchID   string
	BatchSize int
}

// AppendPubAck appends a's JSON in the exact bytes of JetStream: fields in this order, a space in
// `"duplicate": true` only.
func AppendPubAck(dst []byte, a *PubAck) []byte {
	dst = append(dst, `{"stream":`...)
	dst = appendJSONString(dst, a.Stream)
	if a.Domain != "" {
		dst = append(dst, `,"domain":`...)
		dst = appendJSONString(dst, a.Domain)
	}
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, a.Seq, 10)
	if a.Duplicate {
		dst = append(dst, `,"duplicate": true`...)
	}
	if a.Value != "" {
		dst = append(dst, `,"val":`...)
		dst = appendJSONString(dst, a.Value)
	}
	if a.BatchID != "" {
		dst = append(dst, `,"batch":`...)
		dst = appendJSONString(dst, a.BatchID)
		dst = append(dst, `,"count":`...)
		dst = strconv.AppendInt(dst, int64(a.BatchSize), 10)
	}
	return append(dst, '}')
}

// AppendPubError appends the JSON of a refused publish.
func AppendPubError(dst []byte, stream string, e *Error) []byte {
	dst = append(dst, `{"error":`...)
	dst = e.AppendJSON(dst)
	dst = append(dst, `,"stream":`...)
	dst = appendJSONString(dst, stream)
	return append(dst, `,"seq":0}`...)
}

// AppendBatchAck appends a fast batch's flow acknowledgement: persisted up to seq, one such
// answer every msgs messages.
func AppendBatchAck(dst []byte, seq uint64, msgs uint16) []byte {
	dst = append(dst, `{"type":"ack","seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"msgs":`...)
	dst = strconv.AppendUint(dst, uint64(msgs), 10)
	return append(dst, '}')
}

// AppendBatchGap appends a fast batch's gap report: expected came not, seq did.
func AppendBatchGap(dst []byte, expected, seq uint64) []byte {
	dst = append(dst, `{"type":"gap","last_seq":`...)
	dst = strconv.AppendUint(dst, expected, 10)
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	return append(dst, '}')
}

// AppendBatchError appends a fast batch's report of one refused message.
func AppendBatchError(dst []byte, seq uint64, e *Error) []byte {
	dst = append(dst, `{"type":"err","seq":`...)
	dst = strconv.AppendUint(dst, seq, 10)
	dst = append(dst, `,"error":`...)
	dst = e.AppendJSON(dst)
	return append(dst, '}')
}
