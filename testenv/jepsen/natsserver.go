package jepsen

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

// The user of the system account, which may remove servers.
const (
	systemUser     = "sys"
	systemPassword = "sys"
)

// streamServer is the flavor of nats-server.
type streamServer struct{ always bool }

func (s *streamServer) args(c *Cluster, n *Node) ([]string, error) {
	cfg := process.StreamServer{
		Name: n.ID, Client: n.Client, Store: n.data(), Always: s.always, Cluster: "jepsen", Route: n.route,
		Advertise: n.routeAdv, Monitor: n.Admin, SystemUser: systemUser, SystemPassword: systemPassword,
	}
	for _, o := range c.Nodes {
		cfg.Routes = append(cfg.Routes, o.routeAdv)
	}
	file := filepath.Join(c.dir, n.Slot+".conf")
	return []string{file}, os.WriteFile(file, []byte(cfg.Text()), 0o600)
}

func (*streamServer) readyPath() string { return "/healthz" }

// moveLeader moves each stream.
func (*streamServer) moveLeader(ctx context.Context, _ *Cluster, to *Node) error {
	body, err := json.Marshal(map[string]any{"placement": map[string]string{"preferred": to.ID}})
	if err != nil {
		return err
	}
	nc, err := nats.Connect("nats://"+to.Client, nats.Timeout(connectTimeout))
	if err != nil {
		return err
	}
	defer nc.Close()
	var failed []error
	for _, stream := range streams() {
		// One that has no leader answers nothing, which must not keep the others.
		call, cancel := context.WithTimeout(ctx, connectTimeout)
		if _, err := nc.RequestWithContext(call, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, body); err != nil {
			failed = append(failed, fmt.Errorf("stream %s: %w", stream, err))
		}
		cancel()
	}
	return errors.Join(failed...)
}

func (*streamServer) remove(ctx context.Context, c *Cluster, id string) error {
	body, err := json.Marshal(map[string]string{"peer": id})
	if err != nil {
		return err
	}
	var last error
	for _, n := range c.Nodes {
		if !n.Running() {
			continue
		}
		if last = removeServer(ctx, n, body); last == nil {
			return nil
		}
	}
	return last
}

func removeServer(ctx context.Context, n *Node, body []byte) error {
	nc, err := nats.Connect("nats://"+n.Client, nats.UserInfo(systemUser, systemPassword), nats.Timeout(connectTimeout))
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, "$JS.API.SERVER.REMOVE", body)
	if err != nil {
		return err
	}
	var answer struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return err
	}
	if answer.Error != nil {
		return fmt.Errorf("removing a server: %s", answer.Error.Description)
	}
	return nil
}

// kinds are by server/filestore.go and server/raft.go: blocks of streams, and of the logs of
// their Raft groups, which are of the same form; the state of a stream as of its last orderly
// end; what streams, consumers and groups are, and its checksum; term, vote, peers and commit of
// a group; its snapshots; and what a consumer has delivered.
func (*streamServer) kinds() map[string][]string {
	return map[string][]string{
		"block": {"*.blk"}, "state": {"*.db"}, "info": {"*.inf"}, "sum": {"*.sum"}, "index": {"*.idx"},
		"snapshot": {"snap.*"}, "consumer": {"o.dat"},
	}
}

// snapshots are those of Raft groups, and the state that a stream starts from.
func (*streamServer) snapshots() []string { return []string{"snapshot", "state"} }
