package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/server"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "natsserver:", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}

// run starts the server and returns when it has stopped.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("want one argument, the configuration file")
	}
	opts, err := server.ProcessConfigFile(args[0])
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	s.ConfigureLogger()
	s.Start()
	s.WaitForShutdown()
	return nil
}
