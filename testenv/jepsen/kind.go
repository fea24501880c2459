package jepsen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Kind is a system under test.
type Kind string

// Systems under test.
const (
	Holdfast       Kind = "holdfast"        // quorum acks
	HoldfastLeader Kind = "holdfast-leader" // what writers publish asks for the leader's ack
	HoldfastNone   Kind = "holdfast-none"   // … for one before anything is stored
	Default        Kind = "default"         // nats-server's JetStream as it comes
	Always         Kind = "always"          // the same with sync_interval: always
)

// Kinds are all systems, in the order of tables.
func Kinds() []Kind { return []Kind{Holdfast, HoldfastLeader, HoldfastNone, Default, Always} }

// ackHeader of a publish names the ack level that it asks for.
const ackHeader = "Holdfast-Ack"

// Ack levels that are not the default.
const (
	levelLeader = "leader"
	levelNone   = "none"
)

// Ours says whether the system is Holdfast, at whatever level: what it must not show is a fault then.
func (k Kind) Ours() bool { return slices.Contains([]Kind{Holdfast, HoldfastLeader, HoldfastNone}, k) }

// level is the ack level that writers ask for by a header; empty if they use none.
func (k Kind) level() string {
	switch k {
	case HoldfastLeader:
		return levelLeader
	case HoldfastNone:
		return levelNone
	default:
		return ""
	}
}

// head is the name of the system in a table.
func (k Kind) head() string {
	return map[Kind]string{
		Holdfast: "Holdfast (quorum)", HoldfastLeader: "Holdfast (leader)", HoldfastNone: "Holdfast (none)",
		Default: "JetStream (default)", Always: "JetStream (`sync_interval: always`)",
	}[k]
}

// judge says what an error of a publish to a system means for it. Holdfast refuses what it has no room for before it
// plans it, so that is not stored; nats-server says the same of a publish that has failed on its way.
func (k Kind) judge(err error) Outcome {
	var api *jetstream.APIError
	if k.Ours() && errors.As(err, &api) && api.ErrorCode == errCodeNoRoom {
		return Refused
	}
	return judge(err)
}

// message is a new one of a writer.
func (k Kind) message(subject string) *nats.Msg {
	m := nats.NewMsg(subject)
	if level := k.level(); level != "" {
		m.Header.Set(ackHeader, level)
	}
	return m
}

// choose sets the flavor by the kind.
func (c *Cluster) choose() error {
	switch k := c.Kind; {
	case k.Ours():
		c.flavor = &holdfast{}
	case k == Default, k == Always:
		c.flavor = &streamServer{always: k == Always}
	default:
		return fmt.Errorf("unknown system %q; there are %v", k, Kinds())
	}
	return nil
}

// sizes are the numbers of nodes that a cluster may have, the usual one first. A stream has as many replicas.
func sizes() []int { return []int{3, 5} }

// minority is how many of so many nodes a cluster can do without.
func minority(nodes int) int { return (nodes - 1) / 2 }
