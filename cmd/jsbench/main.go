package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

func main() {
	var c Config
	kong.Parse(&c, kong.Name("jsbench"), kong.UsageOnError(),
		kong.Description("Loads a JetStream API and says how fast it was."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := runAll(ctx, &c, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "jsbench:", err)
		os.Exit(1)
	}
}
