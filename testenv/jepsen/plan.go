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

// What steps cost on two cores, waits for the cluster and quiet included, where that is not usualCost.
const usualCost = 25 * time.Second

func costs() map[string]time.Duration {
	const s = time.Second
	return map[string]time.Duration{
		"kill-all": 15 * s, "power-all": 15 * s, "reset": 15 * s, "pause": 35 * s, "part-kill": 40 * s,
		"pause-kill": 40 * s, "rolling": 35 * s, "slow-fsync": 40 * s, "member": 45 * s, "eio": 35 * s,
		"hang": 75 * s, "clock": 75 * s,
	}
}

func cost(name string) time.Duration {
	if d := costs()[name]; d > 0 {
		return d
	}
	return usualCost
}

// shortRun is the length of a run, such as one among other tests, that is to get through one
// block of faults, and blockTime what a block may cost, with something to spare.
const (
	shortRun  = 3 * time.Minute
	blockTime = shortRun - 30*time.Second
)

// Blocks is how many blocks the faults are parted into, each of what a short run has time for.
// Short runs under seeds k·Blocks to k·Blocks + Blocks − 1 come to every fault.
func Blocks(names []string) int {
	sum := time.Duration(0)
	for _, name := range names {
		sum += cost(name)
	}
	return max(1, min(len(names), int((sum+blockTime-1)/blockTime)))
}

// firstRound is the order in which a plan comes to every fault: the block of its seed first.
func firstRound(seed uint64, names []string) []string {
	blocks := make([][]string, Blocks(names))
	sums := make([]time.Duration, len(blocks))
	deck := slices.Clone(names)
	common := rand.New(rand.NewPCG(seed/uint64(len(blocks)), 4))
	common.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	slices.SortStableFunc(deck, func(a, b string) int { return int(cost(b) - cost(a)) })
	for _, name := range deck {
		k := slices.Index(sums, slices.Min(sums))
		blocks[k], sums[k] = append(blocks[k], name), sums[k]+cost(name)
	}
	own := rand.New(rand.NewPCG(seed, 5))
	out := make([]string, 0, len(names))
	for i := range blocks {
		block := blocks[(seed+uint64(i))%uint64(len(blocks))]
		own.Shuffle(len(block), func(i, j int) { block[i], block[j] = block[j], block[i] })
		out = append(out, block...)
	}
	return out
}

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
		switch {
		case len(out) == 0:
			deck = firstRound(seed, names)
		case len(deck) == 0:
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
