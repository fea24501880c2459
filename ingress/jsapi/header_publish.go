package jsapi

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"
)

// PublishHeaders are the headers of a publish that mean something to a stream. The byte slices
// share the memory of the parsed block. A header that is absent or empty is an empty slice: to
// JetStream these are the same. Of several headers with one key the first counts.
type PublishHeaders struct {
	MsgID               []byte
	ExpectedStream      []byte
	ExpectedLastSubject []byte
	ExpectedLastMsgID   []byte
	Rollup              []byte
	TTL                 []byte
	Incr                []byte
	BatchID             []byte
	BatchCommit         []byte
	Schedule            []byte
	ScheduleTimeZone    []byte
	ScheduleTTL         []byte
	ScheduleRollup      []byte
	ScheduleTarget      []byte
	ScheduleSource      []byte
	Scheduler           []byte
	ScheduleNext        []byte
	StreamSource        []byte
	RequiredLevel       []byte
	HoldfastAck         []byte

	// The numbers; a value that is no number reads as MaxUint64, which no sequence equals.
	expectedLastSeq        []byte
	expectedLastSubjectSeq []byte
	batchSeq               []byte

	// RequestInfo is set when Nats-Request-Info is there, which is never stored.
	RequestInfo bool
	// Status is set when the first line has a status, which is never stored.
	Status bool
}

// Parse reads a header block in one pass, forgetting what h held. It does not allocate. An empty
// block is no headers.
func (h *PublishHeaders) Parse(hdr []byte) {
	*h = PublishHeaders{}
	line, rest := cutLine(hdr)
	h.Status = len(line) > versionLen && string(line[:versionLen]) == HeaderVersion[:versionLen]
	for len(rest) > 0 {
		line, rest = cutLine(rest)
		if len(line) == 0 || line[0] != 'N' && line[0] != 'H' {
			continue
		}
		colon := bytes.IndexByte(line, ':')
		if colon < 0 {
			continue
		}
		field := h.field(line[:colon])
		if field != nil && *field == nil {
			*field = slices.Clip(trimSpaces(line[colon+1:]))
		}
	}
}

// field returns where the value of key goes, nil for a key without meaning.
func (h *PublishHeaders) field(key []byte) *[]byte {
	switch string(key) {
	case HdrMsgID:
		return &h.MsgID
	case HdrTTL:
		return &h.TTL
	case HdrRollup:
		return &h.Rollup
	case HdrIncr:
		return &h.Incr
	case HdrHoldfastAck:
		return &h.HoldfastAck
	case HdrRequiredLevel:
		return &h.RequiredLevel
	case HdrStreamSource:
		return &h.StreamSource
	case HdrRequestInfo:
		h.RequestInfo = true
		return nil
	case HdrBatchID:
		return &h.BatchID
	case HdrBatchSeq:
		return &h.batchSeq
	case HdrBatchCommit:
		return &h.BatchCommit
	}
	return h.rareField(key)
}

func (h *PublishHeaders) rareField(key []byte) *[]byte {
	switch string(key) {
	case HdrExpectedStream:
		return &h.ExpectedStream
	case HdrExpectedLastSeq:
		return &h.expectedLastSeq
	case HdrExpectedLastSubjectSeq:
		return &h.expectedLastSubjectSeq
	case HdrExpectedLastSubject:
		return &h.ExpectedLastSubject
	case HdrExpectedLastMsgID:
		return &h.ExpectedLastMsgID
	case HdrSchedule:
		return &h.Schedule
	case HdrScheduleTimeZone:
		return &h.ScheduleTimeZone
	case HdrScheduleTTL:
		return &h.ScheduleTTL
	case HdrScheduleRollup:
		return &h.ScheduleRollup
	case HdrScheduleTarget:
		return &h.ScheduleTarget
	case HdrScheduleSource:
		return &h.ScheduleSource
	case HdrScheduler:
		return &h.Scheduler
	case HdrScheduleNext:
		return &h.ScheduleNext
	}
	return nil
}

