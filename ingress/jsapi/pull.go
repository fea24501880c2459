package jsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// NextRequest is a pull request.
type NextRequest struct {
	// Batch is how many messages are wanted. Less than 1 is served as 1; the Nats-Pending-Messages
	// of its end counts from what was said.
	Batch int
	// MaxBytes bounds the sum of the messages' sizes; 0 is no bound.
	MaxBytes int
	// Expires is the request's lifetime; 0 is for ever.
	Expires time.Duration
	// Heartbeat is the longest silence; 0 is no heartbeats.
	Heartbeat time.Duration
	// NoWait ends the request when no message is left.
	NoWait bool
	// Priority holds the fields of priority groups. HasPriority is set when the body was JSON:
	// other bodies bypass the checks of groups.
	Priority    PriorityGroup
	HasPriority bool
}

// PriorityGroup holds the fields of a pull request for a priority group.
type PriorityGroup struct {
	Group         string `json:"group,omitempty"`
	MinPending    int64  `json:"min_pending,omitempty"`
	MinAckPending int64  `json:"min_ack_pending,omitempty"`
	ID            string `json:"id,omitempty"`
	Priority      int    `json:"priority,omitempty"`
}

// errHeartbeatTooLarge refuses a heartbeat that can not come twice before the request expires.
var errHeartbeatTooLarge = errors.New("heartbeat value too large")

// ParseNextRequest parses the body of MSG.NEXT, and what follows "+NXT". An empty body asks for
// one message, an integer for as many, JSON says it all (unknown fields are ignored), any other
// text asks for one. The error's text belongs into StatusBadRequest.
func ParseNextRequest(body []byte) (NextRequest, error) {
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '{' {
		return parseNextJSON(body)
	}
	if n, err := strconv.Atoi(string(body)); err == nil {
		return NextRequest{Batch: n}, nil
	}
	return NextRequest{Batch: 1}, nil
}

func parseNextJSON(body []byte) (NextRequest, error) {
	// The type's name is JetStream's: it shows in the error's text.
	type JSApiConsumerGetNextRequest struct {
		PriorityGroup

		Expires   time.Duration `json:"expires,omitempty"`
		Batch     int           `json:"batch,omitempty"`
		MaxBytes  int           `json:"max_bytes,omitempty"`
		NoWait    bool          `json:"no_wait,omitempty"`
		Heartbeat time.Duration `json:"idle_heartbeat,omitempty"`
	}
	var req JSApiConsumerGetNextRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return NextRequest{}, err //nolint:wrapcheck // The text goes over the wire as it is.
	}
	if req.Heartbeat > 0 && req.Heartbeat > req.Expires/2 {
		return NextRequest{}, errHeartbeatTooLarge
	}
	return NextRequest{
		Batch:       req.Batch,
		MaxBytes:    req.MaxBytes,
		Expires:     req.Expires,
		Heartbeat:   req.Heartbeat,
		NoWait:      req.NoWait,
		HasPriority: true,
		Priority:    req.PriorityGroup,
	}, nil
}

// Statuses: what stands on the first line of a message without a body.
const (
	StatusHeartbeat        = "100 Idle Heartbeat"
	StatusFlowControl      = "100 FlowControl Request"
	StatusEOB              = "204 EOB"
	StatusSnapshotEnd      = "204"
	StatusNoMessages       = "404 No Messages"
	StatusMsgNotFound      = "404 Message Not Found"
	StatusNoResults        = "404 No Results"
	StatusRequestTimeout   = "408 Request Timeout"
	StatusRequestsPending  = "408 Requests Pending"
	StatusInterestExpired  = "408 Interest Expired"
	StatusEmptyRequest     = "408 Empty Request"
	StatusMalformedRequest = "408 Malformed Request"
	StatusDirectBadRequest = "408 Bad Request"
	StatusNoInterest       = "408 No Interest"
	StatusNoFlowResponse   = "408 No Flow Response"
	StatusPushBased        = "409 Consumer is push based"
	StatusMaxWaiting       = "409 Exceeded MaxWaiting"
	StatusMaxBytes         = "409 Message Size Exceeds MaxBytes"
	StatusBatchCompleted   = "409 Batch Completed"
	StatusConsumerDeleted  = "409 Consumer Deleted"
	StatusLeadershipChange = "409 Leadership Change"
	StatusServerShutdown   = "409 Server Shutdown"
	StatusRequiredLevel    = "412 Required Api Level"
	StatusTooManyResults   = "413 Too Many Results"
	StatusPinMismatch      = "423 Nats-Pin-Id mismatch"
	StatusWrongPin         = "423 Nats-Wrong-Pin-Id"
	StatusTooManyRequests  = "429 Too Many Requests"
	StatusNoResponders     = "503"
)

