package deliver

import (
	"strconv"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// ActionKind is what the owner is to do.
type ActionKind uint8

// The kinds of actions.
const (
	// ActDeliver sends Message to To; Consumer.AckReply makes its reply subject. The owner
	// that certainly sent nothing calls Consumer.Unsent.
	ActDeliver ActionKind = iota + 1
	// ActStatus sends a message without a body, of Header alone, to To.
	ActStatus
	// ActReply sends an empty message to To: the answer to a double ack.
	ActReply
	// ActSettle: this consumer does not need the message Seq any more. The owner
	// removes it if the retention of the stream says so, in the same envelope
	// as the change that TakeChange gives next. It may come again after Failed.
	ActSettle
	// ActMaxDeliver, ActNaked and ActTerminated are advisories about Seq.
	ActMaxDeliver
	ActNaked
	ActTerminated
	// ActSampled reports an ack that came Elapsed nanoseconds after the delivery.
	ActSampled
	// ActResumed is the advisory that a pause is over.
	ActResumed
	// ActExpire: nobody used the consumer for its inactive threshold; it should be deleted.
	ActExpire
)

// Action is one thing for the owner to do. Which fields are set depends on Kind.
type Action struct {
	Kind    ActionKind
	To      string
	Header  []byte // ActStatus
	Message *record.Message
	// Seq is the stream sequence, ConsumerSeq that of the delivery meant,
	// Delivered how often the message was delivered, Pending how many messages
	// the consumer has left after this one.
	Seq, ConsumerSeq, Delivered, Pending uint64
	Elapsed                              int64  // ActSampled
	Reason                               string // ActTerminated
}

// AckReply is the reply subject of a delivery.
func (c *Consumer) AckReply(a *Action) jsapi.AckReply {
	return jsapi.AckReply{
		Domain: c.cfg.Domain, Account: c.cfg.Account, Stream: c.cfg.Stream, Consumer: c.cfg.Name,
		Delivered: a.Delivered, StreamSeq: a.Seq, ConsumerSeq: a.ConsumerSeq,
		Timestamp: a.Message.Time, Pending: a.Pending,
	}
}

// AppendHeadersOnly appends the header block of a message delivered without its
// payload: its own headers, and the size of what was left out.
func AppendHeadersOnly(dst []byte, m *record.Message) []byte {
	dst = jsapi.BeginHeader(dst, m.Header)
	dst = jsapi.AppendHeaderUint(dst, jsapi.HdrMsgSize, uint64(len(m.Payload)))
	return jsapi.EndHeader(dst)
}

// ackBase is the length of the part of a reply subject that all deliveries share.
func ackBase(cfg *Config) int {
	n := len("$JS.ACK..") + len(cfg.Stream) + len(cfg.Name) + 5
	if cfg.Account != "" {
		n += max(len(cfg.Domain), 1) + len(cfg.Account) + 2
	}
	return n
}

// size is what a delivery counts against the max_bytes of a request.
func (c *Consumer) size(l *letter) int {
	m := l.msg
	n := ackBase(&c.cfg) + len(m.Subject)
	for _, v := range [...]uint64{l.count, m.Seq, l.cseq, uint64(max(m.Time, 0)), l.pending} {
		n += digits(v)
	}
	if !c.cfg.HeadersOnly {
		return n + len(m.Header) + len(m.Payload)
	}
	n += jsapi.OpenHeaderLen(m.Header) + len("\r\n")
	return n + len(jsapi.HdrMsgSize) + len(": \r\n") + digits(uint64(len(m.Payload)))
}

func digits(v uint64) int {
	var b [20]byte
	return len(strconv.AppendUint(b[:0], v, 10))
}

func status(to, text string) Action {
	return Action{Kind: ActStatus, To: to, Header: jsapi.AppendStatus(nil, text)}
}
