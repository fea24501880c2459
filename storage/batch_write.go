package storage

import (
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
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
		order := b.inOrder(ops)
		for j, at := range order {
			o := &ops[at.op]
			key := b.key(o)
			if j+1 < len(order) && bytes.Equal(key, b.key(&ops[order[j+1].op])) {
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

// place is where an op comes in key order. head is some bytes of its key.
type place struct {
	head uint64
	op   uint32
}

// inOrder returns the order of ops by key, those of one row as they were made.
//
// First by eight bytes of each key, those after what all keys have in common,
// and by when they were made: sequences are given out in order, so this is mostly
// the order of the keys already and needs no comparison of whole keys. Otherwise
// it is sorted again by them.
func (b *Batch) inOrder(ops []op) []place {
	b.places = b.places[:0]
	if len(ops) == 0 {
		return nil
	}
	skip := b.commonPrefix(ops)
	for i := range ops {
		b.places = append(b.places, place{head: head(b.key(&ops[i])[skip:]), op: uint32(i)})
	}
	byHead := func(x, y place) int { return cmp.Or(cmp.Compare(x.head, y.head), cmp.Compare(x.op, y.op)) }
	byKey := func(x, y place) int {
		return cmp.Or(bytes.Compare(b.key(&ops[x.op]), b.key(&ops[y.op])), cmp.Compare(x.op, y.op))
	}
	if !slices.IsSortedFunc(b.places, byHead) {
		slices.SortFunc(b.places, byHead)
	}
	if !slices.IsSortedFunc(b.places, byKey) {
		slices.SortFunc(b.places, byKey)
	}
	return b.places
}

// commonPrefix returns how many bytes all keys start with.
func (b *Batch) commonPrefix(ops []op) int {
	common := b.key(&ops[0])
	for i := 1; i < len(ops) && len(common) > 1; i++ {
		key := b.key(&ops[i])
		n := min(len(common), len(key))
		for k := range n {
			if common[k] != key[k] {
				n = k
				break
			}
		}
		common = common[:n]
	}
	return len(common)
}

// head returns the first eight bytes as a word that sorts as they do, padded with zeros.
func head(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	var h uint64
	for i := range b {
		h |= uint64(b[i]) << (56 - 8*i)
	}
	return h
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

func (h *rangeHeap) Len() int           { return len(*h) }
func (h *rangeHeap) Less(i, j int) bool { return (*h)[i].order > (*h)[j].order }
func (h *rangeHeap) Swap(i, j int)      { (*h)[i], (*h)[j] = (*h)[j], (*h)[i] }

// Push is part of heap.Interface.
func (h *rangeHeap) Push(x any) {
	if r, ok := x.(rangeOp); ok {
		*h = append(*h, r)
	}
}

// Pop is part of heap.Interface.
func (h *rangeHeap) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	*h = (*h)[:last]
	return r
}

func prefixIndex(prefix byte) int { return strings.IndexByte(prefixOrder, prefix) }
