package differential

import (
	"maps"
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// consumerConfig makes a configuration that is valid, most of the time. What passes while a script runs is not
// in it: that is for timed.
func (g *generator) consumerConfig(stream, name string) fields {
	f := fields{"ack_policy": pick(g, "explicit", "explicit", "explicit", "all", "none")}
	s := g.w.streams[stream]
	queue := s != nil && s.info.Config.Retention == jsapi.WorkQueuePolicy
	if queue && !g.chance(10) {
		f["ack_policy"] = "explicit"
	}
	if g.chance(65) {
		f["durable_name"] = name
	} else {
		f["inactive_threshold"] = pick(g, hour, 2*hour)
	}
	if g.chance(50) {
		f["name"] = name
	}
	if p := g.deliverPolicy(stream); p != nil && (!queue || g.chance(10)) {
		maps.Copy(f, p)
	}
	switch {
	case g.chance(50):
	case g.chance(70):
		f["filter_subject"] = g.filter(stream)
	default:
		f["filter_subjects"] = []string{g.filter(stream), g.filter(stream)}
		if g.chance(60) {
			p := prefixOf(stream)
			f["filter_subjects"] = pick(g, []string{p + ".a", p + ".b"}, []string{p + ".*.x", p + ".c"},
				[]string{p + ".a.>", p + ".b"},
				[]string{p + ".a"})
		}
	}
	for _, o := range consumerOptions() {
		if g.chance(o.percent) {
			f[o.field] = pick(g, o.values...)
		}
	}
	return f
}

func (g *generator) deliverPolicy(stream string) fields {
	switch g.IntN(12) {
	case 0:
		return fields{"deliver_policy": "last"}
	case 1:
		return fields{"deliver_policy": "new"}
	case 2:
		f := fields{"deliver_policy": "last_per_subject"}
		if g.chance(80) {
			f["filter_subject"] = g.filter(stream)
		}
		return f
	case 3, 4:
		n, err := strconv.ParseUint(g.sequence(stream), 10, 64)
		if err != nil || n > 1<<60 {
			n = 1
		}
		return fields{"deliver_policy": "by_start_sequence", "opt_start_seq": n}
	case 5:
		at := pick(g, "2001-01-01T00:00:00Z", "2095-01-01T00:00:00Z")
		return fields{"deliver_policy": "by_start_time", "opt_start_time": at}
	case 6:
		return fields{"deliver_policy": "all"}
	}
	return nil
}

func consumerOptions() []option {
	return []option{
		{"ack_wait", 15, []any{hour, minute, 0, -1}},
		{"max_deliver", 20, []any{-1, 0, 1, 2, 3, -5}},
		{"backoff", 5, []any{[]int{hour}, []int{minute, hour}, []int{hour, hour, hour}, []int{}}},
		{"max_ack_pending", 30, []any{-1, 0, 1, 2, 3, 5, -5}},
		{"max_waiting", 12, []any{-1, 0, 1, 2, 3}},
		{"headers_only", 10, []any{true, false}},
		{"max_batch", 8, []any{0, 1, 2, 5, -1}},
		{"max_expires", 6, []any{0, 1_000_000_000, hour, -1}},
		{"max_bytes", 6, []any{0, 100, 200, 1000, -1}},
		{"sample_freq", 6, []any{"100", "100%", "0", "", "x", "-1"}},
		{"replay_policy", 6, []any{"instant"}},
		{"description", 5, []any{"words", strings.Repeat("d", 4097)}},
		{"metadata", 8, []any{
			fields{"k": "v"}, fields{"_nats.ver": "x", "a": "b"}, fields{}, fields{"_nats.req.level": "3"},
		}},
		{"num_replicas", 6, []any{0, 1, 1, 2, -1}},
		{"mem_storage", 6, []any{true, false}},
		{"inactive_threshold", 5, []any{hour, 3 * hour}},
		{"rate_limit_bps", 1, []any{0, 1000}},
		{"idle_heartbeat", 1, []any{0, hour, 1}},
		{"flow_control", 1, []any{true, false}},
		{"deliver_group", 1, []any{"g"}},
		{"pause_until", 3, []any{"2095-01-01T00:00:00Z", "2001-01-01T00:00:00Z"}},
		{"opt_start_seq", 1, []any{3}},
		{"priority_groups", 1, []any{[]string{"g"}, []string{}, []string{""}}},
		{"priority_timeout", 1, []any{1, 0}},
		{"direct", 1, []any{false}},
	}
}

// createSubject chooses one of the forms of the subject of a create request, for a request body.
func (g *generator) createSubject(stream, name string, f fields) string {
	filter, _ := f["filter_subject"].(string)
	switch g.IntN(10) {
	case 0:
		if f["durable_name"] == nil || g.chance(10) {
			return api("CONSUMER.CREATE", stream)
		}
	case 1, 2:
		if f["durable_name"] != nil || g.chance(10) {
			return api("CONSUMER.DURABLE.CREATE", stream, name)
		}
	case 3, 4:
		if filter != "" {
			return api("CONSUMER.CREATE", stream, name, filter)
		}
	case 5:
		if g.chance(10) {
			return api("CONSUMER.CREATE", stream, name, g.filter(stream))
		}
	}
	return api("CONSUMER.CREATE", stream, name)
}

func (g *generator) createConsumer() Script {
	stream := g.streamOrNot()
	name := pick(g, consumerNames()...)
	f := g.consumerConfig(stream, name)
	g.keepFilters(stream, name, f)
	body := fields{"stream_name": stream, "config": f}
	if g.chance(30) {
		body["action"] = pick(g, "", "create", "create", "update")
	}
	if g.chance(3) {
		body["pedantic"] = true
	}
	op := Op{
		Kind: Call, Subject: g.createSubject(stream, name, f), Header: g.level(), Body: body.json(),
		Streams: []string{stream},
	}
	if g.chance(12) {
		return Script{op, op}
	}
	return one(op)
}

func (g *generator) createConsumerBad() Script {
	stream := g.streamOrNot()
	name := pick(g, consumerNames()...)
	f := g.consumerConfig(stream, name)
	maps.Copy(f, pick(g, badConsumerFields(stream)...))
	if g.chance(40) {
		body := `{"stream_name":"` + stream + `","config":` + g.mangle(f, consumerTypes()) + `}`
		return one(Op{Kind: Call, Subject: api("CONSUMER.CREATE", stream, name), Body: body, Streams: []string{stream}})
	}
	body := fields{"stream_name": stream, "config": f}
	subject := g.createSubject(stream, name, f)
	switch g.IntN(8) {
	case 0:
		body["stream_name"] = pick(g, "", "other", "a.b")
	case 1:
		body["action"] = pick[any](g, "nope", 1, nil, "CREATE")
	case 2:
		subject = api("CONSUMER.CREATE", stream, pick(g, "a/b", `a\b`, strings.Repeat("n", 256), "x*", "other", "*"))
	case 3:
		delete(body, "config")
	case 4:
		body["nope"] = 1
	default:
	}
	return one(Op{Kind: Call, Subject: subject, Body: body.json(), Streams: []string{stream}})
}

func badConsumerFields(stream string) []fields {
	p := prefixOf(stream)
	return []fields{
		{"name": "a.b"},
		{"name": "a b"},
		{"durable_name": "other"},
		{"durable_name": "a.b", "name": "a.b"},
		{"durable_name": strings.Repeat("n", 256)},
		{"ack_wait": -1, "backoff": []int{-1}},
		{"backoff": []int{hour, hour}, "max_deliver": 1},
		{"backoff": []int{hour, hour}, "max_deliver": 2},
		{"backoff": []int{0, hour}},
		{"filter_subject": p + ".a", "filter_subjects": []string{p + ".b"}},
		{"filter_subjects": []string{""}},
		{"filter_subjects": []string{p + ".a", ""}},
		{"filter_subjects": []string{p + ".a", p + ".a"}},
		{"filter_subjects": []string{p + ".a", p + ".*"}},
		{"filter_subjects": []string{p + ".*.x", p + ".a.*"}},
		{"filter_subject": "a..b"},
		{"filter_subject": "a b"},
		{"filter_subjects": []string{"x..y", p + ".a"}},
		{"deliver_policy": "all", "opt_start_seq": 1},
		{"deliver_policy": "all", "opt_start_time": "2001-01-01T00:00:00Z"},
		{"deliver_policy": "last", "opt_start_seq": 1},
		{"deliver_policy": "last", "opt_start_time": "2001-01-01T00:00:00Z"},
		{"deliver_policy": "new", "opt_start_seq": 1},
		{"deliver_policy": "last_per_subject", "opt_start_seq": 1, "filter_subject": p + ".a"},
		{"deliver_policy": "by_start_sequence"},
		{"deliver_policy": "by_start_sequence", "opt_start_seq": 1, "opt_start_time": "2001-01-01T00:00:00Z"},
		{"deliver_policy": "by_start_time"},
		{"deliver_policy": "by_start_time", "opt_start_time": "2001-01-01T00:00:00Z", "opt_start_seq": 1},
		{"deliver_policy": "undefined"},
		{"sample_freq": "x%"},
		{"sample_freq": "50%%"},
		{"sample_freq": "99999999999999999999"},
		{"metadata": fields{"k": strings.Repeat("m", 128<<10)}},
		{"ack_policy": "flow_control"},
		{"ack_policy": "nope"},
		{"priority_policy": "overflow"},
		{"priority_policy": "overflow", "priority_groups": []string{"a b"}},
		{"priority_policy": "nope"},
		{"priority_groups": []string{"g"}},
		{"rate_limit_bps": 5},
		{"idle_heartbeat": hour},
		{"flow_control": true},
		{"max_expires": 5},
		{"max_waiting": -3, "max_batch": -3},
		{"num_replicas": 3},
		{"direct": true},
		{"inactive_threshold": -1, "durable_name": "c1", "name": "c1"},
	}
}

// updateConsumer sends a request for a consumer that exists, with some fields changed.
func (g *generator) updateConsumer() Script {
	stream, name := g.consumer()
	if stream == "" {
		return nil
	}
	c := g.w.streams[stream].consumers[name].Config
	f := g.consumerConfig(stream, name)
	delete(f, "durable_name")
	f["ack_policy"] = c.AckPolicy.String()
	f["name"] = name
	if c.Durable != "" {
		f["durable_name"] = c.Durable
	} else {
		f["inactive_threshold"] = pick(g, hour, 2*hour)
	}
	if g.chance(70) { // keep what may not change
		for _, k := range []string{"deliver_policy", "opt_start_seq", "opt_start_time", "max_waiting", "replay_policy"} {
			delete(f, k)
		}
		if c.MaxWaiting != jsapi.DefaultMaxWaiting {
			f["max_waiting"] = c.MaxWaiting
		}
	}
	g.keepFilters(stream, name, f)
	body := fields{"stream_name": stream, "config": f, "action": pick(g, "", "update", "update", "create")}
	return one(Op{
		Kind: Call, Subject: api("CONSUMER.CREATE", stream, name), Body: body.json(), Streams: []string{stream},
	})
}

// keepFilters leaves out of an update what JetStream does not do well: a consumer that loses its filters is not
// told of new messages any more; one with other filters delivers to requests that wait only when the next message
// is stored, and is not told that messages of the old ones are gone.
func (g *generator) keepFilters(stream, name string, f fields) {
	s := g.w.streams[stream]
	if s == nil || s.consumers[name] == nil {
		return
	}
	info := s.consumers[name]
	had := len(info.Config.Filters()) > 0
	if has := f["filter_subject"] != nil || f["filter_subjects"] != nil; info.NumWaiting == 0 &&
		info.NumAckPending == 0 && (has || !had) {
		return
	}
	delete(f, "filter_subject")
	delete(f, "filter_subjects")
	if c := info.Config; c.FilterSubject != "" {
		f["filter_subject"] = c.FilterSubject
	} else if had {
		f["filter_subjects"] = c.FilterSubjects
	}
}

func (g *generator) deleteConsumer() Script {
	s, c := g.consumerOrNot()
	return one(Op{
		Kind: Call, Subject: api("CONSUMER.DELETE", s, c), Header: g.level(),
		Body: pick(g, "", "", "", "{}", "x", `{"a":1}`), Streams: []string{s},
	})
}

func (g *generator) readConsumers() Script {
	s, c := g.consumerOrNot()
	list := pick(g, "", "", "{}", `{"offset":`+strconv.Itoa(g.IntN(4)-1)+`}`, `{"offset":99}`, `{"limit":1}`,
		"[]", `{"subject":"x"}`)
	return one(pick(g,
		Op{
			Kind: Call, Subject: api("CONSUMER.INFO", s, c), Body: pick(g, "", "", "", "{}", "x"),
			Header: g.level(), Streams: []string{s},
		},
		Op{Kind: Call, Subject: api("CONSUMER.LIST", s), Body: list, Header: g.level(), Streams: []string{s}},
		Op{Kind: Call, Subject: api("CONSUMER.NAMES", s), Body: list, Streams: []string{s}},
	))
}

func (g *generator) pauseConsumer() Script {
	s, c := g.consumerOrNot()
	pause := Op{
		Kind: Call, Subject: api("CONSUMER.PAUSE", s, c), Header: g.level(), Streams: []string{s},
		Body: pick(g, `{"pause_until":"2095-01-01T00:00:00Z"}`, "", "{}", `{"pause_until":"2001-01-01T00:00:00Z"}`,
			`{"pause_until":"0001-01-01T00:00:00Z"}`, "x", `{"pause_until":"x"}`, `{"x":1}`),
	}
	if !strings.Contains(pause.Body, "2095") || g.chance(30) {
		return one(pause)
	}
	resume := pause
	resume.Body, resume.Header = pick(g, "", "{}", "x"), ""
	ops := Script{pause}
	for range g.IntN(3) {
		ops = append(ops, g.publish()[0])
	}
	return append(ops, resume)
}
