package api

import (
	"encoding/json"
	"fmt"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// Level is the JetStream API level that is served: the features of 2.11 and later
// come with later levels.
const Level = 0

// Call is one request. Reply is called at most once; the request is answered then.
type Call struct {
	Req    jsapi.Request
	Header []byte
	Body   []byte
	Reply  func(body []byte)
}

// Error answers with an error.
func (c *Call) Error(e *jsapi.Error) { c.Answer(jsapi.NewErrorResponse(c.Req.Verb, e)) }

// Answer answers with a response.
func (c *Call) Answer(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("api response of plain values: %v", err))
	}
	c.Reply(b)
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
