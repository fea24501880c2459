package jepsen

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestPlanIsTheSeeds holds a plan to its seed, to the set and to its bounds.
func TestPlanIsTheSeeds(t *testing.T) {
	t.Parallel()
	names := defaults()
	plan := NewPlan(7, names, 3, 3*len(names))
	if diff := cmp.Diff(plan, NewPlan(7, names, 3, 3*len(names))); diff != "" {
		t.Errorf("two plans of one seed differ:\n%s", diff)
	}
	if cmp.Equal(plan, NewPlan(8, names, 3, 3*len(names))) {
		t.Error("two seeds give one plan")
	}
	if diff := cmp.Diff(plan[:5], NewPlan(7, names, 3, 5)); diff != "" {
		t.Errorf("a shorter plan is not the beginning of a longer one:\n%s", diff)
	}
	for round := range 3 {
		var got []string
		for _, s := range plan[round*len(names) : (round+1)*len(names)] {
			got = append(got, s.Name)
		}
		slices.Sort(got)
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("round %d (-want +got):\n%s", round, diff)
		}
	}
	for i, s := range plan {
		if !permutes(s.Order, 3) {
			t.Errorf("step %d has the order %v", i, s.Order)
		}
		if s.Hold < holdMin || s.Hold >= holdMax || (i > 0 && (s.Quiet < quietMin || s.Quiet >= quietMax)) {
			t.Errorf("step %d: %s", i, s)
		}
	}
	if plan[0].Quiet != firstQuiet {
		t.Errorf("the first quiet is %v", plan[0].Quiet)
	}
	if got := NewPlan(1, nil, 3, 5); got != nil {
		t.Errorf("no nemeses give %v", got)
	}
}

func TestParseNemeses(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list string
		want []string
	}{
		{"", defaults()},
		{"all", sortedNames(nemeses())},
		{"none", nil},
		{"kill,part", []string{"kill", "part"}},
		{"hang:cut-off,clock:correct", []string{"hang:cut-off", "clock:correct"}},
	} {
		got, err := ParseNemeses(tt.list)
		if diff := cmp.Diff(tt.want, got); err != nil || diff != "" {
			t.Errorf("%q: %v\n%s", tt.list, err, diff)
		}
	}
	if _, err := ParseNemeses("kill,flood"); err == nil || !strings.Contains(err.Error(), `"flood"`) ||
		!strings.Contains(err.Error(), "part-kill") {
		t.Errorf("an unknown name gives %v", err)
	}
	for list, want := range map[string]string{"hang:up": "[leader follower cut-off]", "kill:one": `kill has no variant "one"`} {
		if _, err := ParseNemeses(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
	}
	for name, n := range nemeses() {
		if (n.run == nil) != (n.missing != "") || n.what == "" {
			t.Errorf("%s: exactly one of run and missing, and always what", name)
		}
	}
}

func TestWhatCannotRunIsSaid(t *testing.T) {
	t.Parallel()
	r := &Report{NotRun: map[string]string{}, Disk: Plain}
	got := r.runnable(Config{Nemeses: []string{"kill", "clock", "power"}}, "no root")
	if diff := cmp.Diff([]string{"kill"}, got); diff != "" {
		t.Error(diff)
	}
	if r.NotRun["power"] != "no root" || r.NotRun["clock"] == "" || len(r.NotRun) != 2 {
		t.Errorf("not run: %v", r.NotRun)
	}
	r = &Report{NotRun: map[string]string{}, Disk: Loop}
	if got := r.runnable(Config{Nemeses: []string{"power", "slow-fsync"}}, ""); len(got) != 1 || r.NotRun["slow-fsync"] == "" {
		t.Errorf("with disks that cannot be slow: %v, not run: %v", got, r.NotRun)
	}
	r = &Report{NotRun: map[string]string{}, Disk: Lazy}
	if got := r.runnable(Config{Nemeses: []string{"power", "slow-fsync", "clock"}, Skewed: true}, ""); len(got) != 3 || len(r.NotRun) != 0 {
		t.Errorf("with disks: %v, not run: %v", got, r.NotRun)
	}
}

// TestWhatOthersHaveNotStaysInThePlan: it is said, and the plan is the same for all systems.
func TestWhatOthersHaveNotStaysInThePlan(t *testing.T) {
	t.Parallel()
	names := []string{"grow", "kill", "clock:correct", "clock:accept"}
	for _, tt := range []struct {
		kind Kind
		want []string
	}{{Holdfast, nil}, {Default, []string{"clock:accept", "clock:correct", "grow"}}, {Always, []string{"clock:accept", "clock:correct", "grow"}}} {
		r := &Report{NotRun: map[string]string{}, Disk: Lazy}
		got := r.runnable(Config{Kind: tt.kind, Nemeses: names, Skewed: true}, "")
		if diff := cmp.Diff(names, got); diff != "" {
			t.Errorf("%s: %s", tt.kind, diff)
		}
		if diff := cmp.Diff(tt.want, slices.Sorted(maps.Keys(r.NotRun))); diff != "" {
			t.Errorf("%s, not run: %s", tt.kind, diff)
		}
	}
}

