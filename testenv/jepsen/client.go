package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

// Streams of the workload.
const (
	streamLog  = "JEPSEN" // keeps everything: jepsen.<writer>
	streamWork = "WORK"   // work queue: work.<writer>
	streamReg  = "REG"    // registers: reg.<window>.<k>
	durable    = "workers"
)

func streams() []string { return []string{streamLog, streamWork, streamReg} }

const (
	// callTimeout bounds every operation, as in Jepsen's test.
	callTimeout    = 5 * time.Second
	connectTimeout = 2 * time.Second
	reconnectWait  = 100 * time.Millisecond
	// ackWait is after how long an unsettled message comes again.
	ackWait    = 15 * time.Second
	maxPending = 1000
	// errCodeNoRoom is JetStream's "insufficient resources".
	errCodeNoRoom jetstream.ErrorCode = 10023
)

// connect opens a connection to one named node, and to no other.
func connect(n *Node, name string, more ...nats.Option) (*nats.Conn, error) {
	return nats.Connect("nats://"+n.Client, append([]nats.Option{
		nats.Name(name), nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1),
		nats.ReconnectWait(reconnectWait), nats.ReconnectJitter(0, 0), nats.RetryOnFailedConnect(true),
		nats.Timeout(connectTimeout), nats.PingInterval(callTimeout), nats.MaxPingsOutstanding(2),
	}, more...)...)
}

// connectAny opens a connection to whichever node can be reached, and to another when that ends.
func connectAny(c *Cluster, name string) (*nats.Conn, error) {
	var urls []string
	for _, n := range c.Nodes {
		urls = append(urls, "nats://"+n.Client)
	}
	return nats.Connect(strings.Join(urls, ","), nats.Name(name), nats.IgnoreDiscoveredServers(),
		nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait), nats.Timeout(connectTimeout))
}

// createStreams makes the streams and the consumer. Messages expire when they are of an age that
// none reaches in a run, so one that is missing was lost, or went because of a clock that moved.
func createStreams(ctx context.Context, c *Cluster, age time.Duration) error {
	nc, err := connect(c.Nodes[0], "setup")
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		return err
	}
	for _, cfg := range []jetstream.StreamConfig{
		{Name: streamLog, Subjects: []string{"jepsen.*"}, MaxAge: age},
		{Name: streamWork, Subjects: []string{"work.*"}, Retention: jetstream.WorkQueuePolicy, MaxAge: age},
		{Name: streamReg, Subjects: []string{"reg.*.*"}, MaxAge: age},
	} {
		cfg.Replicas, cfg.Storage, cfg.Discard = len(c.Nodes), jetstream.FileStorage, jetstream.DiscardNew
		err := process.Until(ctx, func() error {
			_, err := js.CreateOrUpdateStream(ctx, cfg)
			return err
		})
		if err != nil {
			return fmt.Errorf("creating stream %s: %w", cfg.Name, err)
		}
	}
	return process.Until(ctx, func() error {
		_, err := js.CreateOrUpdateConsumer(ctx, streamWork, jetstream.ConsumerConfig{
			Durable: durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: ackWait, MaxAckPending: maxPending,
		})
		return err
	})
}

// judge says what an error of a publish means for it.
func judge(err error) Outcome {
	var api *jetstream.APIError
	switch {
	case err == nil:
		return Acked
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return Refused // nobody was subscribed, so nobody got it
	case errors.As(err, &api):
		// 503 is said of what may have been stored, unless it says that it was not.
		if api.Code == 503 && !strings.Contains(api.Description, "not stored") {
			return Unknown
		}
		return Refused
	default:
		return Unknown
	}
}

// getRegister asks the leader of the registers for a message.
const getRegister = "$JS.API.STREAM.MSG.GET." + streamReg

// lastRequest is the request for the last message of a subject.
func lastRequest(subject string) []byte { return fmt.Appendf(nil, `{"last_by_subj":%q}`, subject) }

// lastOf asks the leader of the registers for the last sequence of a subject, 0 = none.
func lastOf(ctx context.Context, nc *nats.Conn, subject string) (uint64, error) {
	m, err := nc.RequestWithContext(ctx, getRegister, lastRequest(subject))
	if err != nil {
		return 0, err
	}
	return lastIn(m.Data)
}

// lastIn is the sequence that an answer tells, 0 if it says that there is no message.
func lastIn(body []byte) (uint64, error) {
	var answer struct {
		Message *struct {
			Seq uint64 `json:"seq"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return 0, err
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return 0, nil
	case answer.Error != nil:
		return 0, answer.Error
	case answer.Message == nil:
		return 0, fmt.Errorf("neither a message nor an error: %q", body)
	}
	return answer.Message.Seq, nil
}

// pause waits for a while; false if ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
