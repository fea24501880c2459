// Package jsapi is JetStream on the wire as pure values: it parses what clients send, judges it,
// and formats what they get back. It has no goroutines, no I/O, no clock and no state; it imports
// the standard library only. Its measure is nats-server v2.15 as a stock client sees it, and its
// tests ask a real one.
//
// # What is here
//
//	subjects    ValidSubject, SubjectMatches, SubjectsOverlap, SubjectIsSubset; ValidName
//	requests    ParseRequest: the subject of an API call to a Verb and its names
//	acks        ParseAckReply, AppendAckReply, AppendDelivery: $JS.ACK.…; ParseAck: the payload
//	flow        ParseFlowControl, AppendFlowControl: $JS.FC.…
//	errors      Error, NewError: the error table as data (errors_table.go)
//	streams     StreamConfig and its calls; CheckStreamRequest, CheckStreamConfig, CheckStreamUpdate
//	consumers   ConsumerConfig and its calls; CheckConsumerRequest, CheckConsumerConfig,
//	            CheckConsumerUpdate, CheckWorkQueue
//	transforms  ParseTransform, Transform.Apply
//	pulls       ParseNextRequest; AppendStatus, AppendPendingStatus, AppendHeartbeat
//	headers     HeaderGet, HeaderSet, HeaderRemove, BeginHeader; PublishHeaders
//	publishes   AppendPubAck, AppendPubError, ParseTTL
//	advisories  Event and what embeds it
//	Holdfast    AckLevel, StreamAckLevels, AckLevels.Resolve
//
// # Subjects
//
// An API subject is <prefix>.<verb>[.<stream>[.<consumer>[.<rest>]]], prefix being $JS.API or
// $JS.<domain>.API. JetStream does not answer a subject that ParseRequest refuses. A consumer's
// rest is a filter and a direct get's is a message subject; both may have wildcard tokens.
//
//	$JS.ACK.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ns>.<pending>
//	$JS.ACK.<domain or _>.<account>.<stream>.<consumer>.<delivered>.<sseq>.<cseq>.<ns>.<pending>[.…]
//	$JS.FC.<stream>.<consumer>.<id>
//	$JS.FC.<domain or _>.<account>.<stream>.<consumer>.<id>
//	$JS.SNAPSHOT.ACK.<stream>.<id>.<size>.<index>
//	$JS.SNAPSHOT.RESTORE.<stream>.<id>
//
// # Header blocks
//
// A header block is "NATS/1.0", an optional status, CRLF, then lines "Key: value" CRLF, then CRLF.
// It is scanned as bytes and never turned into a map, so that what is stored and delivered is what
// was sent. A line starts after CRLF and nowhere else; keys count exactly as spelled; blanks after
// the colon are not part of the value, blanks at its end are; the first of several headers with
// one key counts; an empty value is no value. Functions that change a block return a new one.
//
// # Judging configurations
//
// The Check functions take a request as it was decoded and return what is to be stored: a copy
// with the defaults applied, with the static metadata _nats.req.level and without the dynamic
// keys _nats.ver and _nats.level, which only answers have (WithDynamicMetadata). The order of the
// checks is JetStream's, so that of several faults the same one is reported. What can not be known
// from the request comes in StreamEnv and ConsumerEnv.
//
// Deliberate differences from nats-server: num_replicas beyond the voters of a cluster is 10005
// with a text of ours; holdfast.* metadata is judged last (10052); a consumer of a workqueue
// stream can not be updated to have no filter while there are others (10100), which nats-server
// lets pass; texts of JSON type errors name this package's types; blanks in a republish
// destination are refused.
//
// # Holdfast's own settings
//
//	publish header   Holdfast-Ack: quorum | leader | none
//	stream metadata  holdfast.ack      level of a publish that names none (default quorum)
//	stream metadata  holdfast.min_ack  weakest level accepted (default none)
//
// Levels order as none < leader < quorum. An unknown level or holdfast.* key is an error that
// lists the known ones. Without a wish a publish gets the strongest level that any rule asks for;
// a wish that is weaker than a rule is refused with 10003. Streams with roll-ups or counters, and
// messages with expectations, roll-ups, increments or batch ids, are for quorum only.
//
// # Memory
//
// Parsed values share the memory of what was parsed unless they say otherwise. Matching subjects,
// parsing and formatting acks, scanning headers and formatting answers to publishes and pulls do
// not allocate, given room in dst.
package jsapi
