package jepsen

import (
	"slices"
	"sync"
	"time"
)

// Outcome is what a client knows of what it asked for.
type Outcome string

// Outcomes.
const (
	Acked   Outcome = "acked"   // it happened
	Unknown Outcome = "unknown" // it may have happened, or may yet
	Refused Outcome = "refused" // it did not happen, and will not
)

// Moment is a time since the start of the run.
type Moment = time.Duration

// Never is later than every Moment.
const Never Moment = 1<<63 - 1

// Publish is one publish; the id is its payload, "<writer>-<counter>", and occurs once.
type Publish struct {
	ID      string
	Stream  string
	Writer  int
	Counter int
	Invoke  Moment
	Return  Moment
	Outcome Outcome
	Seq     uint64 // of the PubAck
	Error   string
}

// Delivery is one copy of a message of the work queue.
type Delivery struct {
	ID    string
	Seq   uint64
	Count uint64 // deliveries so far, as the server says
	Node  string // that the client is connected to
	Asked Moment // when the pull that it answers was sent
	At    Moment
}

// Settle is one double ack.
type Settle struct {
	ID        string
	Seq       uint64
	Invoke    Moment
	Return    Moment
	Confirmed bool
}

// RegisterOp is one operation on a register: a subject whose state is its last sequence.
type RegisterOp struct {
	Subject string
	// ID is the payload of a write, empty for a read.
	ID     string
	Invoke Moment
	Return Moment
	// Expected is the sequence that a write asks for.
	Expected uint64
	Outcome  Outcome
	// Seq is what was read, or written, or what a refused write was told is there.
	Seq uint64
}

// Lookup is an answer to a read of a register whose client waits for long, and takes every answer.
type Lookup struct {
	Subject string
	Node    string // that the client is connected to
	Invoke  Moment
	Return  Moment
	Seq     uint64 // of the last message of the subject, 0: there is none
}

// Interval is the time of a fault.
type Interval struct {
	Name       string
	Begin, End Moment
}

// Entry is one message as it was read back.
type Entry struct {
	Seq uint64
	ID  string
}

// Reads is what a stream held, as read through one node.
type Reads struct {
	Node    string
	Stream  string
	Leader  string // of the reader; Node, unless that could not be brought about
	Entries []Entry
}

// Hash is the state of one replica.
type Hash struct {
	Node  string `json:"node"`
	Group int    `json:"group"`
	Index uint64 `json:"index"`
	Rows  uint64 `json:"rows"`
	Sum   string `json:"sum"`
}

// Replica is a place where a group must have a state at the end.
type Replica struct {
	Node  string
	Group int
}

// History is all that clients saw. Safe for concurrent use while a run fills it in.
type History struct {
	Publishes  []Publish
	Deliveries []Delivery
	Settles    []Settle
	Registers  []RegisterOp
	Lookups    []Lookup
	Reads      []Reads
	Hashes     []Hash
	// Replicas are those whose states must be among Hashes.
	Replicas []Replica
	// Excused are the times in which a node was paused or cut off.
	Excused []Interval
	// Held are the moments in which a node was paused or isolated: a fault may hold one after another.
	Held []Moment
	// Drained says that the work queue was empty at the end.
	Drained bool
	// Unready says why the cluster did not come back, empty if it did.
	Unready string

	mu    sync.Mutex // guards the lists
	start time.Time
	acked int
}

// newHistory starts the clock of a run.
func newHistory() *History { return &History{start: time.Now()} }

func (h *History) now() Moment { return time.Since(h.start) }

func (h *History) publish(p Publish) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Publishes = append(h.Publishes, p)
	if p.Outcome == Acked {
		h.acked++
	}
}

func (h *History) delivery(d Delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Deliveries = append(h.Deliveries, d)
}

func (h *History) settle(s Settle) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Settles = append(h.Settles, s)
}

func (h *History) register(op RegisterOp) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Registers = append(h.Registers, op)
}

func (h *History) lookup(l Lookup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Lookups = append(h.Lookups, l)
}

func (h *History) excuse(i Interval) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Excused = append(h.Excused, i)
}

// hold notes that a node is being paused or isolated.
func (h *History) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Held = append(h.Held, h.now())
}

// unready notes why the cluster did not come back.
func (h *History) unready(err error) {
	if h.Unready != "" {
		h.Unready += "; "
	}
	h.Unready += err.Error()
}

// gap is the longest time within an interval in which no publish was acked.
func (h *History) gap(begin, end Moment) Moment {
	h.mu.Lock()
	defer h.mu.Unlock()
	acks := []Moment{begin, end}
	for _, p := range h.Publishes {
		if p.Outcome == Acked && p.Return > begin && p.Return < end {
			acks = append(acks, p.Return)
		}
	}
	slices.Sort(acks)
	longest := Moment(0)
	for i := 1; i < len(acks); i++ {
		longest = max(longest, acks[i]-acks[i-1])
	}
	return longest
}

// counts are the publishes and acked publishes so far.
func (h *History) counts() (sent, acked int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.Publishes), h.acked
}
