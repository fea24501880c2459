// Command tester is the tester that nats.go's suites ask for servers, with nodes of Holdfast for servers.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	_ "net/http/pprof" //nolint:gosec // on loopback, on request
	"os"
	"os/signal"
	"syscall"

	"github.com/synadia-io/orbit.go/ntf"
	"github.com/synadia-io/orbit.go/ntf/backend"
	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/testenv/conformance/ntfbackend"
)

const holdfast = "holdfast"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "tester:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	port := flag.Int("port", -1, "port of the tester itself; -1 is an ephemeral one")
	dir := flag.String("dir", "", "directory of the servers' state (a fast one); default: a temporary one")
	servers := flag.String("servers", holdfast,
		`what servers are: "holdfast", or "inprocess" for the real JetStream`)
	profile := flag.String("profile", "lan", "Raft timeouts: lan or fast")
	preserve := flag.Bool("preserve", false, "keep the servers' directories")
	verbose := flag.Bool("v", false, "log to standard error")
	pprof := flag.String("pprof", "", "loopback address for profiles; default: none")
	flag.Parse()
	if *pprof != "" {
		//nolint:gosec // ends with the process
		go func() { fmt.Fprintln(os.Stderr, http.ListenAndServe(*pprof, nil)) }()
	}
	log := zap.NewNop()
	options := ntf.Options{
		AdvertiseHost: "localhost", Dir: *dir, Preserve: *preserve, Backend: *servers,
		Embedded: ntf.EmbeddedOptions{Port: *port},
	}
	if *verbose {
		options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
		var err error
		if log, err = zap.NewDevelopment(); err != nil {
			return err
		}
	}
	options.Backends = map[string]backend.Factory{
		holdfast: ntfbackend.New(ntfbackend.Options{Profile: *profile, Logger: log}),
	}
	t, err := ntf.New(ctx, options)
	if err != nil {
		return err
	}
	fmt.Printf("nats://localhost:%d\n", t.Port())
	<-ctx.Done()
	t.Close()
	return nil
}
