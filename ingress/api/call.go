package api

import (
	"encoding/json"
	"fmt"
	"sync/atomic"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// Level is the JetStream API level that is served: the features of 2.11 and later
// come with later levels.
const Level = 0

// Call is one request. Reply is called at most once: the first answer counts, and
// what comes after it (a late success behind a timeout) is dropped. Failed, if set,
// is told that the answer is an error. Answers may come from any goroutine.
type Call struct {
	Req    jsapi.Request
	Header []byte
	Body   []byte
	Reply  func(body []byte)
	Failed func()
	// Fence, if set, is asked right before an answer leaves: one that only a leader may
	// give. If it returns an error there is no answer, and Lost, if set, is called.
	Fence func() error
	Lost  func()
	// Resubmit, if set, is asked before Abandon answers; true means that somebody else
	// answers, or this node later.
	Resubmit func() bool

	answered atomic.Bool
}

// Error answers with an error.
func (c *Call) Error(e *jsapi.Error) {
	if c.reply(failure(jsapi.NewErrorResponse(c.Req.Verb, e), c.Req.Verb)) && c.Failed != nil {
		c.Failed()
	}
}

// Abandon answers 10008 to a call that the end of a term interrupted.
func (c *Call) Abandon() {
	if c.Resubmit == nil || !c.Resubmit() {
		c.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
	}
}

// failure adds what the answers of some verbs have even if they are errors.
func failure(r jsapi.Response, v jsapi.Verb) any {
	switch v {
	case jsapi.VerbStreamInfo:
		return jsapi.StreamInfoResponse{Response: r}
	case jsapi.VerbStreamNames:
		return jsapi.StreamNamesResponse{Response: r}
	case jsapi.VerbStreamList:
		return jsapi.StreamListResponse{Response: r, Streams: []*jsapi.StreamInfo{}}
	case jsapi.VerbStreamPurge:
		return jsapi.PurgeResponse{Response: r}
	case jsapi.VerbConsumerNames:
		return jsapi.ConsumerNamesResponse{Response: r, Consumers: []string{}}
	case jsapi.VerbConsumerList:
		return jsapi.ConsumerListResponse{Response: r, Consumers: []*jsapi.ConsumerInfo{}}
	case jsapi.VerbConsumerPause:
		return jsapi.PauseResponse{Response: r}
	case jsapi.VerbConsumerReset:
		return jsapi.ResetResponse{Response: r}
	default:
		return r
	}
}

// Answer answers with a response.
func (c *Call) Answer(v any) { c.reply(v) }

// reply says whether it was the first answer, and could be given.
func (c *Call) reply(v any) bool {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("api response of plain values: %v", err))
	}
	if c.answered.Swap(true) {
		return false
	}
	if c.Fence != nil && c.Fence() != nil {
		if c.Lost != nil {
			c.Lost()
		}
		return false
	}
	c.Reply(b)
	return true
}

// Empty judges a call that takes no body: 10038.
func (c *Call) Empty() *jsapi.Error {
	if jsapi.IsEmptyRequest(c.Body) {
		return nil
	}
	return jsapi.NewError(jsapi.CodeNotEmptyRequest)
}

// CheckLevel judges the API level that a request demands: 10185.
func (c *Call) CheckLevel() *jsapi.Error {
	v, _ := jsapi.HeaderGet(c.Header, jsapi.HdrRequiredLevel)
	if jsapi.APILevelSupported(v, Level) {
		return nil
	}
	return jsapi.NewError(jsapi.CodeRequiredAPILevel)
}
