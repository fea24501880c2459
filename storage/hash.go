package storage

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"

	"github.com/cockroachdb/pebble/v2"
)

// StateHash sums up a state, to compare replicas: equal at equal Index if and only
// if the rows are.
type StateHash struct {
	Index uint64
	Rows  uint64
	Sum   [sha256.Size]byte
}

// String gives index, rows and the first bytes of the sum, for a log.
func (h StateHash) String() string {
	return fmt.Sprintf("%d/%d/%x", h.Index, h.Rows, h.Sum[:8])
}

// StateHash reads every row. Left out is what replicas may differ in: the index
// covered by the last local snapshot, and the format version.
func (s *Store) StateHash(ctx context.Context) (StateHash, error) {
	var out StateHash
	err := s.view(func(h *handle) (err error) {
		out, err = h.stateHash(ctx)
		return err
	})
	return out, err
}

// hashCheck is after how many rows a long read looks whether it is still wanted.
const hashCheck = 4096

func (h *handle) stateHash(ctx context.Context) (StateHash, error) {
	sum := sha256.New()
	var out StateHash
	err := h.scan([]byte{prefixMeta}, []byte{0xff}, func(it *pebble.Iterator) (bool, error) {
		if wanted := out.Rows%hashCheck != 0 || ctx.Err() == nil; !wanted {
			return false, nil
		}
		key := it.Key()
		if key[0] == prefixMeta {
			switch string(key[1:]) {
			case metaCovered, metaFormat:
				return true, nil
			case metaApplied:
				var a Applied
				if err := a.parseApplied(it.Value()); err != nil {
					return false, err
				}
				out.Index = a.Index
			}
		}
		out.Rows++
		hashRow(sum, key, it.Value())
		return true, nil
	})
	if err == nil {
		err = ctx.Err()
	}
	sum.Sum(out.Sum[:0])
	return out, err
}

func hashRow(sum hash.Hash, key, val []byte) {
	var head [8]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(key)))
	binary.BigEndian.PutUint32(head[4:], uint32(len(val)))
	sum.Write(head[:])
	sum.Write(key)
	sum.Write(val)
}
