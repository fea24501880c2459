package differential

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

var (
	consumerCluster = regexp.MustCompile(`^consumers\[\d+\]\.cluster$`)                                                          //nolint:gochecknoglobals // constant
	typeNames       = regexp.MustCompile(`(Go struct field |type )(?:server\.|jsapi\.)?[A-Za-z]*Request(?:\.[A-Za-z]*Request)*`) //nolint:gochecknoglobals,lll // constant
	ofType          = regexp.MustCompile(`( of type )(?:server|jsapi)\.\w+`)                                                     //nolint:gochecknoglobals // constant
	listedConsumer  = regexp.MustCompile(`^consumers of (\S+) consumers\[(\d+)\]\.`)                                             //nolint:gochecknoglobals // constant
	listedStream    = regexp.MustCompile(`^streams\[(\d+)\]\.state\.bytes$`)                                                     //nolint:gochecknoglobals // constant
)

// notSupported is the entry for features that this version refuses.
const notSupported = "not supported"

// An explanation is a difference that is meant.
type explanation struct {
	name   string
	reason string
	match  func(d *Diff, op *Op, r *runner) bool
}

// explain marks the differences that the list explains.
func (r *runner) explain(diffs []Diff) []Diff {
	list := explanations()
	for i := range diffs {
		for _, e := range list {
			if e.match(&diffs[i], r.opOf(&diffs[i]), r) {
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

// memoryStream reports whether a path leads into a stream with memory storage.
func (r *runner) memoryStream(d *Diff) bool {
	name := strings.TrimPrefix(d.What, "details of ")
	if m := listedStream.FindStringSubmatch(d.Path); m != nil {
		i, _ := strconv.Atoi(m[1])
		if names := r.w.names(); i < len(names) {
			name = names[i]
		}
	} else if d.What == "answer, message 1" {
		name = r.op.Subject[strings.LastIndexByte(r.op.Subject, '.')+1:]
	}
	s := r.w.streams[name]
	return s != nil && s.info.Config.Storage == jsapi.MemoryStorage
}

// memoryConsumer reports whether a difference is about a consumer in memory that delivered nothing.
func (r *runner) memoryConsumer(d *Diff) bool {
	m := listedConsumer.FindStringSubmatch(d.What + " " + d.Path)
	if m == nil {
		return strings.HasPrefix(d.What, "answer")
	}
	s := r.w.streams[m[1]]
	i, _ := strconv.Atoi(m[2])
	if s == nil || i >= len(s.consumers) {
		return false
	}
	c := s.consumers[slices.Sorted(maps.Keys(s.consumers))[i]]
	return c.Delivered.Consumer == 0 && (c.Config.MemoryStorage || s.info.Config.Storage == jsapi.MemoryStorage)
}

// untyped leaves the names of Go types out of a text.
func untyped(s string) string {
	return ofType.ReplaceAllString(typeNames.ReplaceAllString(s, "$1"), "$1")
}

// value matches a difference in one value of an answer.
func value(path, want, got string) func(*Diff, *Op, *runner) bool {
	return func(d *Diff, _ *Op, _ *runner) bool { return d.Path == path && d.Want == want && d.Got == got }
}

// explanations is the list.
func explanations() []explanation {
	return []explanation{
		{
			name:   notSupported,
			reason: "the feature comes with a later version; until then it is refused by name",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return d.Path == "error" && strings.HasPrefix(d.Want, "no error: ") &&
					strings.Contains(d.Got, "is not supported by this version of Holdfast")
			},
		},
		{
			name:   "version in metadata",
			reason: "_nats.ver is the version of the server that answers",
			match:  value("config.metadata._nats.ver", `"`+server.VERSION+`"`, `"`+node.Version+`"`),
		},
		{
			name:   "API level in metadata",
			reason: "_nats.level is what this version serves of the API",
			match:  value("config.metadata._nats.level", `"5"`, `"0"`),
		},
		{
			name:   "names of types",
			reason: "texts of the JSON decoder name Go types: JetStream's are not ours",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return d.Path == "error" && untyped(d.Want) == untyped(d.Got)
			},
		},
		{
			name:   "replicas",
			reason: "more replicas than nodes: a JetStream alone knows no replicas, a cluster of one does",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return d.Path == "error" && strings.Contains(d.Want, `"err_code":10074`) &&
					(strings.Contains(d.Got, `"err_code":10005`) || strings.Contains(d.Got, `"err_code":10126`))
			},
		},
		{
			name:   "repeated term",
			reason: "JetStream advises of every +TERM, Holdfast of those that end a delivery",
			match: func(d *Diff, op *Op, r *runner) bool {
				return strings.HasPrefix(d.What, "advisory ADVISORY.CONSUMER.MSG_TERMINATED.") && d.Got == absent &&
					strings.HasPrefix(op.Body, "+TERM") && r.w.acks == r.before
			},
		},
		{
			name:   "purge beyond the end",
			reason: "JetStream moves its sequences up to the sequence that a purge names; Holdfast does not spend sequences for it",
			match:  func(_ *Diff, op *Op, _ *runner) bool { return op.Note == beyondTheEnd },
		},
		{
			name:   "ack above the cursor",
			reason: "an earlier leader may have delivered it: the ack of a message that was not delivered yet counts",
			match:  func(_ *Diff, op *Op, _ *runner) bool { return op.Note == aboveTheCursor },
		},
		{
			name:   "sampling",
			reason: "the text about a negative sample_freq says what is wrong",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return d.Path == "error" && strings.Contains(d.Want, "sampling configuration: <nil>") &&
					strings.Contains(d.Got, "sampling configuration: sample frequency must not be negative")
			},
		},
		{
			name:   "skipped in memory",
			reason: "of a consumer in memory that delivered nothing JetStream shows how far it looked, of others not",
			match: func(d *Diff, _ *Op, r *runner) bool {
				return strings.HasSuffix(d.Path, "delivered.stream_seq") && d.Got == "0" && r.memoryConsumer(d)
			},
		},
		{
			name:   "time of an ack without effect",
			reason: "the time of the ack floor is that of the last ack that settled something",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return strings.HasSuffix(d.Path, "ack_floor.last_active") && d.Want == `"<time>"` && d.Got == absent
			},
		},
		{
			name:   "stale nak",
			reason: "the nak of a delivery that another one has replaced is no order of its receiver",
			match: func(d *Diff, op *Op, _ *runner) bool {
				return op.Note == staleNak && strings.HasPrefix(d.What, "advisory ADVISORY.CONSUMER.MSG_NAKED.") && d.Got == absent
			},
		},
		{
			name:   "cluster of a consumer",
			reason: "a node of ours is always a cluster, if only of one; JetStream alone has none",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return d.Want == absent && d.Got == `{"leader":"n1"}` &&
					(d.Path == "cluster" || consumerCluster.MatchString(d.Path))
			},
		},
		{
			name:   "cluster of a stream",
			reason: "the leader is named after the node",
			match:  func(d *Diff, _ *Op, _ *runner) bool { return d.Path == "cluster.leader" && d.Got == `"n1"` },
		},
		{
			name:   "deleted sequence 0",
			reason: "JetStream says of a stream that never had a message that its sequence 0 was deleted",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return d.Got == absent && (d.Path == "state.deleted" && d.Want == "[0]" || d.Path == "state.num_deleted" && d.Want == "1")
			},
		},
		{
			name:   "purged before the first message",
			reason: "JetStream says first_seq 1 instead of 0 of a stream without messages once it was purged",
			match: func(d *Diff, _ *Op, _ *runner) bool {
				return strings.HasSuffix(d.Path, "state.first_seq") && d.Want == "1" && d.Got == "0"
			},
		},
		{
			name:   "bytes in memory",
			reason: "Holdfast counts the bytes of every stream as JetStream counts those of file storage",
			match: func(d *Diff, _ *Op, r *runner) bool {
				return strings.HasSuffix(d.Path, "state.bytes") && r.memoryStream(d) || d.Path == "memory"
			},
		},
		{
			name:   "API subject without a server",
			reason: "JetStream is silent about API subjects it does not know; ours are not subscribed, so the answer is 503",
			match: func(d *Diff, op *Op, _ *runner) bool {
				return d.Path == "message 1" && d.Want == absent && strings.HasPrefix(op.Subject, apiPrefix[:len(apiPrefix)-1]) &&
					strings.Contains(d.Got, `NATS/1.0 503\r\nNats-Subject: `+op.Subject)
			},
		},
		{
			name:   "API level",
			reason: "clients choose features by it",
			match:  value("api.level", "5", "0"),
		},
	}
}
