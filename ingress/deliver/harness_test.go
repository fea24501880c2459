package deliver

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// memStream is a stream in memory.
type memStream struct {
	msgs        map[uint64]*record.Message
	first, last uint64
	stride      uint64 // sequences looked at by one call of Next; 0 = all
}

func newMemStream() *memStream { return &memStream{msgs: map[uint64]*record.Message{}, first: 1} }

func (s *memStream) First() uint64 { return s.first }
func (s *memStream) Last() uint64  { return s.last }

func (s *memStream) Message(seq uint64) (*record.Message, bool) {
	m, ok := s.msgs[seq]
	return m, ok
}

func (s *memStream) Next(from uint64, filters []string) (*record.Message, uint64) {
	cfg := Config{Filters: filters}
	for seq := max(from, s.first); seq <= s.last; seq++ {
		if s.stride > 0 && seq >= from+s.stride {
			return nil, seq
		}
		if m := s.msgs[seq]; m != nil && cfg.matches(m.Subject) {
			return m, 0
		}
	}
	return nil, max(s.last+1, from)
}

func (s *memStream) LastOf(subject string, upTo uint64) (uint64, bool) {
	for seq := min(upTo, s.last); seq >= s.first && seq > 0; seq-- {
		if m := s.msgs[seq]; m != nil && m.Subject == subject {
			return seq, true
		}
	}
	return 0, false
}

func (s *memStream) LastMatch(filters []string) (uint64, bool) {
	cfg := Config{Filters: filters}
	for seq := s.last; seq >= s.first && seq > 0; seq-- {
		if m := s.msgs[seq]; m != nil && cfg.matches(m.Subject) {
			return seq, true
		}
	}
	return 0, false
}

func (s *memStream) FirstMatch(filters []string) (uint64, bool) {
	m, _ := s.Next(s.first, filters)
	if m == nil {
		return 0, false
	}
	return m.Seq, true
}

func (s *memStream) LowestLast(filters []string) (uint64, bool) {
	cfg := Config{Filters: filters}
	low, ok := uint64(0), false
	for seq, m := range s.msgs {
		if l, _ := s.LastOf(m.Subject, s.last); l == seq && cfg.matches(m.Subject) && (!ok || seq < low) {
			low, ok = seq, true
		}
	}
	return low, ok
}

func (s *memStream) AtTime(t int64) (uint64, bool) {
	for seq := s.first; seq <= s.last; seq++ {
		if m := s.msgs[seq]; m != nil && m.Time >= t {
			return seq, true
		}
	}
	return 0, false
}

func (s *memStream) store(subject, payload string, now int64) uint64 {
	s.last++
	s.msgs[s.last] = &record.Message{Seq: s.last, Time: now, Subject: subject, Payload: []byte(payload)}
	return s.last
}

func (s *memStream) remove(seq uint64) *record.Message {
	m := s.msgs[seq]
	delete(s.msgs, seq)
	for s.first <= s.last && s.msgs[s.first] == nil {
		s.first++
	}
	return m
}

// rows is what the replicas hold of a consumer: changes are applied verbatim.
type rows struct {
	state   record.ConsumerState
	pending map[uint64]record.Pending
}

func (r *rows) apply(ch *command.ConsumerChange) {
	r.state = ch.State
	for _, p := range ch.Puts {
		r.pending[p.Seq] = p
	}
	for _, seq := range ch.Deletes {
		delete(r.pending, seq)
	}
	for _, span := range ch.Ranges {
		maps.DeleteFunc(r.pending, func(seq uint64, _ record.Pending) bool {
			return span[0] <= seq && seq <= span[1]
		})
	}
}

func (r *rows) sorted() []record.Pending {
	out := make([]record.Pending, 0, len(r.pending))
	for _, seq := range slices.Sorted(maps.Keys(r.pending)) {
		out = append(out, r.pending[seq])
	}
	return out
}

// clone copies a change, as laying it out in an envelope does.
func clone(ch *command.ConsumerChange) *command.ConsumerChange {
	n := *ch
	n.Puts, n.Deletes, n.Ranges = slices.Clone(ch.Puts), slices.Clone(ch.Deletes), slices.Clone(ch.Ranges)
	return &n
}

// load makes a consumer of stored rows.
func load(cfg Config, s *memStream, interest Interest, r *rows, now int64) *Consumer {
	st := r.state
	n := CountPending(s, &st, cfg.Filters)
	return New(cfg, s, interest, &Loaded{Cursor: st, Pending: r.sorted(), NumPending: n, Now: now})
}

func always(string, int64) bool { return true }

// format prints an action on one line.
func format(c *Consumer, a *Action) string {
	switch a.Kind {
	case ActDeliver:
		r := c.AckReply(a)
		return fmt.Sprintf("%s <- %s %q %s", a.To, a.Message.Subject, a.Message.Payload,
			jsapi.AppendAckReply(nil, &r))
	case ActStatus:
		lines := strings.Split(strings.TrimSuffix(string(a.Header), "\r\n\r\n"), "\r\n")
		text := strings.TrimPrefix(lines[0], "NATS/1.0 ")
		text = fmt.Sprintf("%s <- %s [%s]", a.To, text, strings.Join(lines[1:], ", "))
		return strings.TrimSuffix(text, " []")
	case ActReply:
		return fmt.Sprintf("%s <- (empty)", a.To)
	case ActSettle:
		return fmt.Sprintf("settle %d", a.Seq)
	case ActMaxDeliver:
		return fmt.Sprintf("advise max_deliver seq=%d deliveries=%d", a.Seq, a.Delivered)
	case ActNaked:
		return fmt.Sprintf("advise nak seq=%d cseq=%d deliveries=%d", a.Seq, a.ConsumerSeq, a.Delivered)
	case ActTerminated:
		return strings.TrimRight(fmt.Sprintf("advise terminated seq=%d cseq=%d deliveries=%d %s",
			a.Seq, a.ConsumerSeq, a.Delivered, a.Reason), " ")
	case ActSampled:
		return fmt.Sprintf("advise ack seq=%d cseq=%d deliveries=%d after=%dms",
			a.Seq, a.ConsumerSeq, a.Delivered, a.Elapsed/1e6)
	case ActResumed:
		return "advise resumed"
	case ActExpire:
		return "expire"
	}
	return "unknown action"
}
