package node

import (
	"fmt"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication"
)

// Config is the whole configuration of a node.
type Config struct {
	NodeID         string
	DataDir        string
	Listen         string
	RaftListen     string
	RouteListen    string
	RouteAdvertise string
	AdminListen    string
	NATSConfig     string
	Groups         int
	MinAck         string
	Profile        string
	Logger         *zap.Logger
}

// Validate says what is wrong.
func (c *Config) Validate() error {
	if c.NodeID == "" {
		return fmt.Errorf("node-id: empty; give --node-id")
	}
	return nil
}

func (c *Config) timeouts() replication.Timeouts {
	switch c.Profile {
	case "fast":
		return replication.Fast()
	case "local":
		return replication.Local()
	}
	return replication.LAN()
}
