package jsapi

import (
	"strconv"
	"strings"
)

// DefaultPrefix is the API prefix of a client without a domain.
const DefaultPrefix = "$JS.API"

// DomainPrefix returns the API prefix of JetStream domain d; an empty d is DefaultPrefix.
func DomainPrefix(d string) string {
	if d == "" {
		return DefaultPrefix
	}
	return "$JS." + d + ".API"
}

// Verb is one call of the JetStream API.
type Verb uint8

// The verbs, named after their subjects.
const (
	VerbUnknown Verb = iota
	VerbConsumerNext
	VerbDirectGet
	VerbInfo
	VerbStreamCreate
	VerbStreamUpdate
	VerbStreamInfo
	VerbStreamNames
	VerbStreamList
	VerbStreamDelete
	VerbStreamPurge
	VerbStreamMsgGet
	VerbStreamMsgDelete
	VerbStreamSnapshot
	VerbStreamRestore
	VerbConsumerCreate
	VerbConsumerDurableCreate
	VerbConsumerInfo
	VerbConsumerNames
	VerbConsumerList
	VerbConsumerDelete
	VerbConsumerPause
	VerbConsumerReset
	VerbConsumerUnpin
	VerbStreamLeaderStepdown
	VerbConsumerLeaderStepdown
	VerbStreamPeerRemove
	VerbStreamPeerEvacuate
	VerbConsumerPeerRemove
	VerbConsumerPeerEvacuate
	VerbStreamCancelMove
)

// verbArgs says which tokens follow a verb.
type verbArgs uint8

const (
	argsNone           verbArgs = iota
	argsStream                  // <s>
	argsStreamConsumer          // <s>.<c>
	argsStreamRest              // <s>[.<rest…>]
	argsCreate                  // <s>[.<c>[.<rest…>]]
)

type verbRow struct {
	verb Verb
	args verbArgs
	name string // Subject below the prefix.
	kind string // Type of the JSON response; empty when the answer is not JSON.
}

// verbRows is indexed by Verb; the two verbs that come once per message are first.
//
//nolint:gochecknoglobals // Constant data, never written.
var verbRows = [...]verbRow{
	{VerbUnknown, argsNone, "", "system"},
	{VerbConsumerNext, argsStreamConsumer, "CONSUMER.MSG.NEXT", ""},
	{VerbDirectGet, argsStreamRest, "DIRECT.GET", ""},
	{VerbInfo, argsNone, "INFO", "account_info"},
	{VerbStreamCreate, argsStream, "STREAM.CREATE", "stream_create"},
	{VerbStreamUpdate, argsStream, "STREAM.UPDATE", "stream_update"},
	{VerbStreamInfo, argsStream, "STREAM.INFO", "stream_info"},
	{VerbStreamNames, argsNone, "STREAM.NAMES", "stream_names"},
	{VerbStreamList, argsNone, "STREAM.LIST", "stream_list"},
	{VerbStreamDelete, argsStream, "STREAM.DELETE", "stream_delete"},
	{VerbStreamPurge, argsStream, "STREAM.PURGE", "stream_purge"},
	{VerbStreamMsgGet, argsStream, "STREAM.MSG.GET", "stream_msg_get"},
	{VerbStreamMsgDelete, argsStream, "STREAM.MSG.DELETE", "stream_msg_delete"},
	{VerbStreamSnapshot, argsStream, "STREAM.SNAPSHOT", "stream_snapshot"},
	{VerbStreamRestore, argsStream, "STREAM.RESTORE", "stream_restore"},
	{VerbConsumerCreate, argsCreate, "CONSUMER.CREATE", "consumer_create"},
	{VerbConsumerDurableCreate, argsStreamConsumer, "CONSUMER.DURABLE.CREATE", "consumer_create"},
	{VerbConsumerInfo, argsStreamConsumer, "CONSUMER.INFO", "consumer_info"},
	{VerbConsumerNames, argsStream, "CONSUMER.NAMES", "consumer_names"},
	{VerbConsumerList, argsStream, "CONSUMER.LIST", "consumer_list"},
	{VerbConsumerDelete, argsStreamConsumer, "CONSUMER.DELETE", "consumer_delete"},
	{VerbConsumerPause, argsStreamConsumer, "CONSUMER.PAUSE", "consumer_pause"},
	{VerbConsumerReset, argsStreamConsumer, "CONSUMER.RESET", "consumer_reset"},
	{VerbConsumerUnpin, argsStreamConsumer, "CONSUMER.UNPIN", "consumer_unpin"},
	{VerbStreamLeaderStepdown, argsStream, "STREAM.LEADER.STEPDOWN", "stream_leader_stepdown"},
	{VerbConsumerLeaderStepdown, argsStreamConsumer, "CONSUMER.LEADER.STEPDOWN", "consumer_leader_stepdown"},
	{VerbStreamPeerRemove, argsStream, "STREAM.PEER.REMOVE", "stream_remove_peer"},
	{VerbStreamPeerEvacuate, argsStream, "STREAM.PEER.EVACUATE", "stream_evacuate_peer"},
	{VerbConsumerPeerRemove, argsStreamConsumer, "CONSUMER.PEER.REMOVE", "consumer_remove_peer"},
	{VerbConsumerPeerEvacuate, argsStreamConsumer, "CONSUMER.PEER.EVACUATE", "consumer_evacuate_peer"},
	{VerbStreamCancelMove, argsStream, "STREAM.CANCEL_MOVE", "stream_cancel_move"},
}

