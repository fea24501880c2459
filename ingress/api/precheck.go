package api

import "github.com/holdfast-mq/holdfast/ingress/jsapi"

// Precheck judges what a call says before anything is looked up: the API level it
// demands and its body, in JetStream's order, which is not the same for all verbs.
// The create and update calls have checks of their own.
func Precheck(c *Call) *jsapi.Error {
	switch c.Req.Verb {
	case jsapi.VerbStreamCreate, jsapi.VerbStreamUpdate, jsapi.VerbConsumerCreate, jsapi.VerbConsumerDurableCreate:
		return nil
	case jsapi.VerbConsumerInfo:
		return first(c.Empty, c.CheckLevel)
	case jsapi.VerbConsumerPause:
		return first(func() *jsapi.Error { return jsapi.DecodeOptional(c.Body, new(jsapi.PauseRequest)) }, c.CheckLevel)
	case jsapi.VerbStreamLeaderStepdown, jsapi.VerbConsumerLeaderStepdown, jsapi.VerbStreamPeerRemove,
		jsapi.VerbStreamPeerEvacuate, jsapi.VerbConsumerPeerRemove, jsapi.VerbConsumerPeerEvacuate,
		jsapi.VerbStreamCancelMove:
		return jsapi.NewError(jsapi.CodeClusterRequired)
	default:
		return first(c.CheckLevel, c.checkBody)
	}
}

// first returns what the first check that fails says.
func first(checks ...func() *jsapi.Error) *jsapi.Error {
	for _, check := range checks {
		if e := check(); e != nil {
			return e
		}
	}
	return nil
}

// checkBody judges the body of a call by its verb.
func (c *Call) checkBody() *jsapi.Error {
	switch c.Req.Verb {
	case jsapi.VerbStreamDelete, jsapi.VerbConsumerDelete:
		return c.Empty()
	case jsapi.VerbStreamNames, jsapi.VerbStreamList:
		return jsapi.DecodeOptional(c.Body, new(jsapi.StreamListRequest))
	case jsapi.VerbConsumerNames, jsapi.VerbConsumerList:
		return jsapi.DecodeOptional(c.Body, new(jsapi.PagedRequest))
	case jsapi.VerbStreamInfo:
		return jsapi.DecodeOptional(c.Body, new(jsapi.StreamInfoRequest))
	case jsapi.VerbStreamPurge:
		var req jsapi.PurgeRequest
		if e := jsapi.DecodeOptional(c.Body, &req); e != nil || req.Sequence == 0 || req.Keep == 0 {
			return e
		}
		return jsapi.NewError(jsapi.CodeBadRequest)
	case jsapi.VerbStreamMsgGet:
		var req jsapi.MsgGetRequest
		if e := c.required(&req); e != nil || validGet(&req) {
			return e
		}
		return jsapi.NewError(jsapi.CodeBadRequest)
	case jsapi.VerbStreamMsgDelete:
		return c.required(new(jsapi.MsgDeleteRequest))
	case jsapi.VerbStreamSnapshot, jsapi.VerbStreamRestore:
		return c.required(nil)
	default:
		return nil
	}
}

// required decodes a body that must say something; v may be nil.
func (c *Call) required(v any) *jsapi.Error {
	if jsapi.IsEmptyRequest(c.Body) {
		return jsapi.NewError(jsapi.CodeBadRequest)
	}
	if v == nil {
		return nil
	}
	return jsapi.DecodeStrict(c.Body, v)
}
