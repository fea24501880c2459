package storage

import (
	"bytes"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestSmoke(t *testing.T) {
	fs := vfs.NewCrashableMem()
	s, err := Open(Config{FS: fs, Dir: "/a/b/g1", MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	b := s.NewBatch()
	m := record.AppendMessage(nil, &record.Message{Time: 5, Subject: "a.b", Payload: []byte("x")})
	if err := b.PutMessage(1, 1, m); err != nil {
		t.Fatal(err)
	}
	b.SetApplied(3, 1, record.Fence{Term: 1, Epoch: 1, Ordinal: 1}, 5)
	if err := b.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s.PublishLocal(SnapshotMeta{Index: 4, Term: 1, ConfIndex: 1, Conf: []byte("c")}); err != nil {
		t.Fatal(err)
	}
	if d := s.DurableApplied(); d != 4 {
		t.Fatal(d)
	}
	c, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	n, err := c.WriteTo(&buf)
	if err != nil || n != c.Size() || int64(buf.Len()) != n {
		t.Fatal(n, c.Size(), err)
	}
	t.Log(c.Files(), c.Meta())
	s2, err := Open(Config{FS: fs, Dir: "/a/b/g2", MemTableSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	in, err := s2.BeginInstall(c.Meta())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write(buf.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := in.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := s2.Activate(); err != nil {
		t.Fatal(err)
	}
	h1, err1 := s.StateHash(t.Context())
	h2, err2 := s2.StateHash(t.Context())
	if h1 != h2 || err1 != nil || err2 != nil {
		t.Fatal(h1, h2, err1, err2)
	}
	t.Log(h1)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s2.Close(); err != nil {
		t.Fatal(err)
	}
}
