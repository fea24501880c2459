package ingress

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestFactsFollowTheDescription(t *testing.T) {
	t.Parallel()
	f := newFacts()
	of := func(id record.StreamID, cfg jsapi.StreamConfig) fact {
		t.Helper()
		d := plan.StreamDescription{Account: "A", Config: &cfg}
		for range 2 { // decoded, then remembered
			got, err := f.of(id, d.Encode())
			if err != nil {
				t.Fatal(err)
			}
			got.sum = 0
			want := fact{reserved: uint64(max(cfg.MaxBytes, 0)), memory: cfg.Storage == jsapi.MemoryStorage}
			if got != want {
				t.Errorf("stream %d: %+v, want %+v", id, got, want)
			}
		}
		return f.known[id]
	}
	before := of(1, jsapi.StreamConfig{Name: "a", MaxBytes: 7, Storage: jsapi.FileStorage})
	of(2, jsapi.StreamConfig{Name: "b", MaxBytes: -1, Storage: jsapi.MemoryStorage})
	if after := of(1, jsapi.StreamConfig{Name: "a", MaxBytes: 9, Storage: jsapi.FileStorage}); after == before {
		t.Error("a changed description has the old facts")
	}
	if _, err := f.of(3, []byte("{")); err == nil {
		t.Error("what can not be read has facts")
	}
	for id := range record.StreamID(maxFacts + 5) {
		f.known[id] = fact{}
	}
	of(maxFacts+9, jsapi.StreamConfig{Name: "c", Storage: jsapi.FileStorage})
	if len(f.known) != 1 {
		t.Errorf("%d are remembered beyond the bound, want 1", len(f.known))
	}
}

func TestVisible(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		cfg  jsapi.ConsumerConfig
		want bool
	}{
		{jsapi.ConsumerConfig{Name: "c"}, true},
		{jsapi.ConsumerConfig{Name: "c", Direct: true}, false},
		{jsapi.ConsumerConfig{Name: "c", Description: `"direct"`}, true},
		{jsapi.ConsumerConfig{Name: "c", Metadata: map[string]string{"direct": "true"}}, true},
	} {
		d := plan.ConsumerDescription{Config: &tt.cfg}
		if got := visible(d.Encode()); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.cfg, got, tt.want)
		}
	}
}

// TestUsageOfManyStreams: read in one go it is what it is one by one, and for a while it
// is not read again; the number of streams is always that of now.
func TestUsageOfManyStreams(t *testing.T) {
	t.Parallel()
	inWorld(t, Config{}, func(t *testing.T, n *node) {
		create := func(i int) {
			t.Helper()
			storage := []string{"file", "memory"}[i%2]
			must[jsapi.StreamCreateResponse](n, fmt.Sprintf("STREAM.CREATE.U%d", i), m{
				"name": fmt.Sprintf("U%d", i), "subjects": []string{fmt.Sprintf("u.%d", i)}, "retention": "limits",
				"storage": storage, "max_bytes": 1 << 20,
			})
			n.publish(fmt.Sprintf("u.%d", i), "", "x")
		}
		for i := range manyStreams {
			create(i)
		}
		for i := range 3 {
			must[jsapi.ConsumerResponse](n, fmt.Sprintf("CONSUMER.DURABLE.CREATE.U%d.C", i), m{
				"stream_name": fmt.Sprintf("U%d", i), "config": m{"durable_name": "C", "ack_policy": "explicit"},
			})
		}
		info := func() jsapi.AccountInfo {
			t.Helper()
			in := must[jsapi.AccountInfoResponse](n, "INFO", nil).AccountInfo
			in.API = jsapi.APIStats{}
			return *in
		}
		each := info()
		size := uint64(30 + len("u.100") + 1)
		if each.Streams != manyStreams || each.Consumers != 3 || each.Store == 0 || each.Store > size*manyStreams/2 ||
			each.ReservedStore != manyStreams/2<<20 || each.ReservedMemory != each.ReservedStore {
			t.Fatalf("usage %+v", each)
		}
		rows := n.srv.dir.rows("A", func(*record.StreamRow) bool { return true })
		if one, all := n.srv.usageOfEach(rows), n.srv.usageOfAll(rows); one != all {
			t.Fatalf("one by one %+v, at once %+v", one, all)
		}
		create(manyStreams)
		if all := info(); all.Streams != manyStreams+1 || all.Consumers != 3 || all.Store < each.Store {
			t.Fatalf("usage %+v of one more", all)
		}
	})
	var c usageCache
	found := 0
	find := func() usage {
		found++
		<-time.After(10 * time.Millisecond)
		return usage{streams: found}
	}
	if a, b := c.get(find), c.get(find); a.streams != 1 || b.streams != 1 {
		t.Fatalf("found %d and %d, want it found once", a.streams, b.streams)
	}
	c.until = time.Now()
	if a := c.get(find); a.streams != 2 {
		t.Fatalf("found %d times after its time", a.streams)
	}
}
