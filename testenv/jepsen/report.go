package jepsen

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Text is the verdict for people: a table and what is wrong.
func (r *Report) Text() string {
	var b strings.Builder
	v := r.Verdict
	fmt.Fprintf(&b, "%s, seed %d: %d steps in %.0f s, %.0f acked publishes a second\n", r.Kind, r.Seed, len(r.Steps),
		r.Seconds, r.Rate)
	fmt.Fprintf(&b, "%-8s %9s %9s %8s %8s %9s %6s %24s\n", "stream", "attempted", "acked", "unknown", "refused",
		"recovered", "lost", "prefix/middle/postfix")
	for _, s := range v.Streams {
		fmt.Fprintf(&b, "%-8s %9d %9d %8d %8d %9d %6d %24s\n", s.Stream, s.Attempted, s.Acked, s.Unknown, s.Refused,
			s.Recovered, s.Lost.Count, fmt.Sprintf("%d/%d/%d", s.Prefix, s.Middle, s.Postfix))
	}
	fmt.Fprintf(&b, "work queue: %d deliveries (%d again, %d with a count too low), %d acks confirmed, %d not; "+
		"after a confirmed ack: %d, and %d around pauses and cuts\n", v.Work.Deliveries, v.Work.Redelivered,
		v.Work.LowCount.Count, v.Work.Confirmed, v.Work.Unconfirmed, v.Work.AfterAck.Count, v.Work.Excused.Count)
	fmt.Fprintf(&b, "registers: %d operations on %d subjects, %d not linearizable, %d undetermined\n",
		v.Registers.Operations, v.Registers.Subjects, v.Registers.Nonlinear.Count, v.Registers.Undetermined)
	fmt.Fprintf(&b, "%d publishes acked after the repair; %d processes had ended by themselves\n", r.AckedAfterHeal,
		r.Revived)
	gaps := r.gaps()
	for _, name := range slices.Sorted(maps.Keys(gaps)) {
		fmt.Fprintf(&b, "longest time without an acked publish in %s: %.1f s\n", name, gaps[name].Seconds())
	}
	for _, name := range slices.Sorted(maps.Keys(r.NotRun)) {
		fmt.Fprintf(&b, "NOT RUN: %s: %s\n", name, r.NotRun[name])
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(&b, "LEFT OUT: %d steps that would have lost files of one node while another was not well\n", r.LeftOut)
	}
	if v.Misread.Count > 0 {
		fmt.Fprintf(&b, "note: %s\n", strings.Join(v.Misread.Examples, "; "))
	}
	problems := r.Problems()
	for _, p := range problems {
		fmt.Fprintf(&b, "PROBLEM: %s: %d", p.What, p.Finding.Count)
		if len(p.Finding.Examples) > 0 {
			fmt.Fprintf(&b, " (%s)", strings.Join(p.Finding.Examples, "; "))
		}
		b.WriteString("\n")
	}
	if len(problems) == 0 {
		b.WriteString("nothing acked was lost, and nothing is wrong\n")
	}
	return b.String()
}

// gaps are the longest times without an acked publish, by nemesis.
func (r *Report) gaps() map[string]Moment {
	out := make(map[string]Moment)
	for _, s := range r.Steps {
		name, _, _ := strings.Cut(s.Step, " ")
		out[name] = max(out[name], s.Gap)
	}
	return out
}

// row is one line of the comparison.
type row struct{ name, value string }

