package jsapi

import "time"

// Event starts every advisory. ID is unique; the timestamp is UTC.
type Event struct {
	Type string    `json:"type"`
	ID   string    `json:"id"`
	Time time.Time `json:"timestamp"`
}

const (
	advisoryType = "io.nats.jetstream.advisory.v1."
	metricType   = "io.nats.jetstream.metric.v1."
)

// NewEvent returns the start of an advisory; kind is one of the Advisory… or Metric… constants.
func NewEvent(kind, id string, now time.Time) Event {
	return Event{Type: kind, ID: id, Time: now.UTC()}
}

// The types of advisories.
const (
	AdvisoryAPIAudit       = advisoryType + "api_audit"
	AdvisoryStreamAction   = advisoryType + "stream_action"
	AdvisoryConsumerAction = advisoryType + "consumer_action"
	AdvisoryConsumerPause  = advisoryType + "consumer_pause"
	AdvisoryMaxDeliver     = advisoryType + "max_deliver"
	AdvisoryNak            = advisoryType + "nak"
	AdvisoryTerminated     = advisoryType + "terminated"
	AdvisoryPinned         = advisoryType + "consumer_group_pinned"
	AdvisoryUnpinned       = advisoryType + "consumer_group_unpinned"
	AdvisoryBatchAbandoned = advisoryType + "stream_batch_abandoned"
	MetricConsumerAck      = metricType + "consumer_ack"
)

// Subjects of advisories. Those that end in a dot are followed by the stream, or by stream, dot,
// consumer.
const (
	SubjectAPIAudit        = "$JS.EVENT.ADVISORY.API"
	SubjectStreamCreated   = "$JS.EVENT.ADVISORY.STREAM.CREATED."
	SubjectStreamDeleted   = "$JS.EVENT.ADVISORY.STREAM.DELETED."
	SubjectStreamUpdated   = "$JS.EVENT.ADVISORY.STREAM.UPDATED."
	SubjectBatchAbandoned  = "$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED."
	SubjectConsumerCreated = "$JS.EVENT.ADVISORY.CONSUMER.CREATED."
	SubjectConsumerDeleted = "$JS.EVENT.ADVISORY.CONSUMER.DELETED."
	SubjectConsumerPause   = "$JS.EVENT.ADVISORY.CONSUMER.PAUSE."
	SubjectMaxDeliveries   = "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES."
	SubjectMsgNaked        = "$JS.EVENT.ADVISORY.CONSUMER.MSG_NAKED."
	SubjectMsgTerminated   = "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED."
	SubjectPinned          = "$JS.EVENT.ADVISORY.CONSUMER.PINNED."
	SubjectUnpinned        = "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED."
	SubjectMetricAck       = "$JS.EVENT.METRIC.CONSUMER.ACK."
)

// Reasons of AdvisoryTerminated that the server gives.
const (
	// TermDeleted: the message was removed while it was pending on the consumer.
	TermDeleted = "Unacknowledged message was deleted"
	// TermLimits: housekeeping found a pending message below the stream's first sequence.
	TermLimits = "Message deleted by stream limits"
)

// Action of a stream or consumer advisory.
type Action string

// The actions.
const (
	ActionCreated  Action = "create"
	ActionDeleted  Action = "delete"
	ActionModified Action = "modify"
)

// StreamActionAdvisory says that a stream was created, deleted or updated.
type StreamActionAdvisory struct {
	Event
	Stream string `json:"stream"`
	Action Action `json:"action"`
	Domain string `json:"domain,omitempty"`
}

// ConsumerActionAdvisory says that a consumer was created or deleted.
type ConsumerActionAdvisory struct {
	Event
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Action   Action `json:"action"`
	Domain   string `json:"domain,omitempty"`
}

