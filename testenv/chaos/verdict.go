package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

// Count is what became of the publishes of one level.
type Count struct{ Sent, Acked, Read, Lost int }

// Verdict is what a run showed.
type Verdict struct {
	All, Work  map[string]*Count // by level
	Reordered  []string
	Changed    []string
	Duplicates []string
	AfterAck   []string
	Errors     int
}

// Failed names what must not be; empty = the run is good.
func (v *Verdict) Failed() string {
	var bad []string
	for name, counts := range map[string]map[string]*Count{streamAll: v.All, streamWork: v.Work} {
		if c := counts["quorum"]; c == nil || c.Acked == 0 {
			bad = append(bad, name+": nothing was acked at quorum, so nothing was tested")
		} else if c.Lost > 0 {
			bad = append(bad, fmt.Sprintf("%s: %d messages acked at quorum are lost", name, c.Lost))
		}
	}
	for what, list := range map[string][]string{
		"reordered": v.Reordered, "changed": v.Changed, "duplicates": v.Duplicates, "after ack": v.AfterAck,
	} {
		if len(list) > 0 {
			bad = append(bad, fmt.Sprintf("%s: %d, first %s", what, len(list), list[0]))
		}
	}
	return strings.Join(bad, "; ")
}

// String is a table.
func (v *Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-6s %-7s %8s %8s %8s %6s\n", "stream", "level", "sent", "acked", "read", "lost")
	for _, row := range []struct {
		name   string
		counts map[string]*Count
	}{{streamAll, v.All}, {streamWork, v.Work}} {
		for _, level := range []string{"quorum", "leader", "none"} {
			if c := row.counts[level]; c != nil {
				fmt.Fprintf(&b, "%-6s %-7s %8d %8d %8d %6d\n", row.name, level, c.Sent, c.Acked, c.Read, c.Lost)
			}
		}
	}
	fmt.Fprintf(&b, "reordered %d, changed %d, duplicates %d, delivered after a confirmed ack %d, failed tries %d\n",
		len(v.Reordered), len(v.Changed), len(v.Duplicates), len(v.AfterAck), v.Errors)
	return b.String()
}

// Judge drains the work queue, reads everything back with a client of its own and
// judges. The load must have stopped; all nodes should run.
func (l *Load) Judge(ctx context.Context) (*Verdict, error) {
	nc, js, err := l.connect("reader")
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	if err := l.drain(ctx, js); err != nil {
		return nil, fmt.Errorf("draining the work queue: %w", err)
	}
	v := &Verdict{All: map[string]*Count{}, Work: map[string]*Count{}}
	read, err := l.readAll(ctx, js, v)
	if err != nil {
		return nil, fmt.Errorf("reading everything back: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	count(v.All, l.saw.all, func(id string) bool { _, ok := read[id]; return ok })
	count(v.Work, l.saw.work, func(id string) bool { return l.saw.seen[id] > 0 })
	for _, p := range l.saw.all {
		if seq, ok := read[p.id]; ok && p.acked && p.level == "quorum" && seq != p.seq {
			v.Changed = append(v.Changed, fmt.Sprintf("%s was acked as %d and is %d", p.id, p.seq, seq))
		}
	}
	v.AfterAck, v.Errors = l.saw.afterAck, l.saw.errors
	return v, nil
}

func count(into map[string]*Count, list []*published, read func(string) bool) {
	for _, p := range list {
		c := into[p.level]
		if c == nil {
			c = &Count{}
			into[p.level] = c
		}
		c.Sent++
		got := read(p.id)
		switch {
		case p.acked && !got:
			c.Acked++
			c.Lost++
		case p.acked:
			c.Acked++
			c.Read++
		case got:
			c.Read++
		}
	}
}

// drain works until the queue has nothing left that could be delivered.
func (l *Load) drain(ctx context.Context, js jetstream.JetStream) error {
	begin, left := time.Now(), "the consumer never answered"
	for round := 0; ; round++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("after %d fetches in %v: %s: %w", round, time.Since(begin).Round(time.Millisecond), left, err)
		}
		l.fetch(ctx, js, 500, l.plain)
		c, err := workers(ctx, js)
		if err != nil {
			left = err.Error()
			continue
		}
		info := c.CachedInfo()
		if info.NumPending == 0 && info.NumAckPending == 0 {
			return nil
		}
		left = fmt.Sprintf("%d to deliver, %d to ack", info.NumPending, info.NumAckPending)
	}
}

// readAll reads the stream that keeps everything; it returns sequences by id.
func (l *Load) readAll(ctx context.Context, js jetstream.JetStream, v *Verdict) (map[string]uint64, error) {
	c, end, err := reader(ctx, js)
	if err != nil {
		return nil, err
	}
	read := make(map[string]uint64)
	last := uint64(0)
	for last < end {
		b, err := c.Fetch(1000, jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			return nil, err
		}
		for m := range b.Messages() {
			if last, err = v.note(m, read, last); err != nil {
				return nil, err
			}
		}
		if err := b.Error(); err != nil && !errors.Is(err, nats.ErrTimeout) {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	return read, nil
}

// reader creates a consumer of the stream that keeps everything, and returns the stream's last sequence.
func reader(ctx context.Context, js jetstream.JetStream) (c jetstream.Consumer, end uint64, err error) {
	err = process.Until(ctx, func() error {
		try, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		s, err := js.Stream(try, streamAll)
		if err != nil {
			return err
		}
		end = s.CachedInfo().State.LastSeq
		c, err = js.CreateConsumer(try, streamAll, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
		return err
	})
	return c, end, err
}

// note takes in one message read back; it returns its sequence.
func (v *Verdict) note(m jetstream.Msg, read map[string]uint64, last uint64) (uint64, error) {
	meta, err := m.Metadata()
	if err != nil {
		return last, err
	}
	id, seq := string(m.Data()), meta.Sequence.Stream
	if seq <= last {
		v.Reordered = append(v.Reordered, fmt.Sprintf("%d after %d", seq, last))
	}
	if at, ok := read[id]; ok {
		v.Duplicates = append(v.Duplicates, fmt.Sprintf("%s at %d and %d", id, at, seq))
	}
	read[id] = seq
	return seq, nil
}
