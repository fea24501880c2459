package jsapi

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func long(n int) string { return strings.Repeat("x", n) }

// streamBodies are bodies of STREAM.CREATE.S; each is judged by the real server and by us.
func streamBodies() []string {
	cfgs := []string{
		`"name":"S"`,
		`"name":"S","subjects":["a.>"]`,
		`"name":"S","description":"` + long(4096) + `"`,
		`"name":"S","description":"` + long(4097) + `"`,
		`"name":"S","metadata":{"a":"` + long(128*1024-20) + `"}`,
		`"name":"S","metadata":{"a":"` + long(128*1024) + `"}`,
		`"name":"S","metadata":{"_nats.ver":"1","_nats.level":"9","_nats.req.level":"7","k":"v"}`,
		`"name":"S","retention":"foo"`,
		`"name":"S","retention":"Limits"`,
		`"name":"S","retention":null`,
		`"name":"S","retention":3`,
		`"name":"S","retention":"interest"`,
		`"name":"S","retention":"workqueue"`,
		`"name":"S","discard":"NEW"`,
		`"name":"S","discard":"Foo"`,
		`"name":"S","storage":"disk"`,
		`"name":"S","storage":"memory"`,
		`"name":"S","storage":"file"`,
		`"name":"S","storage":""`,
		`"name":"S","compression":"s2"`,
		`"name":"S","compression":"zip"`,
		`"name":"S","compression":3`,
		`"name":"S","persist_mode":"async"`,
		`"name":"S","persist_mode":"default"`,
		`"name":"S","persist_mode":""`,
		`"name":"S","persist_mode":"foo"`,
		`"name":"S","persist_mode":"async","storage":"memory"`,
		`"name":"S","persist_mode":"async","num_replicas":3`,
		`"name":"S","persist_mode":"async","allow_atomic":true`,
		`"name":"S","num_replicas":6`,
		`"name":"S","num_replicas":-1`,
		`"name":"S","num_replicas":3`,
		`"name":"S","num_replicas":0`,
		`"name":"S","max_msgs":-5,"max_bytes":-5,"max_consumers":-5,"max_msg_size":-5,"max_msgs_per_subject":-5`,
		`"name":"S","max_msgs":-5,"pedantic":true`,
		`"name":"S","max_bytes":-5,"pedantic":true`,
		`"name":"S","max_consumers":-5,"pedantic":true`,
		`"name":"S","max_msg_size":-5,"pedantic":true`,
		`"name":"S","max_msgs_per_subject":-5,"pedantic":true`,
		`"name":"S","max_msgs":5,"max_bytes":6,"max_consumers":7,"max_msg_size":8,"max_msgs_per_subject":9`,
		`"name":"S","max_msg_size":3000000000`,
		`"name":"S","max_age":-1`,
		`"name":"S","max_age":99999999`,
		`"name":"S","max_age":100000000`,
		`"name":"S","max_age":1000000000,"pedantic":true`,
		`"name":"S","max_age":"1s"`,
		`"name":"S","duplicate_window":-1`,
		`"name":"S","duplicate_window":99999999`,
		`"name":"S","duplicate_window":100000000`,
		`"name":"S","duplicate_window":2000000000,"max_age":1000000000`,
		`"name":"S","duplicate_window":3600000000000`,
		`"name":"S","deny_purge":true,"allow_rollup_hdrs":true`,
		`"name":"S","deny_purge":true,"deny_delete":true`,
		`"name":"S","sealed":true`,
		`"name":"S","mirror_direct":true`,
		`"name":"S","allow_msg_counter":true`,
		`"name":"S","allow_msg_counter":true,"discard":"new"`,
		`"name":"S","allow_msg_counter":true,"allow_msg_ttl":true`,
		`"name":"S","allow_msg_counter":true,"allow_msg_schedules":true`,
		`"name":"S","allow_msg_counter":true,"retention":"interest"`,
		`"name":"S","discard_new_per_subject":true`,
		`"name":"S","discard_new_per_subject":true,"discard":"new"`,
		`"name":"S","discard_new_per_subject":true,"discard":"new","max_msgs_per_subject":1`,
		`"name":"S","subject_delete_marker_ttl":999999999`,
		`"name":"S","subject_delete_marker_ttl":-1`,
		`"name":"S","subject_delete_marker_ttl":1000000000`,
		`"name":"S","subject_delete_marker_ttl":1000000000,"deny_purge":true`,
		`"name":"S","subject_delete_marker_ttl":1000000000,"pedantic":true`,
		`"name":"S","subject_delete_marker_ttl":1000000000,"allow_msg_ttl":true,"pedantic":true`,
		`"name":"S","allow_msg_ttl":true`,
		`"name":"S","allow_msg_schedules":true`,
		`"name":"S","allow_msg_schedules":true,"pedantic":true`,
		`"name":"S","allow_msg_schedules":true,"discard":"new"`,
		`"name":"S","allow_atomic":true,"allow_batched":true,"allow_direct":true`,
		`"name":"S","no_ack":true,"first_seq":100`,
		`"name":"S","consumer_limits":{"inactive_threshold":5,"max_ack_pending":7}`,
		`"name":"S","placement":{}`,
		`"name":"S","placement":{"cluster":"c","tags":["x"]}`,
		`"name":"S","placement":{"preferred":"x"}`,
		`"name":"S","subjects":[]`,
		`"name":"S","subjects":[""]`,
		`"name":"S","subjects":["a..b"]`,
		`"name":"S","subjects":["a b"]`,
		`"name":"S","subjects":[">.a"]`,
		`"name":"S","subjects":["a.","a"]`,
		`"name":"S","subjects":["a","a"]`,
		`"name":"S","subjects":["a","b","a"]`,
		`"name":"S","subjects":["a.*","a.b"]`,
		`"name":"S","subjects":["a.>","b","a.b.c"]`,
		`"name":"S","subjects":["*.a","b.*"]`,
		`"name":"S","subjects":["a*","a>","*b"]`,
		`"name":"S","subjects":[">"]`,
		`"name":"S","subjects":[">"],"no_ack":true,"num_replicas":3`,
		`"name":"S","subjects":["$JS.>"]`,
		`"name":"S","subjects":["$JS.API.>"]`,
		`"name":"S","subjects":["$JS.EVENT.ADVISORY.>"]`,
		`"name":"S","subjects":["*.EVENT.>"]`,
		`"name":"S","subjects":["$JSC.a"]`,
		`"name":"S","subjects":["$NRG.a"]`,
		`"name":"S","subjects":["$SYS.a"]`,
		`"name":"S","subjects":["$SYS.ACCOUNT.>"]`,
		`"name":"S","subjects":["$KV.>","$O.>"]`,
		`"name":"S","subjects":["$JS.API.X"],"no_ack":true`,
		`"name":"S","subjects":["origin.x"]`,
		`"name":"S","subjects":["*.x"]`,
		`"name":"S","unknown":1`,
		`"name":"S","max_msgs":"x"`,
		`"name":"S","max_msgs":1.5`,
		`"name":7`,
		`"Name":"S"`,
		`"name":"T"`,
		`"name":""`,
	}
	bodies := []string{"", "{}", "{", "[]", "null", "x", `{"name":"S"`, `{"name":"S"}}`, `{"name":"S"} {"max_msgs":3}`, `"S"`}
	for _, c := range cfgs {
		bodies = append(bodies, "{"+c+"}")
	}
	return append(bodies, sourceBodies()...)
}

