package differential

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
)

// minute and hour in nanoseconds: long enough not to pass during a script.
const (
	minute = 60_000_000_000
	hour   = 60 * minute
)

// streamConfig makes a configuration that is valid, most of the time.
func (g *generator) streamConfig(name string) fields {
	p := prefixOf(name)
	f := fields{"name": name}
	f["subjects"] = pick(g,
		[]string{p + ".>"}, []string{p + ".>"}, []string{p + ".>"}, []string{p, p + ".*"},
		[]string{p + ".a", p + ".b", p + ".a.*"},
		[]string{p + ".*", p + ".*.*"}, []string{p + ".*.x", p + ".a"}, []string{p + ".>", name})
	if g.chance(3) {
		delete(f, "subjects")
	}
	if g.chance(6) {
		f["subjects"] = pick(g, []string{"s.a"}, []string{"*.a"}, []string{"t.>", "s.>"},
			[]string{"w.*", "w.a"}, []string{"k.a", "k.a"})
	}
	if g.chance(40) {
		f["retention"] = "workqueue"
	} else if g.chance(50) {
		f["retention"] = "limits"
	}
	for _, o := range streamOptions() {
		if g.chance(o.percent) {
			f[o.field] = pick(g, o.values...)
		}
	}
	if f["storage"] == "memory" {
		delete(f, "max_bytes") // bytes are counted differently
	}
	if f["discard"] == "new" && g.chance(25) {
		f["discard_new_per_subject"] = true
		f["max_msgs_per_subject"] = pick(g, 1, 2)
	}
	return f
}

// An option is a field that a configuration may have.
type option struct {
	field   string
	percent int
	values  []any
}

func streamOptions() []option {
	return []option{
		{"max_msgs", 25, []any{-1, 0, 1, 2, 3, 5, 8, -5}},
		{"max_bytes", 15, []any{-1, 0, 60, 100, 200, 500, 1000}},
		{"max_msgs_per_subject", 25, []any{-1, 0, 1, 2, 3}},
		{"max_msg_size", 12, []any{-1, 0, 10, 40, 100}},
		{"max_age", 8, []any{0, hour, 10 * minute}},
		{"max_consumers", 8, []any{-1, 0, 1, 2, 3}},
		{"discard", 40, []any{"old", "new", "new"}},
		{"storage", 20, []any{"file", "memory"}},
		{"num_replicas", 10, []any{0, 1}},
		{"no_ack", 4, []any{true, false}},
		{"duplicate_window", 12, []any{0, minute, 10 * minute, 100_000_000_000}},
		{"compression", 8, []any{"none", "s2"}},
		{"first_seq", 10, []any{0, 1, 10, 1000, 1 << 40}},
		{"allow_direct", 15, []any{true, false}},
		{"deny_delete", 6, []any{true, false}},
		{"deny_purge", 6, []any{true, false}},
		{"allow_rollup_hdrs", 30, []any{true, true, false}},
		{"consumer_limits", 8, []any{
			fields{},
			fields{"max_ack_pending": 3},
			fields{"inactive_threshold": hour},
			fields{"max_ack_pending": 2, "inactive_threshold": 2 * hour},
		}},
		{"description", 8, []any{"", "words <&> \u2028", "other"}},
		{"metadata", 10, []any{
			fields{},
			fields{"k": "v"},
			fields{"a": "", "_nats.ver": "x"},
			fields{"_nats.level": "9", "b": "<>"},
			fields{"_nats.req.level": "7"},
		}},
		{"placement", 3, []any{fields{}, fields{"cluster": "c"}, fields{"tags": []string{"t"}}}},
		{"persist_mode", 3, []any{"default", "async"}},
		{"pedantic", 4, []any{true, false}},
		{"mirror_direct", 1, []any{true, false}},
		{"sealed", 1, []any{true, false}},
	}
}

func (g *generator) createStream() Script {
	name := pick(g, streamNames()...)
	for range 3 { // mostly a new one
		if g.w.streams[name] == nil {
			break
		}
		name = pick(g, streamNames()...)
	}
	body := g.streamConfig(name).json()
	ops := one(Op{Kind: Call, Subject: api("STREAM.CREATE", name), Header: g.level(), Body: body})
	if g.chance(10) {
		ops = append(ops, ops[0])
	}
	return ops
}

// createStreamBad breaks one rule of a configuration.
func (g *generator) createStreamBad() Script {
	name := pick(g, streamNames()...)
	f := g.streamConfig(name)
	subject := api("STREAM.CREATE", name)
	maps.Copy(f, pick(g, badStreamFields()...))
	verb := "STREAM.CREATE"
	if g.chance(30) {
		verb = "STREAM.UPDATE"
		subject = api(verb, name)
	}
	if g.chance(15) {
		subject = api(verb, pick(g, "a/b", `a\b`, "X", strings.Repeat("n", 256), "a*", "*", ">"))
		if g.chance(70) {
			f["name"] = strings.TrimPrefix(subject, apiPrefix+verb+".")
		}
	}
	if g.chance(40) {
		return one(Op{Kind: Call, Subject: subject, Body: g.mangle(f, streamTypes())})
	}
	return one(Op{Kind: Call, Subject: subject, Body: f.json()})
}

