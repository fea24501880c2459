package command

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// everything returns an envelope with one command of each type, and what it should be read as.
func everything() ([]byte, Header, []any) {
	h := Header{
		Fence:    record.Fence{Term: 3, Epoch: 2, Ordinal: 1},
		Base:     record.Fence{Term: 2, Epoch: 9, Ordinal: 8},
		Proposal: record.NewProposalID(7, 8),
		Time:     -5,
	}
	msg := record.Message{Time: 11, Subject: "a.b", Header: []byte("h"), Payload: []byte("p")}
	items := []Item{
		{Seq: 1, Bucket: 2, Hash: 3, MsgID: "id"},
		{Seq: 4, Absent: true},
		{Seq: 5, MsgID: strings.Repeat("m", MaxMsgID)},
	}
	deletes := Deletes{
		Keys:   []Key{{Stream: 1, Bucket: 2, Seq: 3}, {Stream: 4, Seq: 5}},
		Ranges: []Range{{Stream: 1, First: 2, Last: 3}},
		Index: []IndexEntry{
			{Kind: IndexSubject, Stream: 1, Name: "a\x00b", Seq: 3},
			{Kind: IndexDedup, Stream: 1, Name: "id", Time: 4},
			{Kind: IndexDue, Stream: 1, Seq: 5, Time: 6},
		},
	}
	consumer := ConsumerChange{
		Stream: 1, Consumer: 2, State: record.ConsumerState{Next: 3, AckTime: -4},
		Puts:    []record.Pending{{Seq: 5, Count: 6, Kind: record.PendingNak}},
		Deletes: []uint64{7, 8},
		Ranges:  [][2]uint64{{9, 10}},
	}
	sweep := SweepStep{Stream: 1, Kind: 2, Done: true, Cursor: []byte("cursor")}
	state := record.StreamState{FirstSeq: 1, LastSeq: 2}
	rows := []SubjectRow{{Subject: "a", Stat: record.SubjectStat{Count: 1}}, {}}
	puts := []IndexEntry{
		{Kind: IndexDue, Value: 9, Stream: 1, Seq: 2, Time: 3},
		{Kind: IndexSkipped, Stream: 1, Name: "id", Seq: 2, Time: 3},
	}

	b := NewBuilder(16)
	for i := range items {
		b.Store(1, &items[i], &msg)
	}
	b.Store(2, &items[0], &msg)
	b.Delete(&deletes)
	b.PutStream(1, []byte("description"))
	b.DeleteStream(2)
	b.PutConsumer(1, 2, nil)
	b.DeleteConsumer(1, 3)
	b.Consumer(&consumer)
	b.Sweep(&sweep)
	b.Counters(1, &state, rows)
	b.Index(puts, deletes.Index)

	body := record.AppendMessage(nil, &msg)
	read := func(stream record.StreamID, it Item) any {
		it.Body = body
		return []any{stream, it}
	}
	want := []any{
		StoreBatch, read(1, items[0]), read(1, items[1]), read(1, items[2]),
		StoreBatch, read(2, items[0]),
		DeleteBatch, deletes,
		PutStream, record.StreamID(1), []byte("description"),
		DeleteStream, record.StreamID(2),
		[]byte{},
		PutConsumer,
		ConsumerRow{Stream: 1, Consumer: 2, Description: []byte{}},
		DeleteConsumer,
		ConsumerRow{Stream: 1, Consumer: 3, Description: []byte{}},
		ConsumerBatch, consumer,
		Sweep, sweep,
		Counters, rows[0], rows[1], record.StreamID(1), state,
		Index, puts, deletes.Index,
	}
	entry := b.Finish(&h)
	return entry, h, want
}

// decode reads an envelope down to its last part.
func decode(entry []byte) (Header, []any, error) {
	e, err := ParseEnvelope(entry)
	if err != nil {
		return Header{}, nil, err
	}
	var out []any
	err = e.Each(func(t Type, body []byte) error {
		out = append(out, t)
		parts, err := parts(t, body)
		out = append(out, parts...)
		return err
	})
	return e.Header, out, err
}

