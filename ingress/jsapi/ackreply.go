package jsapi

import (
	"strconv"
	"strings"
)

const (
	ackPrefix = "$JS.ACK."
	fcPrefix  = "$JS.FC."

	// Tokens after the prefix; a reader of the second version ignores what follows the known ones.
	ackTokensV1 = 7
	ackTokensV2 = 9
	fcTokensV1  = 3
	fcTokensV2  = 5

	// noDomain stands for "no domain" in subjects of the second version.
	noDomain = "_"
)

// NoSequence is the sequence of a token that is no number: no message has it.
const NoSequence = 1<<64 - 1

// AckReply is what the reply subject of a delivery says and what an acknowledgement brings back.
//
//	v1  $JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>
//	v2  $JS.ACK.<domain or _>.<account>.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ts>.<pending>[.…]
type AckReply struct {
	// Domain is the JetStream domain (v2 only).
	Domain string
	// Account is the account's hash. Empty in v1: it decides which form is written.
	Account string
	// Stream and Consumer name the consumer that sent the message.
	Stream   string
	Consumer string
	// Delivered counts deliveries of this message, from 1.
	Delivered uint64
	// StreamSeq is the message; NoSequence in a parsed subject means that the token was no number.
	// For 0 there is neither an effect nor a reply.
	StreamSeq uint64
	// ConsumerSeq is the consumer's own count of deliveries.
	ConsumerSeq uint64
	// Timestamp is the message's time in nanoseconds since 1970.
	Timestamp int64
	// Pending is how many messages remain for the consumer after this one.
	Pending uint64
}

// ParseAckReply parses an acknowledgement's subject of either version. False: the subject has not
// the shape of one, so nobody listens on it. A token that should be a number and is not reads as
// 0, or as NoSequence where it is the message. The result shares subject's memory; nothing is allocated.
func ParseAckReply(subject string) (AckReply, bool) {
	if !strings.HasPrefix(subject, ackPrefix) {
		return AckReply{}, false
	}
	var toks [ackTokensV2]string
	n := splitTokens(subject[len(ackPrefix):], toks[:])
	var r AckReply
	nums := toks[2:ackTokensV1]
	switch {
	case n == ackTokensV1:
		r.Stream, r.Consumer = toks[0], toks[1]
	case n >= ackTokensV2 && toks[1] != "":
		r.Account, r.Stream, r.Consumer = toks[1], toks[2], toks[3]
		if toks[0] != noDomain {
			r.Domain = toks[0]
		}
		nums = toks[4:]
	default:
		return AckReply{}, false
	}
	r.Delivered, _ = parseUint(nums[0])
	if n, ok := parseUint(nums[1]); ok {
		r.StreamSeq = n
	} else {
		r.StreamSeq = NoSequence
	}
	r.ConsumerSeq, _ = parseUint(nums[2])
	if ts, _ := parseUint(nums[3]); ts <= 1<<63-1 {
		r.Timestamp = int64(ts)
	}
	r.Pending, _ = parseUint(nums[4])
	return r, r.Stream != "" && r.Consumer != ""
}

// AppendAckReply appends r as a subject: the first version, the second when r.Account is set.
func AppendAckReply(dst []byte, r *AckReply) []byte {
	dst = append(dst, ackPrefix...)
	if r.Account != "" {
		dst = appendDomain(dst, r.Domain)
		dst = append(dst, r.Account...)
		dst = append(dst, '.')
	}
	dst = append(dst, r.Stream...)
	dst = append(dst, '.')
	dst = append(dst, r.Consumer...)
	ts := uint64(max(r.Timestamp, 0))
	for _, n := range [...]uint64{r.Delivered, r.StreamSeq, r.ConsumerSeq, ts, r.Pending} {
		dst = append(dst, '.')
		dst = strconv.AppendUint(dst, n, 10)
	}
	return dst
}

// AppendDelivery appends r followed by '@' and the message's subject: the reply of a delivery sent
// over a leaf connection, which the server that holds the client splits into the reply and the
// subject shown.
func AppendDelivery(dst []byte, r *AckReply, subject string) []byte {
	dst = AppendAckReply(dst, r)
	dst = append(dst, '@')
	return append(dst, subject...)
}

// FlowControl is a parsed flow-control subject, the reply of a flow-control request.
//
//	v1  $JS.FC.<stream>.<consumer>.<id>
//	v2  $JS.FC.<domain or _>.<account>.<stream>.<consumer>.<id>
type FlowControl struct {
	// Domain and Account are of the second version only; Account decides the form written.
	Domain  string
	Account string
	// Stream and Consumer name the consumer that asked.
	Stream   string
	Consumer string
	// ID tells one request from another.
	ID string
}

// ParseFlowControl parses a flow-control subject of either version. The result shares its memory.
func ParseFlowControl(subject string) (FlowControl, bool) {
	if !strings.HasPrefix(subject, fcPrefix) {
		return FlowControl{}, false
	}
	var toks [fcTokensV2]string
	var f FlowControl
	switch n := splitTokens(subject[len(fcPrefix):], toks[:]); {
	case n == fcTokensV1:
		f.Stream, f.Consumer, f.ID = toks[0], toks[1], toks[2]
	case n == fcTokensV2 && toks[1] != "":
		f.Account, f.Stream, f.Consumer, f.ID = toks[1], toks[2], toks[3], toks[4]
		if toks[0] != noDomain {
			f.Domain = toks[0]
		}
	default:
		return FlowControl{}, false
	}
	return f, f.Stream != "" && f.Consumer != "" && f.ID != ""
}

// AppendFlowControl appends f as a subject: the first version, the second when f.Account is set.
func AppendFlowControl(dst []byte, f *FlowControl) []byte {
	dst = append(dst, fcPrefix...)
	if f.Account != "" {
		dst = appendDomain(dst, f.Domain)
		dst = append(dst, f.Account...)
		dst = append(dst, '.')
	}
	dst = append(dst, f.Stream...)
	dst = append(dst, '.')
	dst = append(dst, f.Consumer...)
	dst = append(dst, '.')
	return append(dst, f.ID...)
}

func appendDomain(dst []byte, domain string) []byte {
	if domain == "" {
		domain = noDomain
	}
	dst = append(dst, domain...)
	return append(dst, '.')
}

// splitTokens fills toks with the tokens of s and returns how many s has, which may be more than
// fit.
func splitTokens(s string, toks []string) int {
	n := 0
	for i := 0; i >= 0; n++ {
		tok, next := nextToken(s, i)
		if n < len(toks) {
			toks[n] = tok
		}
		i = next
	}
	return n
}

// parseUint reads decimal digits only, no sign; false on anything else or an overflow.
func parseUint[T string | []byte](s T) (uint64, bool) {
	if len(s) == 0 || len(s) > 20 {
		return 0, false
	}
	var n uint64
	for i := range len(s) {
		d := uint64(s[i] - '0')
		if d > 9 || n > (1<<64-1)/10 || n*10 > 1<<64-1-d {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}
