package jsapi

import "time"

// Page sizes of the list calls.
const (
	// NamesLimit is the most names in one STREAM.NAMES or CONSUMER.NAMES answer.
	NamesLimit = 1024
	// ListLimit is the most entries in one STREAM.LIST or CONSUMER.LIST answer.
	ListLimit = 256
	// SubjectsLimit is the most subjects in one STREAM.INFO answer.
	SubjectsLimit = 100_000
)

// Response starts every JSON answer. Type is the verb's ResponseType, in errors too.
type Response struct {
	Type  string `json:"type"`
	Error *Error `json:"error,omitempty"`
}

// NewResponse returns the start of a successful answer to v.
func NewResponse(v Verb) Response { return Response{Type: v.ResponseType()} }

// NewErrorResponse returns the start of a failed answer to v.
func NewErrorResponse(v Verb, e *Error) Response { return Response{Type: v.ResponseType(), Error: e} }

// Paged stands in the answers that come in pages.
type Paged struct {
	Total  int `json:"total"`
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
}

// Page clamps a requested offset to [0, total] and returns the paging fields with the bounds of
// the page in the full list.
func Page(total, offset, limit int) (p Paged, from, to int) {
	from = min(max(offset, 0), total)
	to = min(from+limit, total)
	return Paged{Total: total, Offset: from, Limit: limit}, from, to
}

// SuccessResponse answers the calls that only say whether they worked: STREAM.DELETE,
// STREAM.MSG.DELETE, CONSUMER.DELETE and the calls of the cluster.
type SuccessResponse struct {
	Response
	Success bool `json:"success,omitempty"`
}

// AccountLimits are an account's limits; -1 is none.
type AccountLimits struct {
	MaxMemory            int64 `json:"max_memory"`
	MaxStore             int64 `json:"max_storage"`
	MaxStreams           int   `json:"max_streams"`
	MaxConsumers         int   `json:"max_consumers"`
	MaxAckPending        int   `json:"max_ack_pending"`
	MemoryMaxStreamBytes int64 `json:"memory_max_stream_bytes"`
	StoreMaxStreamBytes  int64 `json:"storage_max_stream_bytes"`
	MaxBytesRequired     bool  `json:"max_bytes_required"`
}

// Unlimited returns the limits of an account without any.
func Unlimited() AccountLimits {
	return AccountLimits{
		MaxMemory: -1, MaxStore: -1, MaxStreams: -1, MaxConsumers: -1, MaxAckPending: -1,
		MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1,
	}
}

// AccountTier is the usage and limits of an account, or of one tier of it.
type AccountTier struct {
	Memory         uint64        `json:"memory"`
	Store          uint64        `json:"storage"`
	ReservedMemory uint64        `json:"reserved_memory"`
	ReservedStore  uint64        `json:"reserved_storage"`
	Streams        int           `json:"streams"`
	Consumers      int           `json:"consumers"`
	Limits         AccountLimits `json:"limits"`
}

// APIStats counts API requests of an account. Level is the API level served (APILevel).
type APIStats struct {
	Level    int    `json:"level"`
	Total    uint64 `json:"total"`
	Errors   uint64 `json:"errors"`
	Inflight uint64 `json:"inflight,omitempty"`
}

// AccountInfo is the answer to INFO.
type AccountInfo struct {
	AccountTier
	Domain string                 `json:"domain,omitempty"`
	API    APIStats               `json:"api"`
	Tiers  map[string]AccountTier `json:"tiers,omitempty"`
}

// AccountInfoResponse answers INFO.
type AccountInfoResponse struct {
	Response
	*AccountInfo
}

// StreamConfigRequest is the body of STREAM.CREATE and STREAM.UPDATE. The name shows in the texts of
// decoding errors, as the name of JetStream's type does in its own.
type StreamConfigRequest struct {
	StreamConfig
	Pedantic bool `json:"pedantic,omitempty"`
}

// StreamCreateResponse answers STREAM.CREATE, and STREAM.RESTORE at its end. DidCreate is true
// for the repeat of an equal create too.
type StreamCreateResponse struct {
	Response
	*StreamInfo
	DidCreate bool `json:"did_create,omitempty"`
}

// StreamUpdateResponse answers STREAM.UPDATE.
type StreamUpdateResponse struct {
	Response
	*StreamInfo
}

