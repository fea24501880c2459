package seglog

// tail keeps the newest entries in memory, oldest first, in a ring. It holds a gapless range that ends at the
// log's last entry, or nothing.
type tail struct {
	budget int64
	bytes  int64
	ring   []Entry
	head   int
	count  int
}

const minRing = 64

// tailCost is what an entry counts for: its bytes and a share for the entry itself.
func tailCost(e *Entry) int64 { return int64(len(e.Ext)+len(e.Data)) + 96 }

func (t *tail) slot(i int) *Entry { return &t.ring[(t.head+i)&(len(t.ring)-1)] }

func (t *tail) push(e *Entry) {
	cost := tailCost(e)
	if cost > t.budget {
		t.clear()
		return
	}
	for t.bytes+cost > t.budget {
		t.popFront()
	}
	if t.count == len(t.ring) {
		t.grow()
	}
	t.count++
	*t.slot(t.count - 1) = *e
	t.bytes += cost
}

func (t *tail) grow() {
	ring := make([]Entry, max(minRing, 2*len(t.ring)))
	for i := range t.count {
		ring[i] = *t.slot(i)
	}
	t.ring, t.head = ring, 0
}

func (t *tail) popFront() {
	e := t.slot(0)
	t.bytes -= tailCost(e)
	*e = Entry{}
	t.head = (t.head + 1) & (len(t.ring) - 1)
	t.count--
}

func (t *tail) popBack() {
	e := t.slot(t.count - 1)
	t.bytes -= tailCost(e)
	*e = Entry{}
	t.count--
}

func (t *tail) cutFrom(from uint64) {
	for t.count > 0 && t.slot(t.count-1).Index >= from {
		t.popBack()
	}
}

func (t *tail) cutBelow(first uint64) {
	for t.count > 0 && t.slot(0).Index < first {
		t.popFront()
	}
}

func (t *tail) clear() {
	t.ring, t.head, t.count, t.bytes = nil, 0, 0, 0
}

// get copies the entry out, slices shared.
func (t *tail) get(index uint64, e *Entry) bool {
	if t.count == 0 {
		return false
	}
	first := t.slot(0).Index
	if index < first || index >= first+uint64(t.count) {
		return false
	}
	*e = *t.slot(int(index - first))
	return true
}
