package publish

import (
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Texts of 10008 on a publish: what the publisher knows and should do.
const (
	TextUnknown   = "outcome unknown, retry with the same Nats-Msg-Id"
	TextNotStored = "not stored, retry"
)

// Replier sends the answers.
type Replier interface {
	// Reply sends header block (may be nil) and body to a reply subject.
	Reply(subject string, header, body []byte)
	// Provisional sends an ack of a message that is not committed: now, while this node
	// may answer as leader, or never. It says whether it was sent.
	Provisional(subject string, header, body []byte) bool
}

// Target is the stream that a publish goes to. Config and Levels are replaced as
// a whole when the stream is updated.
type Target struct {
	ID     record.StreamID
	Config *jsapi.StreamConfig
	Levels jsapi.AckLevels
	Domain string
	// Floor is the weakest level that the server accepts.
	Floor jsapi.AckLevel
	// Full says that there is no room for new messages. May be nil.
	Full func() bool
	// Hear is told what rollups do. May be nil.
	Hear Purged
}

// Purged hears what a rollup does, for the consumers of the stream.
type Purged interface {
	// Hush is told of each message that goes, when that is planned.
	Hush(seq uint64)
	// Purged is told of the subject that was purged ("" for all) when that is applied.
	Purged(subject string)
}

// Op is one publish. Header and payload are kept.
type Op struct {
	plan.OpBase
	target  *Target
	out     Replier
	subject string
	reply   string
	header  []byte
	payload []byte
	h       jsapi.PublishHeaders
	level   jsapi.AckLevel

	replied bool
	planned bool // stored once: when it is planned again, it has to be stored
	err     *jsapi.Error
	ack     jsapi.PubAck
}

// overhead is what an operation costs beside its bytes.
const overhead = 512

// New returns the operation of a message. Its Size is set; the owner sets Arrived.
func New(target *Target, out Replier, m *record.Message, reply string) *Op {
	o := &Op{
		target: target, out: out, subject: m.Subject, reply: reply,
		header: m.Header, payload: m.Payload, level: jsapi.LevelQuorum,
	}
	if len(m.Header) > 0 {
		o.h.Parse(m.Header)
	}
	o.Size = overhead + len(m.Subject) + len(reply) + len(m.Header) + len(m.Payload)
	o.replied = reply == "" || target.Config.NoAck
	return o
}

// Base implements plan.Op.
func (o *Op) Base() *plan.OpBase { return &o.OpBase }

// Refuse answers without planning.
func (o *Op) Refuse(e *jsapi.Error) {
	o.err = e
	o.answer()
}

// Plan implements plan.Op.
func (o *Op) Plan(p *plan.Planner) uint64 {
	o.err, o.ack = nil, jsapi.PubAck{Stream: o.target.Config.Name, Domain: o.target.Domain}
	s, err := p.Open(o.target.ID)
	if err != nil {
		o.err = jsapi.NewError(jsapi.CodeStreamNotFound)
		return 0
	}
	if o.err = o.checkMessage(); o.err != nil {
		return 0
	}
	rests, stop := o.checkPlan(s)
	if stop {
		return rests
	}
	o.store(s)
	o.planned = true
	if o.level == jsapi.LevelNone {
		o.provisional()
	}
	return p.Tick()
}

// Durable sends the leader ack, if that is what was asked for: the leader has
// fsynced the message.
func (o *Op) Durable() {
	if o.level == jsapi.LevelLeader && o.err == nil && !o.ack.Duplicate {
		o.provisional()
	}
}

// provisional sends an ack of a message that is not committed. If that can not be said
// now, the publish is answered by the quorum, or at the end of the term.
func (o *Op) provisional() {
	if o.replied {
		return
	}
	var buf [192]byte
	header, body := o.puback(buf[:0])
	o.replied = o.out.Provisional(o.reply, header, body)
}

// Done implements plan.Op.
func (o *Op) Done(*plan.Planner) {
	if o.level == jsapi.LevelLeader && !o.ack.Duplicate {
		o.level = jsapi.LevelQuorum // the ack says what was reached
	}
	if len(o.h.Rollup) > 0 && o.err == nil && !o.ack.Duplicate && o.target.Hear != nil {
		subject := o.subject
		if kind, _ := o.h.RollupKind(); kind == jsapi.RollupAll {
			subject = ""
		}
		o.target.Hear.Purged(subject)
	}
	o.answer()
}

// Fail implements plan.Op.
func (o *Op) Fail(certain bool) { //nolint:revive // the flag is what is known, not a choice
	text := TextUnknown
	if certain {
		text = TextNotStored
	}
	o.err = jsapi.WithText(jsapi.CodeClusterNotAvail, text)
	o.answer()
}

func (o *Op) answer() {
	if o.replied {
		return
	}
	o.replied = true
	var buf [192]byte
	if o.err != nil {
		body := jsapi.AppendPubError(buf[:0], o.target.Config.Name, o.err)
		var header []byte
		if o.err.ErrCode == jsapi.CodeStreamTooManyRequests {
			header = jsapi.AppendStatus(nil, jsapi.StatusTooManyRequests)
		}
		o.out.Reply(o.reply, header, body)
		return
	}
	header, body := o.puback(buf[:0])
	o.out.Reply(o.reply, header, body)
}

// puback returns the ack of what was reached; it is appended to buf.
func (o *Op) puback(buf []byte) (header, body []byte) {
	ack := o.ack
	switch o.level {
	case jsapi.LevelNone:
		ack.Seq = 0
		header = levelHeader(o.level)
	case jsapi.LevelLeader:
		header = levelHeader(o.level)
	default:
	}
	return header, jsapi.AppendPubAck(buf, &ack)
}

func levelHeader(l jsapi.AckLevel) []byte {
	return jsapi.EndHeader(jsapi.AppendHeader(jsapi.BeginHeader(nil, nil), jsapi.HdrHoldfastAck, l.String()))
}