// rows are the lines of the comparison, in order.
func (r *Report) rows() []row {
	var t StreamVerdict // the sum over all streams
	apart := 0
	for _, s := range r.Verdict.Streams {
		t.Acked, t.Unknown, t.Lost.Count = t.Acked+s.Acked, t.Unknown+s.Unknown, t.Lost.Count+s.Lost.Count
		t.Prefix, t.Middle, t.Postfix = t.Prefix+s.Prefix, t.Middle+s.Middle, t.Postfix+s.Postfix
		t.Stored.Count, t.Duplicates.Count = t.Stored.Count+s.Stored.Count, t.Duplicates.Count+s.Duplicates.Count
		t.Changed.Count, t.Disorder.Count = t.Changed.Count+s.Changed.Count, t.Disorder.Count+s.Disorder.Count
		t.Differs.Count, t.Unreadable = t.Differs.Count+s.Differs.Count, t.Unreadable+s.Unreadable
		for _, k := range s.LostBy {
			apart += k
		}
	}
	longest := Moment(0)
	for _, gap := range r.gaps() {
		longest = max(longest, gap)
	}
	v, back := r.Verdict, "yes"
	if v.Unready != "" || !v.Work.Drained {
		back = "no"
	}
	n := strconv.Itoa
	return []row{
		{"publishes acked", n(t.Acked)},
		{"outcome unknown", n(t.Unknown)},
		{"**acked and lost**", n(t.Lost.Count)},
		{"of them before / between / after what is there", fmt.Sprintf("%d / %d / %d", t.Prefix, t.Middle, t.Postfix)},
		{"acked, in a stream that cannot be read any more", n(t.Unreadable)},
		{"acked, and missing on one node only", n(apart)},
		{"refused, and stored", n(t.Stored.Count)},
		{"stored twice", n(t.Duplicates.Count)},
		{"another sequence than acked", n(t.Changed.Count)},
		{"sequences against the order of acks", n(t.Disorder.Count)},
		{"sequences that differ between nodes", n(t.Differs.Count)},
		{"delivered > 1 s after a confirmed ack", n(v.Work.AfterAck.Count)},
		{"the same around pauses and cuts", n(v.Work.Excused.Count)},
		{"messages whose events no queue explains", n(v.Work.Queue.Count)},
		{"registers not linearizable", fmt.Sprintf("%d of %d", v.Registers.Nonlinear.Count, v.Registers.Subjects)},
		{"came back by itself", back},
		{"longest time in a fault without an acked publish", fmt.Sprintf("%.0f s", longest.Seconds())},
		{"acked publishes per second under faults", fmt.Sprintf("%.0f", r.Rate)},
	}
}

// Table compares the reports of one seed and one set of nemeses, in markdown.
func Table(reports []*Report) string {
	var b strings.Builder
	if len(reports) == 0 {
		return ""
	}
	first := reports[0]
	fmt.Fprintf(&b, "Seed %d, %.0f s of load and faults, three nodes, three replicas. Faults: %s.\n\n", first.Seed,
		first.Seconds, strings.Join(first.Nemeses, ", "))
	head := map[Kind]string{
		Holdfast: "Holdfast (quorum)", Default: "JetStream (default)", Always: "JetStream (`sync_interval: always`)",
	}
	b.WriteString("| |")
	for _, r := range reports {
		fmt.Fprintf(&b, " %s |", head[r.Kind])
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(reports)) + "\n")
	for i, line := range first.rows() {
		fmt.Fprintf(&b, "| %s |", line.name)
		for _, r := range reports {
			fmt.Fprintf(&b, " %s |", r.rows()[i].value)
		}
		b.WriteString("\n")
	}
	for _, r := range reports {
		for _, name := range slices.Sorted(maps.Keys(r.NotRun)) {
			fmt.Fprintf(&b, "\nNot run on %s: %s (%s).\n", head[r.Kind], name, r.NotRun[name])
		}
	}
	return b.String()
}

// Markers of the part of a document that Update replaces.
const (
	beginMarker = "<!-- jepsen-compare: begin (replaced by make jepsen-compare; do not edit) -->"
	endMarker   = "<!-- jepsen-compare: end -->"
)

// ErrMarkers says that a document has no place for the table.
var ErrMarkers = errors.New("jepsen: the document has no begin and end marker")

// Update replaces what is between the markers of a document.
func Update(file, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), beginMarker)
	_, after, ok2 := strings.Cut(rest, endMarker)
	if !ok || !ok2 {
		return fmt.Errorf("%s: %w", file, ErrMarkers)
	}
	out := before + beginMarker + "\n\n" + strings.TrimSpace(text) + "\n\n" + endMarker + after
	return os.WriteFile(file, []byte(out), 0o600)
}