func sourceBodies() []string {
	var bodies []string
	for _, m := range []string{
		`{"name":"ORIGIN"}`,
		`{"name":"NOWHERE"}`,
		`{"name":""}`,
		`{"name":"a.b"}`,
		`{"name":"ORIGIN","filter_subject":"origin.x"}`,
		`{"name":"ORIGIN","filter_subject":"origin.x","subject_transforms":[{"src":"origin.>","dest":"b.>"}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin.>","dest":"b.>"}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin.*","dest":""}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin..x","dest":"b"}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin.*","dest":"b.>"}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin.*","dest":"b.$2"}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin.*","dest":"b.{{foo(1)}}"}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin.*","dest":"b.$1"},{"src":"origin.x","dest":"c"}]}`,
		`{"name":"ORIGIN","subject_transforms":[{"src":"origin.x","dest":"c"},{"src":"origin.*","dest":"b.$1"}]}`,
		`{"name":"ORIGIN","opt_start_seq":3}`,
		`{"name":"ORIGIN","opt_start_time":"2026-01-02T03:04:05Z"}`,
		`{"name":"ORIGIN","opt_start_time":"x"}`,
		`{"name":"ORIGIN","consumer":{"name":"c","deliver_subject":"d"}}`,
		`{"name":"ORIGIN","consumer":{"name":"c","deliver_subject":"d.*"}}`,
		`{"name":"ORIGIN","consumer":{"name":"c.d","deliver_subject":"d"}}`,
		`{"name":"ORIGIN","consumer":{"name":"c","deliver_subject":"d"},"opt_start_seq":3}`,
		`{"name":"ORIGIN","consumer":{"name":"c","deliver_subject":"d"},"filter_subject":"origin.x"}`,
		`{"name":"X","external":{"api":"$JS.x.API","deliver":"d"}}`,
		`{"name":"X","external":{"api":"$JS.API","deliver":"d"}}`,
		`{"name":"X","external":{"api":"$JS.*","deliver":"d"}}`,
		`{"name":"X","external":{"api":"a b","deliver":"d"}}`,
		`{"name":"X","external":{"api":"$JS.x.API","deliver":"d.*"}}`,
		`{"name":"X","external":{"api":"","deliver":""}}`,
	} {
		bodies = append(bodies,
			`{"name":"S","mirror":`+m+`}`,
			`{"name":"S","sources":[`+m+`]}`,
			`{"name":"S","sources":[`+m+`,`+m+`]}`)
	}
	for _, tr := range append(transforms(), [2]string{"a", "b c"}, [2]string{"a b", "c"}, [2]string{"a", "b.{{f(1)}}..c"}) {
		src, _ := json.Marshal(tr[0])
		dest, _ := json.Marshal(tr[1])
		bodies = append(bodies, fmt.Sprintf(`{"name":"S","subject_transform":{"src":%s,"dest":%s}}`, src, dest))
	}
	return append(bodies,
		`{"name":"S","mirror":{"name":"ORIGIN"},"subjects":["a"]}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"first_seq":3}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"sources":[{"name":"X"}]}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"allow_msg_counter":true}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"allow_atomic":true}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"allow_batched":true}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"allow_msg_schedules":true}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"subject_delete_marker_ttl":1000000000}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"max_msg_size":5}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"mirror_direct":true}`,
		`{"name":"S","mirror":{"name":"ORIGIN"},"pedantic":true}`,
		`{"name":"S","mirror":{"name":"DIRECT"}}`,
		`{"name":"S","mirror":{"name":"DIRECT"},"pedantic":true}`,
		`{"name":"S","mirror":{"name":"S"}}`,
		`{"name":"S","sources":[{"name":"S"}]}`,
		`{"name":"S","sources":[{"name":"S","filter_subject":"x"}],"subjects":["y"]}`,
		`{"name":"S","sources":[{"name":"S","filter_subject":"y.*"}],"subjects":["y.>"]}`,
		`{"name":"S","sources":[{"name":"ORIGIN"}],"allow_msg_schedules":true}`,
		`{"name":"S","sources":[{"name":"ORIGIN"}],"max_msg_size":5}`,
		`{"name":"S","sources":[{"name":"ORIGIN"},{"name":"DIRECT"}],"subjects":["z"]}`,
		`{"name":"S","sources":[{"name":"ORIGIN","filter_subject":"a"},{"name":"ORIGIN","filter_subject":"b"}]}`,
		`{"name":"S","sources":[{"name":"ORIGIN"},{"name":"X","external":{"api":"$JS.x.API","deliver":"origin"}}]}`,
		`{"name":"S","sources":[{"name":"DEEP"},{"name":"X","external":{"api":"$JS.x.API","deliver":"d"}}]}`,
		`{"name":"S","sources":[null]}`,
		`{"name":"S","subject_transform":{"src":"a.*","dest":"b.$1"}}`,
		`{"name":"S","subject_transform":{"src":"a..*","dest":"b.$1"}}`,
		`{"name":"S","subject_transform":{"src":"a.*","dest":"b.$2"}}`,
		`{"name":"S","subject_transform":{"src":"","dest":"b.>"}}`,
		`{"name":"S","subject_transform":{"src":"a","dest":""}}`,
		`{"name":"S","republish":{"src":"S","dest":"r"}}`,
		`{"name":"S","republish":{"dest":"r.>"}}`,
		`{"name":"S","republish":{"dest":"r.>"},"pedantic":true}`,
		`{"name":"S","republish":{"src":">","dest":"S"}}`,
		`{"name":"S","republish":{"src":">","dest":">"}}`,
		`{"name":"S","republish":{"src":"a","dest":"r.>"}}`,
		`{"name":"S","republish":{"src":"a.*","dest":"r.$1","headers_only":true}}`,
		`{"name":"S","subjects":["a.>"],"republish":{"src":">","dest":">"},"subject_transform":{"src":"a.>","dest":"b.>"}}`,
		`{"name":"S","subjects":["a.>"],"republish":{"src":">","dest":">"},"subject_transform":{"src":"a.>","dest":"b.>"},"pedantic":true}`,
		`{"name":"S","subjects":["a.>","c"],"republish":{"src":">","dest":">"},"subject_transform":{"src":"a.>","dest":"b.>"}}`,
	)
}