// ExpectedLastSeq is the value of Nats-Expected-Last-Sequence; false when there is none.
func (h *PublishHeaders) ExpectedLastSeq() (uint64, bool) { return headerSeq(h.expectedLastSeq) }

// ExpectedLastSubjectSeq is the value of Nats-Expected-Last-Subject-Sequence; false when there is
// none.
func (h *PublishHeaders) ExpectedLastSubjectSeq() (uint64, bool) {
	return headerSeq(h.expectedLastSubjectSeq)
}

// BatchSeq is the value of Nats-Batch-Sequence; false when there is none.
func (h *PublishHeaders) BatchSeq() (uint64, bool) { return headerSeq(h.batchSeq) }

func headerSeq(v []byte) (uint64, bool) {
	if len(v) == 0 {
		return 0, false
	}
	if n, ok := parseUint(v); ok {
		return n, true
	}
	return math.MaxUint64, true
}

// HasExpectation reports whether any Nats-Expected-… header is there.
func (h *PublishHeaders) HasExpectation() bool {
	return len(h.ExpectedStream)+len(h.ExpectedLastMsgID)+len(h.ExpectedLastSubject)+
		len(h.expectedLastSeq)+len(h.expectedLastSubjectSeq) > 0
}

// HasSchedule reports whether any header of message schedules is there.
func (h *PublishHeaders) HasSchedule() bool {
	return len(h.Schedule)+len(h.ScheduleTimeZone)+len(h.ScheduleTTL)+len(h.ScheduleRollup)+
		len(h.ScheduleTarget)+len(h.ScheduleSource)+len(h.Scheduler)+len(h.ScheduleNext) > 0
}

// NeedsQuorum reports whether a header demands AckQuorum: those whose verdict or effect rests on
// what the stream holds.
func (h *PublishHeaders) NeedsQuorum() bool {
	return h.HasExpectation() || len(h.Rollup)+len(h.Incr)+len(h.BatchID) > 0
}

// RollupKind returns RollupSubject or RollupAll for a valid Nats-Rollup, "" when there is none;
// false when the value is neither.
func (h *PublishHeaders) RollupKind() (string, bool) {
	switch v := h.Rollup; {
	case len(v) == 0:
		return "", true
	case len(v) == 3 && strings.EqualFold(string(v), RollupSubject):
		return RollupSubject, true
	case len(v) == 3 && strings.EqualFold(string(v), RollupAll):
		return RollupAll, true
	}
	return "", false
}

// TTLNever is what ParseTTL returns for "never": exempt from max_age.
const TTLNever time.Duration = -1

// ParseTTL parses Nats-TTL: whole seconds, a Go duration of at least a second (cut to whole
// seconds), or "never" in any case. An empty value is 0, no TTL; the error is 10165.
func ParseTTL(v []byte) (time.Duration, *Error) {
	if len(v) == 0 {
		return 0, nil
	}
	if n, ok := parseUint(v); ok && n > 0 {
		if n > uint64(math.MaxInt64/time.Second) {
			return 0, NewError(CodeMessageTTLInvalid)
		}
		return time.Duration(n) * time.Second, nil
	}
	s := string(v)
	if strings.EqualFold(s, "never") {
		return TTLNever, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < MinMarkerTTL {
		return 0, NewError(CodeMessageTTLInvalid)
	}
	return d.Truncate(time.Second), nil
}

// APILevelSupported judges a Nats-Required-Api-Level value: true when there is none or it is a
// number up to level. False is answered by 10185, or 412 where the answer is a status.
func APILevelSupported(v []byte, level int) bool {
	if len(v) == 0 {
		return true
	}
	neg := v[0] == '-'
	if neg || v[0] == '+' {
		v = v[1:]
	}
	n, ok := parseUint(v)
	return ok && (neg || n <= uint64(max(level, 0)))
}
