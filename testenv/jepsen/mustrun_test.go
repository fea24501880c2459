package jepsen

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMustRunIsOfTheSet(t *testing.T) {
	t.Parallel()
	set := []string{"eio", "hang:leader", "kill"}
	for _, tt := range []struct {
		list string
		want []string
		ok   bool
	}{
		{"", nil, true},
		{"all", set, true},
		{"eio,kill", []string{"eio", "kill"}, true},
		{"eio:write", []string{"eio:write"}, true},
		{"hang:leader", []string{"hang:leader"}, true},
		{"hang", nil, false},
		{"hang:follower", nil, false},
		{"part", nil, false},
		{"oei", nil, false},
	} {
		got, err := ParseMustRun(tt.list, set)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != tt.ok {
			t.Errorf("%q: %v (-want +got):\n%s", tt.list, err, diff)
		}
	}
}

// TestUnrunFaultsAreFound: those that could not run, were left out, failed or did not have their turn.
func TestUnrunFaultsAreFound(t *testing.T) {
	t.Parallel()
	step := func(name string, failed bool) StepReport { return StepReport{Step: name + " for 1s", Failed: failed} }
	one := reported(Holdfast, 1, 1, good(), step("kill", false), step("hang:leader", false), step("move:one", true))
	one.NotRun["eio"] = "needs disks"
	one.LeftOutOf = map[string]int{"bitflip": 2, "twins": 1}
	two := reported(Holdfast, 2, 1, good(), step("bitflip", false))
	two.NotRun["eio"] = "the time was over"
	other := reported(Default, 1, 1, good(), step("eio:sync", false), step("twins:copy", false))
	for _, tt := range []struct {
		name    string
		reports []*Report
		faults  []string
		want    []string
	}{
		{"none asked for", []*Report{one}, nil, nil},
		{"they ran", []*Report{one}, []string{"kill", "hang", "hang:leader"}, nil},
		{"another variant did", []*Report{one}, []string{"hang:cut-off"}, []string{"hang:cut-off: it never had its turn"}},
		{"not run", []*Report{one, other}, []string{"eio", "eio:sync"}, []string{"eio: needs disks", "eio:sync: needs disks"}},
		{"left out", []*Report{one}, []string{"bitflip", "twins:copy"}, []string{
			"bitflip: left out, because not every node was well", "twins:copy: left out, because not every node was well",
		}},
		{"left out, and run another time", []*Report{one, two}, []string{"bitflip"}, nil},
		{"failed", []*Report{one}, []string{"move", "move:one"}, []string{
			"move: it could not be carried out", "move:one: it could not be carried out",
		}},
		{"in neither run", []*Report{one, two}, []string{"eio", "part"}, []string{
			"eio: needs disks; the time was over", "part: it never had its turn",
		}},
		{"no run of that system", []*Report{other}, []string{"eio"}, []string{"eio: there was no run"}},
	} {
		if diff := cmp.Diff(tt.want, Unrun(tt.reports, Holdfast, tt.faults)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// TestRunWithoutFaultsIsAProblem, unless it was to have none.
func TestRunWithoutFaultsIsAProblem(t *testing.T) {
	t.Parallel()
	r := reported(Holdfast, 5, 1, good())
	if p := r.Problems(); len(p) != 1 || p[0].What != "no fault was carried out, so nothing was tested" {
		t.Errorf("no steps: %v", p)
	}
	r.Nemeses = nil
	if p := r.Problems(); len(p) != 0 {
		t.Errorf("no steps wanted: %v", p)
	}
}
