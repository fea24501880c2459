package differential

import (
	"strconv"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// A deadline of a pull request that passes during its step.
const shortExpiry = 150_000_000

func (g *generator) pull() Script {
	s, name := g.consumer()
	if s == "" {
		return nil
	}
	c := g.w.streams[s].consumers[name]
	op := Op{Kind: Pull, Subject: api("CONSUMER.MSG.NEXT", s, name), Streams: []string{s}, Batch: 1 + g.IntN(4)}
	batch := strconv.Itoa(op.Batch)
	// A request without a deadline ends by itself if enough messages may go.
	if g.ready(c) < op.Batch {
		op.Kind = Open
	}
	switch g.IntN(12) {
	case 0, 1, 2, 3:
		op.Body = `{"batch":` + batch + `,"no_wait":true}`
		if c.Config.MaxAckPending <= 0 && !c.Paused {
			op.Kind = Pull
		}
	case 4:
		op.Body = `{"batch":` + batch + `,"expires":` + strconv.Itoa(shortExpiry) + `}`
		op.Kind = Pull
	case 5:
		op.Body = `{"batch":` + batch + `,"expires":` + strconv.Itoa(4*shortExpiry) +
			`,"idle_heartbeat":` + strconv.Itoa(shortExpiry) + `}`
		op.Kind = Pull
	case 6:
		op.Body = `{"batch":` + batch + `,"no_wait":true,"expires":` + strconv.Itoa(shortExpiry) + `}`
		op.Kind = Pull
	case 7:
		size := strconv.Itoa(pick(g, 1, 60, 100, 200, 400))
		op.Body = `{"batch":` + batch + `,"max_bytes":` + size +
			pick(g, `,"no_wait":true}`, `,"expires":`+strconv.Itoa(shortExpiry)+`}`)
		if strings.Contains(op.Body, "expires") {
			op.Kind = Pull
		} else {
			op.Kind = Open
		}
	case 8:
		op.Body = pick(g, "", batch, " "+batch+" ")
		if strings.TrimSpace(op.Body) == "" {
			op.Batch = 1
		}
	case 9:
		op.Body = `{"batch":` + batch + `,"expires":` + strconv.Itoa(hour) + `}`
	default:
		op.Body = `{"batch":` + batch + `}`
	}
	return one(op)
}

// ready is how many messages a request is sure to get.
func (g *generator) ready(c *jsapi.ConsumerInfo) int {
	if c.Paused || c.NumWaiting > 0 {
		return 0
	}
	n := int(min(c.NumPending, 1<<20))
	if c.Config.MaxAckPending > 0 {
		n = min(n, c.Config.MaxAckPending-c.NumAckPending)
	}
	return n
}

func (g *generator) pullBad() Script {
	s, c := g.consumerOrNot()
	op := Op{Kind: Open, Subject: api("CONSUMER.MSG.NEXT", s, c), Streams: []string{s}, Header: g.level()}
	op.Body = pick(g, "x", "0", "-1", "{", "[]", "null", `{"batch":"1"}`, `{"batch":-1}`, `{"batch":0}`, `{"expires":-1}`,
		`{"expires":"1s"}`, `{"nope":1}`, `{"batch":1,"expires":1000000000,"idle_heartbeat":600000000}`,
		`{"batch":100000}`,
		`{"batch":1,"idle_heartbeat":1}`, `{"batch":1,"min_pending":1}`, `{"batch":1,"id":"x"}`, `{"batch":1,"group":"g"}`,
		`{"batch":1,"priority":10}`, `{"batch":1,"priority":5}`, `{"batch":1,"max_bytes":-1}`,
		`{"batch":1,"max_bytes":99999}`,
		`{"batch":1,"expires":7200000000000}`, `{"no_wait":true}`, `{"batch":1.5}`, `{}`, "1.5", "99999999999999999999",
		`{"batch":2,"no_wait":true} x`, "{\"batch\":1}\r\n", `{"batch":2,"no_wait":true,"idle_heartbeat":1}`)
	return one(op)
}

func (g *generator) ack() Script {
	ref, ok := g.delivery()
	if !ok {
		return nil
	}
	op := Op{Kind: Maybe, Ack: &ref, Streams: []string{ref.Stream}}
	op.Body = pick(g, "", "", "", "+ACK", "+ACK", "+OK", "-NAK", "-NAK", "-NAK {\"delay\":3600000000000}",
		"-NAK 1h", "-NAK x",
		"-NAK y", "-NAK {\"delay\":\"x\"}", "+WPI", "+TERM", "+TERM because", "+TERM", "+NXT",
		"+NXT {\"batch\":2,\"no_wait\":true}",
		"+NXT 2", "+NXT x", "nonsense", "+ack", "+ACK ", "-NAK ", "+TERM ", "+NXT {", "{\"x\":1}")
	if !g.last(ref) {
		op.Body = ofReplaced(op.Body)
	}
	if g.chance(25) && !strings.HasPrefix(op.Body, "+NXT") {
		op.Kind = Quiet
	}
	if g.chance(5) {
		op.Header = block("X: y")
	}
	op.Advised = advisedOf(op.Body, ref.Stream, ref.Consumer)
	if g.chance(15) {
		return Script{op, op}
	}
	return one(op)
}

// ofReplaced is what the receiver of a delivery that another one has replaced says instead: that a nak, a term or
// progress of it has no effect is for timed.
func ofReplaced(body string) string {
	if strings.HasPrefix(body, "-NAK") || strings.HasPrefix(body, "+TERM") || body == "+WPI" {
		return ""
	}
	return body
}

// last reports whether the message of a delivery was not delivered again.
func (g *generator) last(ref AckRef) bool {
	for of, n := range g.w.last {
		if n == ref.N && of.Stream == ref.Stream && of.Consumer == ref.Consumer {
			return true
		}
	}
	return false
}

// delivery chooses one of the deliveries so far, mostly a late one.
func (g *generator) delivery() (ref AckRef, ok bool) {
	s, c := g.consumer()
	n := g.w.deliveries[AckRef{Stream: s, Consumer: c}]
	if n == 0 {
		return AckRef{}, false
	}
	from := 0
	if g.chance(80) {
		from = max(n-5, 0)
	}
	return AckRef{s, c, from + g.IntN(n-from)}, true
}

func (g *generator) ackBad() Script {
	s, c := g.consumerOrNot()
	p := "$JS.ACK." + s + "." + c
	subject := pick(g, p+".1.999.999.1.0", p+".1.0.1.1.0", p+".1.x.1.1.0", p+".x.999.1.1.0",
		p+".1.1.1.1", p+".1.1.1.1.0.0", "$JS.ACK._.hash."+s+"."+c+".1.999.1.1.0", p+".1.-1.1.1.0",
		"$JS.ACK."+s+".none.1.1.1.1.0", "$JS.ACK.NONE."+c+".1.1.1.1.0", p+".1.18446744073709551615.1.1.0",
		"$JS.ACK."+s+"..1.1.1.1.0")
	kind := Maybe
	if g.chance(20) {
		kind = Quiet
	}
	op := Op{Kind: kind, Subject: subject, Body: pick(g, "", "+ACK", "-NAK", "+TERM", "+WPI", "x"), Streams: []string{s}}
	op.Advised = advisedOf(op.Body, s, c)
	return one(op)
}

// advisedOf is the subject of the advisory about a term.
func advisedOf(body, stream, consumer string) string {
	if !strings.HasPrefix(body, "+TERM") {
		return ""
	}
	return jsapi.SubjectMsgTerminated + stream + "." + consumer
}
