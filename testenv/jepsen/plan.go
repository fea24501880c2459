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
	Order []int
	// Choice is for what differs from nemesis to nemesis.
	Choice uint64
	// Variant is one of those of the nemesis, empty if it has none.
	Variant string
	// Fixed: no other node than the first may be hit, whoever leads.
	Fixed bool
}

// on is the step with a node in front, which alone may be hit.
func (s Step) on(node int) Step {
	s.Order = slices.Clone(s.Order)
	k := slices.Index(s.Order, node)
	s.Order[0], s.Order[k] = s.Order[k], s.Order[0]
	s.Fixed = true
	return s
}

// variantSep is between the name of a nemesis and one of its variants, where one is asked for.
const variantSep = ":"

// fault is the name of the nemesis, with the variant if it has any.
func (s Step) fault() string {
	if s.Variant == "" {
		return s.Name
	}
	return s.Name + variantSep + s.Variant
}

// baseOf is the name of a nemesis without its variant.
func baseOf(name string) string {
	base, _, _ := strings.Cut(name, variantSep)
	return base
}

// variantAt is which of its variants a nemesis shows when it comes for the k-th time, from 0 on.
// It is another one under the next seed, and under the next that begins with the same block.
func variantAt(seed uint64, k int, variants []string, blocks int) string {
	if len(variants) == 0 {
		return ""
	}
	n := uint64(blocks)
	return variants[(seed/n+seed%n+uint64(k))%uint64(len(variants))]
}

// String is one line.
func (s Step) String() string {
	return fmt.Sprintf("%s for %v, nodes %v, choice %d, after %v of quiet",
		s.fault(), s.Hold, s.Order, s.Choice%1000, s.Quiet)
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
		"kill-all": 15 * s, "power-all": 15 * s, "reset": 15 * s, "pause": 35 * s, "part-kill": 50 * s,
		"pause-kill": 50 * s, "rolling": 35 * s, "slow-fsync": 40 * s, "member": 45 * s, "eio": 35 * s,
		"timetravel": 45 * s, "disk-full": 45 * s,
		"hang": 75 * s, "clock": 75 * s, "grow": 60 * s, "return": 45 * s, "twins": 45 * s,
	}
}

func cost(name string) time.Duration {
	if d := costs()[baseOf(name)]; d > 0 {
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

// Blocks is how many blocks the faults are parted into, so many that a short run has time for
// each. Short runs under seeds k·Blocks to k·Blocks + Blocks − 1 come to every fault.
func Blocks(names []string) int {
	deck := slices.Clone(names)
	for n := 1; n < len(names); n++ {
		if _, longest := parted(deck, n); longest <= blockTime {
			return n
		}
	}
	return max(1, len(names))
}

// parted deals faults into blocks that cost about the same, those that cost most first, and
// returns what the longest costs. The order of faults that cost the same is that of deck, which
// is sorted.
func parted(deck []string, n int) (blocks [][]string, longest time.Duration) {
	blocks = make([][]string, n)
	sums := make([]time.Duration, n)
	slices.SortStableFunc(deck, func(a, b string) int { return int(cost(b) - cost(a)) })
	for _, name := range deck {
		k := slices.Index(sums, slices.Min(sums))
		blocks[k], sums[k] = append(blocks[k], name), sums[k]+cost(name)
	}
	return blocks, slices.Max(sums)
}

// firstRound is the order in which a plan comes to every fault: the block of its seed first.
func firstRound(seed uint64, names []string) []string {
	n := Blocks(names)
	deck := slices.Clone(names)
	common := rand.New(rand.NewPCG(seed/uint64(n), 4))
	common.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
	blocks, _ := parted(deck, n)
	own := rand.New(rand.NewPCG(seed, 5))
	out := make([]string, 0, len(names))
	for i := range blocks {
		block := blocks[(seed+uint64(i))%uint64(n)]
		own.Shuffle(len(block), func(i, j int) { block[i], block[j] = block[j], block[i] })
		out = append(out, block...)
	}
	return out
}

// NewPlan makes the steps of a run: a pure function of its arguments. Each nemesis
// comes once before any comes again; nodes are those of the cluster. The run decides how many steps it has time for.
func NewPlan(seed uint64, names []string, nodes, steps int) []Step {
	rng := rand.New(rand.NewPCG(seed, 1))
	between := func(lo, hi time.Duration) time.Duration {
		return lo + time.Duration(rng.Int64N(int64((hi-lo)/millis)))*millis
	}
	all, seen, blocks := nemeses(), map[string]int{}, Blocks(names)
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
		name, variant, asked := strings.Cut(deck[0], variantSep)
		s := Step{
			Name: name, Variant: variant,
			Quiet: between(quietMin, quietMax), Hold: between(holdMin, holdMax), Choice: rng.Uint64(),
		}
		if len(out) == 0 {
			s.Quiet = firstQuiet
		}
		if !asked {
			s.Variant = variantAt(seed, seen[name], all[name].variants, blocks)
			seen[name]++
		}
		s.Order = rng.Perm(nodes)
		out, deck = append(out, s), deck[1:]
	}
	return out
}

// ParseNemeses reads a comma-separated list; empty is the default set, "all" is all, "none" none.
// A name may be followed by a colon and one of the variants of that nemesis.
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
		base, variant, asked := strings.Cut(name, variantSep)
		n, ok := known[base]
		if !ok {
			return nil, fmt.Errorf("unknown nemesis %q; there are %s", base, strings.Join(sortedNames(known), ", "))
		}
		if all := append(slices.Clone(n.variants), n.asked...); asked && !slices.Contains(all, variant) {
			return nil, fmt.Errorf("nemesis %s has no variant %q; there are %v", base, variant, all)
		}
	}
	return names, nil
}
