package main

import (
	"math"
	"slices"
)

// A spread is the median of some values with the least and the greatest. n is how many there were; without
// any the rest is meaningless.
type spread struct {
	n                int
	median, min, max float64
}

// spreadOf summarises values. Of an even number the median is the mean of the middle two.
func spreadOf(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return spread{n: len(v), median: median, min: v[0], max: v[len(v)-1]}
}

// A series is one figure of one system: round → value. Rounds that failed are missing.
type series map[int]float64

// spread summarises the values of all rounds.
func (s series) spread() spread {
	var v []float64
	for _, x := range s {
		v = append(v, x)
	}
	return spreadOf(v)
}

// ratioTo summarises the ratios to another system, round by round: what a round has in common, such as other
// work on the machine, cancels. Rounds that one of them has not, or in which the other is 0, do not count.
func (s series) ratioTo(other series) spread {
	var v []float64
	for round, x := range s {
		y, ok := other[round]
		if r := x / y; ok && !math.IsNaN(r) && !math.IsInf(r, 0) {
			v = append(v, r)
		}
	}
	return spreadOf(v)
}
