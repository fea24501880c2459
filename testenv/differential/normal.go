package differential

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// A view is a message without what can not be the same on both sides.
type view struct {
	Subject, Reply, Header, Body string
}

// normaliser rewrites what one side sent.
type normaliser struct {
	names  map[string]string
	prefix string
}

func (c *client) normaliser() *normaliser {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &normaliser{names: maps.Clone(c.mu.names), prefix: c.prefix}
}

func (n *normaliser) message(m *message) view {
	v := view{
		Subject: n.text(m.subject), Reply: n.text(m.reply),
		Header: ackTime.ReplaceAllString(n.text(string(m.header)), "${1}<time>."),
		Body:   n.body(m.data),
	}
	if strings.HasPrefix(m.subject, n.prefix) {
		v.Subject = "<inbox>"
	}
	if tok, ok := jsapi.ParseAckReply(m.reply); ok {
		tok.Timestamp = 0
		v.Reply = n.text(string(jsapi.AppendAckReply(nil, &tok)))
	}
	return v
}

// text replaces generated names.
func (n *normaliser) text(s string) string {
	for name, p := range n.names {
		s = strings.ReplaceAll(s, name, p)
	}
	return s
}

// body replaces generated names, and in JSON the times, durations and ids.
func (n *normaliser) body(b []byte) string {
	s := n.text(string(b))
	if !strings.HasPrefix(s, "{") {
		return s
	}
	s = timePattern.ReplaceAllStringFunc(s, func(field string) string {
		parts := timePattern.FindStringSubmatch(field)
		if t, err := time.Parse(time.RFC3339Nano, parts[2]); err == nil && given(t) {
			return field
		}
		return parts[1] + `"<time>"`
	})
	s = violators.ReplaceAllStringFunc(s, func(names string) string {
		sorted := strings.Split(strings.TrimPrefix(names, violates), ", ")
		slices.Sort(sorted)
		return violates + strings.Join(sorted, ", ")
	})
	s = apiPattern.ReplaceAllString(s, `${1}"counts":"<how often the test looked>"`)
	return scalarPattern.ReplaceAllString(s, `${1}"<${2}>"`)
}

// ackTime is the timestamp of an ack subject that stands in a header.
var ackTime = regexp.MustCompile(`(\$JS\.ACK(?:\.[^.\s]+){5}\.)[0-9]{19}\.`)

// violators are the consumers that a change of a stream would break: JetStream names them in the order of a map.
var violators = regexp.MustCompile(violates + `[^"]+`)

const violates = "change to limits violates consumers: "

// given reports whether a time was chosen by a script, or is none: the clock of the test is elsewhere.
func given(t time.Time) bool { return t.Year() < 2020 || t.Year() > 2090 }

var (
	timePattern = regexp.MustCompile(
		`("(?:created|ts|first_ts|last_ts|last_active|timestamp|time|pause_until|opt_start_time)":)"([0-9TZ:.+-]+)"`)
	scalarPattern = regexp.MustCompile(`("(pause_remaining|ack_time|id)":)(?:[0-9]+|"[A-Za-z0-9]{22}")`)
	apiPattern    = regexp.MustCompile(`("api":{"level":[0-9]+,)"total":[0-9]+,"errors":[0-9]+(?:,"inflight":[0-9]+)?`)
)

// heartbeat reports whether a message is an idle heartbeat.
func (v view) heartbeat() bool {
	return strings.HasPrefix(v.Header, "NATS/1.0 "+jsapi.StatusHeartbeat)
}

// views normalises what arrived in a box.
func (n *normaliser) views(box []message) []view {
	out := make([]view, len(box))
	for i := range box {
		out[i] = n.message(&box[i])
	}
	return out
}

// loosen leaves of a delivery what does not depend on timing: which message it is.
func (v view) loosen() view {
	if tok, ok := jsapi.ParseAckReply(v.Reply); ok {
		tok.Delivered, tok.ConsumerSeq, tok.Pending = 0, 0, 0
		v.Reply = string(jsapi.AppendAckReply(nil, &tok))
	}
	return v
}
