package plan

// Overlay holds the values that differ from the applied state because the
// change that makes them is in flight. Not safe for concurrent use. The zero
// Overlay is ready.
type Overlay[K comparable, V any] struct {
	m map[K]overlaid[V]
	q []mark[K]
	h int // head of q
}

type overlaid[V any] struct {
	v    V
	tick uint64
}

type mark[K comparable] struct {
	tick uint64
	k    K
}

// Get returns the planned value of k, if a change of it is in flight.
func (o *Overlay[K, V]) Get(k K) (v V, ok bool) {
	e, ok := o.m[k]
	return e.v, ok
}

// Put sets the planned value of k by a change in the envelope tick; ticks never
// fall. It says whether this is the first change of k in that envelope.
func (o *Overlay[K, V]) Put(k K, v V, tick uint64) (first bool) {
	if o.m == nil {
		o.m = make(map[K]overlaid[V])
	}
	old, ok := o.m[k]
	o.m[k] = overlaid[V]{v, tick}
	if ok && old.tick == tick {
		return false
	}
	o.q = append(o.q, mark[K]{tick, k})
	return true
}

// Applied drops every entry whose last change is in an envelope up to tick,
// calling f (if given) for each before it goes.
func (o *Overlay[K, V]) Applied(tick uint64, f func(K, V)) {
	for o.h < len(o.q) && o.q[o.h].tick <= tick {
		k := o.q[o.h].k
		if e, ok := o.m[k]; ok && e.tick <= tick {
			if f != nil {
				f(k, e.v)
			}
			delete(o.m, k)
		}
		o.h++
	}
	if o.h == len(o.q) {
		o.q, o.h = o.q[:0], 0
	} else if o.h > len(o.q)/2 {
		n := copy(o.q, o.q[o.h:])
		clear(o.q[n:])
		o.q, o.h = o.q[:n], 0
	}
}

// Reset drops all entries.
func (o *Overlay[K, V]) Reset() { *o = Overlay[K, V]{} }

// Len returns the number of entries.
func (o *Overlay[K, V]) Len() int { return len(o.m) }

// All calls f for every entry, in no order, until it returns false.
func (o *Overlay[K, V]) All(f func(K, V) bool) {
	for k, e := range o.m {
		if !f(k, e.v) {
			return
		}
	}
}
