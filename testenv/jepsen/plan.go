package jepsen

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Step is one fault of a plan. Everything that is left to chance is in it.
type Step struct {
	// Name is of a nemesis.
	Name string
	// Quiet is the time before it, Hold how long the fault lasts.
	Quiet, Hold time.Duration
	// Order is a permutation of the nodes: who is hit first.
	Order [nodes]int
	// Choice is for what differs from nemesis to nemesis.
	Choice uint64
}

// String is one line.
func (s Step) String() string {
	return fmt.Sprintf("%s for %v, nodes %v, choice %d, after %v of quiet", s.Name, s.Hold, s.Order, s.Choice%1000, s.Quiet)
}

const (
	quietMin, quietMax = 2 * time.Second, 5 * time.Second
	holdMin, holdMax   = 4 * time.Second, 10 * time.Second
	// firstQuiet is the quiet start of a run.
	firstQuiet = 5 * time.Second
	millis     = time.Millisecond
)

// NewPlan makes the steps of a run: a pure function of its arguments. Each nemesis
// comes once before any comes again. The run decides how many steps it has time for.
func NewPlan(seed uint64, names []string, steps int) []Step {
	rng := rand.New(rand.NewPCG(seed, 1))
	between := func(lo, hi time.Duration) time.Duration {
		return lo + time.Duration(rng.Int64N(int64((hi-lo)/millis)))*millis
	}
	var out []Step
	var deck []string
	for len(names) > 0 && len(out) < steps {
		if len(deck) == 0 {
			deck = slices.Clone(names)
			rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		s := Step{Name: deck[0], Quiet: between(quietMin, quietMax), Hold: between(holdMin, holdMax), Choice: rng.Uint64()}
		if len(out) == 0 {
			s.Quiet = firstQuiet
		}
		copy(s.Order[:], rng.Perm(nodes))
		out, deck = append(out, s), deck[1:]
	}
	return out
}

// ParseNemeses reads a comma-separated list; empty is the default set, "all" is all, "none" none.
func ParseNemeses(list string) ([]string, error) {
	known := nemeses()
	switch list {
	case "":
		return defaults(), nil
	case "all":
		return sortedNames(known), nil
	case "none":
		return nil, nil
	}
	names := strings.Split(list, ",")
	for _, name := range names {
		if _, ok := known[name]; !ok {
			return nil, fmt.Errorf("unknown nemesis %q; there are %s", name, strings.Join(sortedNames(known), ", "))
		}
	}
	return names, nil
}
