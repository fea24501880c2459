package transport

import (
	"context"
	"testing"

	"github.com/hashicorp/raft"
)

// BenchmarkAppend sends appends over loopback to a Raft that accepts all.
func BenchmarkAppend(b *testing.B) {
	for _, bc := range []struct {
		name    string
		entries int
		size    int
	}{{"heartbeat", 0, 0}, {"1x1KiB", 1, 1 << 10}, {"64x16KiB", 64, 16 << 10}, {"4x1MiB", 4, 1<<20 - 64}} {
		b.Run(bc.name, func(b *testing.B) {
			addrs := map[string]string{}
			groups := map[string]*GroupTransport{}
			for _, id := range []string{"a", "b"} {
				tr, err := New(Config{
					NodeID: id, Listen: "127.0.0.1:0",
					Resolve: func(id string) (string, bool) { return addrs[id], true },
				})
				if err != nil {
					b.Fatal(err)
				}
				addrs[id] = tr.Addr().String()
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = tr.Run(context.Background())
				}()
				g, err := tr.Group(GroupConfig{ID: 1, Local: Address(id, "i")})
				if err != nil {
					b.Fatal(err)
				}
				groups[id] = g
				quit := make(chan struct{})
				go func() {
					for {
						select {
						case <-quit:
							return
						case rpc := <-g.Consumer():
							rpc.Respond(accept(rpc.Command))
						}
					}
				}()
				b.Cleanup(func() {
					_ = g.Close()
					close(quit)
					_ = tr.Close()
					<-done
				})
			}
			req := raft.AppendEntriesRequest{RPCHeader: route{version: 3, from: "a/i"}.header(), Term: 1}
			for i := range bc.entries {
				e := &raft.Log{Index: uint64(i + 1), Term: 1, Data: make([]byte, bc.size)}
				req.Entries = append(req.Entries, e)
			}
			b.SetBytes(int64(bc.entries * bc.size))
			b.ReportAllocs()
			for b.Loop() {
				a := req
				err := groups["a"].AppendEntries("b/i", "b/i", &a, &raft.AppendEntriesResponse{})
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
