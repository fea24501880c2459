package membership

import (
	"fmt"
	"slices"
	"testing"
)

// leaders reads one letter per group, from group 1 on; '-' is none.
func leaders(text string) map[uint32]string {
	out := make(map[uint32]string)
	for i, c := range text {
		out[uint32(i+1)] = string(c)
		if c == '-' {
			out[uint32(i+1)] = ""
		}
	}
	return out
}

func TestBalance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, self, leaders, voters, want string }{
		{"one group", "a", "a", "abc", "stays"},
		{"even", "a", "abc", "abc", "stays"},
		{"a difference of one", "a", "aabc", "abc", "stays"},
		{"a difference of two", "a", "aab", "abc", "2 to c"},
		{"the one with the fewest, by name", "a", "aaaa", "acb", "4 to b"},
		{"not its own to give", "b", "aaab", "abc", "stays"},
		{"nobody to give to", "a", "aaa", "a", "stays"},
		{"a group without a leader", "a", "aaa-", "abc", "stays"},
		{"led by one that is no voter any more", "d", "ddd", "abc", "3 to a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := "stays"
			var voters []string
			for _, v := range c.voters {
				voters = append(voters, string(v))
			}
			if g, to, ok := Balance(c.self, leaders(c.leaders), voters); ok {
				got = fmt.Sprint(g, " to ", to)
			}
			if got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// All nodes decide at once, on the same view, round after round: the leaders end up even, within as many
// rounds as there are groups, and then nothing moves.
func TestBalanceConverges(t *testing.T) {
	t.Parallel()
	for nodes := 1; nodes <= 5; nodes++ {
		var voters []string
		for i := range nodes {
			voters = append(voters, string(rune('a'+i)))
		}
		for groups := 1; groups <= 64; groups++ {
			now := make(map[uint32]string)
			for g := range groups {
				now[uint32(g+1)] = voters[g*g%(g%3+1)%nodes] // uneven
			}
			rounds := 0
			for ; rounds <= groups; rounds++ {
				moves := make(map[uint32]string)
				for _, self := range voters {
					if g, to, ok := Balance(self, now, voters); ok {
						moves[g] = to
					}
				}
				if len(moves) == 0 {
					break
				}
				for g, to := range moves {
					now[g] = to
				}
			}
			count := make(map[string]int)
			for _, id := range now {
				count[id]++
			}
			var counts []int
			for _, id := range voters {
				counts = append(counts, count[id])
			}
			if rounds > groups || slices.Max(counts)-slices.Min(counts) > 1 {
				t.Errorf("%d groups on %d nodes: %v after %d rounds", groups, nodes, counts, rounds)
			}
		}
	}
}
