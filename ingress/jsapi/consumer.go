package jsapi

import (
	"maps"
	"slices"
	"time"
)

// Defaults of a consumer.
const (
	// DefaultAckWait is the ack wait of explicit and all.
	DefaultAckWait = 30 * time.Second
	// DefaultMaxAckPending bounds unacknowledged messages when neither request nor stream do.
	DefaultMaxAckPending = 1000
	// DefaultMaxWaiting bounds the waiting pull requests of a consumer.
	DefaultMaxWaiting = 512
	// DefaultInactiveThreshold is when an idle ephemeral consumer is deleted.
	DefaultInactiveThreshold = 5 * time.Second
	// DefaultPinnedTTL is how long a pinned client may be silent.
	DefaultPinnedTTL = 2 * time.Minute
	// FlowControlHeartbeat is the heartbeat that the flow_control ack policy demands.
	FlowControlHeartbeat = time.Second
)

// ConsumerConfig is a consumer's configuration. The fields stand in the order of the wire.
// Durations are nanoseconds on the wire.
type ConsumerConfig struct {
	Durable            string            `json:"durable_name,omitempty"`
	Name               string            `json:"name,omitempty"`
	Description        string            `json:"description,omitempty"`
	DeliverPolicy      DeliverPolicy     `json:"deliver_policy"`
	OptStartSeq        uint64            `json:"opt_start_seq,omitempty"`
	OptStartTime       *time.Time        `json:"opt_start_time,omitempty"`
	AckPolicy          AckPolicy         `json:"ack_policy"`
	AckWait            time.Duration     `json:"ack_wait,omitempty"`
	MaxDeliver         int               `json:"max_deliver,omitempty"`
	BackOff            []time.Duration   `json:"backoff,omitempty"`
	FilterSubject      string            `json:"filter_subject,omitempty"`
	FilterSubjects     []string          `json:"filter_subjects,omitempty"`
	ReplayPolicy       ReplayPolicy      `json:"replay_policy"`
	RateLimit          uint64            `json:"rate_limit_bps,omitempty"`
	SampleFrequency    string            `json:"sample_freq,omitempty"`
	MaxWaiting         int               `json:"max_waiting,omitempty"`
	MaxAckPending      int               `json:"max_ack_pending,omitempty"`
	FlowControl        bool              `json:"flow_control,omitempty"`
	HeadersOnly        bool              `json:"headers_only,omitempty"`
	MaxRequestBatch    int               `json:"max_batch,omitempty"`
	MaxRequestExpires  time.Duration     `json:"max_expires,omitempty"`
	MaxRequestMaxBytes int               `json:"max_bytes,omitempty"`
	DeliverSubject     string            `json:"deliver_subject,omitempty"`
	DeliverGroup       string            `json:"deliver_group,omitempty"`
	Heartbeat          time.Duration     `json:"idle_heartbeat,omitempty"`
	InactiveThreshold  time.Duration     `json:"inactive_threshold,omitempty"`
	Replicas           int               `json:"num_replicas"`
	MemoryStorage      bool              `json:"mem_storage,omitempty"`
	Direct             bool              `json:"direct,omitempty"`
	Sourcing           bool              `json:"sourcing,omitempty"`
	Metadata           map[string]string `json:"metadata,omitempty"`
	PauseUntil         *time.Time        `json:"pause_until,omitempty"`
	PriorityGroups     []string          `json:"priority_groups,omitempty"`
	PriorityPolicy     PriorityPolicy    `json:"priority_policy,omitempty"`
	PinnedTTL          time.Duration     `json:"priority_timeout,omitempty"`
}

// Clone returns a copy that shares nothing with c.
func (c *ConsumerConfig) Clone() *ConsumerConfig {
	n := *c
	n.OptStartTime = clonePtr(c.OptStartTime)
	n.BackOff = slices.Clone(c.BackOff)
	n.FilterSubjects = slices.Clone(c.FilterSubjects)
	n.Metadata = maps.Clone(c.Metadata)
	n.PauseUntil = clonePtr(c.PauseUntil)
	n.PriorityGroups = slices.Clone(c.PriorityGroups)
	return &n
}

// IsPush reports whether messages go to a deliver subject instead of to pull requests.
func (c *ConsumerConfig) IsPush() bool { return c.DeliverSubject != "" }

// IsDurable reports whether the consumer outlives its inactivity.
func (c *ConsumerConfig) IsDurable() bool { return c.Durable != "" }

