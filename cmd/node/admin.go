package node

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	"github.com/holdfast-mq/holdfast/replication"
)

// admin is the listener for people and machines that look after a node.
type admin struct {
	srv  *http.Server
	addr net.Addr
	done chan struct{}
}

func (n *Node) startAdmin(ctx context.Context) error {
	if n.cfg.AdminListen == "" {
		return nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", n.cfg.AdminListen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /raft", func(w http.ResponseWriter, _ *http.Request) {
		var out []replication.Status
		for _, g := range n.host.Groups() {
			out = append(out, g.Status())
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out)
	})
	n.admin = &admin{
		srv:  &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		addr: l.Addr(), done: make(chan struct{}),
	}
	go func() {
		defer close(n.admin.done)
		_ = n.admin.srv.Serve(l)
	}()
	return nil
}

func (a *admin) close() error {
	err := a.srv.Close()
	<-a.done
	return err
}
