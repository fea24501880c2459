package differential

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

var (
	typeNames = regexp.MustCompile(
		`(Go struct field |type )(?:server\.|jsapi\.)?[A-Za-z]*Request(?:\.[A-Za-z]*Request)*`)
	ofType          = regexp.MustCompile(`( of type (?:\*|\[\]|map\[\w+\])*)(?:server|jsapi)\.\w+`)
	consumerCluster = regexp.MustCompile(`^consumers\[\d+\]\.cluster$`)
	listedConsumer  = regexp.MustCompile(`^consumers\[(\d+)\]\.`)
	listedStream    = regexp.MustCompile(`^streams\[(\d+)\]\.`)
	numReplicas     = regexp.MustCompile(`"num_replicas":([2-9]|\d\d)`)
)

// An explanation is a difference that is meant.
type explanation struct {
	name   string
	reason string
	match  matcher
	apart  bool // the sides differ for good: see part
}

// A matcher reports whether a difference, which op made, is what an explanation is about.
type matcher func(r *runner, d *Diff, op *Op) bool

// explain marks the differences that the list explains.
func (r *runner) explain(diffs []Diff) []Diff {
	for i := range diffs {
		for _, e := range explanations {
			if e.match(r, &diffs[i], r.opOf(&diffs[i])) {
				diffs[i].Explained = e.name
				break
			}
		}
	}
	return diffs
}

// opOf is the operation that a difference is about: an inbox may hear of it later.
func (r *runner) opOf(d *Diff) *Op {
	box, late := strings.CutPrefix(d.What, lateInbox)
	if n, err := strconv.Atoi(strings.TrimRight(box, "b")); late && err == nil && n >= 1 && n <= len(r.res.Script) {
		return &r.res.Script[n-1]
	}
	return &r.op
}

// value matches a difference in one value of an answer.
func value(path, want, got string) matcher {
	return func(_ *runner, d *Diff, _ *Op) bool { return d.Path == path && d.Want == want && d.Got == got }
}

// noted matches differences at some paths, in the state and in the answers of the operation with this note.
func noted(note string, paths ...string) matcher {
	return func(_ *runner, d *Diff, op *Op) bool {
		return op.Note == note && slices.ContainsFunc(paths, func(p string) bool { return pathEnds(d, p) })
	}
}

// pathEnds reports whether the last steps of a path are these.
func pathEnds(d *Diff, steps string) bool {
	return d.Path == steps || strings.HasSuffix(d.Path, "."+steps)
}

// sameButTypes matches errors that name Go types.
func sameButTypes(_ *runner, d *Diff, _ *Op) bool {
	untyped := func(s string) string {
		return ofType.ReplaceAllString(typeNames.ReplaceAllString(s, "$1"), "$1")
	}
	return d.Path == "error" && d.Want != d.Got && untyped(d.Want) == untyped(d.Got)
}

// refused matches the refusal of a feature that the request names and JetStream takes, or of any request of a call.
func refused(_ *runner, d *Diff, op *Op) bool {
	if d.Path == "header" { // of the answer to a consumer of a mirror
		return strings.Contains(op.Body, unsupportedFields["direct"]) && d.Got == quoted("") &&
			strings.HasPrefix(d.Want, `"NATS/1.0\r\nNats-Stream-Identity: `)
	}
	if d.Path != "error" {
		return false
	}
	req, _ := jsapi.ParseRequest(jsapi.DefaultPrefix, op.Subject)
	if slices.Contains(unsupportedCalls, req.Verb) {
		return strings.Contains(d.Got, `"this call is not supported by this version of Holdfast"`)
	}
	for feature, field := range unsupportedFields {
		if strings.Contains(d.Got, `"`+feature+` is not supported by this version of Holdfast"`) {
			return strings.Contains(op.Body, field) && strings.HasPrefix(d.Want, "no error: ")
		}
	}
	return false
}

// tooManyReplicas matches the errors of a request for more than one replica.
func tooManyReplicas(_ *runner, d *Diff, op *Op) bool {
	code := `"err_code":10005` // no suitable peers for placement
	if strings.HasPrefix(op.Subject, apiPrefix+"CONSUMER.") {
		code = `"err_code":10126` // more replicas than the stream has
	}
	return d.Path == "error" && strings.Contains(d.Want, `"err_code":10074`) && strings.Contains(d.Got, code) &&
		numReplicas.MatchString(op.Body)
}

