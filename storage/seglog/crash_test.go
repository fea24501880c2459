//go:build !planted_nosync

package seglog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

func TestCrashAfterEveryStep(t *testing.T) {
	t.Parallel()
	explorers := make([]*explorer, max(1, 3/thin))
	t.Run("seeds", func(t *testing.T) {
		for i := range explorers {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				x := explore(uint64(i), max(25, 45/thin), false)
				for _, v := range x.violations {
					t.Error(v)
				}
				t.Logf("%d crashes, calls %v, %d segments dropped", x.crashes, x.ran, x.dropped)
				explorers[i] = x
			})
		}
	})
	// A history that never truncates would prove little.
	crashes, dropped, ran := 0, 0, map[opKind]int{}
	for _, x := range explorers {
		crashes, dropped = crashes+x.crashes, dropped+x.dropped
		for kind, n := range x.ran {
			ran[kind] += n
		}
	}
	if crashes < 500 || thin == 1 && (dropped == 0 || len(ran) != int(opSeal)+1) {
		t.Errorf("%d crashes, %d segments dropped, calls %v", crashes, dropped, ran)
	}
}

func TestCrashDuringRecovery(t *testing.T) {
	t.Parallel()
	for seed := uint64(100); seed < 100+max(1, 2/thin); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			x := explore(seed, max(5, 15/thin), true)
			for _, v := range x.violations {
				t.Error(v)
			}
			t.Logf("%d crashes", x.crashes)
		})
	}
}

var errKilled = errors.New("killed")

// TestCrashKilledThenPowerLoss kills the process at every step, opens the log with all that the kernel still has,
// and only then cuts the power: what was served in between must still be there.
func TestCrashKilledThenPowerLoss(t *testing.T) {
	t.Parallel()
	for kill := 1; ; kill += thin {
		mem := vfs.NewCrashableMem()
		if !runUntilKilled(t, mem, kill) {
			if kill < 100 {
				t.Fatalf("history ended after %d steps", kill)
			}
			return
		}
		l, err := Open(testConfig(mem))
		if err != nil {
			t.Fatalf("kill at step %d: %v", kill, err)
		}
		must(t, l.Append(run(l.LastIndex()+1, l.LastIndex()+2, 99)))
		served, err := read(l)
		if err != nil {
			t.Fatalf("kill at step %d: %v", kill, err)
		}
		after, err := Open(testConfig(mem.CrashClone(vfs.CrashCloneCfg{})))
		if err != nil {
			t.Fatalf("kill at step %d, then power loss: %v", kill, err)
		}
		got, err := read(after)
		if err != nil {
			t.Fatalf("kill at step %d, then power loss: %v", kill, err)
		}
		if d := diff(served, got); d != "" {
			t.Fatalf("kill at step %d, then power loss: (-served +got)\n%s", kill, d)
		}
		must(t, l.Close())
		must(t, after.Close())
	}
}

// runUntilKilled runs a history and abandons it at the given step. It reports whether it got that far.
func runUntilKilled(t *testing.T, mem vfs.FS, kill int) (killed bool) {
	t.Helper()
	steps := 0
	fs := &stepFS{FS: mem, rng: rand.New(rand.NewPCG(9, 9)), step: func(string) {
		if steps++; steps == kill {
			panic(errKilled)
		}
	}}
	defer func() {
		if r := recover(); r != nil {
			if r != any(errKilled) {
				panic(r)
			}
			killed = true
		}
	}()
	l, err := Open(testConfig(fs))
	must(t, err)
	model, history := &contents{}, rand.New(rand.NewPCG(1, 1))
	for range 40 {
		o := randomOp(history, model)
		must(t, o.run(l))
		model.apply(o)
	}
	must(t, l.Close())
	return false
}