// Filters returns the subject filters, at most one of the two fields being set; none means all.
// The result shares c's memory when filter_subjects is used.
func (c *ConsumerConfig) Filters() []string {
	if c.FilterSubject != "" {
		return []string{c.FilterSubject}
	}
	return c.FilterSubjects
}

// SequenceInfo is a position in the consumer's deliveries and in the stream, with the time of its
// last change.
type SequenceInfo struct {
	Consumer uint64     `json:"consumer_seq"`
	Stream   uint64     `json:"stream_seq"`
	Last     *time.Time `json:"last_active,omitempty"`
}

// PriorityGroupState is the pin of one priority group.
type PriorityGroupState struct {
	Group          string    `json:"group"`
	PinnedClientID string    `json:"pinned_client_id,omitempty"`
	PinnedTS       time.Time `json:"pinned_ts"`
}

// ConsumerInfo is a consumer's configuration and state at TimeStamp.
type ConsumerInfo struct {
	Stream         string               `json:"stream_name"`
	Name           string               `json:"name"`
	Created        time.Time            `json:"created"`
	Config         *ConsumerConfig      `json:"config,omitempty"`
	Delivered      SequenceInfo         `json:"delivered"`
	AckFloor       SequenceInfo         `json:"ack_floor"`
	NumAckPending  int                  `json:"num_ack_pending"`
	NumRedelivered int                  `json:"num_redelivered"`
	NumWaiting     int                  `json:"num_waiting"`
	NumPending     uint64               `json:"num_pending"`
	Cluster        *ClusterInfo         `json:"cluster,omitempty"`
	PushBound      bool                 `json:"push_bound,omitempty"`
	Paused         bool                 `json:"paused,omitempty"`
	PauseRemaining time.Duration        `json:"pause_remaining,omitempty"`
	TimeStamp      time.Time            `json:"ts"`
	PriorityGroups []PriorityGroupState `json:"priority_groups,omitempty"`
}

// CreateConsumerRequest is the body of the consumer create calls; as for the name see
// StreamConfigRequest.
type CreateConsumerRequest struct {
	Stream   string         `json:"stream_name"`
	Config   ConsumerConfig `json:"config"`
	Action   ConsumerAction `json:"action"`
	Pedantic bool           `json:"pedantic,omitempty"`
}

// ConsumerResponse answers the consumer create calls and CONSUMER.INFO.
type ConsumerResponse struct {
	Response
	*ConsumerInfo
}

// ConsumerNamesResponse answers CONSUMER.NAMES; no names are an empty list.
type ConsumerNamesResponse struct {
	Response
	Paged
	Consumers []string `json:"consumers"`
}

// ConsumerListResponse answers CONSUMER.LIST; no consumers are an empty list.
type ConsumerListResponse struct {
	Response
	Paged
	Consumers []*ConsumerInfo   `json:"consumers"`
	Missing   []string          `json:"missing,omitempty"`
	Offline   map[string]string `json:"offline,omitempty"`
}

// PauseRequest is the optional body of CONSUMER.PAUSE; the zero time resumes.
type PauseRequest struct {
	PauseUntil time.Time `json:"pause_until"`
}

// PauseResponse answers CONSUMER.PAUSE.
type PauseResponse struct {
	Response
	Paused         bool          `json:"paused"`
	PauseUntil     time.Time     `json:"pause_until"`
	PauseRemaining time.Duration `json:"pause_remaining,omitempty"`
}

// ResetRequest is the optional body of CONSUMER.RESET; 0 resets to the ack floor.
type ResetRequest struct {
	Seq uint64 `json:"seq,omitempty"`
}

// ResetResponse answers CONSUMER.RESET; ResetSeq is the next stream sequence.
type ResetResponse struct {
	Response
	*ConsumerInfo
	ResetSeq uint64 `json:"reset_seq"`
}

// UnpinRequest is the body of CONSUMER.UNPIN, whose answer is a bare Response.
type UnpinRequest struct {
	Group string `json:"group"`
}

// StepdownRequest is the optional body of the LEADER.STEPDOWN calls.
type StepdownRequest struct {
	Placement *Placement `json:"placement,omitempty"`
}

// PeerRequest is the body of the PEER.REMOVE and PEER.EVACUATE calls.
type PeerRequest struct {
	Peer string `json:"peer"`
}