func TestWhatWasNotReachedIsSaid(t *testing.T) {
	t.Parallel()
	r := &Report{
		Nemeses: []string{"kill", "part", "clock", "hang", "eio:sync", "eio:write"},
		NotRun:  map[string]string{"clock": "why"},
		Steps:   []StepReport{{Step: "kill for 1s"}, {Step: "hang:leader for 1s"}, {Step: "eio:sync for 1s"}},
	}
	r.unreached()
	want := map[string]string{"clock": "why", "part": "the time was over before its turn", "eio:write": "the time was over before its turn"}
	if diff := cmp.Diff(want, r.NotRun); diff != "" {
		t.Error(diff)
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	ok := Config{Kind: Holdfast, Nodes: 3, Rate: 1, Length: time.Second}
	for _, tt := range []struct {
		name   string
		change func(*Config)
		good   bool
	}{
		{"least", func(*Config) {}, true},
		{"most", func(c *Config) { c.Rate = MaxRate }, true},
		{"rate 0", func(c *Config) { c.Rate = 0 }, false},
		{"rate above", func(c *Config) { c.Rate = MaxRate + 1 }, false},
		{"five nodes", func(c *Config) { c.Nodes = 5 }, true},
		{"four nodes", func(c *Config) { c.Nodes = 4 }, false},
		{"no node", func(c *Config) { c.Nodes = 0 }, false},
		{"no length", func(c *Config) { c.Length = 0 }, false},
		{"unknown nemesis", func(c *Config) { c.Nemeses = []string{"flood"} }, false},
	} {
		c := ok
		tt.change(&c)
		if err := c.validate(); (err == nil) != tt.good {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestErrorsAreJudged(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  error
		want Outcome
	}{
		{nil, Acked},
		{nats.ErrTimeout, Unknown},
		{errors.New("connection closed"), Unknown},
		{nats.ErrNoResponders, Refused},
		{jetstream.ErrNoStreamResponse, Refused},
		{&jetstream.APIError{Code: 400, ErrorCode: 10071, Description: "wrong last sequence: 1"}, Refused},
		{&jetstream.APIError{Code: 429, ErrorCode: 10167}, Refused},
		{&jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "outcome unknown, retry"}, Unknown},
		{&jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "not stored, retry"}, Refused},
	} {
		if got := judge(tt.err); got != tt.want {
			t.Errorf("%v is %s, want %s", tt.err, got, tt.want)
		}
	}
	for text, want := range map[string]uint64{
		"nats: API error: code=400 err_code=10071 description=wrong last sequence: 12": 12,
		"wrong last sequence: 0":         0,
		"wrong last sequence: 7, really": 7,
	} {
		if got, ok := wrongLast(text); got != want || !ok {
			t.Errorf("%q: %d, %t", text, got, ok)
		}
	}
	for _, text := range []string{"", "wrong last sequence: ", "wrong last sequence: x", "no such thing"} {
		if _, ok := wrongLast(text); ok {
			t.Errorf("%q tells a sequence", text)
		}
	}
}

func TestUpdateReplacesOnlyItsPart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "a.md")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("before\n" + beginMarker + "\nold\n" + endMarker + "\nafter\n")
	if err := Update(file, "| new |\n"); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	want := "before\n" + beginMarker + "\n\n| new |\n\n" + endMarker + "\nafter\n"
	if err != nil || string(got) != want {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	write("no markers")
	if err := Update(file, "x"); !errors.Is(err, ErrMarkers) {
		t.Errorf("without markers: %v", err)
	}
}

// TestAbsenceIsNotBelievedAtOnce lets virtual time pass.
func TestAbsenceIsNotBelievedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a absence
		for i, tt := range []struct {
			err  error
			wait time.Duration
			want bool
		}{
			{jetstream.ErrStreamNotFound, 0, false},
			{jetstream.ErrConsumerNotFound, goneAfter - 1, false},
			{nats.ErrTimeout, 0, false}, // begins anew
			{jetstream.ErrStreamNotFound, time.Hour, false},
			{nil, time.Second, false},
			{jetstream.ErrStreamNotFound, time.Hour, false},
			{jetstream.ErrStreamNotFound, goneAfter, true},
		} {
			<-time.After(tt.wait)
			if got := a.gone(tt.err); got != tt.want {
				t.Errorf("step %d: gone is %t, want %t", i, got, tt.want)
			}
		}
	})
}
