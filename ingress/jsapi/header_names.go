package jsapi

// Headers that a publisher sets.
const (
	HdrMsgID                  = "Nats-Msg-Id"
	HdrExpectedStream         = "Nats-Expected-Stream"
	HdrExpectedLastSeq        = "Nats-Expected-Last-Sequence"
	HdrExpectedLastSubjectSeq = "Nats-Expected-Last-Subject-Sequence"
	HdrExpectedLastSubject    = "Nats-Expected-Last-Subject-Sequence-Subject"
	HdrExpectedLastMsgID      = "Nats-Expected-Last-Msg-Id"
	HdrRollup                 = "Nats-Rollup"
	HdrTTL                    = "Nats-TTL"
	HdrIncr                   = "Nats-Incr"
	HdrBatchID                = "Nats-Batch-Id"
	HdrBatchSeq               = "Nats-Batch-Sequence"
	HdrBatchCommit            = "Nats-Batch-Commit"
	HdrSchedule               = "Nats-Schedule"
	HdrScheduleTimeZone       = "Nats-Schedule-Time-Zone"
	HdrScheduleTTL            = "Nats-Schedule-TTL"
	HdrScheduleRollup         = "Nats-Schedule-Rollup"
	HdrScheduleTarget         = "Nats-Schedule-Target"
	HdrScheduleSource         = "Nats-Schedule-Source"
	// HdrHoldfastAck asks for an AckLevel.
	HdrHoldfastAck = "Holdfast-Ack"
)

// Headers that the server sets, or that a publisher may set only to cancel a schedule.
const (
	HdrMarkerReason   = "Nats-Marker-Reason"
	HdrCounterSources = "Nats-Counter-Sources"
	HdrScheduler      = "Nats-Scheduler"
	HdrScheduleNext   = "Nats-Schedule-Next"
	HdrStreamSource   = "Nats-Stream-Source"
	HdrRequestInfo    = "Nats-Request-Info"
	HdrStreamIdentity = "Nats-Stream-Identity"
	HdrRequiredLevel  = "Nats-Required-Api-Level"
	HdrMsgSize        = "Nats-Msg-Size"
	HdrPinID          = "Nats-Pin-Id"
	HdrKVOperation    = "KV-Operation"
)

// Headers of direct get answers, republished messages and statuses.
const (
	HdrStream          = "Nats-Stream"
	HdrSubject         = "Nats-Subject"
	HdrSequence        = "Nats-Sequence"
	HdrTimeStamp       = "Nats-Time-Stamp"
	HdrLastSequence    = "Nats-Last-Sequence"
	HdrNumPending      = "Nats-Num-Pending"
	HdrUpToSequence    = "Nats-UpTo-Sequence"
	HdrPendingMessages = "Nats-Pending-Messages"
	HdrPendingBytes    = "Nats-Pending-Bytes"
	HdrLastConsumer    = "Nats-Last-Consumer"
	HdrLastStream      = "Nats-Last-Stream"
	HdrStalled         = "Nats-Consumer-Stalled"
)

// Values of headers.
const (
	// RollupSubject of Nats-Rollup removes what is older on the message's subject.
	RollupSubject = "sub"
	// RollupAll of Nats-Rollup removes what is older in the stream.
	RollupAll = "all"
	// ScheduleNextPurge of Nats-Schedule-Next says that the schedule is over.
	ScheduleNextPurge = "purge"
	// MarkerMaxAge of Nats-Marker-Reason says that the subject's last message expired.
	MarkerMaxAge = "MaxAge"
)
