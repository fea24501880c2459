package differential

import (
	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// notSupported is the entry for features that this version refuses.
const notSupported = "not supported"

// unsupportedFields are the features that this version refuses, with what a request for one contains.
var unsupportedFields = map[string]string{
	"interest retention":              `"retention":"interest"`,
	"mirror":                          `"mirror":{`,
	"sources":                         `"sources":[`,
	"subject_transform":               `"subject_transform":{`,
	"republish":                       `"republish":{`,
	"allow_msg_ttl":                   `"allow_msg_ttl":true`,
	"subject_delete_marker_ttl":       `"subject_delete_marker_ttl":`,
	"allow_msg_counter":               `"allow_msg_counter":true`,
	"allow_atomic":                    `"allow_atomic":true`,
	"allow_msg_schedules":             `"allow_msg_schedules":true`,
	"allow_batched":                   `"allow_batched":true`,
	"deliver_subject (push consumer)": `"deliver_subject":"`,
	"priority_policy":                 `"priority_policy":"`,
	"replay_policy original":          `"replay_policy":"original"`,
	"direct":                          `"direct":true`,
}

// unsupportedCalls are the calls that this version refuses.
var unsupportedCalls = []jsapi.Verb{
	jsapi.VerbConsumerReset, jsapi.VerbConsumerUnpin, jsapi.VerbStreamSnapshot, jsapi.VerbStreamRestore,
}

// explanations is the list of differences that are meant.
var explanations = []explanation{
	{
		name:   notSupported,
		reason: "the feature comes with a later version; until then it is refused by name",
		match:  refused,
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
		name:   "API level",
		reason: "clients choose features by it",
		match:  value("api.level", "5", "0"),
	},
	{
		name:   "names of types",
		reason: "texts of the JSON decoder name Go types: JetStream's are not ours",
		match:  sameButTypes,
	},
	{
		name:   "replicas",
		reason: "more replicas than nodes: a JetStream alone knows no replicas, a cluster of one does",
		match:  tooManyReplicas,
	},
	{
		name:   "repeated term",
		reason: "JetStream advises of every +TERM, Holdfast of those that end a delivery",
		match:  endedNothing,
	},
	{
		name:   "purge beyond the end",
		reason: "JetStream moves its sequences up to the sequence that a purge names; Holdfast does not spend sequences for it",
		match:  noted(beyondTheEnd, "state.first_seq", "state.last_seq", "delivered.stream_seq", "ack_floor.stream_seq"),
	},
	{
		name:   "ack above the cursor",
		reason: "an earlier leader may have delivered it: the ack of a message that was not delivered yet counts",
		match:  noted(aboveTheCursor, "message 1", "ack_floor.last_active", "num_pending"),
	},
	{
		name:   "sampling",
		reason: "the text about a negative sample_freq says what is wrong",
		match:  negativeSampling,
	},
	{
		name:   "skipped in memory",
		reason: "of a consumer in memory that delivered nothing JetStream shows how far it looked, of others not",
		match:  lookedInMemory,
	},
	{
		name:   "time of an ack without effect",
		reason: "the time of the ack floor is that of the last ack that settled something",
		match:  neverAcked,
	},
	{
		name:   "stale nak",
		reason: "the nak of a delivery that another one has replaced is no order of its receiver",
		match:  replacedNak,
	},
	{
		name:   "deliveries of a removed message",
		reason: "of a pending message that left the stream JetStream tells one delivery less than there were if it was redelivered",
		match:  oneDeliveryLess,
	},
	{
		name: "removed under ack all",
		reason: "JetStream takes the removal of a message for an ack of all before it; here they stay unacked, because " +
			"nobody acked them",
		match: removedUnderAckAll,
		apart: true,
	},
	{
		name:   "purge of a full window",
		reason: "a purge makes room for the request that waits; JetStream goes on when the next thing happens",
		match:  purgedFull,
		apart:  true,
	},
	{
		name: "no_wait at a full window",
		reason: "it waits for room; JetStream says that there are no messages, although there are, once another request " +
			"of the consumer expires",
		match: endedNoWait,
		apart: true,
	},
	{
		name:   "sampling that was switched off",
		reason: "JetStream goes on to sample when an update takes sample_freq away",
		match:  stillSampled,
	},
	{
		name:   "purge of one message",
		reason: "no purge is told of by advisories; JetStream takes one that removes a single message for a deletion",
		match:  purgedOne,
	},
	{
		name:   "cluster of a consumer",
		reason: "a node of ours is always a cluster, if only of one; JetStream alone has none",
		match:  ofConsumers,
	},
	{
		name:   "cluster of a stream",
		reason: "the leader is named after the node",
		match:  ofStreams,
	},
	{
		name:   "deleted sequence 0",
		reason: "JetStream says of a stream that never had a message that its sequence 0 was deleted",
		match:  sequenceZero,
	},
	{
		name:   "purged before the first message",
		reason: "JetStream says first_seq 1 instead of 0 of a stream without messages once it was purged",
		match:  beforeTheFirst,
	},
	{
		name:   "bytes in memory",
		reason: "Holdfast counts the bytes of every stream as JetStream counts those of file storage",
		match:  bytesInMemory,
	},
	{
		name:   "API subject without a server",
		reason: "JetStream is silent about API subjects it does not know; ours are not subscribed, so the answer is 503",
		match:  unknownSubject,
	},
}