// negativeSampling matches the two texts about it.
func negativeSampling(_ *runner, d *Diff, _ *Op) bool {
	return d.Path == "error" && strings.Contains(d.Want, "sampling configuration: <nil>") &&
		strings.Contains(d.Got, "sampling configuration: sample frequency must not be negative")
}

// endedNothing matches the advisory of a +TERM after which as many messages wait for an ack as before, those that
// were delivered since included.
func endedNothing(r *runner, d *Diff, op *Op) bool {
	return strings.HasPrefix(d.What, "advisory ADVISORY.CONSUMER.MSG_TERMINATED.") && d.Got == absent &&
		strings.HasPrefix(op.Body, "+TERM") && r.w.acks == r.before.acks+r.p.want.firstDeliveries()-r.before.firsts
}

// oneDeliveryLess matches the deliveries in the advisory of a message that was redelivered and left the stream.
func oneDeliveryLess(_ *runner, d *Diff, op *Op) bool {
	want, err := strconv.Atoi(d.Want)
	return strings.HasPrefix(d.What, "advisory ADVISORY.CONSUMER.MSG_TERMINATED.") && d.Path == "deliveries" &&
		!strings.HasPrefix(op.Body, "+TERM") && err == nil && want >= 1 && d.Got == strconv.Itoa(want+1)
}

// replacedNak matches the advisory of a nak of a delivery that another one has replaced.
func replacedNak(_ *runner, d *Diff, op *Op) bool {
	return op.Note == staleNak && strings.HasPrefix(d.What, "advisory ADVISORY.CONSUMER.MSG_NAKED.") && d.Got == absent
}

// lookedInMemory matches how far a consumer in memory looked that delivered nothing.
func lookedInMemory(r *runner, d *Diff, op *Op) bool {
	return pathEnds(d, "delivered.stream_seq") && d.Got == "0" &&
		slices.ContainsFunc(r.consumersOf(d, op), func(c *jsapi.ConsumerInfo) bool {
			return c.Delivered.Consumer == 0 && (c.Config.MemoryStorage || r.inMemory(c.Stream))
		})
}

// neverAcked matches the time of an ack, of a consumer none of whose deliveries was acked.
func neverAcked(r *runner, d *Diff, op *Op) bool {
	return pathEnds(d, "ack_floor.last_active") && d.Want == `"<time>"` && d.Got == absent &&
		slices.ContainsFunc(r.consumersOf(d, op), func(c *jsapi.ConsumerInfo) bool { return c.AckFloor.Consumer == 0 })
}

// ofConsumers matches a cluster that consumers of ours have.
func ofConsumers(_ *runner, d *Diff, _ *Op) bool {
	return d.Want == absent && d.Got == `{"leader":"n1"}` && (d.Path == "cluster" || consumerCluster.MatchString(d.Path))
}

// ofStreams matches the name of a leader.
func ofStreams(_ *runner, d *Diff, _ *Op) bool { return d.Path == "cluster.leader" && d.Got == `"n1"` }

// sequenceZero matches the deleted messages of a stream that never had one.
func sequenceZero(r *runner, d *Diff, op *Op) bool {
	return d.Got == absent && slices.ContainsFunc(r.streamsOf(d, op), neverStored) &&
		(d.Path == "state.deleted" && d.Want == "[0]" || d.Path == "state.num_deleted" && d.Want == "1")
}

// beforeTheFirst matches the first sequence of a stream that never had a message.
func beforeTheFirst(r *runner, d *Diff, op *Op) bool {
	return pathEnds(d, "state.first_seq") && d.Want == "1" && d.Got == "0" &&
		slices.ContainsFunc(r.streamsOf(d, op), neverStored)
}

func neverStored(s *worldStream) bool { return s.info.State.LastSeq == 0 && s.info.State.Msgs == 0 }

