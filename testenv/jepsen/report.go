package jepsen

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// Text is the verdict for people: a table and what is wrong.
func (r *Report) Text() string {
	var b strings.Builder
	v := r.Verdict
	fmt.Fprintf(&b, "%s, %d nodes, seed %d: %d steps in %.0f s, %.0f acked publishes a second\n", r.Kind, r.size(), r.Seed,
		len(r.Steps), r.Seconds, r.Rate)
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
	fmt.Fprintf(&b, "patient reads: %d answers, %d of them after more than %v; %d stale, %d of nothing written\n",
		v.Registers.Lookups, v.Registers.Late, callTimeout, v.Registers.Stale.Count, v.Registers.Invented.Count)
	fmt.Fprintf(&b, "%d publishes acked after the repair; %d processes had ended by themselves\n", r.AckedAfterHeal,
		r.Revived)
	if n := r.Files; n.Noticed+n.Harmless > 0 {
		fmt.Fprintf(&b, "files changed in %d steps: damage noticed and repaired in %d, nothing needed was hit in %d\n",
			n.Noticed+n.Harmless, n.Noticed, n.Harmless)
	}
	gaps := r.gaps()
	for _, name := range slices.Sorted(maps.Keys(gaps)) {
		fmt.Fprintf(&b, "longest time without an acked publish in %s: %.1f s\n", name, gaps[name].Seconds())
	}
	for _, name := range slices.Sorted(maps.Keys(r.NotRun)) {
		fmt.Fprintf(&b, "NOT RUN: %s: %s\n", name, r.NotRun[name])
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(&b, "LEFT OUT: %d steps that need all other nodes, while one was not well\n", r.LeftOut)
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
		b.WriteString(r.praise() + "\n")
	}
	return b.String()
}

// praise says what a run without a problem has shown.
func (r *Report) praise() string {
	if r.Kind.level() != "" {
		return "nothing is wrong but what the ack level allows"
	}
	return "nothing acked was lost, and nothing is wrong"
}

// fault is the name of the nemesis of a step, with its variant if it has any.
func (s *StepReport) fault() string {
	name, _, _ := strings.Cut(s.Step, " ")
	return name
}

// gaps are the longest times without an acked publish, by nemesis.
func (r *Report) gaps() map[string]Moment {
	out := make(map[string]Moment)
	for _, s := range r.Steps {
		out[s.fault()] = max(out[s.fault()], s.Gap)
	}
	return out
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