const (
	originBody = `{"name":"ORIGIN","subjects":["origin.>"],"max_msg_size":10}`
	directBody = `{"name":"DIRECT","subjects":["direct"],"allow_direct":true}`
	deepBody   = `{"name":"DEEP","sources":[{"name":"S"}]}`
)

func TestOracleStreamCreate(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	streams := o.createOrigins(originBody, directBody, deepBody)
	for _, body := range streamBodies() {
		what := body
		if len(what) > 300 {
			what = what[:300]
		}
		theirs := decodeAnswer(t, o.call("STREAM.CREATE.S", body))
		cfg, err := judgeCreate(body, "S", streams)
		if theirs.Error == nil {
			o.call("STREAM.DELETE.S", "")
		}
		if cfg != nil {
			cfg = cfg.WithDynamicMetadata("2.15.3", MaxAPILevel)
		}
		diffAnswer(t, what, theirs, cfg, err)
	}
}

func TestOracleStreamNames(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	for _, name := range []string{"a/b", `a\b`, long(255), long(256), "ä", "a\"b", "<&>"[:1]} {
		raw, _ := json.Marshal(map[string]any{"name": name, "subjects": []string{"x"}})
		theirs := decodeAnswer(t, o.call("STREAM.CREATE."+name, string(raw)))
		cfg, err := judgeCreate(string(raw), name, nil)
		if theirs.Error == nil {
			o.call("STREAM.DELETE."+name, "")
			cfg = cfg.WithDynamicMetadata("2.15.3", MaxAPILevel)
		}
		diffAnswer(t, name, theirs, cfg, err)
	}
}

