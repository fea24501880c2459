package replication

import (
	"fmt"

	"github.com/holdfast-mq/holdfast/replication/command"
	"github.com/holdfast-mq/holdfast/storage"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// DueMessage is the kind of the due row that an item of a StoreBatch with a bucket makes.
const DueMessage = 0

// write copies one command of an envelope into b. It reads nothing and decides
// nothing. Commands that it does not know are errors: the node stops.
func write(b *storage.Batch, t command.Type, body []byte) error {
	switch t {
	case command.StoreBatch:
		return command.EachItem(body, func(stream record.StreamID, it *command.Item) error {
			return writeItem(b, stream, it)
		})
	case command.DeleteBatch:
		return writeDeletes(b, body)
	case command.PutStream:
		stream, description, err := command.ParseStream(body)
		if err == nil {
			b.PutStream(stream, description)
		}
		return err
	case command.DeleteStream:
		stream, _, err := command.ParseStream(body)
		if err == nil {
			b.DeleteStream(stream)
		}
		return err
	case command.PutConsumer, command.DeleteConsumer:
		return writeConsumer(b, t, body)
	case command.ConsumerBatch:
		return writeConsumerBatch(b, body)
	case command.Sweep:
		return writeSweep(b, body)
	case command.Counters:
		return writeCounters(b, body)
	case command.Index:
		return writeIndex(b, body)
	default:
		return fmt.Errorf("%w: unknown command type %d", record.ErrFormat, uint8(t))
	}
}

func writeItem(b *storage.Batch, stream record.StreamID, it *command.Item) error {
	if !it.Absent {
		if err := b.PutMessage(stream, it.Seq, it.Body); err != nil {
			return err
		}
		if it.Bucket != 0 {
			b.PutDue(it.Bucket, stream, it.Seq, DueMessage)
		}
	}
	if it.MsgID == "" {
		return nil
	}
	at, err := record.MessageTime(it.Body)
	if err != nil {
		return err
	}
	b.PutDedup(stream, it.MsgID, it.Seq, at)
	return nil
}

func writeDeletes(b *storage.Batch, body []byte) error {
	d, err := command.ParseDeletes(body)
	if err != nil {
		return err
	}
	for _, k := range d.Keys {
		b.DeleteMessage(k.Stream, k.Seq)
		if k.Bucket != 0 {
			b.DeleteDue(k.Bucket, k.Stream, k.Seq)
		}
	}
	for _, r := range d.Ranges {
		b.DeleteMessages(r.Stream, r.First, r.Last)
	}
	return deleteIndex(b, d.Index)
}

func deleteIndex(b *storage.Batch, entries []command.IndexEntry) error {
	for i := range entries {
		e := &entries[i]
		switch e.Kind {
		case command.IndexSubject:
			b.DeleteSubject(e.Stream, e.Name, e.Seq)
		case command.IndexDedup:
			b.DeleteDedup(e.Stream, e.Name, int64(e.Time))
		case command.IndexDue:
			b.DeleteDue(e.Time, e.Stream, e.Seq)
		default:
			return fmt.Errorf("%w: delete of index kind %d", record.ErrFormat, uint8(e.Kind))
		}
	}
	return nil
}

func writeIndex(b *storage.Batch, body []byte) error {
	puts, deletes, err := command.ParseIndex(body)
	if err != nil {
		return err
	}
	for i := range puts {
		e := &puts[i]
		switch e.Kind {
		case command.IndexDue:
			b.PutDue(e.Time, e.Stream, e.Seq, e.Value)
		case command.IndexSkipped:
			b.PutDedup(e.Stream, e.Name, e.Seq, int64(e.Time))
		default:
			return fmt.Errorf("%w: put of index kind %d", record.ErrFormat, uint8(e.Kind))
		}
	}
	return deleteIndex(b, deletes)
}

func writeConsumer(b *storage.Batch, t command.Type, body []byte) error {
	r, err := command.ParseConsumer(body)
	if err != nil {
		return err
	}
	if t == command.PutConsumer {
		b.PutConsumer(r.Stream, r.Consumer, r.Description)
	} else {
		b.DeleteConsumer(r.Stream, r.Consumer)
	}
	return nil
}

func writeConsumerBatch(b *storage.Batch, body []byte) error {
	c, err := command.ParseConsumerBatch(body)
	if err != nil {
		return err
	}
	b.PutConsumerState(c.Stream, c.Consumer, &c.State)
	for i := range c.Puts {
		b.PutPending(c.Stream, c.Consumer, &c.Puts[i])
	}
	for _, seq := range c.Deletes {
		b.DeletePending(c.Stream, c.Consumer, seq)
	}
	for _, r := range c.Ranges {
		b.DeletePendings(c.Stream, c.Consumer, r[0], r[1])
	}
	return nil
}

func writeSweep(b *storage.Batch, body []byte) error {
	s, err := command.ParseSweep(body)
	if err != nil {
		return err
	}
	if s.Done {
		b.DeleteSweep(s.Stream, s.Kind)
	} else {
		b.PutSweep(s.Stream, s.Kind, s.Cursor)
	}
	return nil
}

func writeCounters(b *storage.Batch, body []byte) error {
	// The rows come before the id of their stream is returned, so they are kept.
	var rows []command.SubjectRow
	stream, state, err := command.ParseCounters(body, func(r command.SubjectRow) error {
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		return err
	}
	b.PutStreamState(stream, &state)
	for i := range rows {
		if rows[i].Stat.Count == 0 {
			b.DeleteSubjectStat(stream, rows[i].Subject)
		} else {
			b.PutSubjectStat(stream, rows[i].Subject, rows[i].Stat)
		}
	}
	return nil
}
