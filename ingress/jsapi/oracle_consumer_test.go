package jsapi

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// consumerCase is a create call on a stream.
type consumerCase struct {
	verb string // Subject below the prefix; empty is CONSUMER.CREATE.S.C.
	body string
}

func c(config string) consumerCase {
	return consumerCase{body: `{"stream_name":"S","config":{` + config + `}}`}
}

func on(verb, body string) consumerCase { return consumerCase{verb: verb, body: body} }

func consumerCases() []consumerCase {
	var cases []consumerCase
	for _, cfg := range []string{
		``,
		`"durable_name":"C"`,
		`"durable_name":"C","name":"C","ack_policy":"explicit"`,
		`"durable_name":"D"`,
		`"name":"D"`,
		`"description":"` + long(4096) + `"`,
		`"description":"` + long(4097) + `"`,
		`"metadata":{"a":"` + long(128*1024) + `"}`,
		`"metadata":{"_nats.ver":"1","a":"b"}`,
		`"deliver_policy":"foo"`, `"deliver_policy":"undefined"`, `"deliver_policy":""`,
		`"ack_policy":"foo"`, `"ack_policy":null`, `"replay_policy":"foo"`, `"priority_policy":"foo"`,
		`"replay_policy":"original"`,
		`"ack_policy":"all"`, `"ack_policy":"none","max_ack_pending":5`,
		`"ack_policy":"explicit","ack_wait":-5`,
		`"ack_policy":"explicit","ack_wait":5000000000`,
		`"ack_policy":"explicit","backoff":[1000000000,2000000000]`,
		`"ack_policy":"explicit","backoff":[1000000000,-2]`,
		`"ack_policy":"explicit","backoff":[1,2,3],"max_deliver":2`,
		`"ack_policy":"explicit","backoff":[1,2,3],"max_deliver":3`,
		`"ack_policy":"explicit","backoff":[1,2,3],"max_deliver":-1`,
		`"max_deliver":-5,"max_waiting":-5,"max_ack_pending":-5,"max_batch":-5,"max_expires":-5,"max_bytes":-5`,
		`"idle_heartbeat":-5,"inactive_threshold":-5`,
		`"priority_timeout":-5`,
		`"num_replicas":-1`, `"num_replicas":3`, `"num_replicas":1`,
		`"mem_storage":true`,
		`"rate_limit_bps":5`, `"idle_heartbeat":100000000`, `"flow_control":true`,
		`"max_expires":999999`, `"max_expires":1000000`, `"max_batch":5,"max_bytes":7`,
		`"max_waiting":5`,
		`"headers_only":true`,
		`"deliver_subject":"d"`, `"deliver_subject":"d.*"`, `"deliver_subject":"d..e"`,
		`"deliver_subject":"a.b"`,
		`"deliver_subject":"d","deliver_group":"g"`, `"deliver_subject":"_R_.x"`,
		`"deliver_subject":"$JS.API.INFO"`,
		`"deliver_subject":"$JS.x.API.INFO"`, `"deliver_subject":"$JS.ACK.x"`, `"deliver_subject":"$JS.x.y"`,
		`"deliver_subject":"d","max_waiting":5`,
		`"deliver_subject":"d","max_ack_pending":5`,
		`"deliver_subject":"d","max_ack_pending":5,"ack_policy":"explicit"`,
		`"deliver_subject":"d","idle_heartbeat":99999999`,
		`"deliver_subject":"d","idle_heartbeat":100000000,"flow_control":true,"rate_limit_bps":100`,
		`"deliver_subject":"d","flow_control":true`,
		`"ack_policy":"flow_control"`,
		`"ack_policy":"flow_control","deliver_subject":"d"`,
		`"ack_policy":"flow_control","deliver_subject":"d","max_ack_pending":-1`,
		`"ack_policy":"flow_control","deliver_subject":"d","ack_wait":5`,
		`"ack_policy":"flow_control","deliver_subject":"d","max_deliver":5`,
		`"direct":true`, `"direct":true,"deliver_subject":"d","durable_name":"C"`,
		`"filter_subject":"a.x"`, `"filter_subject":"zzz"`, `"filter_subject":"a..x"`,
		`"filter_subject":"a.x","filter_subjects":["a.y"]`,
		`"filter_subjects":["a.x","a.y"]`, `"filter_subjects":["a.x",""]`, `"filter_subjects":["a.x","a..y"]`,
		`"filter_subjects":["a.*","a.y"]`, `"filter_subjects":["a.y","a.*"]`,
		`"filter_subjects":["a.*.b","a.b.*"]`,
		`"filter_subjects":["a.x","a.x"]`, `"filter_subjects":[]`,
		`"sample_freq":"50"`, `"sample_freq":"50%"`, `"sample_freq":"x"`, `"sample_freq":"%"`,
		`"sample_freq":"5.5"`,
		`"priority_policy":"overflow"`, `"priority_policy":"overflow","priority_groups":["g"]`,
		`"priority_policy":"overflow","priority_groups":[""]`,
		`"priority_policy":"overflow","priority_groups":["g h"]`,
		`"priority_policy":"overflow","priority_groups":["` + long(16) + `"]`,
		`"priority_policy":"overflow","priority_groups":["` + long(17) + `"]`,
		`"priority_policy":"pinned_client","priority_groups":["g"]`,
		`"priority_policy":"pinned_client","priority_groups":["g"],"priority_timeout":5000000000`,
		`"priority_policy":"prioritized","priority_groups":["g"]`,
		`"priority_policy":"overflow","priority_groups":["g"],"deliver_subject":"d"`,
		`"priority_groups":["g"]`, `"priority_timeout":5`, `"priority_policy":"none"`,
		`"pause_until":"2036-01-01T00:00:00Z"`, `"pause_until":"0001-01-01T00:00:00Z"`,
		`"inactive_threshold":5000000000`,
		`"unknown":1`, `"max_deliver":"x"`, `"opt_start_time":"yesterday"`,
	} {
		cases = append(cases, c(cfg))
	}
	for _, p := range []string{
		"all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject",
	} {
		for _, extra := range []string{
			``, `,"opt_start_seq":5`, `,"opt_start_time":"2026-01-02T03:04:05.678Z"`,
			`,"opt_start_seq":5,"opt_start_time":"2026-01-02T03:04:05Z"`, `,"filter_subject":"a.*"`,
		} {
			cases = append(cases, c(`"deliver_policy":"`+p+`"`+extra))
		}
	}
	for _, cfg := range []string{
		`"max_deliver":-5`, `"max_waiting":-5`, `"max_ack_pending":-5`, `"max_batch":-5`, `"max_expires":-5`,
		`"max_bytes":-5`, `"idle_heartbeat":-5`, `"inactive_threshold":-5`, `"priority_timeout":-5`,
		`"backoff":[5]`, `"backoff":[5],"ack_wait":5,"ack_policy":"explicit"`,
		`"ack_policy":"flow_control","deliver_subject":"d"`,
		`"ack_policy":"flow_control","deliver_subject":"d","flow_control":true,"idle_heartbeat":1000000000`,
	} {
		cases = append(cases, consumerCase{body: `{"stream_name":"S","config":{` + cfg + `},"pedantic":true}`})
	}
	return append(cases, formCases()...)
}

