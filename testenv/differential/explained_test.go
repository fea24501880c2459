package differential

import (
	"testing"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// explainedWorld has a stream in a file and two in memory, one of them without messages ever, and one consumer each.
func explainedWorld() *world {
	w := newWorld()
	add := func(name string, storage jsapi.Storage, messages uint64, c jsapi.ConsumerInfo) {
		c.Stream, c.Name, c.Config = name, "c", &jsapi.ConsumerConfig{}
		w.streams[name] = &worldStream{
			info: &jsapi.StreamInfo{
				Config: jsapi.StreamConfig{Name: name, Storage: storage},
				State:  jsapi.StreamState{Msgs: messages, FirstSeq: min(messages, 1), LastSeq: messages},
			},
			consumers: map[string]*jsapi.ConsumerInfo{"c": &c},
		}
	}
	acked := jsapi.SequenceInfo{Consumer: 1, Stream: 1}
	add("F", jsapi.FileStorage, 2, jsapi.ConsumerInfo{Delivered: acked, AckFloor: acked})
	add("M", jsapi.MemoryStorage, 2, jsapi.ConsumerInfo{})
	add("N", jsapi.MemoryStorage, 0, jsapi.ConsumerInfo{})
	return w
}

// TestExplained: every entry of the list explains what it is for, and not what looks like it.
func TestExplained(t *testing.T) {
	t.Parallel()
	const (
		next = "$JS.API.CONSUMER.MSG.NEXT."
		term = "advisory ADVISORY.CONSUMER.MSG_TERMINATED.F.c"
	)
	none := func(subject string) string { return `m header "NATS/1.0 503\r\nNats-Subject: ` + subject + `\r\n\r\n"` }
	refusal := func(feature string) string {
		return `{"err_code":10052,"description":"` + feature + ` is not supported by this version of Holdfast"}`
	}
	for _, tc := range []struct {
		diff Diff
		op   Op
		name string // of the entry; "" for none
	}{
		{Diff{Path: "error", Want: "no error: {}", Got: refusal("mirror")}, Op{Body: `{"mirror":{"name":"X"}}`}, notSupported},
		{Diff{Path: "error", Want: "no error: {}", Got: refusal("mirror")}, Op{Body: `{"name":"X"}`}, ""},
		{Diff{Path: "error", Want: "no error: {}", Got: refusal("this call")}, Op{Subject: api("STREAM.SNAPSHOT", "F")}, notSupported},
		{Diff{Path: "error", Want: "no error: {}", Got: refusal("this call")}, Op{Subject: api("STREAM.PURGE", "F")}, ""},
		{Diff{Path: "error", Want: `{"code":1}`, Got: refusal("mirror")}, Op{Body: `{"mirror":{"name":"X"}}`}, ""},

		{Diff{Path: "error", Want: "type server.JSApiStreamNamesRequest.x", Got: "type jsapi.StreamNamesRequest.x"}, Op{}, "names of types"},
		{Diff{Path: "error", Want: "type server.JSApiStreamNamesRequest.x", Got: "type jsapi.StreamNamesRequest.y"}, Op{}, ""},
		{Diff{Path: "error", Want: "x of type []*server.StreamSource", Got: "x of type []*jsapi.StreamSource"}, Op{}, "names of types"},
		{Diff{Path: "error", Want: "x of type map[string]server.T", Got: "x of type map[string]jsapi.T"}, Op{}, "names of types"},
		{Diff{Path: "error", Want: "x of type *server.Placement", Got: "x of type jsapi.Placement"}, Op{}, ""},
		{Diff{Path: "error", Want: "x of type []*server.StreamSource", Got: "x of type []*string"}, Op{}, ""},

		{
			Diff{Path: "error", Want: `{"err_code":10074}`, Got: `{"err_code":10005}`},
			Op{Subject: api("STREAM.CREATE", "S"), Body: `{"num_replicas":3}`},
			"replicas",
		},
		{
			Diff{Path: "error", Want: `{"err_code":10074}`, Got: `{"err_code":10126}`},
			Op{Subject: api("STREAM.CREATE", "S"), Body: `{"num_replicas":3}`},
			"",
		},
		{
			Diff{Path: "error", Want: `{"err_code":10074}`, Got: `{"err_code":10005}`},
			Op{Subject: api("STREAM.CREATE", "S"), Body: `{"num_replicas":1}`},
			"",
		},

		{Diff{What: term, Want: "a", Got: absent}, Op{Body: "+TERM"}, "repeated term"},
		{Diff{What: term, Want: absent, Got: "a"}, Op{Body: "+TERM"}, ""},
		{Diff{What: term, Want: "a", Got: absent}, Op{Body: "+ACK"}, ""},

		{Diff{What: term, Path: "deliveries", Want: "1", Got: "2"}, Op{Body: "m"}, "deliveries of a removed message"},
		{Diff{What: term, Path: "deliveries", Want: "1", Got: "2"}, Op{Body: "+TERM"}, ""},
		{Diff{What: term, Path: "deliveries", Want: "2", Got: "1"}, Op{Body: "m"}, ""},
		{Diff{What: term, Path: "deliveries", Want: "0", Got: "1"}, Op{Body: "m"}, ""},

		{Diff{Path: "delivered.stream_seq", Want: "2", Got: "0"}, Op{Subject: api("CONSUMER.INFO", "M", "c")}, "skipped in memory"},
		{Diff{Path: "delivered.stream_seq", Want: "2", Got: "1"}, Op{Subject: api("CONSUMER.INFO", "M", "c")}, ""},
		{Diff{Path: "delivered.stream_seq", Want: "2", Got: "0"}, Op{Subject: api("CONSUMER.INFO", "F", "c")}, ""},
		{Diff{What: "consumers of M", Path: "consumers[0].delivered.stream_seq", Want: "2", Got: "0"}, Op{}, "skipped in memory"},
		{Diff{What: "consumers of F", Path: "consumers[0].delivered.stream_seq", Want: "2", Got: "0"}, Op{}, ""},

		{
			Diff{What: "consumers of M", Path: "consumers[0].ack_floor.last_active", Want: `"<time>"`, Got: absent},
			Op{},
			"time of an ack without effect",
		},
		{Diff{What: "consumers of F", Path: "consumers[0].ack_floor.last_active", Want: `"<time>"`, Got: absent}, Op{}, ""},
		{Diff{What: "consumers of M", Path: "consumers[0].ack_floor.last_active", Want: absent, Got: `"<time>"`}, Op{}, ""},

		{Diff{What: "details of N", Path: "state.num_deleted", Want: "1", Got: absent}, Op{}, "deleted sequence 0"},
		{Diff{What: "details of F", Path: "state.num_deleted", Want: "1", Got: absent}, Op{}, ""},
		{Diff{What: "streams", Path: "streams[2].state.first_seq", Want: "1", Got: "0"}, Op{}, "purged before the first message"},
		{Diff{What: "streams", Path: "streams[1].state.first_seq", Want: "1", Got: "0"}, Op{}, ""},

		{Diff{What: "streams", Path: "streams[1].state.bytes", Want: "60", Got: "88"}, Op{}, "bytes in memory"},
		{Diff{What: "streams", Path: "streams[1].state.bytes", Want: "60", Got: "97"}, Op{}, ""},
		{Diff{What: "streams", Path: "streams[0].state.bytes", Want: "60", Got: "88"}, Op{}, ""},
		{Diff{What: "streams", Path: "streams[2].state.bytes", Want: "0", Got: "1"}, Op{}, ""},
		{Diff{Path: "memory", Want: "60", Got: "96"}, Op{Subject: api("INFO")}, "bytes in memory"},
		{Diff{Path: "memory", Want: "60", Got: "0"}, Op{Subject: api("INFO")}, ""},

		{Diff{Path: "message 1", Want: absent, Got: none("$JS.API.NOPE")}, Op{Subject: "$JS.API.NOPE"}, "API subject without a server"},
		{Diff{Path: "message 1", Want: absent, Got: none(next + "F.x")}, Op{Subject: next + "F.x"}, "API subject without a server"},
		{Diff{Path: "message 1", Want: absent, Got: none(next + "F.c")}, Op{Subject: next + "F.c"}, ""},
		{Diff{Path: "message 1", Want: absent, Got: none(api("INFO"))}, Op{Subject: api("INFO")}, ""},

		{Diff{Path: "state.first_seq", Want: "1000", Got: "3"}, Op{Note: beyondTheEnd}, "purge beyond the end"},
		{Diff{Path: "state.messages", Want: "0", Got: "3"}, Op{Note: beyondTheEnd}, ""},
	} {
		r := &runner{w: explainedWorld(), p: &Pair{want: &client{}}, res: &Result{}, op: tc.op}
		if tc.diff.What == "" {
			tc.diff.What = "answer, message 1"
		}
		if got := r.explain([]Diff{tc.diff})[0].Explained; got != tc.name {
			t.Errorf("%s, %s:\nexplained by %q, want %q", tc.op, &tc.diff, got, tc.name)
		}
	}
	// Another message of the consumer does not wait any more: the +TERM ended a delivery.
	r := &runner{w: explainedWorld(), p: &Pair{want: &client{}}, res: &Result{}, op: Op{Body: "+TERM"}, before: before{acks: 1}}
	if got := r.explain([]Diff{{What: term, Want: "a", Got: absent}})[0].Explained; got != "" {
		t.Errorf("the advisory of a +TERM with an effect is explained by %q", got)
	}
}
