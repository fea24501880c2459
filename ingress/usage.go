package ingress

import (
	"bytes"
	"context"
	"hash/maphash"
	"sync"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// accountInfo answers INFO. It looks at every stream of the account; clients ask before each key-value bucket
// that they make, so what it has to read of a stream is little.
func (s *Server) accountInfo(ctx context.Context, c *call, ac *api.Call) {
	rows := s.dir.rows(c.acct.Name, func(r *record.StreamRow) bool { return r.Phase == record.StreamLive })
	if err := s.caughtUp(ctx, rows); err != nil {
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		return
	}
	info := &jsapi.AccountInfo{Domain: s.cfg.Domain}
	info.Limits = jsapi.Unlimited()
	info.API = jsapi.APIStats{Level: api.Level, Total: s.stats.total.Load(), Errors: s.stats.errors.Load()}
	for i := range rows {
		if err := s.addUsage(info, &rows[i]); err != nil {
			continue // gone since, or on its way
		}
		info.Streams++
	}
	ac.Answer(jsapi.AccountInfoResponse{Response: jsapi.NewResponse(ac.Req.Verb), AccountInfo: info})
}

// addUsage adds what a stream uses, as this node's replica of its group has it.
func (s *Server) addUsage(info *jsapi.AccountInfo, r *record.StreamRow) error {
	store := s.read(r.Group)
	b, err := store.Stream(r.ID)
	if err != nil {
		return err
	}
	fact, err := s.facts.of(r.ID, b)
	if err != nil {
		return err
	}
	state, err := store.StreamState(r.ID)
	if err != nil {
		return err
	}
	consumers := 0
	err = store.Consumers(r.ID, func(_ record.ConsumerID, b []byte, _ record.ConsumerState) bool {
		if visible(b) {
			consumers++
		}
		return true
	})
	if err != nil {
		return err
	}
	info.Consumers += consumers
	if fact.memory {
		info.Memory += state.Bytes
		info.ReservedMemory += fact.reserved
	} else {
		info.Store += state.Bytes
		info.ReservedStore += fact.reserved
	}
	return nil
}

// visible says whether counts show a consumer, by its description. Only one that has the word in it is decoded.
func visible(description []byte) bool {
	if !bytes.Contains(description, []byte(`"direct"`)) {
		return true
	}
	d, err := plan.ParseConsumerDescription(description)
	return err == nil && !d.Config.Direct
}

// facts remembers, of each stream's description, the little that the usage of an account needs.
type facts struct {
	seed maphash.Seed

	mu    sync.Mutex
	known map[record.StreamID]fact
}

// maxFacts bounds the streams that are remembered: 40 bytes each.
const maxFacts = 1 << 17

type fact struct {
	sum      uint64 // of the description
	reserved uint64 // bytes
	memory   bool   // it is kept in memory
}

func newFacts() *facts {
	return &facts{seed: maphash.MakeSeed(), known: make(map[record.StreamID]fact)}
}

// of returns the facts of a description of a stream.
func (f *facts) of(id record.StreamID, description []byte) (fact, error) {
	sum := maphash.Bytes(f.seed, description)
	f.mu.Lock()
	have, ok := f.known[id]
	f.mu.Unlock()
	if ok && have.sum == sum {
		return have, nil
	}
	d, err := plan.ParseStreamDescription(description)
	if err != nil {
		return fact{}, err
	}
	out := fact{
		sum: sum, reserved: uint64(max(d.Config.MaxBytes, 0)), memory: d.Config.Storage == jsapi.MemoryStorage,
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.known) >= maxFacts {
		clear(f.known) // of streams that are gone, too; what is there is learned again
	}
	f.known[id] = out
	return out, nil
}
