package node

import (
	"context"
	"testing"
	"time"

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