func badStreamFields() []fields {
	return []fields{
		{"name": ""},
		{"name": "A.B"},
		{"name": "a b"},
		{"name": "other"},
		{"name": strings.Repeat("n", 256)},
		{"description": strings.Repeat("d", 4097)},
		{"description": strings.Repeat("d", 4096)},
		{"metadata": fields{"k": strings.Repeat("m", 128<<10)}},
		{"metadata": fields{"k": strings.Repeat("m", 128<<10-1)}},
		{"num_replicas": 6},
		{"num_replicas": -1},
		{"num_replicas": 5, "storage": "memory"},
		{"max_age": -1},
		{"max_age": 99_999_999},
		{"duplicate_window": -1},
		{"duplicate_window": 99_999_999},
		{"duplicate_window": hour, "max_age": minute},
		{"deny_purge": true, "allow_rollup_hdrs": true},
		{"discard_new_per_subject": true, "discard": "old"},
		{"discard_new_per_subject": true, "discard": "new", "max_msgs_per_subject": 0},
		{"subjects": []string{"a..b"}},
		{"subjects": []string{" "}},
		{"subjects": []string{""}},
		{"subjects": []string{"a b"}},
		{"subjects": []string{">"}},
		{"subjects": []string{"*"}},
		{"subjects": []string{"$JS.API.>"}},
		{"subjects": []string{"$JS.>"}},
		{"subjects": []string{"$SYS.>"}},
		{"subjects": []string{"$SYS.ACCOUNT.x"}},
		{"subjects": []string{"$JSC.x", "x.>"}},
		{"subjects": []string{"x.a", "x.a"}},
		{"subjects": []string{"x.*", "x.a"}},
		{"subjects": []string{"x.>.y"}},
		{"subjects": []string{"x.a*"}},
		{"subjects": []string{"x.", ".x"}},
		{"mirror_direct": true},
		{"sealed": true},
		{"placement": fields{"preferred": "n"}},
		{"republish": fields{"src": "x.>", "dest": "x.y"}},
		{"subject_transform": fields{"src": "x.*", "dest": "y.$2"}},
		{"mirror": fields{"name": "a.b"}},
		{"mirror": fields{"name": "S"}},
		{"mirror": fields{"name": "S"}, "first_seq": 5},
		{"sources": []fields{{"name": "x y"}}},
		{"sources": []fields{{"name": "S"}, {"name": "S"}}},
		{"subject_delete_marker_ttl": 1},
		{"subject_delete_marker_ttl": -1},
		{"persist_mode": "async", "storage": "memory"},
		{"allow_msg_counter": true, "discard": "new"},
		{"allow_msg_schedules": true, "discard": "new"},
		{"max_consumers": -7},
		{"max_msg_size": -7},
		{"consumer_limits": fields{"max_ack_pending": -1}},
		{"consumer_limits": fields{"inactive_threshold": -1}},
		{"first_seq": uint64(1<<64 - 1)},
		{"subjects": []string{}},
		{"template_owner": "x"},
	}
}

func (g *generator) updateStream() Script {
	name := g.stream()
	if name == "" {
		return nil
	}
	f := g.currentStream(name)
	fresh := g.streamConfig(name)
	switch {
	case g.chance(15): // everything anew
		f = fresh
	case g.chance(12): // subjects only
		p := prefixOf(name)
		f["subjects"] = pick(g, []string{p + ".>"}, []string{p + ".a", p + ".b"}, []string{p + ".>", "extra." + p},
			[]string{"s.>", p + "2"}, []string{p + ".*"}, []string{"*.a"}, nil, []string{p + ".>", name})
	default:
		for range 1 + g.IntN(2) {
			o := pick(g, streamOptions()...)
			f[o.field] = pick(g, o.values...)
		}
	}
	if g.chance(2) {
		f["sealed"] = true
	}
	if g.chance(4) {
		f["retention"] = pick(g, "limits", "workqueue")
	}
	if g.chance(3) {
		f["name"] = "other"
	}
	subject := api("STREAM.UPDATE", name)
	if g.chance(4) {
		subject = api("STREAM.UPDATE", "NONE")
	}
	return one(Op{Kind: Call, Subject: subject, Header: g.level(), Body: f.json()})
}

// currentStream is the configuration that a stream has.
func (g *generator) currentStream(name string) fields {
	f := fields{}
	b, err := json.Marshal(g.w.streams[name].info.Config)
	if err == nil {
		err = json.Unmarshal(b, &f)
	}
	if err != nil {
		panic("differential: configuration of a stream: " + err.Error())
	}
	for k, v := range f {
		if n, ok := v.(float64); ok { // encoded again it must not become an exponent
			f[k] = int64(n)
		}
	}
	return f
}

func (g *generator) deleteStream() Script {
	return one(Op{
		Kind: Call, Subject: api("STREAM.DELETE", g.streamOrNot()), Header: g.level(),
		Body: pick(g, "", "", "", "", "{}", " {} ", `{"a":1}`, "x", "[]", "null"),
	})
}

