package differential

import (
	"slices"
	"strconv"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// timed makes scripts about what happens when time passes. Each brings its own consumer or stream, and compares
// only what does not depend on when.
func (g *generator) timed() Script {
	switch g.IntN(9) {
	case 0:
		return g.ackWait()
	case 1:
		return g.age()
	case 2:
		return g.window()
	case 3:
		return g.inactive()
	case 4:
		return g.paused()
	case 5:
		return g.purgedBeyond()
	case 6:
		return g.ackedAhead()
	case 7:
		return g.stale()
	default:
		return g.delayed()
	}
}

// What is meant to differ, and has a stream of its own that is deleted at once.
const (
	beyondTheEnd   = "purge beyond the end"
	aboveTheCursor = "ack above the cursor"
	staleNak       = "nak of a replaced delivery"
)

func (g *generator) purgedBeyond() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit"}, g.IntN(3))
	return append(ops, Op{
		Kind: Call, Note: beyondTheEnd, Subject: api("STREAM.PURGE", timedStream), Body: `{"seq":1000}`,
		Streams: []string{timedStream},
	}, timedEnd())
}

func (g *generator) ackedAhead() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit"}, 3)
	return append(ops, timedPull(1, ""), Op{
		Kind: Maybe, Note: aboveTheCursor, Subject: "$JS.ACK." + timedStream + "." + timedConsumer + ".1.2.2.1.1",
		Streams: []string{timedStream},
	}, timedEnd())
}

func (g *generator) stale() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit"}, 1)
	ref := g.timedDelivery(0)
	nak := Op{Kind: Call, Ack: &ref, Body: "-NAK", Streams: []string{timedStream}}
	again := nak
	again.Note, again.Advised = staleNak, jsapi.SubjectMsgNaked+timedStream+"."+timedConsumer
	return append(ops, timedPull(1, ""), nak, timedPull(1, ""), again, timedEnd())
}

// purgedUnderAckAll purges one message, with an unacked one before it.
func (g *generator) purgedUnderAckAll() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "all"}, 3)
	return append(ops, timedPull(3, ""), timedPurge(`{"filter":"timed.1"}`), timedEnd())
}

// purgedFullWindow purges the unacked message that fills the window, and another one.
func (g *generator) purgedFullWindow() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit", "max_ack_pending": 1}, 4)
	open := timedPull(2, "")
	open.Kind = Open
	return append(ops, open, timedPurge(`{"keep":2}`), timedEnd())
}

// sampled acks after sample_freq was taken away.
func (g *generator) sampled() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit", "sample_freq": "100"}, 1)
	update := ops[1]
	update.Body = fields{
		"stream_name": timedStream, "config": fields{"durable_name": timedConsumer, "ack_policy": "explicit"},
	}.json()
	ref := g.timedDelivery(0)
	ack := Op{Kind: Call, Ack: &ref, Body: "+ACK", Streams: []string{timedStream}}
	ack.Advised = jsapi.SubjectMetricAck + timedStream + "." + timedConsumer
	return append(ops, update, timedPull(1, ""), ack, timedEnd())
}

// noWaitFullWindow lets a request expire while another one, with no_wait, waits for room.
func (g *generator) noWaitFullWindow() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit", "max_ack_pending": 1}, 3)
	open := timedPull(2, `,"no_wait":true`)
	open.Kind = Open
	return append(ops, open, timedPull(1, `,"expires":150000000`), timedEnd())
}

// meant is what is meant to differ and too rare to wait for in the scripts of seeds.
func meant() Script {
	g := &generator{w: newWorld()}
	return slices.Concat(g.sampled(), g.purgedFullWindow(), g.noWaitFullWindow(), g.purgedUnderAckAll())
}

func timedPurge(body string) Op {
	return Op{Kind: Call, Subject: api("STREAM.PURGE", timedStream), Body: body, Streams: []string{timedStream}}
}

const (
	timedStream   = "TIMED"
	timedConsumer = "tc"
)

// timedSetUp is a stream with messages and a consumer of it.
func (g *generator) timedSetUp(stream, consumer fields, messages int) Script {
	stream["name"], stream["subjects"] = timedStream, []string{"timed.>"}
	consumer["durable_name"] = timedConsumer
	streams := []string{timedStream}
	ops := Script{
		{Kind: Call, Subject: api("STREAM.CREATE", timedStream), Body: stream.json(), Streams: streams},
		{
			Kind: Call, Subject: api("CONSUMER.CREATE", timedStream, timedConsumer), Streams: streams,
			Body: fields{"stream_name": timedStream, "config": consumer}.json(),
		},
	}
	for i := range messages {
		ops = append(ops, Op{Kind: Call, Subject: "timed." + strconv.Itoa(i), Body: "m" + strconv.Itoa(i), Streams: streams})
	}
	return ops
}

