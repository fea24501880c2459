package ingress

// deadlines is a heap of things by the time they fall due; each stands in it at
// most once.
type deadlines[T comparable] struct {
	heap []deadline[T]
	at   map[T]int
}

type deadline[T comparable] struct {
	due  int64
	item T
}

func newDeadlines[T comparable]() *deadlines[T] { return &deadlines[T]{at: make(map[T]int)} }

// set makes item fall due at a time; 0 removes it.
func (d *deadlines[T]) set(item T, due int64) {
	i, ok := d.at[item]
	switch {
	case due == 0 && ok:
		d.remove(i)
	case due == 0:
	case ok:
		d.heap[i].due = due
		d.fix(i)
	default:
		d.heap = append(d.heap, deadline[T]{due, item})
		d.at[item] = len(d.heap) - 1
		d.up(len(d.heap) - 1)
	}
}

// next returns the earliest time, 0 if there is none.
func (d *deadlines[T]) next() int64 {
	if len(d.heap) == 0 {
		return 0
	}
	return d.heap[0].due
}

// pop removes and returns the earliest item due up to now.
func (d *deadlines[T]) pop(now int64) (item T, ok bool) {
	if len(d.heap) == 0 || d.heap[0].due > now {
		return item, false
	}
	item = d.heap[0].item
	d.remove(0)
	return item, true
}

func (d *deadlines[T]) remove(i int) {
	last := len(d.heap) - 1
	delete(d.at, d.heap[i].item)
	if i != last {
		d.heap[i] = d.heap[last]
		d.at[d.heap[i].item] = i
	}
	d.heap[last] = deadline[T]{}
	d.heap = d.heap[:last]
	if i < last {
		d.fix(i)
	}
}

func (d *deadlines[T]) fix(i int) {
	if !d.up(i) {
		d.down(i)
	}
}

func (d *deadlines[T]) up(i int) bool {
	moved := false
	for i > 0 {
		parent := (i - 1) / 2
		if d.heap[parent].due <= d.heap[i].due {
			break
		}
		d.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (d *deadlines[T]) down(i int) {
	for {
		least, l, r := i, 2*i+1, 2*i+2
		if l < len(d.heap) && d.heap[l].due < d.heap[least].due {
			least = l
		}
		if r < len(d.heap) && d.heap[r].due < d.heap[least].due {
			least = r
		}
		if least == i {
			return
		}
		d.swap(i, least)
		i = least
	}
}

func (d *deadlines[T]) swap(i, j int) {
	d.heap[i], d.heap[j] = d.heap[j], d.heap[i]
	d.at[d.heap[i].item], d.at[d.heap[j].item] = i, j
}
