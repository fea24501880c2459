package transport

import (
	"testing"
	"time"
)

func TestEmbargo(t *testing.T) {
	t.Parallel()
	abc := []string{"a", "b", "c"}
	four := []string{"a", "b", "c", "d"}
	five := []string{"a", "b", "c", "d", "e"}
	hello := func(peers ...string) func(*embargo) {
		return func(e *embargo) {
			for _, p := range peers {
				e.hello(p)
			}
		}
	}
	leads := func(p string) func(*embargo) { return func(e *embargo) { e.leads(p) } }
	refused := func(p string) func(*embargo) { return func(e *embargo) { e.refused(p) } }
	const never = time.Duration(-1)
	for _, tc := range []struct {
		name   string
		voters []string
		events []func(*embargo)
		over   time.Duration // since creation; never = not within a day
	}{
		{"no configuration: time only", nil, nil, time.Second},
		{"sole voter: time only", []string{"a"}, nil, time.Second},
		{"another is the sole voter: time only", []string{"b"}, nil, time.Second},
		{"three voters, nobody heard", abc, nil, never},
		{"three voters, one hello", abc, []func(*embargo){hello("b")}, time.Second},
		{"two voters, nobody heard", []string{"a", "b"}, nil, never},
		{"two voters, one hello", []string{"a", "b"}, []func(*embargo){hello("b")}, time.Second},
		{"four voters, one hello", four, []func(*embargo){hello("b")}, never},
		{"four voters, two hellos", four, []func(*embargo){hello("b", "d")}, time.Second},
		{"five voters, one hello", five, []func(*embargo){hello("b")}, never},
		{"five voters, two hellos", five, []func(*embargo){hello("b", "e")}, time.Second},
		{"hellos of others do not count", five, []func(*embargo){hello("x", "y", "b")}, never},
		{"not a voter itself", []string{"b", "c", "d"}, []func(*embargo){hello("b")}, never},
		{"not a voter itself, two", []string{"b", "c", "d"}, []func(*embargo){hello("b", "c")}, time.Second},
		{"an accepted append proves nothing", abc, []func(*embargo){leads("b")}, never},
		{"hello of the current leader", five, []func(*embargo){hello("b"), leads("b")}, time.Second},
		{"hello of another than the leader", five, []func(*embargo){hello("b"), leads("c")}, never},
		{"the leader that was", five, []func(*embargo){hello("b"), leads("b"), leads("")}, never},
		{"a hello refused later", abc, []func(*embargo){hello("b"), refused("b")}, never},
		{"a leader refused later", five, []func(*embargo){hello("b"), leads("b"), refused("b")}, never},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const created = 100 * time.Hour
			e := newEmbargo(created, time.Second, "a")
			e.setVoters(tc.voters)
			for _, ev := range tc.events {
				ev(e)
			}
			if tc.over == never {
				if e.over(created + 24*time.Hour) {
					t.Error("over")
				}
				return
			}
			if e.over(created) || e.over(created+tc.over-1) {
				t.Error("over too early")
			}
			if !e.over(created + tc.over) {
				t.Error("not over in time")
			}
		})
	}
}

func TestEmbargoOnceOverStaysOver(t *testing.T) {
	t.Parallel()
	e := newEmbargo(0, time.Second, "a")
	if !e.over(time.Second) {
		t.Fatal("without a configuration time is enough")
	}
	e.setVoters([]string{"a", "b", "c"})
	e.refused("b")
	if !e.over(time.Second) {
		t.Error("it came back")
	}
	late := newEmbargo(0, time.Second, "a")
	late.setVoters([]string{"a", "b", "c"})
	if late.over(2 * time.Second) {
		t.Error("over before a hello")
	}
	late.hello("c")
	if !late.over(2 * time.Second) {
		t.Error("not over with the hello")
	}
}
