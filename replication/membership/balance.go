package membership

import "slices"

// Balance returns the group that a node should give away next, and to whom, so that leaders are spread evenly
// over the voters: it leads at least two groups more than the voter that leads the fewest. leaders are the
// leaders of all groups, by number; voters may lead, those that are not to be given anything left out. Nothing
// is given while a group has no leader. Every node asks for itself, so several may give at once: that may take
// a round more, but each round brings the most and the fewest closer together, down to a difference of one.
func Balance(self string, leaders map[uint32]string, voters []string) (group uint32, to string, ok bool) {
	count := make(map[string]int)
	own := uint32(0)
	for g, leader := range leaders {
		if leader == "" {
			return 0, "", false
		}
		count[leader]++
		if leader == self {
			own = max(own, g)
		}
	}
	for _, id := range slices.Sorted(slices.Values(voters)) {
		if id != self && (to == "" || count[id] < count[to]) {
			to = id
		}
	}
	if to == "" || count[self] < count[to]+2 {
		return 0, "", false
	}
	return own, to, true
}
