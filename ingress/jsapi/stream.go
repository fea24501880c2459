package jsapi

import (
	"maps"
	"slices"
	"time"
)

// Limits on stream and consumer configurations.
const (
	// MaxDescriptionLen is the longest description, in bytes.
	MaxDescriptionLen = 4096
	// MaxMetadataLen is the largest sum of all metadata keys and values, in bytes.
	MaxMetadataLen = 128 * 1024
	// MaxReplicas is the largest num_replicas.
	MaxReplicas = 5
	// DefaultDuplicateWindow is the deduplication window of a stream that names none.
	DefaultDuplicateWindow = 2 * time.Minute
	// MinWindow is the smallest max_age, duplicate_window and push heartbeat.
	MinWindow = 100 * time.Millisecond
	// MinMarkerTTL is the smallest subject_delete_marker_ttl and Nats-TTL.
	MinMarkerTTL = time.Second
)

// StreamConfig is a stream's configuration. The fields stand in the order of the wire; a limit of
// -1 is "none". Durations are nanoseconds on the wire.
type StreamConfig struct {
	Name             string            `json:"name"`
	Description      string            `json:"description,omitempty"`
	Subjects         []string          `json:"subjects,omitempty"`
	Retention        Retention         `json:"retention"`
	MaxConsumers     int               `json:"max_consumers"`
	MaxMsgs          int64             `json:"max_msgs"`
	MaxBytes         int64             `json:"max_bytes"`
	MaxAge           time.Duration     `json:"max_age"`
	MaxMsgsPer       int64             `json:"max_msgs_per_subject"`
	MaxMsgSize       int32             `json:"max_msg_size,omitempty"`
	Discard          Discard           `json:"discard"`
	Storage          Storage           `json:"storage"`
	Replicas         int               `json:"num_replicas"`
	NoAck            bool              `json:"no_ack,omitempty"`
	Duplicates       time.Duration     `json:"duplicate_window,omitempty"`
	Placement        *Placement        `json:"placement,omitempty"`
	Mirror           *StreamSource     `json:"mirror,omitempty"`
	Sources          []*StreamSource   `json:"sources,omitempty"`
	Compression      Compression       `json:"compression"`
	FirstSeq         uint64            `json:"first_seq,omitempty"`
	SubjectTransform *SubjectTransform `json:"subject_transform,omitempty"`
	RePublish        *RePublish        `json:"republish,omitempty"`
	AllowDirect      bool              `json:"allow_direct"`
	MirrorDirect     bool              `json:"mirror_direct"`
	DiscardNewPer    bool              `json:"discard_new_per_subject,omitempty"`
	Sealed           bool              `json:"sealed"`
	DenyDelete       bool              `json:"deny_delete"`
	DenyPurge        bool              `json:"deny_purge"`
	AllowRollup      bool              `json:"allow_rollup_hdrs"`
	ConsumerLimits   ConsumerLimits    `json:"consumer_limits"`
	AllowMsgTTL      bool              `json:"allow_msg_ttl"`
	DeleteMarkerTTL  time.Duration     `json:"subject_delete_marker_ttl,omitempty"`
	AllowMsgCounter  bool              `json:"allow_msg_counter,omitempty"`
	AllowAtomic      bool              `json:"allow_atomic,omitempty"`
	AllowSchedules   bool              `json:"allow_msg_schedules,omitempty"`
	PersistMode      PersistMode       `json:"persist_mode,omitempty"`
	AllowBatched     bool              `json:"allow_batched,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
}

// Clone returns a copy that shares nothing with c.
func (c *StreamConfig) Clone() *StreamConfig {
	n := *c
	n.Subjects = slices.Clone(c.Subjects)
	n.Placement = clonePtr(c.Placement)
	if n.Placement != nil {
		n.Placement.Tags = slices.Clone(n.Placement.Tags)
	}
	n.Mirror = c.Mirror.clone()
	n.Sources = slices.Clone(c.Sources)
	for i, s := range n.Sources {
		n.Sources[i] = s.clone()
	}
	n.SubjectTransform = clonePtr(c.SubjectTransform)
	n.RePublish = clonePtr(c.RePublish)
	n.Metadata = maps.Clone(c.Metadata)
	return &n
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// Placement is accepted and kept, and otherwise without effect.
type Placement struct {
	Cluster   string   `json:"cluster,omitempty"`
	Tags      []string `json:"tags,omitempty"`
	Preferred string   `json:"preferred,omitempty"`
}

// SubjectTransform rewrites subjects that match Source to Destination.
type SubjectTransform struct {
	Source      string `json:"src"`
	Destination string `json:"dest"`
}

// RePublish publishes stored messages again, transformed from Source to Destination.
type RePublish struct {
	Source      string `json:"src,omitempty"`
	Destination string `json:"dest"`
	HeadersOnly bool   `json:"headers_only,omitempty"`
}

// ConsumerLimits are the stream's defaults and maxima for its consumers.
type ConsumerLimits struct {
	InactiveThreshold time.Duration `json:"inactive_threshold,omitempty"`
	MaxAckPending     int           `json:"max_ack_pending,omitempty"`
}

// StreamSource is another stream that this one mirrors or copies from.
type StreamSource struct {
	Name              string             `json:"name"`
	OptStartSeq       uint64             `json:"opt_start_seq,omitempty"`
	OptStartTime      *time.Time         `json:"opt_start_time,omitempty"`
	FilterSubject     string             `json:"filter_subject,omitempty"`
	SubjectTransforms []SubjectTransform `json:"subject_transforms,omitempty"`
	External          *ExternalStream    `json:"external,omitempty"`
	Consumer          *SourceConsumer    `json:"consumer,omitempty"`
}

func (s *StreamSource) clone() *StreamSource {
	if s == nil {
		return nil
	}
	n := *s
	n.OptStartTime = clonePtr(s.OptStartTime)
	n.SubjectTransforms = slices.Clone(s.SubjectTransforms)
	n.External = clonePtr(s.External)
	n.Consumer = clonePtr(s.Consumer)
	return &n
}

// ExternalStream names the API and delivery prefixes of another JetStream.
type ExternalStream struct {
	APIPrefix     string `json:"api"`
	DeliverPrefix string `json:"deliver"`
}

// SourceConsumer names the durable consumer to source from.
type SourceConsumer struct {
	Name           string `json:"name,omitempty"`
	DeliverSubject string `json:"deliver_subject,omitempty"`
}

// StreamState is what a stream holds.
type StreamState struct {
	Msgs        uint64            `json:"messages"`
	Bytes       uint64            `json:"bytes"`
	FirstSeq    uint64            `json:"first_seq"`
	FirstTime   time.Time         `json:"first_ts"`
	LastSeq     uint64            `json:"last_seq"`
	LastTime    time.Time         `json:"last_ts"`
	NumSubjects int               `json:"num_subjects,omitempty"`
	Subjects    map[string]uint64 `json:"subjects,omitempty"`
	NumDeleted  int               `json:"num_deleted,omitempty"`
	Deleted     []uint64          `json:"deleted,omitempty"`
	Lost        *LostStreamData   `json:"lost,omitempty"`
	Consumers   int               `json:"consumer_count"`
}

// LostStreamData counts what the disk lost.
type LostStreamData struct {
	Msgs  []uint64 `json:"msgs"`
	Bytes uint64   `json:"bytes"`
}

// StreamInfo is a stream's configuration and state at TimeStamp.
type StreamInfo struct {
	Config     StreamConfig       `json:"config"`
	Created    time.Time          `json:"created"`
	State      StreamState        `json:"state"`
	Domain     string             `json:"domain,omitempty"`
	Cluster    *ClusterInfo       `json:"cluster,omitempty"`
	Mirror     *StreamSourceInfo  `json:"mirror,omitempty"`
	Sources    []StreamSourceInfo `json:"sources,omitempty"`
	Alternates []StreamAlternate  `json:"alternates,omitempty"`
	TimeStamp  time.Time          `json:"ts"`
}

// StreamSourceInfo is the state of one source. Active is the time since the last contact, -1
// before the first.
type StreamSourceInfo struct {
	Name              string             `json:"name"`
	External          *ExternalStream    `json:"external,omitempty"`
	Lag               uint64             `json:"lag"`
	Seq               uint64             `json:"seq,omitempty"`
	Active            time.Duration      `json:"active"`
	Error             *Error             `json:"error,omitempty"`
	FilterSubject     string             `json:"filter_subject,omitempty"`
	SubjectTransforms []SubjectTransform `json:"subject_transforms,omitempty"`
}

// StreamAlternate is another place that has the same stream.
type StreamAlternate struct {
	Name    string `json:"name"`
	Domain  string `json:"domain,omitempty"`
	Cluster string `json:"cluster"`
}

// ClusterInfo is the group of nodes that hold a stream or consumer.
type ClusterInfo struct {
	Name        string     `json:"name,omitempty"`
	RaftGroup   string     `json:"raft_group,omitempty"`
	Leader      string     `json:"leader,omitempty"`
	LeaderSince *time.Time `json:"leader_since,omitempty"`
	SystemAcc   bool       `json:"system_account,omitempty"`
	TrafficAcc  string     `json:"traffic_account,omitempty"`
	Replicas    []PeerInfo `json:"replicas,omitempty"`
}

// PeerInfo is one follower. Active is the time since it was last heard.
type PeerInfo struct {
	Name    string        `json:"name"`
	Current bool          `json:"current"`
	Offline bool          `json:"offline,omitempty"`
	Active  time.Duration `json:"active"`
	Lag     uint64        `json:"lag,omitempty"`
	Peer    string        `json:"peer"`
	Pending bool          `json:"pending,omitempty"`
}
