package node

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// TestGivenUpNodesAreCalledLessOften: a node that stays away is called with growing pauses, and at once when gossip, or
// a connection of its own, shows that it is back, each time.
func TestGivenUpNodesAreCalledLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		n := &Node{log: zap.NewNop()}
		var signs sync.Map
		var mu sync.Mutex // guards calls
		calls := map[string]int{}
		go n.remind(ctx, []string{"n2/a", "n3/b"}, func(id string) sign {
			s, _ := signs.Load(id)
			there, _ := s.(sign)
			return there
		},
			func(_ context.Context, id, server string) error {
				mu.Lock()
				calls[server]++
				mu.Unlock()
				if server != id+"/a" && server != id+"/b" {
					t.Errorf("%s is told of %s", id, server)
				}
				return errors.New("unreachable")
			})
		within := func(d time.Duration) (n2, n3 int) {
			mu.Lock()
			clear(calls)
			mu.Unlock()
			<-time.After(d)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return calls["n2/a"], calls["n3/b"]
		}
		if n2, n3 := within(time.Minute); n2 < 5 || n2 > 8 || n3 != n2 {
			t.Errorf("%d and %d calls in the first minute, want 5 to 8", n2, n3)
		}
		if n2, n3 := within(time.Hour); n2 < 59 || n2 > 61 || n3 != n2 {
			t.Errorf("%d and %d calls in an hour, want one a minute", n2, n3)
		}
		for _, back := range []sign{{alive: time.Now()}, {}, {accepted: true}, {alive: time.Now().Add(1), accepted: true}} {
			signs.Store("n3", back)
			n2, n3 := within(10 * time.Second)
			if came := back != (sign{}); came != (n3 >= 3) || n2 > 1 {
				t.Errorf("%+v of n3: %d calls of it in 10 s, %d of n2", back, n3, n2)
			}
		}
		cancel()
		synctest.Wait()
	})
}
