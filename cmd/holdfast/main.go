// Command holdfast runs and looks after nodes of the queue.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	host, _ := os.Hostname()
	var cfg node.Config
	flag.StringVar(&cfg.NodeID, "node-id", host, "")
	flag.StringVar(&cfg.DataDir, "data-dir", "./data", "")
	flag.StringVar(&cfg.Listen, "listen", "127.0.0.1:4222", "")
	flag.StringVar(&cfg.RaftListen, "raft-listen", "127.0.0.1:7222", "")
	flag.StringVar(&cfg.AdminListen, "admin-listen", "127.0.0.1:8222", "")
	flag.Parse()
	cfg.Groups, cfg.MinAck = 1, "none"
	cfg.Logger, _ = zap.NewProduction()
	n, err := node.Start(ctx, cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("up")
	select {
	case <-ctx.Done():
	case err := <-n.Failed():
		fmt.Fprintln(os.Stderr, err)
	}
	if err := n.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}
