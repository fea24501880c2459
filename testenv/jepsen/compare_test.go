package jepsen

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// truncated is a history whose stream lost what was last.
func truncated() *History {
	h := good()
	for i := range h.Reads {
		if h.Reads[i].Stream == streamLog {
			h.Reads[i].Entries = h.Reads[i].Entries[:3]
		}
	}
	return h
}

// reported is a run for a table.
func reported(kind Kind, seed uint64, rate float64, h *History, steps ...StepReport) *Report {
	return &Report{
		Kind: kind, Seed: seed, Seconds: 90, Nemeses: []string{"kill", "part", "grow"}, Rate: rate, Steps: steps,
		NotRun: map[string]string{}, AckedAfterHeal: 1, Verdict: Check(h),
	}
}

func TestTableSumsOverSeeds(t *testing.T) {
	t.Parallel()
	kill := StepReport{Step: "kill for 1s", Gap: 3 * time.Second}
	part := StepReport{Step: "part:both for 1s", Gap: 4 * time.Second}
	stuck := reported(Default, 6, 20, truncated(), kill)
	stuck.Verdict.Unready, stuck.Verdict.Replicas = "no leader", Finding{}
	stuck.NotRun["grow"], stuck.NotRun["part"] = "no such thing", "the time was over before its turn"
	stuck.LeftOut, stuck.LeftOutOf, stuck.Failed = 2, map[string]int{"bitflip": 2}, []string{"1, kill: gone"}
	other := reported(Default, 5, 40, truncated(), kill, kill, part)
	other.NotRun["grow"] = "no such thing"
	one, two, three := reported(Holdfast, 5, 50, good(), kill, part), reported(Holdfast, 6, 10, good(), part),
		reported(Holdfast, 7, 30, good())
	two.Broken = []string{"n1 did not end"}
	text := Table([]*Report{stuck, one, other, two, three})
	for _, want := range []string{
		"Holdfast (quorum): Seeds 5, 6, 7; JetStream (default): Seeds 5, 6, three nodes",
		"| | Holdfast (quorum) | JetStream (default) |\n|---|---:|---:|\n",
		"| runs, minutes of load and faults | 3, 4.5 | 2, 3.0 |",
		"| faults carried out | 3 | 4 |",
		"| publishes acked | 21 | 14 |",
		"| **acked and lost** | 0 | 2 |",
		"| 0 / 0 / 0 | 0 / 0 / 2 |",
		"| came back by itself | 3 of 3 | 1 of 2 |",
		"| longest time in a fault without an acked publish | 4 s | 4 s |",
		"faults, median | 30 | 30 |",
		"that differs): grow 0, kill 1/3, part 2/1.\n",
		"Not run on JetStream (default): grow in 2 of 2 runs (no such thing).",
		"Not run on JetStream (default): part in 1 of 2 runs (the time was over before its turn).",
		"Left out on JetStream (default), because not every node was well: bitflip 2.",
		"Of the faults on JetStream (default), 1 did not come to their end.",
		"Promises of Holdfast (quorum) broken during a fault: n1 did not end.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the table lacks %q:\n%s", want, text)
		}
	}
	if got := Table([]*Report{one}); !strings.HasPrefix(got, "Seed 5, three nodes") || !strings.Contains(got, "| 1 of 1 |") {
		t.Errorf("of one run:\n%s", got)
	}
	five := reported(HoldfastNone, 5, 50, good())
	five.Nodes = 5
	if got := Table([]*Report{five, one}); !strings.HasPrefix(got, "Seed 5, three nodes, three replicas; five nodes") ||
		!strings.Contains(got, "| | Holdfast (quorum) | Holdfast (none) |\n") {
		t.Errorf("of two sizes:\n%s", got)
	}
	if got := Table(nil); got != "" {
		t.Errorf("of no runs: %q", got)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		of   []float64
		want float64
	}{{[]float64{7}, 7}, {[]float64{9, 1}, 5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(tt.of); got != tt.want {
			t.Errorf("of %v: %v, want %v", tt.of, got, tt.want)
		}
	}
}

func TestMergeTakesTheLaterOne(t *testing.T) {
	t.Parallel()
	a, b, c := reported(Always, 5, 1, good()), reported(Holdfast, 10, 2, good()), reported(Holdfast, 9, 3, good())
	again, others := reported(Always, 5, 4, good()), reported(Always, 5, 5, good())
	others.Nemeses = []string{"kill"}
	var got []float64
	for _, r := range Merge([]*Report{a, b}, []*Report{c, again}, nil, []*Report{others}) {
		got = append(got, r.Rate)
	}
	if diff := cmp.Diff([]float64{3, 2, 5, 4}, got); diff != "" {
		t.Error(diff)
	}
}

func TestReportSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	steps := []StepReport{{Step: "kill for 1s", Gap: 3 * time.Second}, {Step: "part for 1s", Gap: second}, {Step: "kill for 2s"}}
	one, two := reported(Holdfast, 5, 1, good(), steps...), reported(Default, 5, 1, truncated())
	if got := one.Text(); !strings.Contains(got, "nothing is wrong") || !strings.Contains(got, "in kill: 3.0 s") {
		t.Errorf("a good run says:\n%s", got)
	}
	if got := two.Text(); !strings.Contains(got, "PROBLEM: JEPSEN: acked and lost: 1") {
		t.Errorf("a bad run says:\n%s", got)
	}
	one.AckedAfterHeal = 0
	one.Failed = []string{"1, kill: no such process"}
	if got := one.Problems(); len(got) != 2 {
		t.Errorf("a run that did not go on, with a failed step: %v", got)
	}
}
