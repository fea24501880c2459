package jepsen

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// mustRunAll stands for every fault of the set.
const mustRunAll = "all"

// ParseMustRun reads the faults that runs over a set of faults must come to: a list as for ParseNemeses, of
// faults of the set, or "all" for the whole set; empty is none.
func ParseMustRun(list string, set []string) ([]string, error) {
	switch list {
	case "":
		return nil, nil
	case mustRunAll:
		return set, nil
	}
	names, err := ParseNemeses(list)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if !slices.Contains(set, name) && !slices.Contains(set, baseOf(name)) {
			return nil, fmt.Errorf("%s must run, and is not among the faults of the run: %s", name, strings.Join(set, ","))
		}
	}
	return names, nil
}

// Unrun says of each of some faults that none of the runs of a system carried out, why that is. A step that was
// left out was not carried out, nor was one that failed.
func Unrun(reports []*Report, kind Kind, faults []string) []string {
	done := make(map[string]bool)
	why := make(map[string]map[string]bool)
	for _, r := range reports {
		if r.Kind != kind {
			continue
		}
		for _, s := range r.Steps {
			if !s.Failed {
				done[s.fault()], done[baseOf(s.fault())] = true, true
			}
		}
		for _, name := range faults {
			if why[name] == nil {
				why[name] = make(map[string]bool)
			}
			why[name][r.unrun(name)] = true
		}
	}
	var out []string
	for _, name := range faults {
		if done[name] {
			continue
		}
		reasons := slices.Sorted(maps.Keys(why[name]))
		if len(reasons) == 0 {
			reasons = []string{"there was no run"}
		}
		out = append(out, name+": "+strings.Join(reasons, "; "))
	}
	return out
}

// unrun says why a run did not come to a fault, or not well.
func (r *Report) unrun(name string) string {
	base := baseOf(name)
	switch {
	case r.NotRun[name] != "":
		return r.NotRun[name]
	case r.NotRun[base] != "":
		return r.NotRun[base]
	case r.LeftOutOf[base] > 0:
		return "left out, because not every node was well"
	case slices.ContainsFunc(r.Steps, func(s StepReport) bool { return s.Failed && baseOf(s.fault()) == base }):
		return "it could not be carried out"
	default:
		return "it never had its turn"
	}
}
