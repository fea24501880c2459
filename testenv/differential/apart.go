package differential

import (
	"context"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/deliver"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// Some differences are meant and stay: whatever the consumer does next differs, too. The entries about them are
// marked apart; the stream is deleted on both sides then, and the script goes on with the others.

// before is the JetStream side before a step.
type before struct {
	acks      int // world.acks
	firsts    int // first deliveries
	consumers map[AckRef]*jsapi.ConsumerInfo
	messages  map[string]uint64 // of a stream
	last      map[string]uint64 // sequence of a stream
}

func (r *runner) remember() {
	r.before = before{
		acks: r.w.acks, firsts: r.p.want.firstDeliveries(), consumers: make(map[AckRef]*jsapi.ConsumerInfo),
		messages: make(map[string]uint64), last: make(map[string]uint64),
	}
	for stream, s := range r.w.streams {
		r.before.messages[stream], r.before.last[stream] = s.info.State.Msgs, s.info.State.LastSeq
		for name, c := range s.consumers {
			r.before.consumers[AckRef{Stream: stream, Consumer: name}] = c
		}
	}
}

// consumersPath is the path of a value in a list of consumers.
var consumersPath = regexp.MustCompile(`^consumers\[\d+\]\.(.+)$`)

// shownOf is the one consumer whose state a difference is about, as it was before the step, and which value
// differs; nil if the difference is about something else.
func (r *runner) shownOf(d *Diff, op *Op) (was *jsapi.ConsumerInfo, path string) {
	m := consumersPath.FindStringSubmatch(d.Path)
	if m == nil || !strings.HasPrefix(d.What, stateOf) {
		return nil, ""
	}
	cs := r.consumersOf(d, op)
	if len(cs) != 1 {
		return nil, ""
	}
	return r.before.consumers[AckRef{Stream: cs[0].Stream, Consumer: cs[0].Name}], m[1]
}

const stateOf = "consumers of "

// removedUnderAckAll matches the state of a consumer with ack all of which a message was removed that was not the
// only one to wait for an ack.
func removedUnderAckAll(r *runner, d *Diff, op *Op) bool {
	c, path := r.shownOf(d, op)
	if c == nil || c.Config.AckPolicy != jsapi.AckAll || c.NumAckPending < 2 {
		return false
	}
	switch path {
	case "ack_floor.consumer_seq", "ack_floor.stream_seq", "num_ack_pending", "num_redelivered":
		return r.terminated(c.Stream, c.Name)
	default:
		return false
	}
}

// terminated reports whether JetStream has told in this step that a message of a consumer was removed.
func (r *runner) terminated(stream, consumer string) bool {
	box := r.p.want.expand(jsapi.SubjectMsgTerminated+stream+"."+consumer, time.Now())
	got, _ := r.p.want.box(box)
	for i := range got[min(r.doneW[box], len(got)):] {
		if strings.Contains(string(got[r.doneW[box]+i].data), `"reason":"`+deliver.ReasonDeleted+`"`) {
			return true
		}
	}
	return false
}

// purgedFull matches what a consumer delivers, because a purge made room, whose window was full while a request
// waited.
func purgedFull(r *runner, d *Diff, op *Op) bool {
	if !strings.HasPrefix(r.op.Subject, apiPrefix+"STREAM.PURGE.") {
		return false
	}
	if c, path := r.shownOf(d, op); c != nil {
		switch path {
		case "delivered.consumer_seq", "delivered.stream_seq", "num_ack_pending", "num_pending", "num_waiting":
			return r.waitsForRoom(c)
		}
		return false
	}
	if d.Want != absent || !strings.HasPrefix(d.What, lateInbox) {
		return false
	}
	c := r.before.consumers[op.pulls()]
	return c != nil && r.waitsForRoom(c) && strings.Contains(d.Got, " reply $JS.ACK."+c.Stream+"."+c.Name+".")
}

func (r *runner) waitsForRoom(c *jsapi.ConsumerInfo) bool {
	return "STREAM.PURGE."+c.Stream == strings.TrimPrefix(r.op.Subject, apiPrefix) &&
		c.NumWaiting > 0 && c.Config.MaxAckPending > 0 && c.NumAckPending >= c.Config.MaxAckPending
}

// purgedOne matches the advisory of a pending message that was the only one that a purge of a part, or a rollup,
// removed.
func purgedOne(r *runner, d *Diff, op *Op) bool {
	of, ok := strings.CutPrefix(d.What, "advisory ADVISORY.CONSUMER.MSG_TERMINATED.")
	if !ok || d.Got != absent || !strings.Contains(d.Want, `"reason":"`+deliver.ReasonDeleted+`"`) {
		return false
	}
	if strings.Contains(op.Header, jsapi.HdrRollup+":") {
		stream, _, _ := strings.Cut(of, ".")
		s := r.w.streams[stream]
		return s != nil && s.info.State.LastSeq == r.before.last[stream]+1 && s.info.State.Msgs == r.before.messages[stream]
	}
	if !strings.HasPrefix(op.Subject, apiPrefix+"STREAM.PURGE.") ||
		!strings.Contains(op.Body, `"filter":`) && !strings.Contains(op.Body, `"keep":`) {
		return false
	}
	got, _ := r.p.want.box(r.inbox)
	return len(got) == 1 && strings.Contains(string(got[0].data), `"purged":1}`)
}

// endedNoWait matches the end of a request with no_wait that waits for room in a full window, when another request
// of its consumer expires.
func endedNoWait(r *runner, d *Diff, op *Op) bool {
	full := func(at AckRef) bool {
		s := r.w.streams[at.Stream]
		if s == nil || s.consumers[at.Consumer] == nil || r.op.pulls() != at {
			return false
		}
		c := s.consumers[at.Consumer]
		return c.Config.MaxAckPending > 0 && c.NumAckPending >= c.Config.MaxAckPending && c.NumPending > 0
	}
	if r.op.Kind != Pull || !strings.Contains(r.op.Body, `"expires":`) {
		return false
	}
	if c, path := r.shownOf(d, op); c != nil {
		want, errW := strconv.Atoi(d.Want)
		got, errG := strconv.Atoi(d.Got)
		return path == "num_waiting" && errW == nil && errG == nil && want < got &&
			full(AckRef{Stream: c.Stream, Consumer: c.Name})
	}
	return strings.HasPrefix(d.What, lateInbox) && d.Got == absent && strings.Contains(d.Want, "404 No Messages") &&
		strings.Contains(op.Body, `"no_wait":true`) && full(op.pulls())
}

// stillSampled matches the metric about an ack of a consumer that has no sample_freq any more.
func stillSampled(r *runner, d *Diff, _ *Op) bool {
	of, ok := strings.CutPrefix(d.What, "advisory METRIC.CONSUMER.ACK.")
	stream, consumer, _ := strings.Cut(of, ".")
	s := r.w.streams[stream]
	if !ok || d.Got != absent || s == nil || s.consumers[consumer] == nil {
		return false
	}
	return s.consumers[consumer].Config.SampleFrequency == ""
}

// pulls is the consumer that an operation asks for messages.
func (o Op) pulls() AckRef {
	if o.Ack != nil {
		return AckRef{Stream: o.Ack.Stream, Consumer: o.Ack.Consumer}
	}
	req, _ := jsapi.ParseRequest(jsapi.DefaultPrefix, o.Subject)
	return AckRef{Stream: req.Stream, Consumer: req.Consumer}
}

// part deletes the streams that are apart, on both sides, and forgets what their requests get.
func (r *runner) part(ctx context.Context, diffs []Diff) error {
	parted := make(map[string]bool)
	for i := range diffs {
		stream, ok := strings.CutPrefix(diffs[i].What, stateOf)
		if !ok || !isApart(diffs[i].Explained) || parted[stream] {
			continue
		}
		parted[stream] = true
		for _, c := range []*client{r.p.want, r.p.got} {
			if err := c.deleteStream(ctx, stream); err != nil {
				return err
			}
		}
	}
	if len(parted) == 0 {
		return nil
	}
	for i := range r.res.Script {
		if op := &r.res.Script[i]; parted[op.pulls().Stream] {
			r.gone[boxOf(op, strconv.Itoa(i+1))] = true
		}
	}
	for stream := range parted {
		r.p.want.recount(r.p.got, stream)
	}
	r.doneW, r.doneG = r.p.want.counts(), r.p.got.counts()
	return nil
}

// recount lets the consumers of a stream count their deliveries alike on both sides from now on. What only one side
// delivered can not be acked.
func (c *client) recount(other *client, stream string) {
	mine, _ := c.deliveries()
	its, _ := other.deliveries()
	refs := maps.Clone(mine)
	maps.Copy(refs, its)
	for ref := range refs {
		if ref.Stream == stream {
			c.countFrom(ref, min(mine[ref], its[ref]), max(mine[ref], its[ref]))
			other.countFrom(ref, min(mine[ref], its[ref]), max(mine[ref], its[ref]))
		}
	}
}

// countFrom makes n the number of the next delivery of a consumer, and forgets those from lost on.
func (c *client) countFrom(ref AckRef, lost, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.count[ref] = n
	for ref.N = lost; ref.N < n; ref.N++ {
		delete(c.mu.acks, ref)
	}
}

func isApart(name string) bool {
	for i := range explanations {
		if explanations[i].name == name {
			return explanations[i].apart
		}
	}
	return false
}

// deleteStream deletes a stream and waits for what is told of that.
func (c *client) deleteStream(ctx context.Context, name string) error {
	box := "$JS.EVENT.ADVISORY.STREAM.DELETED." + name
	told, _ := c.box(box)
	if _, err := c.request(ctx, apiPrefix+"STREAM.DELETE."+name, "", ""); err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = c.waitFor(soon, box, len(told)) // it may get lost
	return nil
}
