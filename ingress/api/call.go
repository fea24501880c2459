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

	answered atomic.Bool
}

// Error answers with an error.
func (c *Call) Error(e *jsapi.Error) {
	if c.Failed != nil && !c.answered.Load() {
		c.Failed()
	}
	c.Answer(failure(jsapi.NewErrorResponse(c.Req.Verb, e), c.Req.Verb))
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
func (c *Call) Answer(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("api response of plain values: %v", err))
	}
	if !c.answered.Swap(true) {
		c.Reply(b)
	}
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