func parts(t Type, body []byte) (out []any, err error) {
	switch t {
	case StoreBatch:
		err = EachItem(body, func(stream record.StreamID, it *Item) error {
			out = append(out, []any{stream, *it})
			return nil
		})
	case DeleteBatch:
		var d Deletes
		d, err = ParseDeletes(body)
		out = append(out, d)
	case PutStream, DeleteStream:
		stream, description, perr := ParseStream(body)
		out, err = append(out, stream, description), perr
	case PutConsumer, DeleteConsumer:
		var r ConsumerRow
		r, err = ParseConsumer(body)
		out = append(out, r)
	case ConsumerBatch:
		var c ConsumerChange
		c, err = ParseConsumerBatch(body)
		out = append(out, c)
	case Sweep:
		var s SweepStep
		s, err = ParseSweep(body)
		out = append(out, s)
	case Counters:
		stream, state, perr := ParseCounters(body, func(r SubjectRow) error {
			out = append(out, r)
			return nil
		})
		out, err = append(out, stream, state), perr
	case Index:
		puts, deletes, perr := ParseIndex(body)
		out, err = append(out, puts, deletes), perr
	case typeCount:
	}
	return out, err
}

func TestEnvelope(t *testing.T) {
	t.Parallel()
	entry, want, parts := everything()
	h, got, err := decode(entry)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("header: %s", diff)
	}
	if diff := cmp.Diff(parts, got); diff != "" {
		t.Errorf("commands: %s", diff)
	}
	if kind, err := TypeOf(entry); kind != EntryEnvelope || err != nil {
		t.Errorf("type %d, %v", kind, err)
	}
}

// TestEnvelopeCut: no beginning of an envelope passes for one, nor one with a byte more.
func TestEnvelopeCut(t *testing.T) {
	t.Parallel()
	entry, _, _ := everything()
	for n := range entry {
		if _, _, err := decode(entry[:n]); !errors.Is(err, record.ErrFormat) {
			t.Fatalf("the first %d bytes of %d: %v", n, len(entry), err)
		}
	}
	if _, _, err := decode(append(bytes.Clone(entry), 0)); !errors.Is(err, record.ErrFormat) {
		t.Errorf("a byte more: %v", err)
	}
}

func TestEmptyBuilder(t *testing.T) {
	t.Parallel()
	b := NewBuilder(0)
	if !b.Empty() || b.Size() != HeaderSize {
		t.Errorf("empty %v, size %d", b.Empty(), b.Size())
	}
	h, commands, err := decode(b.Finish(&Header{Time: 1}))
	if err != nil || len(commands) != 0 || h.Time != 1 {
		t.Errorf("%+v %v %v", h, commands, err)
	}
}

// TestRejects: what a build does not know is an error that says so, never skipped.
func TestRejects(t *testing.T) {
	t.Parallel()
	edit := func(entry []byte, at int, v byte) []byte {
		entry = bytes.Clone(entry)
		entry[at] = v
		return entry
	}
	one := func(build func(*Builder)) []byte {
		b := NewBuilder(0)
		build(b)
		return b.Finish(&Header{})
	}
	const body = HeaderSize + frameSize
	msg := record.Message{Subject: "a"}
	store := one(func(b *Builder) { b.Store(1, &Item{Seq: 1}, &msg) })
	deletes := one(func(b *Builder) {
		b.Delete(&Deletes{Keys: []Key{{Stream: 1}}, Ranges: []Range{{Stream: 1}}})
	})
	sweep := one(func(b *Builder) { b.Sweep(&SweepStep{Stream: 1}) })
	index := one(func(b *Builder) { b.Index([]IndexEntry{{Kind: IndexDue}}, nil) })
	for name, entry := range map[string][]byte{
		"version":          edit(store, 0, Version+1),
		"entry type":       edit(store, 1, 3),
		"meta as envelope": edit(store, 1, byte(EntryMeta)),
		"command type":     edit(store, HeaderSize, byte(typeCount)),
		"command length":   edit(store, HeaderSize+1, 1),
		"item count":       edit(store, body+4, 0xff),
		"item flags":       edit(store, body+8+24, 2),
		"key flags":        edit(deletes, body+4+4, 1),
		"range flags":      edit(deletes, body+4+24+4+7, 1),
		"sweep flag":       edit(sweep, body+5, 2),
		"index kind":       edit(index, body+4, 9),
		"subject put":      edit(index, body+4, byte(IndexSubject)),
		"dedup put":        edit(index, body+4, byte(IndexDedup)),
	} {
		if _, _, err := decode(entry); !errors.Is(err, record.ErrFormat) {
			t.Errorf("%s: %v", name, err)
		}
	}
	skipped := one(func(b *Builder) { b.Index(nil, []IndexEntry{{Kind: IndexSkipped, Stream: 1}}) })
	if _, _, err := decode(skipped); !errors.Is(err, record.ErrFormat) {
		t.Errorf("a delete of kind 4: %v", err)
	}
	if got := fmt.Sprint(Counters, typeCount); got != "Counters command 10" {
		t.Errorf("names %q", got)
	}
}

