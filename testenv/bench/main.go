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
	kong.Parse(&c, kong.Name("bench"), kong.UsageOnError(),
		kong.Description("Compares Holdfast with JetStream on this machine."))
	base := context.Background() //nolint:forbidigo // main has no caller
	ctx, stop := signal.NotifyContext(base, os.Interrupt, syscall.SIGTERM)
	err := compare(ctx, &c, os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}