// PagedRequest is the body of CONSUMER.NAMES and CONSUMER.LIST.
type PagedRequest struct {
	Offset int `json:"offset"`
}

// StreamInfoRequest is the optional body of STREAM.INFO.
type StreamInfoRequest struct {
	PagedRequest
	DeletedDetails bool   `json:"deleted_details,omitempty"`
	SubjectsFilter string `json:"subjects_filter,omitempty"`
}

// StreamInfoResponse answers STREAM.INFO; the paging fields are of the subjects.
type StreamInfoResponse struct {
	Response
	Paged
	*StreamInfo
}

// StreamListRequest is the optional body of STREAM.NAMES and STREAM.LIST. Subject selects the
// streams with a subject that overlaps it.
type StreamListRequest struct {
	PagedRequest
	Subject string `json:"subject,omitempty"`
}

// StreamNamesResponse answers STREAM.NAMES; no names are null.
type StreamNamesResponse struct {
	Response
	Paged
	Streams []string `json:"streams"`
}

// StreamListResponse answers STREAM.LIST; no streams are an empty list.
type StreamListResponse struct {
	Response
	Paged
	Streams []*StreamInfo     `json:"streams"`
	Missing []string          `json:"missing,omitempty"`
	Offline map[string]string `json:"offline,omitempty"`
}

// PurgeRequest is the optional body of STREAM.PURGE; Sequence and Keep exclude each other.
type PurgeRequest struct {
	Sequence uint64 `json:"seq,omitempty"`
	Subject  string `json:"filter,omitempty"`
	Keep     uint64 `json:"keep,omitempty"`
}

// PurgeResponse answers STREAM.PURGE.
type PurgeResponse struct {
	Response
	Success bool   `json:"success,omitempty"`
	Purged  uint64 `json:"purged"`
}

// MsgDeleteRequest is the body of STREAM.MSG.DELETE.
type MsgDeleteRequest struct {
	Seq     uint64 `json:"seq"`
	NoErase bool   `json:"no_erase,omitempty"`
}

// MsgGetRequest is the body of STREAM.MSG.GET and DIRECT.GET.
type MsgGetRequest struct {
	Seq          uint64     `json:"seq,omitempty"`
	LastFor      string     `json:"last_by_subj,omitempty"`
	NextFor      string     `json:"next_by_subj,omitempty"`
	Batch        int        `json:"batch,omitempty"`
	MaxBytes     int        `json:"max_bytes,omitempty"`
	StartTime    *time.Time `json:"start_time,omitempty"`
	MultiLastFor []string   `json:"multi_last,omitempty"`
	UpToSeq      uint64     `json:"up_to_seq,omitempty"`
	UpToTime     *time.Time `json:"up_to_time,omitempty"`
	NoHeaders    bool       `json:"no_hdr,omitempty"`
}

// StoredMsg is a message in the answer to STREAM.MSG.GET. Header is the whole block.
type StoredMsg struct {
	Subject  string    `json:"subject"`
	Sequence uint64    `json:"seq"`
	Header   []byte    `json:"hdrs,omitempty"`
	Data     []byte    `json:"data,omitempty"`
	Time     time.Time `json:"time"`
}

// MsgGetResponse answers STREAM.MSG.GET.
type MsgGetResponse struct {
	Response
	Message *StoredMsg `json:"message,omitempty"`
}

// SnapshotRequest is the body of STREAM.SNAPSHOT; sizes are bytes.
type SnapshotRequest struct {
	DeliverSubject string `json:"deliver_subject"`
	NoConsumers    bool   `json:"no_consumers,omitempty"`
	ChunkSize      int    `json:"chunk_size,omitempty"`
	WindowSize     int    `json:"window_size,omitempty"`
	CheckMsgs      bool   `json:"jsck,omitempty"`
}

// SnapshotResponse answers STREAM.SNAPSHOT before the first chunk.
type SnapshotResponse struct {
	Response
	Config *StreamConfig `json:"config,omitempty"`
	State  *StreamState  `json:"state,omitempty"`
}

// RestoreRequest is the body of STREAM.RESTORE.
type RestoreRequest struct {
	Config StreamConfig `json:"config"`
	State  StreamState  `json:"state"`
}

// RestoreResponse answers STREAM.RESTORE; chunks go to DeliverSubject.
type RestoreResponse struct {
	Response
	DeliverSubject string `json:"deliver_subject"`
}
