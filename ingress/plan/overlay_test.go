package plan

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

func TestOverlayKeepsAValueUntilItsLastChangeIsApplied(t *testing.T) {
	t.Parallel()
	var o Overlay[string, int]
	if !o.Put("a", 1, 5) || o.Put("a", 2, 5) || !o.Put("b", 9, 6) || !o.Put("a", 3, 7) {
		t.Fatal("Put must tell the first change of a key in an envelope, and only that")
	}
	var gone []string
	note := func(k string, v int) { gone = append(gone, fmt.Sprint(k, v)) }
	o.Applied(6, note)
	if v, ok := o.Get("a"); !ok || v != 3 {
		t.Fatalf("a = %d, %v after tick 6, want 3: its change of tick 7 is in flight", v, ok)
	}
	if _, ok := o.Get("b"); ok {
		t.Fatal("b is still there after its tick was applied")
	}
	o.Applied(7, note)
	if o.Len() != 0 || fmt.Sprint(gone) != "[b9 a3]" {
		t.Fatalf("left %d entries, dropped %v, want none and [b9 a3]", o.Len(), gone)
	}
}

// TestOverlayAgainstADumbOne compares with a list of all changes.
func TestOverlayAgainstADumbOne(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	type change struct {
		k, v int
		tick uint64
	}
	var (
		o       Overlay[int, int]
		all     []change
		tick    = uint64(1)
		applied uint64
	)
	for step := range 20_000 {
		switch rng.IntN(6) {
		case 0:
			tick++
		case 1:
			applied += uint64(rng.IntN(int(tick - applied)))
			o.Applied(applied, nil)
		default:
			c := change{rng.IntN(20), step, tick}
			all = append(all, c)
			o.Put(c.k, c.v, c.tick)
		}
		k := rng.IntN(20)
		want, ok := 0, false
		for _, c := range all {
			if c.k == k {
				want, ok = c.v, c.tick > applied
			}
		}
		if v, got := o.Get(k); got != ok || ok && v != want {
			t.Fatalf("seed %d step %d: key %d = %d, %v, want %d, %v", seed, step, k, v, got, want, ok)
		}
	}
}
