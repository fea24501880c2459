package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Limits of Config.
const (
	maxRounds = 100
	minScale  = 0.001
	maxScale  = 100
)

// Validate checks what the flags alone cannot say. kong calls it.
func (c *Config) Validate() error {
	if c.Rounds < 1 || c.Rounds > maxRounds {
		return fmt.Errorf("--rounds is %d: want 1 to %d", c.Rounds, maxRounds)
	}
	if !(c.Scale >= minScale && c.Scale <= maxScale) {
		return fmt.Errorf("--scale is %g: want %g to %d", c.Scale, minScale, maxScale)
	}
	if c.Duration <= 0 {
		return fmt.Errorf("--duration is %v: want more than 0", c.Duration)
	}
	for i, n := range c.Nodes {
		if !slices.Contains(sizes(), n) || slices.Contains(c.Nodes[:i], n) {
			return fmt.Errorf("--nodes has %d: want 1, 3 or both, each once", n)
		}
	}
	var names []string
	for _, w := range works() {
		names = append(names, w.name)
	}
	for _, name := range c.Work {
		if !slices.Contains(names, name) {
			return fmt.Errorf("--work %q is unknown: want of %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// sizes are the sizes of systems that can be compared, in nodes: the default of Nodes.
func sizes() []int { return []int{1, 3} }

// target is how long a measurement should take.
func (c *Config) target() time.Duration {
	return max(time.Duration(float64(c.Duration)*c.Scale), time.Millisecond)
}

// works are those that were chosen.
func (c *Config) works() []work {
	var out []work
	for _, w := range works() {
		if len(c.Work) == 0 || slices.Contains(c.Work, w.name) {
			out = append(out, w)
		}
	}
	return out
}