// TestEachStops: an error of the caller ends the reading and comes back.
func TestEachStops(t *testing.T) {
	t.Parallel()
	entry, _, _ := everything()
	e, err := ParseEnvelope(entry)
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("stop")
	calls := 0
	err = e.Each(func(Type, []byte) error {
		calls++
		return stop
	})
	if !errors.Is(err, stop) || calls != 1 {
		t.Errorf("%d calls, %v", calls, err)
	}
}

func TestMetaBatch(t *testing.T) {
	t.Parallel()
	want := MetaBatch{
		Proposal:   record.NewProposalID(1, 2),
		Conditions: []record.MetaCond{{Key: "a", Version: 3}, {Key: "", Version: 0}},
		Writes: []record.MetaWrite{
			{Key: "a", Value: []byte("v")},
			{Key: "b"},
			{Key: "c", Value: []byte{}},
			{Key: strings.Repeat("k", MaxMetaKey), Value: []byte("long key")},
		},
	}
	entry, err := AppendMetaBatch(nil, &want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseMetaBatch(entry)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	long := strings.Repeat("k", MaxMetaKey+1)
	for _, m := range []MetaBatch{
		{Conditions: []record.MetaCond{{Key: long}}}, {Writes: []record.MetaWrite{{Key: long}}},
	} {
		if _, err := AppendMetaBatch(nil, &m); !errors.Is(err, record.ErrFormat) {
			t.Errorf("a key of %d bytes: %v", len(long), err)
		}
	}
	for _, n := range []int{0, 3, metaFixed - 1, metaFixed, len(entry) - 1} {
		if _, err := ParseMetaBatch(entry[:n]); !errors.Is(err, record.ErrFormat) {
			t.Errorf("the first %d bytes of %d: %v", n, len(entry), err)
		}
	}
	envelope, _, _ := everything()
	if _, err := ParseMetaBatch(envelope); !errors.Is(err, record.ErrFormat) {
		t.Errorf("an envelope: %v", err)
	}
}

// FuzzEnvelope: any bytes give commands or an error, never a panic, and never more
// memory than they are worth.
func FuzzEnvelope(f *testing.F) {
	entry, _, _ := everything()
	f.Add(entry)
	f.Add(entry[:HeaderSize])
	e, err := ParseEnvelope(entry)
	if err != nil {
		f.Fatal(err)
	}
	// Each command by itself, so that mutations reach every parser.
	must := e.Each(func(t Type, body []byte) error {
		b := NewBuilder(0)
		b.begin(t)
		b.buf = append(b.buf, body...)
		count := b.count
		b.open = Index // the body has its count already
		b.end()
		b.count = count
		f.Add(b.Finish(&Header{}))
		return nil
	})
	if must != nil {
		f.Fatal(must)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		_, _, err := decode(b)
		if err != nil && !errors.Is(err, record.ErrFormat) {
			t.Error(err)
		}
		if !bytes.Equal(before, b) {
			t.Error("the entry was changed by reading it")
		}
	})
}

// FuzzMetaBatch: any bytes give a batch or an error; a batch gives bytes that are read the same.
func FuzzMetaBatch(f *testing.F) {
	entry, err := AppendMetaBatch(nil, &MetaBatch{
		Conditions: []record.MetaCond{{Key: "a", Version: 3}},
		Writes:     []record.MetaWrite{{Key: "a", Value: []byte("v")}, {Key: "b"}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(entry)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ParseMetaBatch(b)
		if err != nil {
			if !errors.Is(err, record.ErrFormat) {
				t.Error(err)
			}
			return
		}
		again, err := AppendMetaBatch(nil, &m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseMetaBatch(again)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, got); diff != "" {
			t.Error(diff)
		}
	})
}
