package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// noiseLow and noiseHigh enclose the ratios of rates that few rounds cannot tell from 1: one server
	// against itself has measured that far apart.
	noiseLow, noiseHigh = 0.7, 1.3
	// cpuNoiseLow and cpuNoiseHigh are the same for CPU per message.
	cpuNoiseLow, cpuNoiseHigh = 0.9, 1.1
	// noisy marks such a ratio.
	noisy = " ≈"
	// busyMachine is the share of others above which the report warns.
	busyMachine = 0.1
	// none is an empty cell.
	none = "–"
)

// A header is what the report says of the run as a whole.
type header struct {
	holdfast, natsServer, goVersion string
	machine, fileSystem             string
	command                         string
	took                            time.Duration
}

// report is the whole text: the run, tables, failures.
func report(c *Config, h header, done []measurement) string {
	var b strings.Builder
	others := othersOf(done)
	fmt.Fprintf(&b, "Holdfast %s against nats-server %s, %s. %s.\n",
		h.holdfast, h.natsServer, h.goVersion, h.machine)
	fmt.Fprintf(&b, "`%s`: rounds: %d, length of a measurement: %v, in all: %v. ",
		h.command, c.Rounds, c.target(), h.took.Round(time.Second))
	fmt.Fprintf(&b, "Other processes used %.0f %% of the machine (at most %.0f %%).\n",
		others.median*100, others.max*100)
	if others.median > busyMachine {
		b.WriteString("\n**The machine had other work to do: the rates below are not to be relied on.**\n")
	}
	if h.fileSystem == tmpfs {
		b.WriteString("\n**The files were on tmpfs, where fsync costs nothing: this means nothing.**\n")
	}
	for _, nodes := range c.Nodes {
		title := "One node, one replica"
		if nodes > 1 {
			title = strconv.Itoa(nodes) + " nodes, " + strconv.Itoa(nodes) + " replicas"
		}
		fmt.Fprintf(&b, "\n### %s\n\n%s\n%s", title,
			rateTable(c.works(), nodes, done), costTable(c.works(), nodes, done))
	}
	if failed := failures(done); failed != "" {
		b.WriteString("\nFailed, and not in the tables:\n\n" + failed)
	}
	return b.String()
}

// pick collects one figure of one system by round, without failed measurements.
func pick(done []measurement, nodes int, k kind, w string, figure func(*result) float64) series {
	s := make(series)
	for i := range done {
		m := &done[i]
		if m.Nodes == nodes && m.System == k && m.Work == w && m.Err == "" {
			s[m.Round] = figure(&m.Result)
		}
	}
	return s
}

func othersOf(done []measurement) spread {
	var v []float64
	for i := range done {
		if done[i].Err == "" {
			v = append(v, done[i].Others)
		}
	}
	return spreadOf(v)
}

func rateTable(ws []work, nodes int, done []measurement) string {
	t := table{head: []string{
		"messages/s", "Holdfast", "JetStream always", "JetStream default", "to always", "to default", "aim",
	}}
	for _, w := range ws {
		of := func(k kind) series {
			return pick(done, nodes, k, w.name, func(r *result) float64 { return r.Rate })
		}
		ours, always, def := of(holdfast), of(streamAlways), of(streamDefault)
		a := w.aims[nodes]
		t.add(w.title, value(ours.spread()), value(always.spread()), value(def.spread()),
			ratio(ours.ratioTo(always), noiseLow, noiseHigh), ratio(ours.ratioTo(def), noiseLow, noiseHigh),
			aims("≥", a.rateAlways, a.rateDefault))
	}
	return t.String()
}

func costTable(ws []work, nodes int, done []measurement) string {
	t := table{head: []string{
		"CPU s per million", "Holdfast", "JetStream always", "JetStream default",
		"to always", "to default", "aim", "p50 / p99 ms: Holdfast", "always", "default",
	}}
	for _, w := range ws {
		cpu := func(k kind) series {
			return pick(done, nodes, k, w.name, func(r *result) float64 { return r.ServerCPU })
		}
		latency := func(k kind) string {
			p50 := pick(done, nodes, k, w.name, func(r *result) float64 { return r.P50 / 1e3 }).spread()
			p99 := pick(done, nodes, k, w.name, func(r *result) float64 { return r.P99 / 1e3 }).spread()
			if p99.n == 0 || p99.median == 0 {
				return none
			}
			return number(p50.median) + " / " + number(p99.median)
		}
		ours, always, def := cpu(holdfast), cpu(streamAlways), cpu(streamDefault)
		a := w.aims[nodes]
		t.add(w.title, value(ours.spread()), value(always.spread()), value(def.spread()),
			ratio(ours.ratioTo(always), cpuNoiseLow, cpuNoiseHigh),
			ratio(ours.ratioTo(def), cpuNoiseLow, cpuNoiseHigh),
			aims("≤", a.cpuAlways, a.cpuDefault),
			latency(holdfast), latency(streamAlways), latency(streamDefault))
	}
	return t.String()
}

// failures lists the measurements that have no numbers.
func failures(done []measurement) string {
	var b strings.Builder
	for i := range done {
		if m := &done[i]; m.Err != "" {
			reason, _, _ := strings.Cut(m.Err, "\n")
			fmt.Fprintf(&b, "- round %d, %d node(s), %s, %s: %s\n",
				m.Round, m.Nodes, m.System, m.Work, reason)
		}
	}
	return b.String()
}

// number shows three or four significant digits, thousands apart.
func number(x float64) string {
	switch {
	case x < 10:
		return strconv.FormatFloat(x, 'f', 2, 64)
	case x < 100:
		return strconv.FormatFloat(x, 'f', 1, 64)
	}
	digits := strconv.FormatFloat(x, 'f', 0, 64)
	var parts []string
	for len(digits) > 3 {
		parts = append(parts, digits[len(digits)-3:])
		digits = digits[:len(digits)-3]
	}
	parts = append(parts, digits)
	slices.Reverse(parts)
	return strings.Join(parts, ",")
}

func interval(s spread) string { return " [" + number(s.min) + "–" + number(s.max) + "]" }

// value is the cell of a figure.
func value(s spread) string {
	switch s.n {
	case 0:
		return none
	case 1:
		return number(s.median)
	}
	return number(s.median) + interval(s)
}

// ratio is the cell of a ratio; one between low and high is marked as noise.
func ratio(s spread, low, high float64) string {
	if s.n == 0 {
		return none
	}
	out := "**" + number(s.median) + "**"
	if s.n > 1 {
		out += interval(s)
	}
	if s.median >= low && s.median <= high {
		out += noisy
	}
	return out
}

// aims is the cell of what the project asks of itself.
func aims(sign string, always, def float64) string {
	one := func(x float64) string {
		if x == 0 {
			return none
		}
		return sign + " " + strconv.FormatFloat(x, 'g', -1, 64)
	}
	if always == 0 && def == 0 {
		return none
	}
	return one(always) + " / " + one(def)
}

// A table is markdown.
type table struct {
	head []string
	rows [][]string
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	var b strings.Builder
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(t.head)
	rule := make([]string, len(t.head))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	line(rule)
	for _, r := range t.rows {
		line(r)
	}
	return b.String()
}