// Texts for StatusBadRequest about priority groups.
const (
	TextNotOverflow     = "Not a Overflow Priority consumer"
	TextNotPinned       = "Not a Pinned Client Priority consumer"
	TextPriorityRange   = "Priority must be between 0 and 9"
	TextGroupMissing    = "Priority Group missing"
	TextGroupInvalid    = "Invalid Priority Group"
	MaxRequestPriority  = 9
	statusBadRequest    = "400 Bad Request - "
	statusStoreError    = "500 "
	statusMaxBatch      = "409 Exceeded MaxRequestBatch of "
	statusMaxExpires    = "409 Exceeded MaxRequestExpires of "
	statusMaxBytesLimit = "409 Exceeded MaxRequestMaxBytes of "
)

// StatusBadRequest is the 400 with its reason.
func StatusBadRequest(text string) string { return statusBadRequest + text }

// StatusError is the 500 with its reason.
func StatusError(text string) string { return statusStoreError + text }

// StatusMaxRequestBatch is the 409 of a batch above the consumer's max_batch.
func StatusMaxRequestBatch(limit int) string { return statusMaxBatch + strconv.Itoa(limit) }

// StatusMaxRequestExpires is the 409 of an expiry above the consumer's max_expires.
func StatusMaxRequestExpires(limit time.Duration) string { return statusMaxExpires + limit.String() }

// StatusMaxRequestMaxBytes is the 409 of a budget above the consumer's max_bytes.
func StatusMaxRequestMaxBytes(limit int) string { return statusMaxBytesLimit + strconv.Itoa(limit) }

// AppendStatus appends the header block of a status message; the message has no body.
func AppendStatus(dst []byte, status string) []byte {
	return EndHeader(AppendStatusLine(dst, status))
}

// AppendStatusLine appends the first line of a status message, for AppendHeader and EndHeader to
// follow.
func AppendStatusLine(dst []byte, status string) []byte {
	dst = append(dst, HeaderVersion[:versionLen]...)
	dst = append(dst, ' ')
	dst = append(dst, status...)
	return append(dst, crlf...)
}

// AppendPendingStatus appends the header block of a status that ends a pull request, with what of
// the request is left: messages and bytes.
func AppendPendingStatus(dst []byte, status string, msgs, size int) []byte {
	dst = AppendStatusLine(dst, status)
	dst = appendHeaderInt(dst, HdrPendingMessages, msgs)
	return EndHeader(appendHeaderInt(dst, HdrPendingBytes, size))
}

func appendHeaderInt(dst []byte, key string, value int) []byte {
	dst = append(dst, key...)
	dst = append(dst, ": "...)
	dst = strconv.AppendInt(dst, int64(value), 10)
	return append(dst, crlf...)
}

// AppendHeartbeat appends the header block of an idle heartbeat: the last consumer and stream
// sequence delivered, and the subject of an unanswered flow-control request, if any.
func AppendHeartbeat(dst []byte, lastConsumer, lastStream uint64, stalled string) []byte {
	dst = AppendStatusLine(dst, StatusHeartbeat)
	dst = AppendHeaderUint(dst, HdrLastConsumer, lastConsumer)
	dst = AppendHeaderUint(dst, HdrLastStream, lastStream)
	if stalled != "" {
		dst = AppendHeader(dst, HdrStalled, stalled)
	}
	return EndHeader(dst)
}
