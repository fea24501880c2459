package differential

import (
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// streamTypes are fields of a stream configuration and what may stand in them.
func streamTypes() map[string]string {
	return map[string]string{
		"name": "string", "subjects": "strings", "retention": "enum", "max_msgs": "int", "max_bytes": "int",
		"max_age": "int", "discard": "enum", "storage": "enum", "num_replicas": "int", "no_ack": "bool",
		"duplicate_window": "int", "compression": "enum", "first_seq": "uint", "sealed": "bool",
		"consumer_limits": "object", "metadata": "map", "max_msg_size": "int32", "description": "string",
		"placement": "object", "mirror": "object", "sources": "list", "persist_mode": "enum",
	}
}

func consumerTypes() map[string]string {
	return map[string]string{
		"durable_name": "string", "name": "string", "deliver_policy": "enum", "ack_policy": "enum", "ack_wait": "int",
		"opt_start_seq": "uint", "opt_start_time": "time", "max_deliver": "int", "backoff": "list",
		"filter_subject": "string", "filter_subjects": "strings", "replay_policy": "enum", "sample_freq": "string",
		"headers_only": "bool", "metadata": "map", "pause_until": "time", "num_replicas": "int",
		"priority_policy": "enum", "rate_limit_bps": "uint", "max_waiting": "int",
	}
}

// mangle makes a body that is no valid request of that shape, in one of many ways.
func (g *generator) mangle(f fields, types map[string]string) string {
	body := f.json()
	names := slices.Sorted(maps.Keys(types))
	switch g.IntN(12) {
	case 0:
		return pick(g, "", " ", "null", "[]", "[1]", "{", "}", "{}", "x", `"s"`, "1", "true", "{]", "\xff",
			"{\"a\":\xff}", "{}{}",
			"{} x", "\n{}\n", "{\"name\"}", "{'name':1}")
	case 1:
		return body[:g.IntN(len(body))]
	case 2:
		return body + pick(g, "x", "{}", "}", " ", "\n", ",", "null")
	case 3:
		f[pick(g, "nope", "Name", "NAME", "max-msgs", "")] = pick[any](g, 1, "x", nil)
		return f.json()
	case 4: // a name twice
		name := pick(g, names...)
		return strings.TrimSuffix(body, "}") + `,"` + name + `":` + pick(g, `"again"`, "1", "null") + "}"
	case 5: // the case of a name
		return strings.Replace(body, `"name":`, pick(g, `"Name":`, `"NAME":`), 1)
	default:
		f[pick(g, names...)] = g.wrong()
		return f.json()
	}
}

// wrong is a value that fits few fields.
func (g *generator) wrong() any {
	return pick[any](g, "x", "", 0, 1, -1, 1.5, 1e30, true, false, nil, []any{}, []string{"x"}, []any{nil}, []int{1},
		fields{}, fields{"x": 1}, fields{"name": 1}, "LIMITS", "limits ", "99999999999999999999", "2026-13-01T00:00:00Z",
		uint64(1)<<63, "explicit", "file")
}

// badRequest sends requests of every verb with bodies that do not fit.
func (g *generator) badRequest() Script {
	s, c := g.consumerOrNot()
	subject := pick(g,
		api("INFO"), api("STREAM.NAMES"), api("STREAM.LIST"), api("STREAM.INFO", s), api("STREAM.PURGE", s),
		api("STREAM.MSG.GET", s), api("STREAM.MSG.DELETE", s), api("CONSUMER.NAMES", s), api("CONSUMER.LIST", s),
		api("CONSUMER.INFO", s, c), api("CONSUMER.PAUSE", s, c), api("STREAM.DELETE", s), api("CONSUMER.DELETE", s, c),
		api("STREAM.CREATE", s), api("STREAM.UPDATE", s), api("CONSUMER.CREATE", s), api("CONSUMER.CREATE", s, c),
		api("CONSUMER.DURABLE.CREATE", s, c), api("STREAM.LEADER.STEPDOWN", s), api("CONSUMER.LEADER.STEPDOWN", s, c),
		api("STREAM.PEER.REMOVE", s), api("STREAM.CANCEL_MOVE", s), api("CONSUMER.PEER.REMOVE", s, c))
	body := pick(g, "x", "{", "[]", `[1]`, "null", `{"nope":1}`, `{"offset":"x"}`, `{"seq":"x"}`,
		`{"offset":-1}`, "0", "\xff",
		`{"seq":1.5}`, `{"offset":1e3}`, `{"seq":18446744073709551616}`, `{"config":{}}`,
		`{"stream_name":"`+s+`"}`, `{"peer":"x"}`,
		`{"pause_until":"x"}`, `{"pause_until":1}`, `{"filter":1}`, `{"keep":-1}`, `"x"`, "{}}", `{"seq":null}`,
		`{"placement":{}}`)
	return one(Op{Kind: Call, Subject: subject, Header: g.level(), Body: body})
}

// strange uses subjects that nobody answers, or that are no requests.
func (g *generator) strange() Script {
	s, c := g.consumerOrNot()
	subject := pick(g,
		"$JS.API.NOPE", "$JS.API", "$JS.API.STREAM", "$JS.API.STREAM.CREATE", "$JS.API.STREAM.CREATE.A.B",
		"$JS.API.STREAM.INFO",
		"$JS.API.STREAM.INFO."+s+".x", "$JS.API.STREAM.FOO."+s, "$JS.API.CONSUMER.INFO."+s,
		"$JS.API.CONSUMER.INFO."+s+"."+c+".x",
		"$JS.API.CONSUMER.DELETE."+s, "$JS.API.CONSUMER.MSG.NEXT."+s, "$JS.API.CONSUMER.MSG.NEXT."+s+".none",
		"$JS.API.CONSUMER.MSG.NEXT.NONE."+c, "$JS.API.META.LEADER.STEPDOWN", "$JS.API.ACCOUNT.PURGE.X",
		"$JS.API.SERVER.REMOVE",
		"$JS.API.STREAM.INFO.*", "$JS.API.STREAM.INFO.>", "$JS.API.CONSUMER.DURABLE.CREATE."+s, "$JS.API.DIRECT.GET.NONE",
		"$JS.d.API.INFO", "$JS.API.INFO.x", "$JS.API.STREAM.NAMES.x", "$JS.API.STREAM.PURGE."+s+".x", "$JS.ACK",
		"$JS.ACK.x",
		"$JS.FC.x.y.z", "$JS.nope", "nobody.home", "x", "$JS.API.stream.info."+s, "$JS.API.CONSUMER.RESET.NONE.none",
		"$JS.API.STREAM.INFO.a/b", "$JS.API.CONSUMER.INFO."+s+".a/b", "$JS.API.CONSUMER.CREATE")
	return one(Op{Kind: Maybe, Subject: subject, Body: pick(g, "", "", "{}", "x")})
}

// unsupported uses what this version of Holdfast refuses.
func (g *generator) unsupported() Script {
	s, c := g.consumer()
	if s == "" {
		s, c = "NONE", "none"
	}
	switch n := g.IntN(18); {
	case n < 11:
		return g.unsupportedStream()
	case n < 15:
		return g.unsupportedConsumer()
	case n == 15:
		return one(Op{Kind: Maybe, Subject: api("CONSUMER.RESET", s, c), Body: `{"seq":"x"}`, Streams: []string{s}})
	case n == 16:
		return one(Op{Kind: Call, Subject: api("CONSUMER.UNPIN", s, c), Body: `{"group":"g"}`, Streams: []string{s}})
	default:
		return one(Op{Kind: Call, Subject: api("STREAM.SNAPSHOT", s), Body: pick(g, "", "{}", "x"), Streams: []string{s}})
	}
}

func (g *generator) unsupportedStream() Script {
	f := fields{"name": unbuilt, "subjects": []string{"u.>"}}
	maps.Copy(f, pick(g,
		fields{"retention": "interest"},
		fields{"mirror": fields{"name": "X"}},
		fields{"sources": []fields{{"name": "X"}}},
		fields{"subject_transform": fields{"src": "u.*", "dest": "v.$1"}},
		fields{"republish": fields{"src": "u.>", "dest": "v.>"}},
		fields{"allow_msg_ttl": true},
		fields{"subject_delete_marker_ttl": 2_000_000_000},
		fields{"allow_msg_counter": true},
		fields{"allow_atomic": true},
		fields{"allow_msg_schedules": true},
		fields{"allow_batched": true},
	))
	if f["mirror"] != nil {
		delete(f, "subjects")
	}
	return one(Op{
		Kind: Call, Subject: api("STREAM.CREATE", unbuilt), Body: f.json(), Undo: api("STREAM.DELETE", unbuilt),
	})
}

func (g *generator) unsupportedConsumer() Script {
	s := g.stream()
	if s == "" || g.w.streams[s].info.Config.Retention != jsapi.LimitsPolicy {
		return nil
	}
	f := fields{"name": unbuilt, "inactive_threshold": hour}
	maps.Copy(f, pick(g,
		fields{"deliver_subject": "deliver.here"},
		fields{"ack_policy": "explicit", "priority_policy": "overflow", "priority_groups": []string{"g"}},
		fields{"ack_policy": "explicit", "replay_policy": "original"},
		fields{"deliver_subject": "deliver.here", "direct": true},
	))
	return one(Op{
		Kind: Call, Subject: api("CONSUMER.CREATE", s, unbuilt),
		Body: fields{"stream_name": s, "config": f}.json(), Undo: api("CONSUMER.DELETE", s, unbuilt),
	})
}