func timedPull(batch int, body string) Op {
	return Op{
		Kind: Pull, Subject: api("CONSUMER.MSG.NEXT", timedStream, timedConsumer), Batch: batch,
		Body: `{"batch":` + strconv.Itoa(batch) + body + `}`, Streams: []string{timedStream},
	}
}

// timedDelivery is the n-th delivery, from 0, that the consumer makes from now on.
func (g *generator) timedDelivery(n int) AckRef {
	before := g.w.deliveries[AckRef{Stream: timedStream, Consumer: timedConsumer}]
	return AckRef{timedStream, timedConsumer, before + n}
}

func timedEnd() Op {
	return Op{Kind: Call, Subject: api("STREAM.DELETE", timedStream), Streams: []string{timedStream}}
}

// ackWait lets messages come again until max_deliver.
func (g *generator) ackWait() Script {
	cfg := fields{"ack_policy": pick(g, "explicit", "all"), "max_deliver": 2}
	if g.chance(50) {
		cfg["ack_wait"] = 250_000_000
	} else {
		cfg["backoff"] = []int{200_000_000, 300_000_000}
	}
	n := 1 + g.IntN(3)
	ops := g.timedSetUp(fields{"retention": pick(g, "limits", "limits", "workqueue")}, cfg, n)
	if g.chance(40) {
		cfg["ack_policy"] = "explicit"
	}
	ops = append(ops, timedPull(n, `,"no_wait":true`))
	again := timedPull(n, `,"expires":5000000000`)
	again.Loose = true
	ops = append(ops, again)
	if g.chance(50) {
		ref := g.timedDelivery(n)
		ops = append(ops, Op{Kind: Call, Ack: &ref, Body: "+ACK", Streams: []string{timedStream}})
	}
	last := timedPull(1, `,"expires":700000000`)
	return append(ops, last, timedEnd())
}

// age lets messages expire, some of them delivered and not acked.
func (g *generator) age() Script {
	cfg := fields{"ack_policy": "explicit"}
	ops := g.timedSetUp(fields{"max_age": 400_000_000, "retention": pick(g, "limits", "workqueue")}, cfg, 2)
	ops = append(ops, timedPull(1, `,"expires":300000000`))
	ops[len(ops)-1].Loose = true
	return append(ops,
		Op{Kind: Await, Subject: api("STREAM.INFO", timedStream), Until: `"messages":0,`, Streams: []string{timedStream}},
		Op{Kind: Call, Subject: "timed.after", Body: "late", Streams: []string{timedStream}},
		Op{Kind: Await, Subject: api("STREAM.INFO", timedStream), Until: `"messages":0,`, Streams: []string{timedStream}},
		timedEnd())
}

// window publishes one id until the window of the first has passed.
func (g *generator) window() Script {
	ops := g.timedSetUp(fields{"duplicate_window": 150_000_000}, fields{"ack_policy": "explicit"}, 1)
	again := Op{Kind: Await, Subject: "timed.id", Header: block("Nats-Msg-Id: once"), Streams: []string{timedStream}}
	first, second := again, again
	first.Until, second.Until = `"seq":2`, `"seq":3}`
	return append(ops, first, second, timedEnd())
}

// inactive lets consumers go away.
func (g *generator) inactive() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit", "inactive_threshold": 100_000_000}, 0)
	return append(ops,
		Op{
			Kind: Await, Subject: api("CONSUMER.INFO", timedStream, timedConsumer), Until: `"err_code":10014`,
			Streams: []string{timedStream},
		},
		timedEnd())
}

// paused lets a pause end.
func (g *generator) paused() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit"}, 2)
	pull := timedPull(2, `,"expires":5000000000`)
	return append(ops,
		Op{
			Kind: Call, Subject: api("CONSUMER.PAUSE", timedStream, timedConsumer), Body: `{"pause_until":"{{now+300ms}}"}`,
			Streams: []string{timedStream},
		},
		pull, timedEnd())
}

// delayed lets a nak's delay pass.
func (g *generator) delayed() Script {
	ops := g.timedSetUp(fields{}, fields{"ack_policy": "explicit"}, 2)
	ref := g.timedDelivery(0)
	return append(ops, timedPull(2, ""),
		Op{
			Kind: Call, Ack: &ref, Body: pick(g, `-NAK {"delay":200000000}`, "-NAK 200ms"), Streams: []string{timedStream},
		},
		timedPull(1, `,"expires":5000000000`), timedEnd())
}