// What JetStream counts for a message in a file beyond what it counts for one in memory, without headers and with.
const (
	leastInFiles = 14
	mostInFiles  = 18
)

// bytesInMemory matches the bytes of streams in memory: each message has a few more.
func bytesInMemory(r *runner, d *Diff, op *Op) bool {
	want, errW := strconv.ParseInt(d.Want, 10, 64)
	got, errG := strconv.ParseInt(d.Got, 10, 64)
	if errW != nil || errG != nil {
		return false
	}
	more := func(messages uint64) bool {
		n := int64(min(messages, 1<<30))
		return got-want >= leastInFiles*n && got-want <= mostInFiles*n
	}
	if d.Path == "memory" {
		all := uint64(0)
		for name, s := range r.w.streams {
			if r.inMemory(name) {
				all += s.info.State.Msgs
			}
		}
		return more(all)
	}
	return pathEnds(d, "state.bytes") && slices.ContainsFunc(r.streamsOf(d, op), func(s *worldStream) bool {
		return r.inMemory(s.info.Config.Name) && more(s.info.State.Msgs)
	})
}

// unknownSubject matches the 503 of an API subject that is no call of the API, or that only a consumer or stream
// has that does not exist.
func unknownSubject(r *runner, d *Diff, op *Op) bool {
	if d.Path != "message 1" || d.Want != absent || !strings.HasPrefix(op.Subject, jsapi.DefaultPrefix) ||
		!strings.Contains(d.Got, `NATS/1.0 503\r\nNats-Subject: `+op.Subject+`\r\n`) {
		return false
	}
	req, ok := jsapi.ParseRequest(jsapi.DefaultPrefix, op.Subject)
	switch s := r.w.streams[req.Stream]; {
	case !ok:
		return true
	case req.Verb == jsapi.VerbConsumerNext:
		return s == nil || s.consumers[req.Consumer] == nil
	case req.Verb == jsapi.VerbDirectGet:
		return s == nil || !s.info.Config.AllowDirect
	default:
		return false
	}
}

// inMemory reports whether a stream has memory storage.
func (r *runner) inMemory(stream string) bool {
	s := r.w.streams[stream]
	return s != nil && s.info.Config.Storage == jsapi.MemoryStorage
}

// streamsOf are the streams that a difference may be about: one, but where a list was asked for from an offset on.
func (r *runner) streamsOf(d *Diff, op *Op) []*worldStream {
	name, details := strings.CutPrefix(d.What, "details of ")
	if m := listedStream.FindStringSubmatch(d.Path); m != nil {
		i, err := strconv.Atoi(m[1])
		if err != nil || d.What != "streams" {
			return slices.Collect(maps.Values(r.w.streams))
		}
		if names := r.w.names(); i < len(names) {
			name, details = names[i], true
		}
	}
	if !details {
		req, _ := jsapi.ParseRequest(jsapi.DefaultPrefix, op.Subject)
		name = req.Stream
	}
	if s := r.w.streams[name]; s != nil {
		return []*worldStream{s}
	}
	return nil
}

// consumersOf are the consumers that a difference may be about: one, but where a list was asked for from an offset
// on, or where the name is generated.
func (r *runner) consumersOf(d *Diff, op *Op) []*jsapi.ConsumerInfo {
	req, _ := jsapi.ParseRequest(jsapi.DefaultPrefix, op.Subject)
	listed := listedConsumer.FindStringSubmatch(d.Path)
	stream, state := strings.CutPrefix(d.What, "consumers of ")
	if !state {
		stream = req.Stream
	}
	s := r.w.streams[stream]
	if s == nil {
		return nil
	}
	names := slices.Sorted(maps.Keys(s.consumers))
	switch {
	case state && listed != nil && !slices.ContainsFunc(names, isGenName): // lists with these are sorted anew
		if i, err := strconv.Atoi(listed[1]); err == nil && i < len(names) {
			return []*jsapi.ConsumerInfo{s.consumers[names[i]]}
		}
		return nil
	case listed == nil && s.consumers[req.Consumer] != nil:
		return []*jsapi.ConsumerInfo{s.consumers[req.Consumer]}
	default:
		return slices.Collect(maps.Values(s.consumers))
	}
}
