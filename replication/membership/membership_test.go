package membership

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func nodes(ids ...string) []Node {
	var out []Node
	for _, id := range ids {
		n := Node{ID: id[:2], Alive: true, For: time.Minute}
		for _, mark := range id[2:] {
			switch mark {
			case '-':
				n.Alive, n.For = false, time.Hour
			case '?':
				n.Alive, n.For = false, time.Second
			case '!':
				n.Leaving = true
			case '~':
				n.For = time.Second
			case 'd':
				n.Draining = true
			}
		}
		out = append(out, n)
	}
	return out
}

func TestPlan(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	for _, c := range []struct {
		name   string
		before []string
		nodes  []string // - dead long, ? missed for a second, ! leaving, ~ alive for a second, d draining
		want   string
	}{
		{"alone", []string{"n1"}, []string{"n1"}, "[n1] []"},
		{"two of two: an even number is no use", []string{"n1"}, []string{"n1", "n2"}, "[n1] [n2]"},
		{"one to three", []string{"n1"}, []string{"n1", "n2", "n3"}, "[n1 n2 n3] []"},
		{"not stable yet", []string{"n1"}, []string{"n1", "n2~", "n3~"}, "[n1] [n2 n3]"},
		{"three to five", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3", "n4", "n5"}, "[n1 n2 n3 n4 n5] []"},
		{"a fourth follows", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3", "n4"}, "[n1 n2 n3] [n4]"},
		{
			"never more than five",
			[]string{"n1", "n2", "n3", "n4", "n5"},
			[]string{"n1", "n2", "n3", "n4", "n5", "n6", "n7"},
			"[n1 n2 n3 n4 n5] [n6 n7]",
		},
		{"missed for a moment", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3?", "n4"}, "[n1 n2 n3] [n4]"},
		{"replaced when gone for long", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3-", "n4"}, "[n1 n2 n4] []"},
		{"no replacement: not below three", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3-"}, "[n1 n2 n3] []"},
		{"two gone: not below three", []string{"n1", "n2", "n3"}, []string{"n1", "n2-", "n3-"}, "[n1 n2 n3] []"},
		{"unknown to everybody: not below three", []string{"n1", "n2", "n3"}, []string{"n1", "n2"}, "[n1 n2 n3] []"},
		{"leaves, a spare takes over", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3!", "n4"}, "[n1 n2 n4] []"},
		{"leaves without a spare", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3!"}, "[n1 n2] []"},
		{"draining keeps its vote", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3d", "n4"}, "[n1 n2 n3] [n4]"},
		{"draining gets no vote", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3-", "n4d"}, "[n1 n2 n3] [n4]"},
		{"four voters are not better than three", []string{"n1", "n2", "n3", "n4", "n5"}, []string{"n1", "n2", "n3", "n4", "n5!"}, "[n1 n2 n3] [n4]"},
		{"of five, two leave", []string{"n1", "n2", "n3", "n4", "n5"}, []string{"n1", "n2", "n3", "n4!", "n5!"}, "[n1 n2 n3] []"},
		{"of five, one is gone for long", []string{"n1", "n2", "n3", "n4", "n5"}, []string{"n1", "n2", "n3", "n4", "n5-"}, "[n1 n2 n3] [n4]"},
		{"of five, one is missed for a moment", []string{"n1", "n2", "n3", "n4", "n5"}, []string{"n1?", "n2", "n3", "n4", "n5"}, "[n1 n2 n3 n4 n5] []"},
		{"one is gone, one missed: that one follows", []string{"n1", "n2", "n3", "n4", "n5"}, []string{"n1", "n2?", "n3", "n4", "n5-"}, "[n1 n3 n4] [n2]"},
		{"of three, two leave: by command", []string{"n1", "n2", "n3"}, []string{"n1", "n2!", "n3!"}, "[n1] []"},
		{"all leave: nothing changes", []string{"n1", "n2"}, []string{"n1!", "n2!"}, "[n1 n2] []"},
		{"dead follower is dropped", []string{"n1", "n2", "n3"}, []string{"n1", "n2", "n3", "n4-"}, "[n1 n2 n3] []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := Plan(s, Desired{Voters: c.before}, nodes(c.nodes...))
			if got := fmt.Sprint(d.Voters, " ", d.Followers); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestPlanIsStable(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	for n := 1; n <= 9; n++ {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("n%d", i+1))
		}
		d := Desired{Voters: []string{"n1"}}
		d = Plan(s, d, nodes(all...))
		if next := Plan(s, d, nodes(all...)); !next.Equal(d) {
			t.Errorf("%d nodes: %v becomes %v with nothing changed", n, d, next)
		}
		if want := odd(min(5, n)); len(d.Voters) != want || len(d.Voters)+len(d.Followers) != n {
			t.Errorf("%d nodes: %v, want %d voters and all nodes in", n, d, want)
		}
	}
}

func TestFlappingNodeWaitsLonger(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	for flaps, want := range []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second} {
		ns := append(nodes("n1", "n2"), Node{ID: "n3", Alive: true, For: want, Flaps: flaps})
		if d := Plan(s, Desired{Voters: []string{"n1"}}, ns); len(d.Voters) != 3 {
			t.Errorf("%d flaps: no voter after %v: %v", flaps, want, d)
		}
		ns[2].For--
		if d := Plan(s, Desired{Voters: []string{"n1"}}, ns); len(d.Voters) == 3 && d.Voters[2] == "n3" {
			t.Errorf("%d flaps: a voter just before %v", flaps, want)
		}
	}
	if got := s.stable(&Node{Flaps: 100}); got != s.MaxStable {
		t.Errorf("100 flaps: %v, want the bound %v", got, s.MaxStable)
	}
}

func view(members string, desired Desired) View {
	v := View{Leader: "n1", Replicas: map[string]string{}, Desired: desired}
	for _, id := range append(append([]string{}, desired.Voters...), desired.Followers...) {
		v.Replicas[id] = id + "/a"
	}
	for i := 0; i+3 <= len(members); i += 4 {
		m := members[i : i+3] // node and V(oter), S(ilent voter), N(ever heard voter), D(amaged voter), f(ollower), l(agging), d(amaged)
		v.Members = append(v.Members, Member{Server: m[:2] + "/a", Node: m[:2], Voter: m[2] < 'a'})
		switch last := &v.Members[len(v.Members)-1]; m[2] {
		case 'l':
			last.Behind = 513
		case 'S':
			last.Contact = time.Minute
		case 'N':
			last.Contact = -1
		case 'D', 'd':
			last.OutOfService = true
		}
	}
	return v
}

func TestStep(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	three := Desired{Voters: []string{"n1", "n2", "n3"}}
	for _, c := range []struct {
		name, members string
		desired       Desired
		want          string
	}{
		{"nothing to do", "n1V n2V n3V", three, "none "},
		{"enter", "n1V", three, "add as non-voter n2/a"},
		{"enter the next before promoting", "n1V n2f", three, "add as non-voter n3/a"},
		{"promote", "n1V n2f n3f", three, "make voter n2/a"},
		{"promote the one that can", "n1V n2l n3f", three, "make voter n3/a"},
		{"wait", "n1V n2V n3l", three, "none "},
		{"damaged since it has caught up", "n1V n2V n3d", three, "none "},
		{"two leave: the damaged one first", "n1V n2V n3D", Desired{Voters: []string{"n1"}}, "remove n3/a"},
		{"demote", "n1V n2V n3V", Desired{Voters: []string{"n1"}, Followers: []string{"n2", "n3"}}, "make non-voter n2/a"},
		{"remove a stranger", "n1V n2V n3V n4f", three, "remove n4/a"},
		{"remove a voter when its successor votes", "n1V n2V n3V n4V", Desired{Voters: []string{"n1", "n2", "n4"}}, "remove n3/a"},
		{"not before", "n1V n2V n3V n4l", Desired{Voters: []string{"n1", "n2", "n4"}}, "none "},
		{"nothing desired yet", "n1V n2V", Desired{}, "none "},
		{"the leader goes last", "n1V n2V n3V", Desired{Voters: []string{"n2", "n3"}}, "none "},
		{"two leave: the dead one first", "n1V n2V n3S", Desired{Voters: []string{"n1"}}, "remove n3/a"},
		{"then the other", "n1V n2V", Desired{Voters: []string{"n1"}}, "remove n2/a"},
		{"one that was never heard goes first as well", "n1V n2V n3N", Desired{Voters: []string{"n1"}}, "remove n3/a"},
		{"dead ones go before a live one is demoted", "n1V n2V n3V n4V n5S", Desired{Voters: three.Voters, Followers: []string{"n4"}}, "remove n5/a"},
		{"a dead one goes once its successor votes", "n1V n2V n3S n4V", Desired{Voters: []string{"n1", "n2", "n4"}}, "remove n3/a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := Step(s, view(c.members, c.desired))
			if fmt.Sprint(got.Kind, " ", got.Server) != c.want {
				t.Errorf("got %v %s (%s), want %s", got.Kind, got.Server, got.Reason, c.want)
			}
		})
	}
}

// A vote that the others need to be a majority that answers is not taken away, and the reason names whose it is.
func TestVoteStaysWhileItIsNeeded(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	for _, c := range []struct {
		name, members string
		desired       Desired
		want          string
	}{
		{"remove", "n1V n2V n3S", Desired{Voters: []string{"n1", "n3"}}, "n2/a keeps its vote"},
		{"remove, the other was never heard", "n1V n2V n3N", Desired{Voters: []string{"n1", "n3"}}, "n2/a keeps its vote"},
		{"remove, the other is damaged since it answered", "n1V n2V n3D", Desired{Voters: []string{"n1", "n3"}}, "n2/a keeps its vote"},
		{"demote", "n1V n2V n3S", Desired{Voters: []string{"n1", "n3"}, Followers: []string{"n2"}}, "n2/a keeps its vote"},
		{"the dead are to stay, the live to leave", "n1V n2S n3S n4V n5V", Desired{Voters: []string{"n1", "n2", "n3"}}, "n4/a keeps its vote"},
	} {
		if got := Step(s, view(c.members, c.desired)); got.Kind != None || !strings.HasPrefix(got.Reason, c.want) {
			t.Errorf("%s: %v %s (%s), want none, as %s", c.name, got.Kind, got.Server, got.Reason, c.want)
		}
	}
	v := view("n1V n2V n3S", Desired{Voters: []string{"n1", "n2", "n3"}})
	v.Replicas["n2"] = "n2/b"
	v.Members = append(v.Members, Member{Server: "n2/b", Node: "n2", Behind: s.Lag + 1})
	if got := Step(s, v); got.Kind != None || !strings.HasPrefix(got.Reason, "n2/a keeps its vote") {
		t.Errorf("replaced: %v %s (%s), want none, as n2/a keeps its vote", got.Kind, got.Server, got.Reason)
	}
	v = view("n1V n2V n3V", Desired{Voters: []string{"n1", "n3"}})
	v.Members[2].Contact = s.Contact
	if got := Step(s, v); got.Kind != Remove {
		t.Errorf("the other answered just lately enough: %v (%s), want n2 removed", got.Kind, got.Reason)
	}
	v.Members[2].Contact++
	if got := Step(s, v); got.Kind != None {
		t.Errorf("the other answered too long ago: %v %s, want none", got.Kind, got.Server)
	}
}

// Whoever of five voters is dead and whoever is to stay: those alive are a majority after each step, and what is
// desired is reached if they are one there.
func TestShrinkKeepsAMajorityThatAnswers(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	for bits := range 1 << 8 { // n1 leads and stays; of each other, whether it is dead, and whether it is to go
		members, dead := "n1V", 0
		desired := Desired{Voters: []string{"n1"}}
		deadVoters := 0
		for i := range 4 {
			id, mark := fmt.Sprintf("n%d", i+2), "V"
			isDead, goes := bits>>i&1 == 1, bits>>(4+i)&1 == 1
			if isDead {
				mark = "S"
				dead++
			}
			if !goes {
				desired.Voters = append(desired.Voters, id)
				if isDead {
					deadVoters++
				}
			}
			members += " " + id + mark
		}
		if dead > 2 {
			continue // nobody leads
		}
		v := view(members, desired)
		for {
			c := Step(s, v)
			if c.Kind == None {
				break
			}
			v.Members = slices.DeleteFunc(v.Members, func(m Member) bool { return m.Server == c.Server })
			if voters, answer := v.without(s, ""); c.Kind != Remove || answer <= voters/2 {
				t.Fatalf("%s, %v desired: %d of %d voters answer after %v %s", members, desired.Voters, answer, voters, c.Kind, c.Server)
			}
		}
		if n := len(desired.Voters); deadVoters <= (n-1)/2 && len(v.Members) != n {
			t.Errorf("%s, %v desired: stays at %v", members, desired.Voters, v.Members)
		}
	}
}

// A node that leaves leaves the metadata group after the others: there it reads that it must give away what it leads.
func TestMetadataGroupIsLeftLast(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	v := view("n1V n2V n3V n4V n5f", Desired{Voters: []string{"n1", "n2", "n3"}})
	v.Elsewhere = map[string]uint32{"n1": 1, "n4": 2, "n5": 1}
	if c := Step(s, v); c.Kind != None || c.Reason != "node n5 leaves; it is still in group 1" {
		t.Errorf("both are in other groups: %v %s (%s)", c.Kind, c.Server, c.Reason)
	}
	delete(v.Elsewhere, "n5")
	if c := Step(s, v); c.Kind != Remove || c.Server != "n5/a" {
		t.Errorf("n5 is in no other group: %v %s (%s), want it removed", c.Kind, c.Server, c.Reason)
	}
	v.Members = v.Members[:4]
	delete(v.Elsewhere, "n4")
	if c := Step(s, v); c.Kind != Remove || c.Server != "n4/a" {
		t.Errorf("n4 is in no other group: %v %s (%s), want it removed", c.Kind, c.Server, c.Reason)
	}
}

// One that does not answer is not waited for: it reads nothing, and the metadata group lacks its vote.
func TestSilentNodeLeavesAtOnce(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	for _, c := range []struct {
		name           string
		contact, leads time.Duration
		want           Kind
	}{
		{"answers", time.Millisecond, time.Hour, None},
		{"answered a while ago", s.Silence - 1, time.Hour, None},
		{"silent", s.Silence, time.Hour, Remove},
		{"never answered this leader, which is new", -1, s.Silence - 1, None},
		{"never answered this leader", -1, s.Silence, Remove},
		{"silent to the leader before", time.Hour, s.Silence - 1, None},
	} {
		v := view("n1V n2V n3V n4V", Desired{Voters: []string{"n1", "n2", "n3"}})
		v.Elsewhere, v.Leads = map[string]uint32{"n4": 1}, c.leads
		v.Members[3].Contact = c.contact
		if got := Step(s, v); got.Kind != c.want || got.Kind == Remove && got.Server != "n4/a" {
			t.Errorf("%s: %v %s (%s), want %v", c.name, got.Kind, got.Server, got.Reason, c.want)
		}
	}
}

func TestStepLagEdge(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	v := view("n1V n2V n3f", Desired{Voters: []string{"n1", "n2", "n3"}})
	v.Members[2].Behind = s.Lag
	if c := Step(s, v); c.Kind != Promote {
		t.Errorf("at the edge of the lag: %v (%s), want a promotion", c.Kind, c.Reason)
	}
	v.Members[2].Behind = s.Lag + 1
	if c := Step(s, v); c.Kind != None || c.Reason == "" {
		t.Errorf("past the edge: %v, reason %q, want none with a reason", c.Kind, c.Reason)
	}
}

// TestWipedNodeEntersAsANewReplica: at no time do both of its replicas have a vote, which would be four of three nodes.
func TestWipedNodeEntersAsANewReplica(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	v := view("n1V n2V n3V", Desired{Voters: []string{"n1", "n2", "n3"}})
	v.Replicas["n3"] = "n3/b"
	want := []string{"add as non-voter n3/b", "remove n3/a", "make voter n3/b", "none "}
	for i, w := range want {
		c := Step(s, v)
		if got := fmt.Sprint(c.Kind, " ", c.Server); got != w {
			t.Fatalf("step %d: %s (%s), want %s", i, got, c.Reason, w)
		}
		switch c.Kind {
		case AddFollower:
			v.Members = append(v.Members, Member{Server: c.Server, Node: "n3"})
		case Promote:
			v.Members[2].Voter = true
		case Remove:
			v.Members = append(v.Members[:2], v.Members[3:]...)
		default:
		}
	}
}

// TestNoVoteBesideTheOldReplica: as long as the old replica of a node cannot be removed, the new one does not vote.
func TestNoVoteBesideTheOldReplica(t *testing.T) {
	t.Parallel()
	s := Settings{}.WithDefaults()
	v := view("n1V n2V n3V", Desired{Voters: []string{"n1", "n2", "n3"}})
	v.Replicas["n3"] = "n3/b"
	v.Members[1].Contact = time.Hour
	v.Members = append(v.Members, Member{Server: "n3/b", Node: "n3"})
	if c := Step(s, v); c.Kind != None || !strings.Contains(c.Reason, "n3/a keeps its vote") {
		t.Errorf("n2 is silent: %v %s (%s), want nothing", c.Kind, c.Server, c.Reason)
	}
	v.Members[1].Contact = s.Contact
	if c := Step(s, v); c.Kind != Remove || c.Server != "n3/a" {
		t.Errorf("n2 answers: %v %s (%s), want n3/a removed", c.Kind, c.Server, c.Reason)
	}
}