// ConsumerPauseAdvisory says that a consumer was paused or resumed.
type ConsumerPauseAdvisory struct {
	Event
	Stream     string    `json:"stream"`
	Consumer   string    `json:"consumer"`
	Paused     bool      `json:"paused"`
	PauseUntil time.Time `json:"pause_until"`
	Domain     string    `json:"domain,omitempty"`
}

// MaxDeliverAdvisory says that a message was delivered max_deliver times without an ack.
type MaxDeliverAdvisory struct {
	Event
	Stream     string `json:"stream"`
	Consumer   string `json:"consumer"`
	StreamSeq  uint64 `json:"stream_seq"`
	Deliveries uint64 `json:"deliveries"`
	Domain     string `json:"domain,omitempty"`
}

// NakAdvisory says that a message was refused.
type NakAdvisory struct {
	Event
	Stream      string `json:"stream"`
	Consumer    string `json:"consumer"`
	ConsumerSeq uint64 `json:"consumer_seq"`
	StreamSeq   uint64 `json:"stream_seq"`
	Deliveries  uint64 `json:"deliveries"`
	Domain      string `json:"domain,omitempty"`
}

// TerminatedAdvisory says that a message will not be delivered again.
type TerminatedAdvisory struct {
	Event
	Stream      string `json:"stream"`
	Consumer    string `json:"consumer"`
	ConsumerSeq uint64 `json:"consumer_seq"`
	StreamSeq   uint64 `json:"stream_seq"`
	Deliveries  uint64 `json:"deliveries"`
	Reason      string `json:"reason,omitempty"`
	Domain      string `json:"domain,omitempty"`
}

// AckMetric reports one sampled ack; Delay is nanoseconds since the delivery.
type AckMetric struct {
	Event
	Stream      string `json:"stream"`
	Consumer    string `json:"consumer"`
	ConsumerSeq uint64 `json:"consumer_seq"`
	StreamSeq   uint64 `json:"stream_seq"`
	Delay       int64  `json:"ack_time"`
	Deliveries  uint64 `json:"deliveries"`
	Domain      string `json:"domain,omitempty"`
}

// PinnedAdvisory says that a priority group has a new pinned client.
type PinnedAdvisory struct {
	Event
	Account  string `json:"account,omitempty"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Domain   string `json:"domain,omitempty"`
	Group    string `json:"group"`
	PinnedID string `json:"pinned_id"`
}

// Reasons of UnpinnedAdvisory.
const (
	UnpinAdmin   = "admin"
	UnpinTimeout = "timeout"
)

// UnpinnedAdvisory says that a priority group lost its pinned client.
type UnpinnedAdvisory struct {
	Event
	Account  string `json:"account,omitempty"`
	Stream   string `json:"stream"`
	Consumer string `json:"consumer"`
	Domain   string `json:"domain,omitempty"`
	Group    string `json:"group"`
	Reason   string `json:"reason"`
}

// Reasons of BatchAbandonedAdvisory.
const (
	BatchTimeout     = "timeout"
	BatchLarge       = "large"
	BatchIncomplete  = "incomplete"
	BatchUnsupported = "unsupported"
)

// BatchAbandonedAdvisory says that an atomic batch was dropped.
type BatchAbandonedAdvisory struct {
	Event
	Account string `json:"account,omitempty"`
	Stream  string `json:"stream"`
	Domain  string `json:"domain,omitempty"`
	BatchID string `json:"batch"`
	Reason  string `json:"reason"`
}

// ClientInfo is what an advisory tells about a client; a server outside of the client's knows
// little of it.
type ClientInfo struct {
	Account string `json:"acc,omitempty"`
	Server  string `json:"server,omitempty"`
}

// APIAuditAdvisory reports one API request and its answer.
type APIAuditAdvisory struct {
	Event
	Server   string      `json:"server"`
	Client   *ClientInfo `json:"client"`
	Subject  string      `json:"subject"`
	Request  string      `json:"request,omitempty"`
	Response string      `json:"response"`
	Domain   string      `json:"domain,omitempty"`
}