func (g *generator) readStreams() Script {
	name := g.streamOrNot()
	offset := strconv.Itoa(g.IntN(4) - 1)
	info := pick(g, "", "", "{}", `{"deleted_details":true}`, `{"subjects_filter":">"}`,
		`{"subjects_filter":"`+g.filter(name)+`","deleted_details":true}`, `{"offset":`+offset+`,"subjects_filter":">"}`,
		`{"offset":1}`, `{"x":1}`, "[]", "x", `{"subjects_filter":"a..b"}`, `{"offset":"1"}`, "{")
	list := pick(g, "", "", "{}", `{"offset":`+offset+`}`, `{"subject":"`+g.filter(name)+`"}`,
		`{"subject":"`+g.subject()+`"}`, `{"subject":"a..b"}`, `{"offset":99}`, `{"limit":1}`, "[]",
		`{"offset":1.5}`, "null")
	return one(pick(g,
		Op{Kind: Call, Subject: api("STREAM.INFO", name), Body: info, Header: g.level()},
		Op{Kind: Call, Subject: api("STREAM.INFO", name), Body: info},
		Op{Kind: Call, Subject: api("STREAM.LIST"), Body: list},
		Op{Kind: Call, Subject: api("STREAM.NAMES"), Body: list, Header: g.level()},
		Op{Kind: Call, Subject: api("INFO"), Body: pick(g, "", "{}", "x")},
	))
}

func (g *generator) purge() Script {
	name := g.streamOrNot()
	last := 0
	if s := g.w.streams[name]; s != nil {
		last = int(min(s.info.State.LastSeq, 1<<30))
	}
	n := strconv.Itoa(max(last-g.IntN(6)+1, 0))
	k := strconv.Itoa(g.IntN(4))
	f := `"filter":"` + g.filter(name) + `"`
	body := pick(g, "", "{}", `{"seq":`+n+`}`, `{"keep":`+k+`}`, `{`+f+`}`, `{`+f+`,"seq":`+n+`}`, `{`+f+`,"keep":`+k+`}`,
		`{`+f+`}`, `{"seq":`+n+`,"keep":1}`, `{"seq":-1}`, `{"filter":"a..b"}`, `{"filter":""}`, `{"x":1}`, "x",
		`{"keep":99}`)
	return one(Op{Kind: Call, Subject: api("STREAM.PURGE", name), Body: body, Header: g.level(), Streams: []string{name}})
}

// sequence chooses a sequence in or near a stream.
func (g *generator) sequence(name string) string {
	s := g.w.streams[name]
	if s == nil || s.info.State.LastSeq == 0 || g.chance(8) {
		return pick(g, "0", "1", "2", "999", "18446744073709551615")
	}
	st := &s.info.State
	span := st.LastSeq - st.FirstSeq + 3
	if st.FirstSeq > st.LastSeq {
		span = 2
	}
	return strconv.FormatUint(st.FirstSeq+g.Uint64N(span)-min(st.FirstSeq, 1), 10)
}

func (g *generator) getMessage() Script {
	name := g.streamOrNot()
	seq, f := g.sequence(name), g.filter(name)
	body := pick(g, `{"seq":`+seq+`}`, `{"seq":`+seq+`}`, `{"last_by_subj":"`+f+`"}`, `{"next_by_subj":"`+f+`"}`,
		`{"next_by_subj":"`+f+`","seq":`+seq+`}`, `{"last_by_subj":"`+g.subject()+`"}`,
		`{"start_time":"2001-01-01T00:00:00Z"}`,
		`{"start_time":"2095-01-01T00:00:00Z"}`, `{"start_time":"2001-01-01T00:00:00Z","next_by_subj":"`+f+`"}`,
		`{"seq":`+seq+`,"no_hdr":true}`, "", "{}", `{"seq":0}`, `{"seq":1,"last_by_subj":"x"}`,
		`{"last_by_subj":"x","next_by_subj":"y"}`, `{"seq":1,"batch":2}`, `{"seq":1,"max_bytes":2}`,
		`{"multi_last":["x"]}`,
		`{"x":1}`, "x", `{"seq":"1"}`, `{"last_by_subj":"a..b"}`, `{"seq":1,"start_time":"2001-01-01T00:00:00Z"}`)
	return one(Op{
		Kind: Call, Subject: api("STREAM.MSG.GET", name), Body: body, Header: g.level(), Streams: []string{name},
	})
}

func (g *generator) deleteMessage() Script {
	name := g.streamOrNot()
	seq := g.sequence(name)
	body := pick(g, `{"seq":`+seq+`}`, `{"seq":`+seq+`}`, `{"seq":`+seq+`,"no_erase":true}`,
		`{"seq":`+seq+`,"no_erase":false}`,
		"", "{}", "x", `{"x":1}`, `{"seq":-1}`)
	return one(Op{
		Kind: Call, Subject: api("STREAM.MSG.DELETE", name), Body: body, Header: g.level(), Streams: []string{name},
	})
}
