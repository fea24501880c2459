package testenv

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// How much BenchmarkScale makes unless the environment says otherwise.
const (
	scaleStreams   = 100_000
	scaleConsumers = 10_000
	scaleClients   = 64
	// scaleIdle is for how long the CPU of an idle node is measured.
	scaleIdle = 5 * time.Second
)

// BenchmarkScale makes many streams with one message each and many durable consumers of
// one of them on one node, and measures what they cost: how fast they are made, the
// memory of the process (its client included), CPU when nothing happens, a restart, and
// the calls that look at all of them. HOLDFAST_SCALE_STREAMS and
// HOLDFAST_SCALE_CONSUMERS set how many. It is one round whatever b.N is:
//
//	go test -run '^$' -bench Scale -benchtime 1x -timeout 1h ./testenv
func BenchmarkScale(b *testing.B) {
	streams := scaleOf(b, "HOLDFAST_SCALE_STREAMS", scaleStreams)
	consumers := scaleOf(b, "HOLDFAST_SCALE_CONSUMERS", scaleConsumers)
	n, err := NewNode(node.Config{DataDir: b.TempDir()}, &Ports{})
	if err != nil {
		b.Fatal(err)
	}
	s := &scale{b: b, n: n}
	b.Cleanup(func() { s.must(n.Stop(b.Context())) })
	s.start()
	empty := rss(b)
	s.report("MB-empty", float64(empty)/1e6)

	s.rate("streams/s", streams, func(nc *nats.Conn, i int) error {
		return s.call(nc, "STREAM.CREATE."+streamName(i), fmt.Sprintf(
			`{"name":%q,"subjects":["scale.%d"],"retention":"limits","storage":"file"}`, streamName(i), i), nil)
	})
	s.rate("publishes/s", streams, func(nc *nats.Conn, i int) error {
		return request(nc, "scale."+strconv.Itoa(i), "x", nil)
	})
	s.report("MB-streams", float64(rss(b)-empty)/1e6)
	s.idle("%core-streams")
	s.looks()
	s.rate("consumers/s", consumers, func(nc *nats.Conn, i int) error {
		return s.call(nc, fmt.Sprintf("CONSUMER.DURABLE.CREATE.%s.c%d", streamName(0), i), fmt.Sprintf(
			`{"stream_name":%q,"config":{"durable_name":"c%d","ack_policy":"explicit"}}`, streamName(0), i), nil)
	})
	s.report("MB-all", float64(rss(b)-empty)/1e6)
	s.idle("%core-all")

	s.nc.Close()
	s.timed("s-stop", func() { s.must(n.Stop(b.Context())) })
	debug.FreeOSMemory()
	s.timed("s-restart", func() {
		s.start()
		for last := "scale." + strconv.Itoa(streams-1); ; {
			err := request(s.nc, last, "x", nil)
			if err == nil {
				return
			}
			if !errors.Is(err, nats.ErrNoResponders) { // the leader is still subscribing
				s.must(err)
			}
			<-time.After(readyPoll)
		}
	})
	s.timed("s-restart-consumers", func() {
		s.must(s.call(s.nc, fmt.Sprintf("CONSUMER.INFO.%s.c%d", streamName(0), consumers-1), "", nil))
	})
	s.report("MB-restarted", float64(rss(b))/1e6)
	s.looks()
}

func streamName(i int) string { return "S" + strconv.Itoa(i) }

type scale struct {
	b  *testing.B
	n  *Node
	nc *nats.Conn
}

func (s *scale) must(err error) {
	s.b.Helper()
	if err != nil {
		s.b.Fatal(err)
	}
}

func (s *scale) report(what string, v float64) {
	s.b.ReportMetric(v, what)
	s.b.Logf("%-22s %12.3f", what, v)
}

func (s *scale) timed(what string, f func()) {
	s.b.Helper()
	t := time.Now()
	f()
	s.report(what, time.Since(t).Seconds())
}

func (s *scale) start() {
	s.b.Helper()
	s.must(s.n.Start(s.b.Context()))
	s.must(s.n.WaitReady(s.b.Context()))
	nc, err := nats.Connect(s.n.URL())
	s.must(err)
	s.nc = nc
	s.b.Cleanup(nc.Close)
}

// rate does f for 0 to count-1 from many clients and reports how many a second, and for
// the last tenth alone.
func (s *scale) rate(what string, count int, f func(nc *nats.Conn, i int) error) {
	s.b.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	begun, late := time.Now(), time.Time{}
	for range scaleClients {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				err := f(s.nc, i)
				mu.Lock()
				failed = errors.Join(failed, err)
				stop := failed != nil
				if i == count-count/10 {
					late = time.Now()
				}
				mu.Unlock()
				if stop {
					return
				}
			}
		})
	}
	wg.Wait()
	s.must(failed)
	s.report(what, float64(count)/time.Since(begun).Seconds())
	s.report(what+"-at-the-end", float64(count/10)/time.Since(late).Seconds())
}

// call asks the API.
func (s *scale) call(nc *nats.Conn, verb, body string, into any) error {
	return request(nc, "$JS.API."+verb, body, into)
}

func request(nc *nats.Conn, subject, body string, into any) error {
	m, err := nc.Request(subject, []byte(body), time.Minute)
	if err != nil {
		return fmt.Errorf("%s: %w", subject, err)
	}
	if strings.Contains(string(m.Data), `"error":`) {
		return fmt.Errorf("%s: %s", subject, m.Data)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(m.Data, into)
}

// looks measures the calls that look at every stream.
func (s *scale) looks() {
	s.b.Helper()
	s.timed("s-info", func() { s.must(s.call(s.nc, "INFO", "", nil)) })
	s.timed("s-info-again", func() { s.must(s.call(s.nc, "INFO", "", nil)) })
	for verb, field := range map[string]string{"NAMES": "names", "LIST": "list"} {
		s.timed("s-"+field, func() {
			for at := 0; ; {
				var page struct {
					Total   int               `json:"total"`
					Streams []json.RawMessage `json:"streams"`
				}
				s.must(s.call(s.nc, "STREAM."+verb, fmt.Sprintf(`{"offset":%d}`, at), &page))
				at += len(page.Streams)
				if at >= page.Total || len(page.Streams) == 0 {
					return
				}
			}
		})
	}
}

// idle measures the CPU of a node that nobody uses, in percent of a core.
func (s *scale) idle(what string) {
	s.b.Helper()
	begun, cpu := time.Now(), cpuTime(s.b)
	<-time.After(scaleIdle)
	s.report(what, 100*(cpuTime(s.b)-cpu).Seconds()/time.Since(begun).Seconds())
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// rss is the memory of this process after a collection, in bytes.
func rss(b *testing.B) int64 {
	b.Helper()
	debug.FreeOSMemory()
	stat, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(stat))[1], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

func scaleOf(b *testing.B, name string, def int) int {
	b.Helper()
	text := os.Getenv(name)
	if text == "" {
		return def
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 {
		b.Fatalf("%s is %q; it must be a number above 0", name, text)
	}
	return v
}
