package differential

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// generator chooses operations from a seed and from the state of the JetStream side.
type generator struct {
	*rand.Rand
	w     *world
	queue Script // the rest of what belongs together
	steps int    // left
}

// Generate returns the script of a seed as a source: so many steps, each chosen when the one before is over.
func generate(seed uint64, steps int) source {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), steps: steps}
	return g.next
}

func (g *generator) next(w *world) (Op, bool) {
	g.w = w
	if len(g.queue) == 0 {
		if g.steps <= 0 {
			return Op{}, false
		}
		g.queue = g.choose()
	}
	op := g.queue[0]
	g.queue = g.queue[1:]
	if op.Ack != nil && op.Note != staleNak && !g.last(*op.Ack) {
		if body := ofReplaced(op.Body); body != op.Body {
			op.Body, op.Advised = body, ""
		}
	}
	g.steps--
	return op, true
}

// A choice is a kind of operation and how often it comes.
type choice struct {
	weight int
	make   func() Script
}

func (g *generator) choose() Script {
	choices := []choice{
		{6, g.createStream},
		{3, g.createStreamBad},
		{4, g.updateStream},
		{2, g.deleteStream},
		{5, g.readStreams},
		{4, g.purge},
		{4, g.getMessage},
		{4, g.deleteMessage},
		{4, g.badRequest},
		{2, g.strange},
		{30, g.publish},
		{8, g.createConsumer},
		{3, g.createConsumerBad},
		{3, g.updateConsumer},
		{2, g.deleteConsumer},
		{4, g.readConsumers},
		{1, g.pauseConsumer},
		{16, g.pull},
		{3, g.pullBad},
		{16, g.ack},
		{2, g.ackBad},
		{1, g.timed},
		{1, g.unsupported},
	}
	if len(g.w.streams) < 2 {
		choices = append(choices, choice{60, g.createStream})
	}
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	n := g.IntN(total)
	for _, c := range choices {
		if n -= c.weight; n >= 0 {
			continue
		}
		if ops := c.make(); len(ops) > 0 {
			return ops
		}
		break
	}
	return g.publish()
}

// chance is true p times of 100.
func (g *generator) chance(p int) bool { return g.IntN(100) < p }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

// stream chooses a stream that exists, mostly, or "".
func (g *generator) stream() string {
	names := g.w.names()
	if len(names) == 0 {
		return ""
	}
	return pick(g, names...)
}

// streamOrNot chooses a name for a request: seldom one that does not exist.
func (g *generator) streamOrNot() string {
	if name := g.stream(); name != "" && !g.chance(7) {
		return name
	}
	return pick(g, append(streamNames(), "NONE")...)
}

// consumer chooses a consumer that exists, or "".
func (g *generator) consumer() (stream, name string) {
	type pair struct{ stream, name string }
	var all []pair
	for _, s := range g.w.names() {
		for _, c := range slices.Sorted(maps.Keys(g.w.streams[s].consumers)) {
			all = append(all, pair{s, c})
		}
	}
	if len(all) == 0 {
		return "", ""
	}
	p := pick(g, all...)
	return p.stream, p.name
}

func (g *generator) consumerOrNot() (stream, name string) {
	if s, c := g.consumer(); s != "" && !g.chance(7) {
		return s, c
	}
	return g.streamOrNot(), pick(g, append(consumerNames(), "none")...)
}

func streamNames() []string   { return []string{"S", "T", "W", "K"} }
func consumerNames() []string { return []string{"c1", "c2", "c3", "d-1"} }

// tokens of subjects below the prefix of a stream.
func subjectTails() []string {
	return []string{"a", "b", "c", "a.x", "a.y", "b.x.1", "d$", "ü", "deep.er.est.one"}
}

// prefixOf is what the subjects of a stream begin with.
func prefixOf(stream string) string { return strings.ToLower(stream) }

// subject chooses a subject to publish to, mostly of a stream that exists.
func (g *generator) subject() string {
	name := g.stream()
	if name == "" || g.chance(3) {
		return pick(g, "nobody.home", "s.a", "t.b", "w.c", "S", "$KV.b.k")
	}
	cfg := &g.w.streams[name].info.Config
	return g.literal(pick(g, cfg.Subjects...))
}

// literal fills the wildcards of a subject.
func (g *generator) literal(subject string) string {
	toks := strings.Split(subject, ".")
	for i, t := range toks {
		switch t {
		case "*":
			toks[i] = pick(g, "a", "b", "c", "d$")
		case ">":
			toks[i] = pick(g, subjectTails()...)
		}
	}
	return strings.Join(toks, ".")
}

// filter chooses a subject with wildcards, mostly one that some message of the stream has.
func (g *generator) filter(stream string) string {
	p := prefixOf(stream)
	return pick(g, p+".a", p+".b", p+".*", p+".>", p+".a.*", p+".*.x", p+".a.>", "*.a", ">", "nothing.here", p+".a.x")
}

// fields is a JSON object in the making.
type fields map[string]any

func (f fields) json() string {
	b, err := json.Marshal(map[string]any(f))
	if err != nil {
		panic(fmt.Sprintf("differential: %v", err))
	}
	return string(b)
}

func api(verb string, names ...string) string {
	return apiPrefix + strings.Join(append([]string{verb}, names...), ".")
}

func one(op Op) Script { return Script{op} }

// level adds the header that demands an API level. Reads may ask for a level that only one side has.
func (g *generator) level() string {
	if !g.chance(5) {
		return ""
	}
	return "NATS/1.0\r\n" + jsapi.HdrRequiredLevel + ": " + pick(g, "0", "99", "x", "", "-1", "6") + "\r\n\r\n"
}