// TestOracleStreamRandom compares verdicts on configurations put together at random, so that the
// order of checks counts.
func TestOracleStreamRandom(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	streams := o.createOrigins(originBody, directBody)
	const seed = 1
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range 600 {
		body := randomStream(rnd)
		theirs := decodeAnswer(t, o.call("STREAM.CREATE.S", body))
		cfg, err := judgeCreate(body, "S", streams)
		if theirs.Error == nil {
			o.call("STREAM.DELETE.S", "")
		}
		if cfg != nil {
			cfg = cfg.WithDynamicMetadata("2.15.3", MaxAPILevel)
		}
		if !diffAnswer(t, fmt.Sprintf("seed %d, body %d: %s", seed, i, body), theirs, cfg, err) {
			return
		}
	}
}

// randomStream picks a few fields; most values are legal alone.
func randomStream(rnd *rand.Rand) string {
	fields := []string{`"name":"S"`}
	for _, choices := range [][]string{
		{`"retention":"interest"`, `"retention":"workqueue"`},
		{`"discard":"new"`},
		{`"storage":"memory"`},
		{`"max_age":1000000000`, `"max_age":5`, `"max_age":-1`},
		{`"duplicate_window":500000000`, `"duplicate_window":5000000000`, `"duplicate_window":5`},
		{`"max_msgs":5`, `"max_msgs":-2`},
		{`"max_bytes":-2`},
		{`"max_msgs_per_subject":1`},
		{`"max_msg_size":5`, `"max_msg_size":50`},
		{`"num_replicas":3`, `"num_replicas":9`, `"num_replicas":-3`},
		{`"deny_purge":true`},
		{`"deny_delete":true`},
		{`"allow_rollup_hdrs":true`},
		{`"allow_msg_ttl":true`},
		{`"subject_delete_marker_ttl":1000000000`, `"subject_delete_marker_ttl":3`},
		{`"allow_msg_counter":true`},
		{`"allow_atomic":true`},
		{`"allow_batched":true`},
		{`"allow_msg_schedules":true`},
		{`"persist_mode":"async"`},
		{`"discard_new_per_subject":true`},
		{
			`"subjects":["a","b.>"]`, `"subjects":["a.*","a.b"]`, `"subjects":["$JS.API.>"]`,
			`"subjects":["origin.x"]`,
		},
		{`"mirror":{"name":"ORIGIN"}`, `"mirror":{"name":"DIRECT"}`, `"mirror":{"name":"a.b"}`},
		{`"sources":[{"name":"ORIGIN"}]`, `"sources":[{"name":"a b"}]`},
		{`"subject_transform":{"src":"a","dest":"c"}`, `"subject_transform":{"src":"a.*","dest":"c.$3"}`},
		{`"republish":{"dest":"r.>"}`, `"republish":{"src":"a","dest":"a"}`},
		{`"placement":{"preferred":"x"}`, `"placement":{}`},
		{`"first_seq":5`},
		{`"mirror_direct":true`},
		{`"allow_direct":true`},
		{`"sealed":true`},
		{`"no_ack":true`},
		{`"pedantic":true`},
		{`"metadata":{"a":"b"}`},
	} {
		if rnd.IntN(6) == 0 {
			fields = append(fields, choices[rnd.IntN(len(choices))])
		}
	}
	return "{" + strings.Join(fields, ",") + "}"
}

