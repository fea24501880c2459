package node

import "context"

// join makes this node a member of a cluster.
func (n *Node) join(ctx context.Context) error { return n.host.BootstrapSingle(ctx) }
