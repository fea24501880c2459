package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// A Result is what one run measured. Times and counts that do not apply are zero.
type Result struct {
	Label      string  `json:"label,omitempty"`
	Mode       string  `json:"mode"`
	Size       int     `json:"size"`
	Payload    string  `json:"payload"`
	Publishers int     `json:"publishers"`
	Window     int     `json:"window"`
	Consumers  int     `json:"consumers"`
	Msgs       int     `json:"msgs"` // acknowledged, or delivered at least once
	Seconds    float64 `json:"seconds"`
	Rate       float64 `json:"msgs_per_s"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Max        float64 `json:"max_us"`
	Errors     int64   `json:"errors"`
	Lost       int     `json:"lost"`
	Repeats    int64   `json:"redelivered"`
	Drain      float64 `json:"drain_seconds"` // from the last message until every ack was processed
	ServerCPU  float64 `json:"server_cpu_s_per_1m"`
	ClientCPU  float64 `json:"client_cpu_s_per_1m"`
}

// newResult fills in what the tally and the configuration know.
func newResult(c *Config, t *tally, took time.Duration) Result {
	msgs := t.acked.len()
	if c.consumes() {
		msgs = t.received.len()
	}
	q := t.percentiles(0.5, 0.99, 1)
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	return Result{
		Label: c.Label, Mode: c.Mode, Size: c.Size, Payload: c.Payload,
		Publishers: c.Publishers, Window: c.Window, Consumers: c.Consumers,
		Msgs: msgs, Seconds: took.Seconds(), Rate: float64(msgs) / took.Seconds(),
		P50: micros(q[0]), P99: micros(q[1]), Max: micros(q[2]),
		Errors: t.failures.Load(), Repeats: t.repeats.Load(),
	}
}

// perMillion is CPU seconds per million messages.
func perMillion(cpu time.Duration, msgs int) float64 {
	if msgs == 0 {
		return 0
	}
	return cpu.Seconds() * 1e6 / float64(msgs)
}

// print writes the result as the configuration wants it.
func (r *Result) print(c *Config, w io.Writer) error {
	if c.JSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := fmt.Fprintln(w, r.benchmarkLine())
	return err
}

// benchmarkLine is the result in the format of Go benchmarks.
func (r *Result) benchmarkLine() string {
	var b strings.Builder
	b.WriteString("BenchmarkJetStream")
	if r.Label != "" {
		b.WriteString("/label=" + r.Label)
	}
	nsPerOp := 0.0
	if r.Msgs > 0 {
		nsPerOp = r.Seconds * 1e9 / float64(r.Msgs)
	}
	fmt.Fprintf(&b, "/mode=%s/size=%d %d %.1f ns/op %.0f msg/s", r.Mode, r.Size, r.Msgs, nsPerOp, r.Rate)
	if r.Max > 0 {
		fmt.Fprintf(&b, " %.1f p50-us %.1f p99-us", r.P50, r.P99)
	}
	if r.ServerCPU > 0 {
		fmt.Fprintf(&b, " %.2f server-cpu-s/1M", r.ServerCPU)
	}
	fmt.Fprintf(&b, " %.2f client-cpu-s/1M %d errors %d redelivered", r.ClientCPU, r.Errors, r.Repeats)
	return b.String()
}
