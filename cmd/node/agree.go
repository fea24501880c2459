package node

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/discovery"
	"github.com/holdfast-mq/holdfast/replication"
)

// agree says whether the founders have one number of groups, and says once who has which if they do not. Nothing is
// founded until they do: a group that only some of them have might never get a leader.
func (n *Node) agree(groups map[string]int) bool {
	text := discord(groups)
	if before := n.discord.Swap(&text); text != "" && (before == nil || *before != text) {
		n.log.Warn("bootstrap waits", zap.String("reason", text))
	}
	return text == ""
}

// founderGroups asks the other founders for their numbers of groups. One that does not answer has no say yet: nothing
// is founded without it.
func (n *Node) founderGroups(ctx context.Context) map[string]int {
	groups := map[string]int{n.cfg.NodeID: n.cfg.Groups}
	for _, id := range n.otherFounders() {
		call, cancel := context.WithTimeout(ctx, foreignCall)
		b, err := n.host.Transport().Call(call, id, replication.Metadata, callGroups, nil)
		cancel()
		if number, bad := strconv.Atoi(string(b)); err == nil && bad == nil {
			groups[id] = number
		}
	}
	return groups
}

// otherFounders are the other nodes that gossip or the configuration names and that wait for a cluster.
func (n *Node) otherFounders() []string {
	var ids []string
	for _, m := range n.peers() {
		if m.Status == discovery.Alive && m.Tags.ClusterID == "" && m.Tags.Expect > 0 {
			ids = append(ids, m.NodeID)
		}
	}
	for id := range n.fixed {
		ids = append(ids, id)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return id == n.cfg.NodeID })
}

// onGroups answers callGroups.
func (n *Node) onGroups(context.Context, string, uint32, []byte) ([]byte, error) {
	return strconv.AppendInt(nil, int64(n.cfg.Groups), 10), nil
}

// discord says how many groups each founder has, and what to do, if they differ in it; else it is empty.
func discord(groups map[string]int) string {
	each, numbers := make([]string, 0, len(groups)), make(map[int]bool)
	for id, number := range groups {
		each, numbers[number] = append(each, fmt.Sprintf("%s has %d", id, number)), true
	}
	if len(numbers) < 2 {
		return ""
	}
	slices.Sort(each)
	return "the founders differ in their number of groups: " + strings.Join(each, ", ") +
		"; start all of them with the same --groups, nothing is founded before"
}

// discordant is what discord said last, while this node belongs to no cluster.
func (n *Node) discordant() string {
	if text := n.discord.Load(); text != nil && n.host.ClusterID() == "" {
		return *text
	}
	return ""
}
