package ingress

import (
	"testing"

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