func (v Verb) row() *verbRow {
	if int(v) >= len(verbRows) {
		v = VerbUnknown
	}
	return &verbRows[v]
}

// String returns the verb's subject below the prefix, "unknown" for VerbUnknown.
func (v Verb) String() string {
	if name := v.row().name; name != "" {
		return name
	}
	return "unknown"
}

const (
	snapshotAckPrefix     = "$JS.SNAPSHOT.ACK."
	snapshotRestorePrefix = "$JS.SNAPSHOT.RESTORE."
)

// typePrefix starts the type of every API response, advisories apart.
const typePrefix = "io.nats.jetstream.api.v1."

// ResponseType returns the "type" of the verb's JSON response. It is empty for MSG.NEXT and
// DIRECT.GET, whose answers are messages.
func (v Verb) ResponseType() string {
	if kind := v.row().kind; kind != "" {
		return typePrefix + kind + "_response"
	}
	return ""
}

// Request is a parsed API subject.
type Request struct {
	// Verb is the call.
	Verb Verb
	// Stream is the stream's token, empty for INFO, STREAM.NAMES and STREAM.LIST.
	Stream string
	// Consumer is the consumer's token where the form has one.
	Consumer string
	// Rest is what follows: the filter of CONSUMER.CREATE.<s>.<c>.<filter…>, the subject of
	// DIRECT.GET.<s>.<subject…>. It may have wildcard tokens.
	Rest string
}

// ParseRequest parses an API subject below prefix (DefaultPrefix or a DomainPrefix). False means
// that JetStream does not answer such a subject at all: another prefix, an unknown verb, a wrong
// number of tokens, an empty token, or a verb of the system account. The result shares subject's
// memory.
func ParseRequest(prefix, subject string) (Request, bool) {
	if len(subject) <= len(prefix)+1 || subject[len(prefix)] != '.' || subject[:len(prefix)] != prefix {
		return Request{}, false
	}
	tail := subject[len(prefix)+1:]
	for i := range verbRows {
		r := &verbRows[i]
		if r.verb == VerbUnknown || !strings.HasPrefix(tail, r.name) {
			continue
		}
		args := tail[len(r.name):]
		if r.args == argsNone {
			if args == "" {
				return Request{Verb: r.verb}, true
			}
			continue
		}
		if len(args) < 2 || args[0] != '.' {
			continue
		}
		return r.parseArgs(args[1:])
	}
	return Request{}, false
}

func (r *verbRow) parseArgs(args string) (Request, bool) {
	req := Request{Verb: r.verb}
	var rest string
	var more bool
	req.Stream, rest, more = strings.Cut(args, ".")
	if req.Stream == "" || more && emptyToken(rest) {
		return Request{}, false
	}
	switch r.args {
	case argsStream:
		return req, !more
	case argsStreamRest:
		req.Rest = rest
		return req, true
	case argsStreamConsumer:
		req.Consumer = rest
		return req, more && strings.IndexByte(rest, '.') < 0
	default:
		req.Consumer, req.Rest, _ = strings.Cut(rest, ".")
		return req, true
	}
}

// emptyToken reports whether some token of s is empty.
func emptyToken(s string) bool {
	return s == "" || s[0] == '.' || s[len(s)-1] == '.' || strings.Contains(s, "..")
}

// SnapshotSubject is a parsed subject of a snapshot or restore in progress.
type SnapshotSubject struct {
	// Stream is the stream's name.
	Stream string
	// ID is the server's name for this run.
	ID string
	// Size and Index are of the acknowledged chunk, the first one's index being 1.
	Size, Index uint64
}

// ParseSnapshotAck parses $JS.SNAPSHOT.ACK.<stream>.<id>.<size>.<index>, the receiver's answer to
// one chunk of a snapshot.
func ParseSnapshotAck(subject string) (SnapshotSubject, bool) {
	tail, ok := strings.CutPrefix(subject, snapshotAckPrefix)
	var toks [4]string
	if !ok || splitTokens(tail, toks[:]) != len(toks) || emptyToken(tail) {
		return SnapshotSubject{}, false
	}
	size, okSize := parseUint(toks[2])
	index, okIndex := parseUint(toks[3])
	return SnapshotSubject{Stream: toks[0], ID: toks[1], Size: size, Index: index}, okSize && okIndex
}

// AppendSnapshotAck appends the subject that ParseSnapshotAck parses.
func AppendSnapshotAck(dst []byte, s *SnapshotSubject) []byte {
	dst = append(dst, snapshotAckPrefix...)
	dst = append(dst, s.Stream...)
	dst = append(dst, '.')
	dst = append(dst, s.ID...)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, s.Size, 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, s.Index, 10)
}

// ParseSnapshotRestore parses $JS.SNAPSHOT.RESTORE.<stream>.<id>, which carries the chunks of a
// restore.
func ParseSnapshotRestore(subject string) (SnapshotSubject, bool) {
	tail, ok := strings.CutPrefix(subject, snapshotRestorePrefix)
	var toks [2]string
	if !ok || splitTokens(tail, toks[:]) != len(toks) || emptyToken(tail) {
		return SnapshotSubject{}, false
	}
	return SnapshotSubject{Stream: toks[0], ID: toks[1]}, true
}

// SnapshotRestoreSubject returns the subject that ParseSnapshotRestore parses.
func SnapshotRestoreSubject(stream, id string) string {
	return snapshotRestorePrefix + stream + "." + id
}
