package node

import (
	"encoding/json"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/replication"
	"github.com/holdfast-mq/holdfast/storage/record"
)

// Routes returns the node ids whose hubs this node's hub is connected to.
func (n *Node) Routes() ([]string, error) { return n.hub.RouteNames() }

// fixedRoutes gives the hub, where there is no gossip, the routes that the nodes registered.
func (n *Node) fixedRoutes() {
	if n.gossip != nil || len(n.fixed) == 0 {
		return
	}
	var routes []string
	n.meta.Scan(replication.NodePrefix, func(r record.MetaRow) bool {
		var row replication.NodeRow
		if json.Unmarshal(r.Value, &row) == nil && row.ID != n.cfg.NodeID && row.Route != "" {
			routes = append(routes, row.Route)
		}
		return true
	})
	if err := n.hub.SetRoutes(routes); err != nil {
		n.log.Warn("setting the routes of the hub", zap.Strings("routes", routes), zap.Error(err))
	}
}
