package main

import (
	"strconv"
	"time"
)

const (
	// maxMsgs is more than any system takes in a second of a measurement, which ends by time.
	maxMsgs = 2_000_000
	// minFill is the fewest messages that are filled in to be consumed.
	minFill = 1_000
	// fillTime bounds filling in, as a multiple of the length of a measurement.
	fillTime = 3
)

// A work is what is measured: one row of the table.
type work struct {
	name  string // for --work
	title string
	mode  string // of jsbench

	size       int
	publishers int
	window     int // 0: none
	light      bool

	aims map[int]aim // by number of nodes
}

// An aim is what the project asks of itself: ratios of Holdfast to the others. 0 is none.
type aim struct{ rateAlways, rateDefault, cpuAlways, cpuDefault float64 }

// works are all rows, in the order of the table.
func works() []work {
	return []work{
		{
			name: "async-128", title: "async publish, window 2000, 128 B", mode: "pub-async",
			size: 128, publishers: 1, window: 2000, light: true,
			aims: map[int]aim{1: {50, 0.8, 0, 0}, 3: {2.5, 1.4, 0.4, 0.6}},
		},
		{
			name: "async-1k", title: "async publish, window 2000, 1 KiB", mode: "pub-async",
			size: 1 << 10, publishers: 1, window: 2000, light: true,
			aims: map[int]aim{3: {2.5, 1.1, 0, 0}},
		},
		{
			name: "async-16k", title: "async publish, window 500, 16 KiB", mode: "pub-async",
			size: 16 << 10, publishers: 1, window: 500, light: true,
			aims: map[int]aim{3: {1.4, 1, 0, 0}},
		},
		{
			name: "sync-64", title: "64 sync publishers, 128 B", mode: "pub-sync", size: 128, publishers: 64,
			aims: map[int]aim{3: {1.5, 0, 0, 0}},
		},
		{
			name: "sync-1", title: "1 sync publisher, 128 B", mode: "pub-sync", size: 128, publishers: 1,
			aims: map[int]aim{3: {1, 0, 0, 0}},
		},
		{
			name: "workq", title: "work queue: publish + consume + ack, 128 B", mode: "workq",
			size: 128, publishers: 1, window: 1000, light: true,
			aims: map[int]aim{3: {3, 2, 0, 0}},
		},
		{
			name: "consume", title: "consume with explicit acks, 128 B", mode: modeConsume,
			size: 128, publishers: 1, window: 2000,
			aims: map[int]aim{3: {2, 1.3, 0, 0}},
		},
	}
}

// modeConsume is the mode of jsbench whose messages are filled in before the clock starts.
const modeConsume = "consume"

// A pace is what is known of how fast a system is, in messages a second; 0 is unknown.
type pace struct{ publish, consume float64 }

// args are the arguments of jsbench for a measurement of about that length, without those that say where.
func (w *work) args(target time.Duration, p pace) []string {
	out := []string{w.mode, "--size", strconv.Itoa(w.size), "--publishers", strconv.Itoa(w.publishers)}
	if w.window > 0 {
		out = append(out, "--window", strconv.Itoa(w.window))
	}
	if w.light {
		out = append(out, "--light")
	}
	if w.mode == modeConsume {
		return append(out, "--msgs", strconv.Itoa(fill(target, p)))
	}
	msgs := max(maxMsgs*target.Seconds(), maxMsgs)
	return append(out, "--msgs", strconv.Itoa(int(msgs)), "--max-duration", target.String())
}

// fill is how many messages are filled in: what is consumed within target, unless filling takes too long.
func fill(target time.Duration, p pace) int {
	consume := p.consume
	if consume == 0 {
		consume = p.publish
	}
	n := min(consume, p.publish*fillTime) * target.Seconds()
	return max(int(n), minFill)
}
