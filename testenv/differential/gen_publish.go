package differential

import (
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// block is a header block of these lines.
func block(lines ...string) string { return "NATS/1.0\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" }

func (g *generator) publish() Script {
	op := Op{Kind: Maybe, Subject: g.subject(), Body: g.payload()}
	if g.chance(12) {
		op.Kind = Quiet
	}
	switch {
	case g.chance(45):
	case g.chance(12):
		op.Header = g.oddHeader()
	default:
		op.Header = block(g.headers(op.Subject)...)
	}
	if g.chance(6) && !strings.Contains(op.Header, "Expected") { // the same again
		return Script{op, op}
	}
	return one(op)
}

func (g *generator) payload() string {
	return pick(g, "", "x", "hello", "{}", `{"a":1}`, strings.Repeat("p", 10+g.IntN(60)), "\x00\xff",
		strconv.Itoa(g.IntN(100)),
		strings.Repeat("q", 200))
}

// headers chooses header lines, mostly of those that mean something.
func (g *generator) headers(subject string) []string {
	lines := []string{g.headerLine(subject)}
	for g.chance(35) {
		lines = append(lines, g.headerLine(subject))
	}
	return lines
}

func (g *generator) headerLine(subject string) string {
	var name string
	var last uint64
	for _, s := range g.w.names() {
		cfg := &g.w.streams[s].info.Config
		for _, have := range cfg.Subjects {
			if jsapi.SubjectMatches(have, subject) {
				name, last = s, g.w.streams[s].info.State.LastSeq
			}
		}
	}
	seq := strconv.FormatUint(last, 10)
	if g.chance(50) {
		seq = g.sequence(name)
	}
	id := "id" + strconv.Itoa(g.IntN(12))
	return pick(g,
		"Nats-Msg-Id: "+id, "Nats-Msg-Id: "+id, "Nats-Msg-Id: "+id, "nats-msg-id: "+id, "Nats-Msg-Id: ", "Nats-Msg-Id:"+id,
		"Nats-Expected-Stream: "+name, "Nats-Expected-Stream: Z", "Nats-Expected-Stream: ",
		"Nats-Expected-Last-Sequence: "+seq, "Nats-Expected-Last-Sequence: "+seq, "Nats-Expected-Last-Sequence: x",
		"Nats-Expected-Last-Sequence: ", "Nats-Expected-Last-Sequence: -1",
		"Nats-Expected-Last-Subject-Sequence: "+seq, "Nats-Expected-Last-Subject-Sequence: 0",
		"Nats-Expected-Last-Subject-Sequence: x",
		"Nats-Expected-Last-Subject-Sequence: "+seq+"\r\nNats-Expected-Last-Subject-Sequence-Subject: "+g.filter(name),
		"Nats-Expected-Last-Subject-Sequence: 0\r\nNats-Expected-Last-Subject-Sequence-Subject: "+g.filter(name),
		"Nats-Expected-Last-Subject-Sequence-Subject: "+g.filter(name),
		"Nats-Expected-Last-Msg-Id: "+id, "Nats-Expected-Last-Msg-Id: "+id, "Nats-Expected-Last-Msg-Id: ",
		"Nats-Rollup: sub", "Nats-Rollup: all", "Nats-Rollup: SUB", "Nats-Rollup: nope", "Nats-Rollup: ",
		"Nats-TTL: 10", "Nats-TTL: 0", "Nats-TTL: x", "Nats-TTL: never", "Nats-Incr: +1", "Nats-Incr: x",
		"Nats-Batch-Id: b", "Nats-Batch-Id: "+strings.Repeat("b", 65), "Nats-Schedule: @every 1h", "Nats-Scheduler: x",
		"Nats-Stream-Source: x 1 > > y", "Nats-Request-Info: {}", "Nats-Required-Api-Level: 99",
		"Nats-Marker-Reason: MaxAge",
		"X: y", "x-lower: v", "X:  two", "X: y\r\nX: z", "KV-Operation: DEL", "A: ", "Ü: ü", "X : y",
		"Nats-Expected-Stream: "+name+" ")
}

// oddHeader is a header block that no client library sends.
func (g *generator) oddHeader() string {
	return pick(g, "NATS/1.0\r\n\r\n", "NATS/1.0 503\r\n\r\n", "NATS/1.0 100 Idle Heartbeat\r\nX: y\r\n\r\n",
		"NATS/1.0\r\nX: y\r\n",
		"NATS/1.0\r\nX: y", "NATS/1.0\nX: y\n\n", "NATS/1.0\r\nNats-Msg-Id:  spaces  \r\n\r\n",
		"NATS/1.0\r\nno colon\r\n\r\n",
		"NATS/1.0\r\n: empty key\r\n\r\n", "FOO\r\nX: y\r\n\r\n", "x", "\r\n\r\n", "NATS/1.0\r\nNats-Msg-Id\r\n\r\n",
		"NATS/1.0\r\nX: Nats-Msg-Id: inner\r\n\r\n",
		"NATS/1.0\r\nA:b\r\nNats-Msg-Id: first\r\nNats-Msg-Id: second\r\n\r\n",
		"NATS/1.0\r\n"+strings.Repeat("X: "+strings.Repeat("v", 1000)+"\r\n", 70)+"\r\n",
		"NATS/1.0 200 fine\r\nNats-Msg-Id: st\r\n\r\n", "NATS/1.0\r\nX: a\tb\r\n\r\n",
		"NATS/1.0\r\nX: y\r\n continued\r\n\r\n",
		"NATS/1.0\r\nNats-Expected-Last-Sequence: 1 \r\n\r\n", "NATS/1.0\r\n\r\nX: after\r\n\r\n")
}
