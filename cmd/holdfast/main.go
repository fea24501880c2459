package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	os.Exit(run(&environment{
		ctx: context.Background(), signals: signals, stdout: os.Stdout, stderr: os.Stderr, args: os.Args[1:],
	}))
}
