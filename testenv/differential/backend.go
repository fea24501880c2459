package differential

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-mq/holdfast/cmd/node"
	"github.com/holdfast-mq/holdfast/testenv"
)

// errSkipped says that an operation has nothing to refer to, as after shrinking.
var errSkipped = errors.New("differential: nothing to refer to")

// startTimeout bounds the start of a server.
const startTimeout = time.Minute

// Pair is a JetStream server and a Holdfast node, in this process, with a client connection to each.
type Pair struct {
	srv *server.Server
	own *testenv.Node

	want, got *client
	scripts   int // run so far
}

// Start starts both in folders of dir. Stop must be called.
func Start(ctx context.Context, dir string) (*Pair, error) {
	p := &Pair{}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := p.start(ctx, dir); err != nil {
		return nil, errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func (p *Pair) start(ctx context.Context, dir string) error {
	srv, err := server.NewServer(&server.Options{
		DontListen: true, JetStream: true, StoreDir: filepath.Join(dir, "jetstream"), NoLog: true, NoSigs: true,
		JetStreamMaxMemory: 1 << 28, JetStreamMaxStore: 1 << 30,
	})
	if err != nil {
		return err
	}
	p.srv = srv
	srv.Start()
	if !srv.ReadyForConnections(startTimeout) {
		return errors.New("the JetStream server does not get ready")
	}
	p.want, err = newClient(ctx, "jetstream", func(context.Context) (net.Conn, error) { return srv.InProcessConn() })
	if err != nil {
		return err
	}
	p.own, err = testenv.NewNode(node.Config{NodeID: "n1", DataDir: filepath.Join(dir, "holdfast")}, &testenv.Ports{})
	if err != nil {
		return err
	}
	if err := p.own.Start(ctx); err != nil {
		return err
	}
	if err := p.own.WaitReady(ctx); err != nil {
		return err
	}
	p.got, err = newClient(ctx, "holdfast", p.dialOwn)
	return err
}

func (p *Pair) dialOwn(ctx context.Context) (net.Conn, error) {
	u, err := url.Parse(p.own.URL())
	if err != nil {
		return nil, fmt.Errorf("URL of the node: %w", err)
	}
	var d net.Dialer
	return d.DialContext(ctx, "tcp", u.Host)
}

// Stop stops both.
func (p *Pair) Stop(ctx context.Context) error {
	for _, c := range []*client{p.want, p.got} {
		if c != nil {
			c.c.Close()
		}
	}
	var err error
	if p.own != nil {
		err = p.own.Kill(ctx)
	}
	if p.srv != nil {
		p.srv.Shutdown()
		p.srv.WaitForShutdown()
	}
	return err
}
