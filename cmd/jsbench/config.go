package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Modes of a run; the package comment says what each does.
const (
	modePubSync  = "pub-sync"
	modePubAsync = "pub-async"
	modeConsume  = "consume"
	modeFetch    = "fetch"
	modeWorkq    = "workq"
)

const (
	minSize = stampSize
	// maxMsgs keeps message numbers within the 32 bits they have in a message.
	maxMsgs = 1 << 31
)

// Config is the command line.
type Config struct {
	Mode string `arg:"" enum:"pub-sync,pub-async,consume,fetch,workq" help:"One of ${enum}."`

	URL      string `default:"nats://127.0.0.1:4222" help:"Servers, comma-separated."`
	Creds    string `type:"existingfile" help:"Credentials file."`
	CA       string `name:"tls-ca" type:"existingfile" help:"Certificates of authorities to trust."`
	ToLeader bool   `default:"true" negatable:"" help:"Connect to the server that leads the stream."`

	Stream   string `default:"JSBENCH" help:"Stream, deleted and created anew unless --keep."`
	Subject  string `default:"jsbench" help:"Subject; with --subjects the root of them."`
	Subjects int    `default:"1" help:"Spread messages over this many subjects (SUBJECT.0, SUBJECT.1, …)."`
	Replicas int    `default:"1" help:"Replicas of the stream."`
	Storage  string `default:"file" enum:"file,memory" help:"Storage of the stream."`
	Keep     bool   `help:"Use the stream as it is; leave it afterwards."`

	Msgs       int           `default:"100000" help:"Messages in all."`
	Size       int           `default:"128" help:"Payload bytes, at least 16."`
	Payload    string        `default:"random" enum:"random,compressible" help:"What the payload is made of."`
	Header     []string      `placeholder:"NAME:VALUE" sep:"none" help:"Header of every message, repeatable."`
	MsgID      bool          `name:"msg-id" help:"Give every message a Nats-Msg-Id."`
	Publishers int           `default:"1" help:"Concurrent publishers."`
	Conns      int           `default:"1" help:"Connections that the publishers share."`
	Window     int           `default:"1000" help:"Publishes in flight per publisher (pub-async, workq)."`
	Light      bool          `help:"pub-async and workq: plain requests instead of the jetstream package."`
	Consumers  int           `default:"1" help:"Clients that share the consumer, each with its connection."`
	Batch      int           `default:"500" help:"Messages per pull."`
	MaxPending int           `default:"20000" help:"The consumer's max_ack_pending."`
	AckWait    time.Duration `default:"60s" help:"The consumer's ack_wait."`
	DoubleAck  bool          `help:"Wait for the confirmation of each ack."`

	MaxDuration    time.Duration `help:"Stop publishing after this long."`
	Timeout        time.Duration `default:"20s" help:"Longest wait for a PubAck or a confirmed ack."`
	Stall          time.Duration `default:"30s" help:"Give up after this long without progress."`
	TolerateErrors bool          `help:"Refused publishes do not fail the run. Lost messages always do."`

	Runs  int    `default:"1" help:"Repeat, for benchstat."`
	PIDs  []int  `name:"pids" placeholder:"PID,…" help:"Server processes whose CPU time is counted."`
	Label string `help:"Name for the output, such as the server under test."`
	JSON  bool   `name:"json" help:"Print JSON instead of benchmark lines."`
}

// Validate checks what the flags alone cannot say. kong calls it.
func (c *Config) Validate() error {
	for _, n := range []struct {
		name          string
		value, lo, hi int
	}{
		{"--msgs", c.Msgs, 1, maxMsgs},
		{"--size", c.Size, minSize, 64 << 20},
		{"--subjects", c.Subjects, 1, maxMsgs},
		{"--replicas", c.Replicas, 1, 5},
		{"--publishers", c.Publishers, 1, 1 << 16},
		{"--conns", c.Conns, 1, 1 << 12},
		{"--window", c.Window, 1, 1 << 20},
		{"--consumers", c.Consumers, 1, 1 << 12},
		{"--batch", c.Batch, 1, 1 << 16},
		{"--runs", c.Runs, 1, 1 << 16},
	} {
		if n.value < n.lo || n.value > n.hi {
			return fmt.Errorf("%s is %d: want %d to %d", n.name, n.value, n.lo, n.hi)
		}
	}
	for _, h := range c.Header {
		if name, _, ok := strings.Cut(h, ":"); !ok || strings.TrimSpace(name) == "" {
			return fmt.Errorf("--header %q: want NAME:VALUE", h)
		}
	}
	if strings.ContainsAny(c.Label, " \t/") {
		return fmt.Errorf("--label %q: want no blanks and no slash, benchstat splits there", c.Label)
	}
	if c.Light && c.Mode != modePubAsync && c.Mode != modeWorkq {
		return errors.New("--light is for pub-async and workq")
	}
	if c.Timeout <= 0 || c.Stall <= 0 || c.AckWait <= 0 {
		return errors.New("--timeout, --stall and --ack-wait must be positive")
	}
	return nil
}

// perPublisher is how many messages each publisher sends; the last may send fewer.
func (c *Config) perPublisher() int {
	return (c.Msgs + c.Publishers - 1) / c.Publishers
}

// consumes says whether the mode has a consumer.
func (c *Config) consumes() bool {
	return c.Mode == modeConsume || c.Mode == modeFetch || c.Mode == modeWorkq
}
