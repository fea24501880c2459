package seglog

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const fuzzUse = 0x1122334455667788

// fuzzBatch is a batch with every kind of record.
func fuzzBatch(kind batchKind) []byte {
	var b batch
	b.reset(0)
	v := vote{3, 3, []byte("b")}
	b.head(&head{first: 1, last: 9, lastTerm: 2, vote: v, truncTerm: 2, payload: []byte("p")})
	b.entry(&Entry{Index: 10, Term: 3, Type: 1, AppendedAt: 5, Ext: []byte("ext"), Data: []byte("data")})
	b.vote(&vote{4, 4, []byte("c")})
	b.numbers(recordSuffix, 10, 4)
	b.numbers(recordPrefixT, 5)
	b.numbers(recordReset, 4)
	b.payload([]byte("payload"))
	buf, _ := b.finish(kind, fuzzUse, segmentHeaderSize, chainSeed(fuzzUse))
	return buf
}

// reseal makes the checksums of b's batch right, so that the fuzzer gets behind them.
func reseal(in []byte) []byte {
	b := bytes.Clone(in)
	if len(b) < batchHeaderSize {
		return b
	}
	le.PutUint64(b, fuzzUse)
	le.PutUint32(b[8:], segmentHeaderSize)
	crc := crcUpdate(le.Uint32(b[24:]), b[:28])
	le.PutUint32(b[28:], crc)
	for rest := b[batchHeaderSize:]; len(rest) >= recordPrefix+recordTrailer; {
		n := int64(recordPrefix) + int64(le.Uint32(rest))
		if n+recordTrailer > int64(len(rest)) {
			break
		}
		crc = crcUpdate(crc, rest[:n])
		le.PutUint32(rest[n:], crc)
		rest = rest[n+recordTrailer:]
	}
	return b
}

// FuzzBatch: no bytes make the decoder panic, and what it accepts it writes back as it was.
func FuzzBatch(f *testing.F) {
	f.Add(fuzzBatch(batchRecords))
	f.Add(fuzzBatch(batchSeal))
	f.Add([]byte{})
	f.Add(make([]byte, batchHeaderSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, b := range [][]byte{in, reseal(in)} {
			h, err := decodeBatchHeader(b, fuzzUse, segmentHeaderSize)
			if err != nil || h.length > int64(len(b)-batchHeaderSize) {
				continue
			}
			body := b[batchHeaderSize:][:h.length]
			recs, _, err := decodeRecords(h, body, nil)
			if err != nil {
				continue
			}
			if len(recs) != int(h.count) {
				t.Fatalf("%d records of %d", len(recs), h.count)
			}
			var again batch
			again.reset(0)
			if !encodeAgain(&again, recs) {
				continue
			}
			out, _ := again.finish(h.kind, fuzzUse, segmentHeaderSize, h.prev)
			if !bytes.Equal(out[:batchHeaderSize+h.length], b[:batchHeaderSize+h.length]) {
				t.Fatalf("decoded and encoded again:\n%x\n%x", b, out)
			}
		}
	})
}

// encodeAgain writes decoded records. It reports false if one has a body that its kind does not allow, or
// bits in the prefix that its kind does not use.
func encodeAgain(b *batch, recs []record) bool {
	for i := range recs {
		r := &recs[i]
		_ = r.describe()
		if r.kind != recordEntry && (r.typ != 0 || r.ext != 0) {
			return false
		}
		switch r.kind {
		case recordEntry:
			e, err := r.entry()
			if err != nil {
				return false
			}
			b.entry(&e)
		case recordHead:
			h, err := r.head()
			if err != nil {
				return false
			}
			b.head(&h)
		case recordVote:
			v, err := r.vote()
			if err != nil {
				return false
			}
			b.vote(&v)
		case recordSuffix:
			from, err1 := r.number(0, 2)
			term, err2 := r.number(1, 2)
			if errors.Join(err1, err2) != nil {
				return false
			}
			b.numbers(r.kind, from, term)
		case recordPrefixT, recordReset:
			n, err := r.number(0, 1)
			if err != nil {
				return false
			}
			b.numbers(r.kind, n)
		case recordPayload:
			b.payload(r.body)
		default:
			return false
		}
	}
	return true
}

// FuzzList: no bytes make the decoder panic, and what it accepts it writes back as it was.
func FuzzList(f *testing.F) {
	f.Add(encodeList([]listEntry{{1, 2, 64, 3}, {2, 9, 70, 4}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, in []byte) {
		fixed := bytes.Clone(in)
		if len(fixed) >= listHeaderSize+4 {
			copy(fixed, appendPreamble(nil, listMagic))
			le.PutUint32(fixed[len(fixed)-4:], checksum(fixed[:len(fixed)-4]))
		}
		for _, b := range [][]byte{in, fixed} {
			entries, err := decodeList("list", b)
			if err != nil {
				continue
			}
			out := encodeList(entries)
			// Reserved bytes are zero on disk, and a decoder that ignores them lets a later version use them.
			if len(out) != len(b) {
				t.Fatalf("%d bytes became %d", len(b), len(out))
			}
		}
	})
}

// FuzzSegment replays a segment whose first batches are the fuzzer's: no panic, no error but damage.
func FuzzSegment(f *testing.F) {
	f.Add(fuzzBatch(batchRecords), true)
	f.Add(fuzzBatch(batchSeal), false)
	f.Fuzz(func(t *testing.T, in []byte, fix bool) {
		if fix {
			in = reseal(in)
		}
		if len(in) >= batchHeaderSize && fix {
			le.PutUint32(in[24:], chainSeed(fuzzUse))
			in = reseal(in)
		}
		h := segmentHeader{number: 1, use: fuzzUse, size: testSegment}
		file := append(h.encode(), in...)
		file = append(file, make([]byte, max(0, testSegment-len(file)))...)[:testSegment]
		fs := vfs.NewMem()
		cfg := testConfig(fs)
		must(t, fs.MkdirAll(cfg.Dir, 0o755))
		must(t, writeFile(fs, fs.PathJoin(cfg.Dir, segmentName(1)), file))
		must(t, writeFile(fs, fs.PathJoin(cfg.Dir, listName),
			encodeList([]listEntry{{1, fuzzUse, segmentHeaderSize, chainSeed(fuzzUse)}})))
		_ = Dump(fs, cfg.Dir, io.Discard)
		l, err := Open(cfg)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		before, err := read(l)
		must(t, err)
		must(t, l.Close())
		l, err = Open(cfg)
		must(t, err)
		after, err := read(l)
		must(t, err)
		must(t, l.Close())
		if d := diff(before, after); d != "" {
			t.Fatal(d)
		}
	})
}
