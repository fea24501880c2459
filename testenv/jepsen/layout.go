package jepsen

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// effect is what a change of a file of Holdfast must lead to. It is decided by the bytes that changed and by what
// storage/seglog, storage and replication say of their files, read here anew: the product's own readers would be
// blind where the product is.
type effect int

const (
	// harmless: nobody needs what changed. No replica may go out of service for it.
	harmless effect = iota
	// either: the bytes do not tell. The node notices, or every row of its state can still be read.
	either
	// noticed: the node must notice.
	noticed
)

// Of storage/seglog: its list of segments, the header of a segment, that of a batch.
const (
	segmentList   = "SEGMENTS"
	segmentSuffix = ".seg"

	listHeader  = 24
	listEntry   = 32
	listTrailer = 4

	segmentHeader = 64
	useAt         = 24 // in the header of a segment
	batchHeader   = 32
	offsetAt      = 8 // in the header of a batch, behind the use id
	lengthAt      = 12
	batchAlign    = 8
	// tailBatches is how many batches may be gone from the end without anybody knowing: the marks that tell come
	// with the next append, and with seals 50 ms apart.
	tailBatches = 16
)

// Of Pebble: which manifest counts is in the name of an empty file.
const manifestMarker = "marker.manifest."

// chunk is the unit in which versions of a file are compared and put together, as in Jepsen.
const chunk = 4 << 10

// span is a part of a file; to is behind its last byte.
type span struct{ from, to int }

// batches are those of a segment, seals among them, each with the padding behind it, which is zero.
func batches(b []byte) []span {
	if len(b) < segmentHeader {
		return nil
	}
	le, use := binary.LittleEndian, b[useAt:useAt+8]
	var out []span
	for at := segmentHeader; at+batchHeader <= len(b); {
		h := b[at : at+batchHeader]
		end := (at + batchHeader + int(le.Uint32(h[lengthAt:])) + batchAlign - 1) / batchAlign * batchAlign
		if !bytes.Equal(h[:8], use) || int(le.Uint32(h[offsetAt:])) != at || end > len(b) {
			break
		}
		out = append(out, span{at, end})
		at = end
	}
	return out
}

// written is the end of what was written to a segment.
func written(b []byte) int {
	if all := batches(b); len(all) > 0 {
		return all[len(all)-1].to
	}
	return min(segmentHeader, len(b))
}

// listed says whether a segment is one of those of a list, and whether it is the last of them.
func listed(list []byte, name string) (in, last bool) {
	number, err := strconv.ParseUint(strings.TrimSuffix(name, segmentSuffix), 10, 64)
	if err != nil {
		return false, false
	}
	for at := listHeader; at+listEntry+listTrailer <= len(list); at += listEntry {
		in = in || binary.LittleEndian.Uint64(list[at:]) == number
		last = binary.LittleEndian.Uint64(list[at:]) == number
	}
	return in, last
}

// segmentEffect is that of a change of a segment, which a list names or not.
func segmentEffect(list []byte, name string, before, after []byte) effect {
	in, last := listed(list, name)
	if !in {
		return harmless
	}
	if len(after) < len(before) {
		return noticed // its header says how long it is
	}
	all, out := batches(before), harmless
	lost := len(all) // the first batch that changed
	for _, at := range changes(before, after) {
		k, _ := slices.BinarySearchFunc(all, at, func(s span, at int) int { return s.to - 1 - at })
		switch {
		case at < segmentHeader:
			return noticed
		case k < len(all) && at >= all[k].from:
			lost, out = min(lost, k), noticed
		}
	}
	if out == harmless || !last {
		return out
	}
	for k := lost + 1; k < len(all); k++ {
		if head := all[k].from; bytes.Equal(before[head:head+batchHeader], after[head:head+batchHeader]) {
			return noticed // it proves that what is before it was there once
		}
	}
	if len(all)-lost > tailBatches {
		return noticed // others know that this was acknowledged
	}
	return either // as if torn
}

// changes are the offsets at which two versions of a file differ.
func changes(a, b []byte) []int {
	var out []int
	for at := 0; at < len(a); at += chunk {
		end := min(at+chunk, len(a))
		if end <= len(b) && bytes.Equal(a[at:end], b[at:end]) {
			continue
		}
		for i := at; i < end; i++ {
			if i >= len(b) || a[i] != b[i] {
				out = append(out, i)
			}
		}
	}
	return out
}

// effectOf is that of a change of a file, with what it held before and holds now, nil if it is gone.
func effectOf(file string, before, after []byte) effect {
	dir, name := filepath.Split(file)
	switch {
	case bytes.Equal(before, after) && (before == nil) == (after == nil):
		return harmless
	case name == gossipFile, strings.HasSuffix(name, ".tmp"):
		return harmless
	case strings.HasPrefix(filepath.Base(dir), dbPrefix):
		return tableEffect(filepath.Clean(dir), name, after == nil)
	case filepath.Ext(name) != segmentSuffix:
		return noticed // POINTER, NODE, INCARNATION, SEGMENTS have a checksum each
	}
	list, err := os.ReadFile(filepath.Join(dir, segmentList))
	if err != nil {
		return either
	}
	return segmentEffect(list, name, before, after)
}

// Of storage: the databases of a group, and the file that names the one in force.
const (
	dbPrefix    = "db-"
	pointerFile = "POINTER"
	gossipFile  = "gossip"
	crcSize     = 4
)

// tableEffect is that of a change of one of Pebble's files. Pebble takes a manifest that does not verify for one that
// ends there, which is an older state that the log may still make good; of its other files not every byte counts.
func tableEffect(dir, name string, gone bool) effect {
	pointer, err := os.ReadFile(filepath.Join(filepath.Dir(dir), pointerFile))
	if err != nil || len(pointer) < crcSize {
		return either
	}
	if !bytes.HasSuffix(pointer[:len(pointer)-crcSize], []byte(filepath.Base(dir))) {
		return harmless
	}
	if !strings.HasPrefix(name, "MANIFEST-") && !strings.HasPrefix(name, manifestMarker) {
		return either
	}
	markers, err := filepath.Glob(filepath.Join(dir, manifestMarker+"*"))
	switch {
	case err == nil && gone && len(markers) == 0: // it was the marker
		return noticed
	case err != nil || len(markers) == 0:
		return either
	case !strings.HasSuffix(slices.Max(markers), "."+name):
		return harmless // an older one
	case gone:
		return noticed
	default:
		return either
	}
}
