package storage

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2"
)

// write lays the batch out: first every range delete, then for each row the last
// change that no later range delete covers, in key order.
//
// This is the same state as the changes in the order they were made: a row is
// what its last change says, and a range delete is the last change of the rows
// it covers that have no later one. Sorted keys cost a third in the memtable,
// and rows that every envelope of an apply rewrites are written once.
func (b *Batch) write(pb *pebble.Batch) error {
	slices.SortFunc(b.ranges, func(x, y rangeOp) int {
		return bytes.Compare(b.arena[x.start:x.mid], b.arena[y.start:y.mid])
	})
	if err := b.writeRanges(pb); err != nil {
		return err
	}
	cover := coverage{b: b}
	for i := range b.ops {
		ops := b.ops[i]
		if !slices.IsSortedFunc(ops, b.compare) {
			slices.SortFunc(ops, b.compare)
		}
		for j := range ops {
			o := &ops[j]
			key := b.key(o)
			if j+1 < len(ops) && bytes.Equal(key, b.key(&ops[j+1])) {
				continue
			}
			last, covered := cover.at(key)
			// A delete within a range that is deleted anyway needs no tombstone of its own.
			if covered && (o.del || o.order < last) {
				continue
			}
			if err := b.writeOp(pb, o); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Batch) key(o *op) []byte { return b.arena[o.key:o.val] }

// compare orders changes by key, those of one row by when they were made.
func (b *Batch) compare(x, y op) int {
	return cmp.Or(bytes.Compare(b.key(&x), b.key(&y)), cmp.Compare(x.order, y.order))
}

func (b *Batch) writeOp(pb *pebble.Batch, o *op) error {
	switch {
	case o.del:
		return pb.Delete(b.key(o), nil)
	case o.ext != nil:
		return pb.Set(b.key(o), o.ext, nil)
	default:
		return pb.Set(b.key(o), b.arena[o.val:o.end], nil)
	}
}

// writeRanges writes the ranges, those that overlap or meet as one.
func (b *Batch) writeRanges(pb *pebble.Batch) error {
	for i := 0; i < len(b.ranges); {
		start := b.arena[b.ranges[i].start:b.ranges[i].mid]
		end := b.arena[b.ranges[i].mid:b.ranges[i].end]
		for i++; i < len(b.ranges); i++ {
			r := &b.ranges[i]
			if bytes.Compare(b.arena[r.start:r.mid], end) > 0 {
				break
			}
			if e := b.arena[r.mid:r.end]; bytes.Compare(e, end) > 0 {
				end = e
			}
		}
		if err := pb.DeleteRange(start, end, nil); err != nil {
			return err
		}
	}
	return nil
}

// size estimates the batch's serialized form, so that it is allocated once.
func (b *Batch) size() int {
	const perOp = 12
	n := len(b.arena) + perOp*len(b.ranges)
	for i := range b.ops {
		n += perOp * len(b.ops[i])
		for j := range b.ops[i] {
			n += len(b.ops[i][j].ext)
		}
	}
	return n + batchHeader
}

const batchHeader = 64

// coverage answers for ascending keys which range delete that covers a key was
// made last. active is a heap of the ranges that start at or before the key,
// the last made on top; those that end before it are dropped when they get there.
type coverage struct {
	b      *Batch
	next   int
	active rangeHeap
}

func (c *coverage) at(key []byte) (order uint32, ok bool) {
	for c.next < len(c.b.ranges) {
		r := c.b.ranges[c.next]
		if bytes.Compare(c.b.arena[r.start:r.mid], key) > 0 {
			break
		}
		heap.Push(&c.active, r)
		c.next++
	}
	for len(c.active) > 0 {
		if top := c.active[0]; bytes.Compare(c.b.arena[top.mid:top.end], key) > 0 {
			return top.order, true
		}
		heap.Pop(&c.active)
	}
	return 0, false
}

// rangeHeap has the range that was made last on top.
type rangeHeap []rangeOp

func (h rangeHeap) Len() int           { return len(h) }
func (h rangeHeap) Less(i, j int) bool { return h[i].order > h[j].order }
func (h rangeHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push is part of heap.Interface.
func (h *rangeHeap) Push(x any) { *h = append(*h, x.(rangeOp)) } //nolint:errcheck // only at pushes

// Pop is part of heap.Interface.
func (h *rangeHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}

func prefixIndex(prefix byte) int { return strings.IndexByte(prefixOrder, prefix) }
