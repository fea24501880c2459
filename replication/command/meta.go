package command

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// MaxMetaKey is the longest key of a group 0 row.
const MaxMetaKey = math.MaxUint16

// MetaBatch is a conditional write of group 0.
type MetaBatch struct {
	Proposal   record.ProposalID
	Conditions []record.MetaCond
	Writes     []record.MetaWrite
}

const metaFixed = 4 + record.ProposalIDSize

// AppendMetaBatch appends the entry for m. It refuses a key longer than MaxMetaKey.
func AppendMetaBatch(dst []byte, m *MetaBatch) ([]byte, error) {
	dst = append(dst, Version, byte(EntryMeta), 0, 0)
	dst = append(dst, m.Proposal[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Conditions)))
	for _, c := range m.Conditions {
		if len(c.Key) > MaxMetaKey {
			return nil, fmt.Errorf("%w: key of %d bytes, at most %d", record.ErrFormat, len(c.Key), MaxMetaKey)
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(c.Key)))
		dst = append(dst, c.Key...)
		dst = binary.BigEndian.AppendUint64(dst, c.Version)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Writes)))
	for _, w := range m.Writes {
		if len(w.Key) > MaxMetaKey {
			return nil, fmt.Errorf("%w: key of %d bytes, at most %d", record.ErrFormat, len(w.Key), MaxMetaKey)
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(w.Key)))
		dst = append(dst, w.Key...)
		put := byte(1)
		if w.Value == nil {
			put = 0
		}
		dst = append(dst, put)
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(w.Value)))
		dst = append(dst, w.Value...)
	}
	return dst, nil
}

// ParseMetaBatch reads what AppendMetaBatch wrote; values alias entry.
func ParseMetaBatch(entry []byte) (MetaBatch, error) {
	t, err := TypeOf(entry)
	if err != nil {
		return MetaBatch{}, err
	}
	if t != EntryMeta || len(entry) < metaFixed {
		return MetaBatch{}, fmt.Errorf("%w: entry of type %d, %d bytes is no meta batch", record.ErrFormat, t, len(entry))
	}
	var m MetaBatch
	copy(m.Proposal[:], entry[4:])
	c := cursor{b: entry[metaFixed:]}
	for range c.length(2 + 8) {
		key := string(c.take(uint64(c.u16())))
		m.Conditions = append(m.Conditions, record.MetaCond{Key: key, Version: c.u64()})
	}
	for range c.length(2 + 1 + 4) {
		w := record.MetaWrite{Key: string(c.take(uint64(c.u16())))}
		put := c.u8()
		v := c.take(uint64(c.u32()))
		switch {
		case put == 1:
			w.Value = v
		case put != 0 || len(v) != 0:
			if c.err == nil {
				c.err = fmt.Errorf("%w: write flag %d with %d bytes", record.ErrFormat, put, len(v))
			}
		}
		m.Writes = append(m.Writes, w)
	}
	return m, c.end()
}
