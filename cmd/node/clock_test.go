package node

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// TestAgesWaitForTheClock: while the group's clock says that nothing may be deleted by age,
// nothing is, and then it is.
func TestAgesWaitForTheClock(t *testing.T) {
	n := startNode(t, func(*Config) {})
	nc, err := nats.Connect(n.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	age := time.Second
	s, err := js.CreateStream(ctx, jetstream.StreamConfig{
		Name: "S", Subjects: []string{"s"}, MaxAge: age, Duplicates: age,
	})
	if err != nil {
		t.Fatal(err)
	}
	c := n.clock(1)
	now, runs := c.Now()
	if shared := n.clusterTime(); !runs || time.Duration(shared-now).Abs() > time.Second || !n.agesTrusted(1) {
		t.Fatalf("runs: %t, group 0 is %v ahead, trusted: %t", runs, time.Duration(shared-now), n.agesTrusted(1))
	}
	if n.clock(99) != nil || n.agesTrusted(99) {
		t.Error("a group that is not there has a clock")
	}
	c.Observe(now, time.Hour) // what a leader says whose clock was corrected
	if _, err := js.Publish(ctx, "s", nil); err != nil {
		t.Fatal(err)
	}
	<-time.After(3 * age)
	if info, err := s.Info(ctx); err != nil || info.State.Msgs != 1 || n.agesTrusted(1) {
		t.Fatalf("%v, %v: want the message kept", info, err)
	}
	c.Accept()
	for {
		info, err := s.Info(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if info.State.Msgs == 0 {
			return
		}
		<-time.After(age / 10)
	}
}

var aDuration = regexp.MustCompile(`\b(\d+h)?\d+m\d+s\b`)

// TestAcceptClock: an operator hears of a wait before messages are deleted by age, and ends it.
func TestAcceptClock(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	health := func() (h Health) {
		t.Helper()
		status, body := ask(t, n, http.MethodGet, "/healthz")
		if err := json.Unmarshal([]byte(body), &h); err != nil || status != http.StatusOK || !h.OK {
			t.Fatalf("/healthz: %d %s", status, body)
		}
		return h
	}
	if h := health(); len(h.Notes) > 0 {
		t.Fatalf("notes of a new node: %q", h.Notes)
	}
	now, _ := n.clock(1).Now()
	n.clock(1).Observe(now-int64(2*time.Hour), time.Hour) // what a restored clock that is behind looks like
	want := []string{
		"group 1: its clock is … behind the wall clocks; it is corrected in …, or by cluster accept-clock",
		"group 1: nothing is deleted by age for …, or until cluster accept-clock says that the wall clocks are right",
	}
	var notes []string
	var left []time.Duration // the last two go on while the test does
	for _, note := range health().Notes {
		notes = append(notes, aDuration.ReplaceAllStringFunc(note, func(s string) string {
			d, err := time.ParseDuration(s)
			if err != nil {
				t.Error(err)
			}
			left = append(left, d.Round(time.Minute))
			return "…"
		}))
	}
	if diff := cmp.Diff(want, notes); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{2 * time.Hour, 10 * time.Minute, time.Hour}, left); diff != "" {
		t.Errorf("times in the notes (-want +got):\n%s", diff)
	}
	status, body := ask(t, n, http.MethodPost, "/accept-clock")
	var accepted []AcceptedClock
	if err := json.Unmarshal([]byte(body), &accepted); err != nil || status != http.StatusOK || len(accepted) != 2 {
		t.Fatalf("/accept-clock: %d %s", status, body)
	}
	if by := time.Duration(accepted[1].CorrectedNS); accepted[1].Group != 1 || by.Round(time.Minute) != 2*time.Hour {
		t.Errorf("group %d corrected by %v, want group 1 by 2h", accepted[1].Group, by)
	}
	if h := health(); len(h.Notes) > 0 || !n.agesTrusted(1) {
		t.Errorf("afterwards: notes %q, trusted %t", h.Notes, n.agesTrusted(1))
	}
}
