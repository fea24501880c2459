package ingress

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// info builds ConsumerInfo.
func (c *consumer) info(e *engine) *jsapi.ConsumerInfo {
	c.sync(e)
	in := c.m.Info(e.term.Now())
	out := &jsapi.ConsumerInfo{
		Stream: c.st.row.Name, Name: c.cfg.Name, Created: c.created,
		Config:        c.public().WithDynamicMetadata(e.srv.cfg.Version, api.Level),
		Delivered:     sequence(in.State.DeliveredConsumer, in.State.DeliveredStream, in.State.DeliveredTime),
		AckFloor:      sequence(in.State.AckFloorConsumer, in.State.AckFloorStream, in.State.AckTime),
		NumAckPending: in.NumAckPending, NumRedelivered: in.NumRedelivered, NumWaiting: in.NumWaiting,
		NumPending: in.NumPending, Paused: in.Paused, PauseRemaining: in.PauseRemaining,
		Cluster: e.srv.consumerCluster(e.group), TimeStamp: e.wall(),
	}
	return out
}

// public is the applied configuration as its owner gave it.
func (c *consumer) public() *jsapi.ConsumerConfig {
	if !c.nameless {
		return c.shown
	}
	cfg := *c.shown
	cfg.Name = ""
	return &cfg
}

// consumerCluster describes a consumer's group; a node alone shows none, as a
// single JetStream server does.
func (s *Server) consumerCluster(group uint32) *jsapi.ClusterInfo {
	if s.cfg.Cluster == nil {
		return nil
	}
	return s.cfg.Cluster(group)
}

func sequence(consumer, stream uint64, at int64) jsapi.SequenceInfo {
	out := jsapi.SequenceInfo{Consumer: consumer, Stream: stream}
	if at != 0 {
		t := time.Unix(0, at).UTC()
		out.Last = &t
	}
	return out
}

// lookupConsumer returns the consumer that a call names, or answers 10014.
func (st *stream) lookupConsumer(ac *api.Call) *consumer {
	c := st.consumers[ac.Req.Consumer]
	if c == nil || c.shown == nil {
		ac.Error(jsapi.NewError(jsapi.CodeConsumerNotFound))
		return nil
	}
	return c
}

func (e *engine) consumerInfo(st *stream, ac *api.Call) {
	if bad := ac.Empty(); bad != nil {
		ac.Error(bad)
		return
	}
	if c := st.lookupConsumer(ac); c != nil {
		ac.Answer(jsapi.ConsumerResponse{Response: jsapi.NewResponse(ac.Req.Verb), ConsumerInfo: c.info(e)})
	}
}

// sorted returns the consumers that lists show, by name.
func (st *stream) sorted() []*consumer {
	var out []*consumer
	for _, c := range st.consumers {
		if c.shown != nil && !c.shown.Direct {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b *consumer) int { return cmp.Compare(a.cfg.Name, b.cfg.Name) })
	return out
}

func (e *engine) consumerNames(st *stream, ac *api.Call) {
	var req jsapi.PagedRequest
	if bad := jsapi.DecodeOptional(ac.Body, &req); bad != nil {
		ac.Error(bad)
		return
	}
	all := st.sorted()
	page, from, to := jsapi.Page(len(all), req.Offset, jsapi.NamesLimit)
	names := []string{}
	for _, c := range all[from:to] {
		names = append(names, c.cfg.Name)
	}
	ac.Answer(jsapi.ConsumerNamesResponse{Response: jsapi.NewResponse(ac.Req.Verb), Paged: page, Consumers: names})
}

func (e *engine) consumerList(st *stream, ac *api.Call) {
	var req jsapi.PagedRequest
	if bad := jsapi.DecodeOptional(ac.Body, &req); bad != nil {
		ac.Error(bad)
		return
	}
	all := st.sorted()
	page, from, to := jsapi.Page(len(all), req.Offset, jsapi.ListLimit)
	infos := []*jsapi.ConsumerInfo{}
	for _, c := range all[from:to] {
		info := c.info(e)
		info.Config = c.public() // lists show no dynamic metadata
		infos = append(infos, info)
	}
	ac.Answer(jsapi.ConsumerListResponse{Response: jsapi.NewResponse(ac.Req.Verb), Paged: page, Consumers: infos})
}
