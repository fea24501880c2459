package deliver

import "github.com/holdfast-mq/holdfast/storage/record"

// home is where a pending message waits.
type home uint8

const (
	homeNone  home = iota // nowhere: its delivery is not sent yet
	homeWait              // in the list of ack waits
	homeHeap              // in the heap, an ack wait out of order
	homeDelay             // in the heap, a nak that waits for its delay
	homeQueue             // in the redelivery queue
)

// slot is one delivered and not settled message: the row, and where it waits.
type slot struct {
	seq, cseq, last uint64 // stream sequence; consumer sequence of the first and the last delivery
	delivered, due  int64
	count           uint32
	prev, next      int32 // neighbours in its list; next also chains free slots
	pos             int32 // in the heap
	kind            record.PendingKind
	home            home
	dirty           bool   // row differs from what was handed over
	stored          bool   // a row may be in the store
	late            bool   // an earlier delivery was acked after this one was sent
	epoch           uint16 // of the filters it was delivered under
}

// ref is an element of the order; slot 0 is a removed one.
type ref struct {
	seq  uint64
	slot int32
}

// list is a doubly linked list of slots; 0 is none.
type list struct{ head, tail int32 }

// table holds the pending messages of a consumer. They come in ascending
// sequence, so an ordered slice finds them, gives the lowest and walks them; the
// slots do not move. Slot 0 is unused. The zero table is ready.
type table struct {
	slots []slot
	free  int32
	order []ref
	head  int // first live element of order
	dead  int // removed elements of order at or above head
	n     int

	wait  list // by due time
	queue list // in order of redelivery
	heap  []int32
	// scratch is reused by whoever gathers slots.
	scratch []int32

	queued      int // in the redelivery queue
	redelivered int // delivered more than once
}

func (t *table) at(i int32) *slot { return &t.slots[i] }

// find returns the slot of seq, 0 if it is not pending.
func (t *table) find(seq uint64) int32 {
	if i, ok := t.search(seq); ok {
		return t.order[i].slot
	}
	return 0
}

// search returns the first position in the order at or above seq, and whether seq is alive there.
func (t *table) search(seq uint64) (int, bool) {
	lo, hi := t.head, len(t.order)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); t.order[mid].seq < seq {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, lo < len(t.order) && t.order[lo].seq == seq && t.order[lo].slot != 0
}

// add makes a slot for seq, which is above all that were ever added.
func (t *table) add(seq uint64) int32 {
	i := t.free
	if i != 0 {
		t.free = t.slots[i].next
	} else {
		if len(t.slots) == 0 {
			t.slots = append(t.slots, slot{})
		}
		i = int32(len(t.slots))
		t.slots = append(t.slots, slot{})
	}
	t.slots[i] = slot{seq: seq}
	t.order = append(t.order, ref{seq, i})
	t.n++
	return i
}

// remove takes a slot out of everything.
func (t *table) remove(i int32) {
	s := t.at(i)
	t.unlink(i)
	if s.count > 1 {
		t.redelivered--
	}
	if at, ok := t.search(s.seq); ok {
		t.order[at].slot = 0
		t.dead++
	}
	t.n--
	*s = slot{next: t.free}
	t.free = i
	t.tidy()
}

// tidy keeps the order short: at most as many removed elements as live ones, and a few.
func (t *table) tidy() {
	for t.head < len(t.order) && t.order[t.head].slot == 0 {
		t.head++
		t.dead--
	}
	const few = 64
	if t.head+t.dead <= t.n+few {
		return
	}
	live := t.order[:0]
	for _, r := range t.order[t.head:] {
		if r.slot != 0 {
			live = append(live, r)
		}
	}
	t.order, t.head, t.dead = live, 0, 0
}

// lowest returns the slot of the lowest sequence, 0 if none is pending.
func (t *table) lowest() int32 {
	if t.n == 0 {
		return 0
	}
	return t.order[t.head].slot
}

// unlink takes a slot out of where it waits.
func (t *table) unlink(i int32) {
	s := t.at(i)
	switch s.home {
	case homeWait:
		t.cut(&t.wait, s)
	case homeQueue:
		t.cut(&t.queue, s)
		t.queued--
	case homeHeap, homeDelay:
		t.heapRemove(int(s.pos))
	case homeNone:
	}
	s.home = homeNone
}

func (t *table) cut(l *list, s *slot) {
	if s.prev != 0 {
		t.slots[s.prev].next = s.next
	} else {
		l.head = s.next
	}
	if s.next != 0 {
		t.slots[s.next].prev = s.prev
	} else {
		l.tail = s.prev
	}
	s.prev, s.next = 0, 0
}

func (t *table) push(l *list, i int32, h home) {
	s := t.at(i)
	s.prev, s.next, s.home = l.tail, 0, h
	if l.tail != 0 {
		t.slots[l.tail].next = i
	} else {
		l.head = i
	}
	l.tail = i
}

// arm lets a slot wait for its due time. Ack waits mostly come in the order of
// their due times and go to a list; what does not goes to a heap, and so do
// delayed naks, which would stop the list from taking ack waits.
func (t *table) arm(i int32) {
	t.unlink(i)
	s := t.at(i)
	if s.kind != record.PendingNak && (t.wait.tail == 0 || t.at(t.wait.tail).due <= s.due) {
		t.push(&t.wait, i, homeWait)
		return
	}
	s.home, s.pos = homeHeap, int32(len(t.heap))
	if s.kind == record.PendingNak {
		s.home = homeDelay
	}
	t.heap = append(t.heap, i)
	t.up(int(s.pos))
}

// requeue puts a slot at the end of the redelivery queue.
func (t *table) requeue(i int32) {
	t.unlink(i)
	t.push(&t.queue, i, homeQueue)
	t.queued++
}

// due returns the slot that falls due first, 0 if none waits.
func (t *table) due() int32 {
	i := t.wait.head
	if len(t.heap) > 0 && (i == 0 || t.at(t.heap[0]).due < t.at(i).due) {
		i = t.heap[0]
	}
	return i
}

func (t *table) less(a, b int) bool { return t.at(t.heap[a]).due < t.at(t.heap[b]).due }

func (t *table) swap(a, b int) {
	t.heap[a], t.heap[b] = t.heap[b], t.heap[a]
	t.at(t.heap[a]).pos, t.at(t.heap[b]).pos = int32(a), int32(b)
}

func (t *table) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !t.less(i, p) {
			return
		}
		t.swap(i, p)
		i = p
	}
}

func (t *table) down(i int) {
	for {
		k := 2*i + 1
		if k >= len(t.heap) {
			return
		}
		if k+1 < len(t.heap) && t.less(k+1, k) {
			k++
		}
		if !t.less(k, i) {
			return
		}
		t.swap(k, i)
		i = k
	}
}

func (t *table) heapRemove(i int) {
	last := len(t.heap) - 1
	t.swap(i, last)
	t.heap = t.heap[:last]
	if i < last {
		t.down(i)
		t.up(i)
	}
}
