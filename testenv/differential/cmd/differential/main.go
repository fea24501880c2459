package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/holdfast-mq/holdfast/testenv/differential"
)

func main() {
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
	if *dir == "" {
		d, err := os.MkdirTemp("", "differential-")
		if err != nil {
			fatal(err)
		}
		*dir = d
	}
	s := &differential.Suite{Steps: *steps, Dir: *dir, Out: os.Stdout, ShrinkFor: *shrink, Verbose: *verbose}
	for i := range *seeds {
		s.Seeds = append(s.Seeds, *first+i)
	}
	run := s.Run
	if *replay != "" {
		run = func(ctx context.Context) (int, error) { return s.Replay(ctx, *replay) }
	}
	failures, err := run(ctx)
	if err != nil {
		fatal(err)
	}
	if failures > 0 {
		os.Exit(1)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "differential:", err)
	os.Exit(2)
}
