package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/differential"
)

// Exit codes.
const (
	exitSame = iota
	exitDifferent
	exitFailed
)

func main() { os.Exit(run()) }

func run() int {
	seeds := flag.Uint64("seeds", differential.FullRun, "how many seeds to run")
	first := flag.Uint64("first", 1, "the first seed")
	steps := flag.Int("steps", differential.DefaultSteps, "operations of each seed")
	shrink := flag.Duration("shrink", 30*time.Second, "how long to shrink a difference")
	replay := flag.String("replay", "", "run the script of this `file` instead")
	dir := flag.String("dir", "", "folder for data and scripts (default: a temporary one)")
	verbose := flag.Bool("v", false, "tell every step")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if *seeds == 0 {
		return failed(errors.New("-seeds 0: nothing would be compared; give 1 or more"))
	}
	temporary := *dir == ""
	if temporary {
		d, err := os.MkdirTemp("", "differential-")
		if err != nil {
			return failed(err)
		}
		*dir = d
	}
	s := &differential.Suite{Steps: *steps, Dir: *dir, Out: os.Stdout, ShrinkFor: *shrink, Verbose: *verbose}
	for i := range *seeds {
		s.Seeds = append(s.Seeds, *first+i)
	}
	do := s.Run
	if *replay != "" {
		do = func(ctx context.Context) (int, error) { return s.Replay(ctx, *replay) }
	}
	failures, err := do(ctx)
	if err != nil {
		return failed(err)
	}
	if failures > 0 {
		return exitDifferent
	}
	if temporary { // else the scripts in it are needed
		if err := os.RemoveAll(*dir); err != nil {
			return failed(err)
		}
	}
	return exitSame
}

func failed(err error) int {
	fmt.Fprintln(os.Stderr, "differential:", err)
	return exitFailed
}