// formCases are about subject and body, not about the configuration.
func formCases() []consumerCase {
	return []consumerCase{
		{body: ``},
		{body: `{}`},
		{body: `{`},
		{body: `[]`},
		{body: `x`},
		{body: `{"stream_name":"T","config":{}}`},
		{body: `{"stream_name":"S","config":{},"action":"foo"}`},
		{body: `{"stream_name":"S","config":{},"action":"create"}`},
		{body: `{"stream_name":"S","config":{},"action":"update"}`},
		{body: `{"stream_name":"S","config":{},"action":null}`},
		on("CONSUMER.CREATE.S.x/y", `{"stream_name":"S","config":{}}`),
		on("CONSUMER.CREATE.S.C.a.x", `{"stream_name":"S","config":{"filter_subject":"a.x"}}`),
		on("CONSUMER.CREATE.S.C.a.*", `{"stream_name":"S","config":{"filter_subject":"a.*"}}`),
		on("CONSUMER.CREATE.S.C.a.>", `{"stream_name":"S","config":{"filter_subject":"a.x"}}`),
		on("CONSUMER.CREATE.S.C.a.x", `{"stream_name":"S","config":{}}`),
		on("CONSUMER.CREATE.S.C.a.x", `{"stream_name":"S","config":{"filter_subjects":["a.x"]}}`),
		on("CONSUMER.CREATE.S.C.a.x", `{"stream_name":"S","config":{"durable_name":"D"}}`),
		on("CONSUMER.CREATE.S", `{"stream_name":"S","config":{"durable_name":"C"}}`),
		on("CONSUMER.CREATE.S", `{"stream_name":"S","config":{"name":"C"}}`),
		on("CONSUMER.CREATE.S", `{"stream_name":"S","config":{"name":"a/b"}}`),
		on("CONSUMER.CREATE.S", `{"stream_name":"S","config":{"name":"a.b"}}`),
		on("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{}}`),
		on("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"D"}}`),
		on("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C"}}`),
		on("CONSUMER.DURABLE.CREATE.S.C", `{"stream_name":"S","config":{"durable_name":"C","name":"X"}}`),
		on("CONSUMER.CREATE.S."+long(255), `{"stream_name":"S","config":{}}`),
		on("CONSUMER.CREATE.S."+long(256), `{"stream_name":"S","config":{"durable_name":"`+long(256)+`"}}`),
	}
}

// judgeConsumer does what an API server does with a create call for a consumer that is not there.
func judgeConsumer(verb, body string, stream *StreamConfig, others iter.Seq[*ConsumerConfig]) (*ConsumerConfig, *Error) {
	var req CreateConsumerRequest
	if err := DecodeStrict([]byte(body), &req); err != nil {
		return nil, err
	}
	r, ok := ParseRequest(DefaultPrefix, DefaultPrefix+"."+verb)
	if !ok {
		return nil, NewError(CodeBadRequest)
	}
	if err := CheckConsumerRequest(r, &req); err != nil {
		return nil, err
	}
	if req.Config.Replicas > 1 {
		return nil, NewError(CodeStreamReplicasNotSupported)
	}
	if req.Stream != stream.Name {
		return nil, NewError(CodeStreamNotFound)
	}
	cfg, err := CheckConsumerConfig(&req.Config, &ConsumerEnv{Stream: stream, Pedantic: req.Pedantic})
	if err != nil {
		return nil, err
	}
	if req.Action == ActionUpdate {
		return nil, NewError(CodeConsumerDoesNotExist)
	}
	if stream.Retention == WorkQueuePolicy {
		if err := CheckWorkQueue(cfg, others, false); err != nil {
			return nil, err
		}
	}
	return cfg, CheckDurableLen(cfg)
}

func noConsumers(func(*ConsumerConfig) bool) {}

func TestOracleConsumerCreate(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	for _, extra := range []string{
		``, `,"retention":"workqueue"`, `,"retention":"interest"`,
		`,"consumer_limits":{"inactive_threshold":3000000000,"max_ack_pending":4}`,
		`,"max_msgs_per_subject":1`,
	} {
		streams := o.createOrigins(`{"name":"S","subjects":["a.>"]` + extra + `}`)
		for _, tc := range consumerCases() {
			verb := tc.verb
			if verb == "" {
				verb = "CONSUMER.CREATE.S.C"
			}
			what := fmt.Sprintf("stream %s: %s %s", extra, verb, tc.body[:min(len(tc.body), 300)])
			theirs := decodeAnswer(t, o.call(verb, tc.body))
			cfg, err := judgeConsumer(verb, tc.body, streams["S"], noConsumers)
			if theirs.Error == nil {
				r, _ := ParseRequest(DefaultPrefix, DefaultPrefix+"."+verb)
				name := r.Consumer
				if name == "" && cfg != nil {
					name = cfg.Name
				}
				o.call("CONSUMER.DELETE.S."+name, "")
			}
			if cfg != nil {
				cfg = cfg.WithDynamicMetadata("2.15.3", MaxAPILevel)
			}
			diffAnswer(t, what, theirs, cfg, err)
		}
		o.call("STREAM.DELETE.S", "")
	}
}

// TestOracleConsumerRandom is TestOracleStreamRandom for consumers.
func TestOracleConsumerRandom(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, 2))
	for round := range 3 {
		stream := `{"name":"S","subjects":["a.>"]` + []string{
			``, `,"retention":"workqueue","consumer_limits":{"max_ack_pending":5}`, `,"retention":"interest"`,
		}[round] + `}`
		streams := o.createOrigins(stream)
		for i := range 300 {
			body := randomConsumer(rnd)
			theirs := decodeAnswer(t, o.call("CONSUMER.CREATE.S.C", body))
			cfg, err := judgeConsumer("CONSUMER.CREATE.S.C", body, streams["S"], noConsumers)
			if theirs.Error == nil {
				o.call("CONSUMER.DELETE.S.C", "")
			}
			if cfg != nil {
				cfg = cfg.WithDynamicMetadata("2.15.3", MaxAPILevel)
			}
			if !diffAnswer(t, fmt.Sprintf("seed %d, body %d on %s: %s", seed, i, stream, body), theirs, cfg, err) {
				return
			}
		}
		o.call("STREAM.DELETE.S", "")
	}
}

func randomConsumer(rnd *rand.Rand) string {
	var fields []string
	for _, choices := range [][]string{
		{`"durable_name":"C"`},
		{`"ack_policy":"explicit"`, `"ack_policy":"all"`, `"ack_policy":"flow_control"`},
		{
			`"deliver_policy":"last"`, `"deliver_policy":"by_start_sequence"`,
			`"deliver_policy":"last_per_subject"`,
		},
		{`"opt_start_seq":4`},
		{`"opt_start_time":"2026-01-02T03:04:05Z"`},
		{`"ack_wait":5000000000`, `"ack_wait":-5`},
		{`"max_deliver":2`, `"max_deliver":-7`},
		{`"backoff":[5,6,7]`, `"backoff":[-1]`},
		{`"filter_subject":"a.x"`, `"filter_subject":"a..x"`},
		{`"filter_subjects":["a.b","a.c"]`, `"filter_subjects":["a.b","a.*"]`, `"filter_subjects":["",".."]`},
		{`"rate_limit_bps":4`},
		{`"sample_freq":"x"`, `"sample_freq":"10"`},
		{`"max_waiting":4`, `"max_waiting":-1`},
		{`"max_ack_pending":4`, `"max_ack_pending":-4`, `"max_ack_pending":9`},
		{`"flow_control":true`},
		{`"headers_only":true`},
		{`"max_batch":4`, `"max_batch":-4`},
		{`"max_expires":4`, `"max_expires":-4`},
		{`"deliver_subject":"d"`, `"deliver_subject":"a.x"`, `"deliver_subject":"d.*"`},
		{`"deliver_group":"g"`},
		{`"idle_heartbeat":5`, `"idle_heartbeat":1000000000`, `"idle_heartbeat":-5`},
		{`"inactive_threshold":5000000000`, `"inactive_threshold":-5`},
		{`"num_replicas":1`, `"num_replicas":-1`},
		{`"mem_storage":true`},
		{`"direct":true`},
		{`"metadata":{"a":"b"}`},
		{`"pause_until":"2036-01-01T00:00:00Z"`},
		{`"priority_groups":["g"]`, `"priority_groups":["g h"]`},
		{`"priority_policy":"overflow"`, `"priority_policy":"pinned_client"`},
		{`"priority_timeout":5`},
	} {
		if rnd.IntN(6) == 0 {
			fields = append(fields, choices[rnd.IntN(len(choices))])
		}
	}
	pedantic := ""
	if rnd.IntN(4) == 0 {
		pedantic = `,"pedantic":true`
	}
	return `{"stream_name":"S","config":{` + strings.Join(fields, ",") + `}` + pedantic + `}`
}

func TestOracleConsumerUpdate(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	streams := o.createOrigins(`{"name":"S","subjects":["a.>"]}`)
	pull := `"durable_name":"C","ack_policy":"explicit"`
	push := `"durable_name":"C","ack_policy":"explicit","deliver_subject":"d"`
	for _, tc := range [][2]string{
		{pull, pull},
		{pull, pull + `,"description":"x","ack_wait":5000000000,"max_deliver":7,"max_ack_pending":9`},
		{pull, pull + `,"deliver_policy":"new"`},
		{pull, pull + `,"mem_storage":true`},
		{
			pull + `,"deliver_policy":"by_start_sequence","opt_start_seq":5`,
			pull + `,"deliver_policy":"by_start_sequence","opt_start_seq":6`,
		},
		{
			pull + `,"deliver_policy":"by_start_time","opt_start_time":"2026-01-01T00:00:00Z"`,
			pull + `,"deliver_policy":"by_start_time","opt_start_time":"2026-01-01T01:00:00+01:00"`,
		},
		{
			pull + `,"deliver_policy":"by_start_time","opt_start_time":"2026-01-01T00:00:00Z"`,
			pull + `,"deliver_policy":"by_start_time","opt_start_time":"2026-01-02T00:00:00Z"`,
		},
		{pull, `"durable_name":"C","ack_policy":"all"`},
		{pull, pull + `,"replay_policy":"original"`},
		{push, push + `,"idle_heartbeat":1000000000`},
		{push + `,"idle_heartbeat":1000000000`, push + `,"idle_heartbeat":1000000000,"flow_control":true`},
		{push, pull},
		{pull, push},
		{push, push + `,"max_ack_pending":7`},
		{push, `"durable_name":"C","ack_policy":"explicit","deliver_subject":"e"`},
		{pull, pull + `,"max_waiting":7`},
		{pull, pull + `,"backoff":[1,2],"max_deliver":1`},
		{
			pull,
			pull + `,"filter_subjects":["a.b","a.c"],"metadata":{"x":"y"},"inactive_threshold":9000000000`,
		},
		{pull, pull + `,"pause_until":"2036-01-01T00:00:00Z"`},
		{pull, pull + `,"priority_policy":"overflow","priority_groups":["g"]`},
		{pull, pull + `,"num_replicas":1`},
	} {
		what := tc[0] + " -> " + tc[1]
		first, second := c(tc[0]).body, c(tc[1]).body
		if a := decodeAnswer(t, o.call("CONSUMER.CREATE.S.C", first)); a.Error != nil {
			t.Fatal(what, a.Error)
		}
		theirs := decodeAnswer(t, o.call("CONSUMER.CREATE.S.C", second))
		o.call("CONSUMER.DELETE.S.C", "")
		old, err := judgeConsumer("CONSUMER.CREATE.S.C", first, streams["S"], noConsumers)
		if err != nil {
			t.Fatal(what, err)
		}
		cfg, err := judgeConsumer("CONSUMER.CREATE.S.C", second, streams["S"], noConsumers)
		if err == nil {
			cfg.PauseUntil = old.PauseUntil
			cfg = cfg.WithStaticMetadata()
			err = CheckConsumerUpdate(old, cfg, false)
			cfg = cfg.WithDynamicMetadata("2.15.3", MaxAPILevel)
		}
		diffAnswer(t, what, theirs, cfg, err)
	}
}

func TestOracleWorkQueue(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	explicit := `"ack_policy":"explicit"`
	for _, tc := range [][]string{
		{explicit, explicit},
		{explicit + `,"filter_subject":"a.x"`, explicit + `,"filter_subject":"a.y"`},
		{explicit + `,"filter_subject":"a.x"`, explicit + `,"filter_subject":"a.*"`},
		{explicit + `,"filter_subjects":["a.x","a.y"]`, explicit + `,"filter_subjects":["a.z","a.y"]`},
		{explicit + `,"filter_subject":"a.x"`, explicit},
		{explicit, explicit + `,"filter_subject":"a.y"`},
		{explicit, explicit + `,"deliver_policy":"new"`},
		{explicit, `"ack_policy":"all"`},
		{explicit, `"deliver_subject":"d"`},
	} {
		streams := o.createOrigins(`{"name":"S","subjects":["a.>"],"retention":"workqueue"}`)
		what := strings.Join(tc, " + ")
		var have []*ConsumerConfig
		for i, cfg := range tc {
			verb := fmt.Sprintf("CONSUMER.CREATE.S.C%d", i)
			theirs := decodeAnswer(t, o.call(verb, c(cfg).body))
			ours, err := judgeConsumer(verb, c(cfg).body, streams["S"], slices.Values(have))
			if ours != nil {
				have = append(have, ours)
				ours = ours.WithDynamicMetadata("2.15.3", MaxAPILevel)
			}
			diffAnswer(t, what, theirs, ours, err)
		}
		o.call("STREAM.DELETE.S", "")
	}
}