func TestOracleStreamUpdate(t *testing.T) {
	t.Parallel()
	o := newOracle(t)
	streams := o.createOrigins(originBody, directBody)
	base := func(extra string) string { return `{"name":"S","subjects":["a.>"]` + extra + `}` }
	for _, tc := range [][2]string{
		{base(``), base(``)},
		{base(``), base(`,"description":"d"`)},
		{base(``), `{"name":"T","subjects":["a.>"]}`},
		{base(``), base(`,"storage":"memory"`)},
		{base(``), base(`,"num_replicas":3`)},
		{base(``), base(`,"retention":"interest"`)},
		{base(`,"retention":"interest"`), base(``)},
		{base(``), base(`,"retention":"workqueue"`)},
		{base(`,"retention":"workqueue"`), base(``)},
		{base(``), base(`,"sealed":true,"max_age":1000000000,"allow_rollup_hdrs":true`)},
		{base(`,"deny_delete":true`), base(``)},
		{base(`,"deny_purge":true`), base(``)},
		{base(`,"deny_purge":true`), base(`,"deny_purge":true,"deny_delete":true`)},
		{base(``), base(`,"discard_new_per_subject":true`)},
		{base(`,"allow_msg_ttl":true`), base(``)},
		{base(``), base(`,"allow_msg_ttl":true`)},
		{base(`,"allow_msg_counter":true`), base(``)},
		{base(``), base(`,"allow_msg_counter":true`)},
		{base(`,"allow_msg_schedules":true`), base(``)},
		{base(`,"persist_mode":"async"`), base(``)},
		{base(``), base(`,"persist_mode":"async"`)},
		{base(``), base(`,"mirror":{"name":"ORIGIN"}`)},
		{`{"name":"S","mirror":{"name":"ORIGIN"}}`, base(``)},
		{`{"name":"S","mirror":{"name":"ORIGIN"}}`, `{"name":"S","mirror":{"name":"DIRECT"}}`},
		{
			`{"name":"S","mirror":{"name":"ORIGIN"}}`,
			`{"name":"S","mirror":{"name":"ORIGIN"},"description":"x"}`,
		},
		{base(``), `{"name":"S","subjects":["origin.x"]}`},
		{base(``), `{"name":"S","subjects":["b","c.*"],"max_msgs":7,"allow_direct":true}`},
		{base(`,"first_seq":5`), base(`,"first_seq":9`)},
		{base(``), base(`,"foo":1`)},
		{base(``), base(`,"max_age":5`)},
		{base(``), base(`,"metadata":{"x":"y"},"allow_batched":true`)},
	} {
		what := tc[0] + " -> " + tc[1]
		if a := decodeAnswer(t, o.call("STREAM.CREATE.S", tc[0])); a.Error != nil {
			t.Fatal(tc[0], a.Error)
		}
		old, err := judgeCreate(tc[0], "S", streams)
		if err != nil {
			t.Fatal(tc[0], err)
		}
		theirs := decodeAnswer(t, o.call("STREAM.UPDATE.S", tc[1]))
		o.call("STREAM.DELETE.S", "")
		cfg, err := judgeUpdate(tc[1], "S", old, streams)
		if cfg != nil {
			cfg = cfg.WithDynamicMetadata("2.15.3", MaxAPILevel)
		}
		diffAnswer(t, what, theirs, cfg, err)
	}
}

// judgeUpdate does what an API server does with the body of STREAM.UPDATE.<stream>.
func judgeUpdate(body, stream string, old *StreamConfig, streams map[string]*StreamConfig) (*StreamConfig, *Error) {
	var req StreamConfigRequest
	if err := DecodeStrict([]byte(body), &req); err != nil {
		return nil, err
	}
	env := oracleEnv(streams)
	env.Pedantic = req.Pedantic
	if _, err := CheckStreamConfig(&req.StreamConfig, env); err != nil {
		return nil, err
	}
	if req.Name != stream {
		return nil, NewError(CodeStreamMismatch)
	}
	cfg, err := CheckStreamUpdate(old, &req.StreamConfig, env)
	if err != nil {
		return nil, err
	}
	for name, s := range streams {
		if name != stream && SubjectListsOverlap(cfg.Subjects, s.Subjects) {
			return nil, NewError(CodeStreamSubjectOverlap)
		}
	}
	return cfg, nil
}
