package plan

import "github.com/holdfast-mq/holdfast/storage/record"

// Tail keeps the newest messages of a stream in memory, without gaps in
// sequence from its first one: the part of a stream that its consumers read
// most. A sequence without a message (absent, removed) is a nil entry.
type Tail struct {
	base  uint64 // sequence of msgs[0]
	msgs  []*record.Message
	live  int // entries that hold a message
	bytes int
}

const (
	tailEntry = 64 // what an entry costs beside its bytes
	// gapFactor and gapSlack bound the entries for each one that holds a message: one old
	// message must not keep an entry for everything that came and went after it.
	gapFactor = 4
	gapSlack  = 1024
)

func tailSize(m *record.Message) int {
	if m == nil {
		return 0
	}
	return tailEntry + len(m.Subject) + len(m.Header) + len(m.Payload)
}

// Start empties the tail; the next message appended has sequence next.
func (t *Tail) Start(next uint64) { *t = Tail{base: next, msgs: t.msgs[:0]} }

// Append adds the message of the next sequence; nil for a consumed one.
func (t *Tail) Append(m *record.Message) {
	t.msgs = append(t.msgs, m)
	t.bytes += tailSize(m)
	if m != nil {
		t.live++
	}
}

// Base returns the first sequence that the tail knows about.
func (t *Tail) Base() uint64 { return t.base }

// Get returns the message of seq, nil if it has none, and whether the tail knows.
func (t *Tail) Get(seq uint64) (m *record.Message, known bool) {
	if seq < t.base || seq >= t.base+uint64(len(t.msgs)) {
		return nil, false
	}
	return t.msgs[seq-t.base], true
}

// Drop forgets the message of seq.
func (t *Tail) Drop(seq uint64) {
	if _, ok := t.Get(seq); ok {
		t.clear(int(seq - t.base))
	}
}

// clear empties an entry.
func (t *Tail) clear(i int) {
	if m := t.msgs[i]; m != nil {
		t.bytes -= tailSize(m)
		t.live--
		t.msgs[i] = nil
	}
}

// Cut removes everything above seq.
func (t *Tail) Cut(seq uint64) {
	for n := len(t.msgs); n > 0 && t.base+uint64(n)-1 > seq; n = len(t.msgs) {
		t.clear(n - 1)
		t.msgs = t.msgs[:n-1]
	}
	if len(t.msgs) == 0 && t.base > seq+1 {
		t.base = seq + 1
	}
}

// Evict drops the oldest entries, none above applied, until the tail holds at
// most limit bytes and not too many entries for its messages; leading nil entries
// go in any case. It returns the bytes freed.
func (t *Tail) Evict(limit int, applied uint64) int {
	before, n := t.bytes, 0
	for n < len(t.msgs) && t.base+uint64(n) <= applied &&
		(t.bytes > limit || t.msgs[n] == nil || len(t.msgs)-n > gapFactor*t.live+gapSlack) {
		t.clear(n)
		n++
	}
	if n == 0 {
		return 0
	}
	t.base += uint64(n)
	t.msgs = t.msgs[n:]
	if cap(t.msgs) > 1024 && len(t.msgs)*4 < cap(t.msgs) {
		t.msgs = append(make([]*record.Message, 0, 2*len(t.msgs)), t.msgs...)
	}
	return before - t.bytes
}

// Bytes returns what the tail holds, in bytes of messages.
func (t *Tail) Bytes() int { return t.bytes }
