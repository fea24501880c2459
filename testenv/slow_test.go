package testenv

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/nats-io/nats.go"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/testenv/faultfs"
)

// With many queues on disks whose syncs take 200 ms, a node that starts again serves, and has what the others have,
// within a minute, and each queue takes a message; the health endpoints of the others answer all the while, its own from
// the moment that its start returns: nats-server issues 8434 and 4363.
func TestManyQueuesOnSlowDisks(t *testing.T) {
	t.Parallel()
	const inFlight = 50
	disk := filepath.Join(t.TempDir(), "disk")
	g := newGang(t, func(cfg *node.Config) {
		cfg.FS, cfg.Profile = faultfs.NewSwitch(vfs.Default, disk), "lan"
	})
	all := []string{"n1", "n2", "n3"}
	g.found(all...)
	nc, err := nats.Connect(g.nodes["n1"].URL())
	g.must(err)
	t.Cleanup(nc.Close)
	each := func(what string, ask func(i int, inbox string) error) {
		t.Helper()
		answers, err := nc.SubscribeSync(nats.NewInbox())
		g.must(err)
		for i := range slowQueues + inFlight {
			if i < slowQueues {
				g.must(ask(i, answers.Subject))
			}
			if i < inFlight {
				continue
			}
			m, err := answers.NextMsg(3 * soon)
			g.must(err)
			if strings.Contains(string(m.Data), `"error"`) {
				t.Fatalf("%s: %s", what, m.Data)
			}
		}
		g.must(answers.Unsubscribe())
	}
	each("create", func(i int, inbox string) error {
		return nc.PublishRequest("$JS.API.STREAM.CREATE."+streamName(i), inbox, fmt.Appendf(nil,
			`{"name":%q,"subjects":["many.%d"],"retention":"workqueue","storage":"file","num_replicas":3}`, streamName(i), i))
	})
	g.must(os.WriteFile(disk, []byte(faultfs.Slow+"200ms"), 0o600))

	stopped := g.healthy(all[:2]...)
	begun := time.Now()
	g.must(g.nodes["n3"].Restart(patiently(t)))
	alsoStopped := g.healthy("n3")
	g.ready("n3")
	each("publish", func(i int, inbox string) error {
		return nc.PublishRequest(fmt.Sprint("many.", i), inbox, []byte("x"))
	})
	g.caughtUp(all...)
	took := time.Since(begun)
	t.Log("it took", took)
	if took < time.Second || took > time.Minute {
		t.Errorf("it took %v; want it slow, and within a minute", took)
	}
	stopped()
	alsoStopped()
	g.must(os.Remove(disk)) // a quick end
}

// healthy asks nodes for their health, again and again, and wants an answer each time, until what it returns is called.
func (g *gang) healthy(ids ...string) (stop func()) {
	ctx, cancel := context.WithCancel(g.t.Context())
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			asked := 0
			for ; ctx.Err() == nil; asked++ {
				within, done := context.WithTimeout(ctx, soon/6)
				req, err := http.NewRequestWithContext(within, http.MethodGet,
					"http://"+g.nodes[id].cfg.AdminListen+"/healthz", http.NoBody)
				if err == nil {
					var resp *http.Response
					if resp, err = http.DefaultClient.Do(req); err == nil {
						err = resp.Body.Close()
					}
				}
				done()
				if err != nil && ctx.Err() == nil {
					g.t.Errorf("health of %s: %v", id, err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(readyPoll):
				}
			}
			if asked < 2 {
				g.t.Errorf("%s was asked %d times", id, asked)
			}
		})
	}
	return func() { cancel(); wg.Wait() }
}
