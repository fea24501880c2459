package ingress

import (
	"bytes"
	"context"
	"hash/maphash"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/ingress/api"
	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/ingress/plan"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// manyStreams is how many streams of an account are looked at one by one; of more, all that there are are read in
// one go, and what that found is used for usageShare times as long as it took.
const (
	manyStreams = 128
	usageShare  = 9
)

// accountInfo answers INFO. It looks at every stream of the account; clients ask before each key-value bucket
// that they make, so what it has to read of a stream is little. The streams are counted as they are; what they use
// may be as old as manyStreams says.
func (s *Server) accountInfo(ctx context.Context, c *call, ac *api.Call) {
	rows := s.dir.rows(c.acct.Name, func(r *record.StreamRow) bool { return r.Phase == record.StreamLive })
	if err := s.caughtUp(ctx, rows); err != nil {
		ac.Error(jsapi.NewError(jsapi.CodeClusterNotAvail))
		return
	}
	info := &jsapi.AccountInfo{Domain: s.cfg.Domain}
	info.Limits = jsapi.Unlimited()
	info.API = jsapi.APIStats{Level: api.Level, Total: s.stats.total.Load(), Errors: s.stats.errors.Load()}
	var u usage
	if len(rows) <= manyStreams {
		u = s.usageOfEach(rows)
	} else {
		u = c.acct.used.get(func() usage { return s.usageOfAll(rows) })
		u.streams = len(rows)
	}
	info.Streams, info.Consumers = u.streams, u.consumers
	info.Memory, info.ReservedMemory = u.memory, u.reservedMemory
	info.Store, info.ReservedStore = u.store, u.reservedStore
	ac.Answer(jsapi.AccountInfoResponse{Response: jsapi.NewResponse(ac.Req.Verb), AccountInfo: info})
}

// usage is what streams use.
type usage struct {
	streams, consumers            int
	memory, store                 uint64
	reservedMemory, reservedStore uint64
}

func (u *usage) add(f fact, st *record.StreamState) {
	u.streams++
	if f.memory {
		u.memory += st.Bytes
		u.reservedMemory += f.reserved
	} else {
		u.store += st.Bytes
		u.reservedStore += f.reserved
	}
}

// usageOfEach asks this node's replicas for each stream. One that is gone since, or on its way, does not count.
func (s *Server) usageOfEach(rows []record.StreamRow) usage {
	var u usage
	for i := range rows {
		r := &rows[i]
		store := s.read(r.Group)
		b, state, err := store.Stream(r.ID)
		if err != nil {
			continue
		}
		f, err := s.facts.of(r.ID, b)
		if err != nil {
			continue
		}
		u.add(f, &state)
		_ = store.Consumers(r.ID, func(_ record.ConsumerID, b []byte, _ record.ConsumerState) bool { // told by Stream
			if visible(b) {
				u.consumers++
			}
			return true
		})
	}
	return u
}

// usageOfAll reads all streams of the groups that rows are in, once.
func (s *Server) usageOfAll(rows []record.StreamRow) usage {
	var u usage
	ours, groups := make(map[record.StreamID]bool, len(rows)), make(map[uint32]bool)
	for i := range rows {
		ours[rows[i].ID], groups[rows[i].Group] = true, true
	}
	for group := range groups {
		err := s.read(group).All(func(id record.StreamID, b []byte, st *record.StreamState) {
			if !ours[id] {
				return
			}
			if f, err := s.facts.of(id, b); err == nil {
				u.add(f, st)
			}
		}, func(id record.StreamID, b []byte) {
			if ours[id] && visible(b) {
				u.consumers++
			}
		})
		if err != nil {
			s.log.Warn("reading what an account uses", zap.Uint32("group", group), zap.Error(err))
		}
	}
	return u
}

// usageCache keeps a usage for a while that depends on what it cost to find out. Safe for concurrent use.
type usageCache struct {
	mu    sync.Mutex
	last  usage
	until time.Time
}

func (c *usageCache) get(find func() usage) usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begun := time.Now(); begun.After(c.until) {
		c.last = find()
		c.until = begun.Add((usageShare + 1) * time.Since(begun))
	}
	return c.last
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
