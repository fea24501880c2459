package discovery

import "errors"

var (
	// ErrConfig says that a Config cannot be used; the text names the setting and what is accepted.
	ErrConfig = errors.New("discovery: bad configuration")
	// ErrTagsTooLong says that a node's tags do not fit into MaxTagBytes; the text names the longest of them.
	ErrTagsTooLong = errors.New("discovery: tags too long")
	// ErrOtherCluster says that a live member of another cluster, or a stranger to Holdfast, was met.
	ErrOtherCluster = errors.New("discovery: another cluster")
	// ErrNodeIDInUse says that another live node answers to this node's id.
	ErrNodeIDInUse = errors.New("discovery: node id in use")
	// ErrAlive says that a member is alive and cannot be forgotten.
	ErrAlive = errors.New("discovery: the member is alive")
	// ErrStopped says that the Discovery was shut down or has left.
	ErrStopped = errors.New("discovery: stopped")
)
