package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/holdfast-mq/holdfast/testenv/process"
)

func TestStreamServer(t *testing.T) {
	t.Parallel()
	read := func(c process.StreamServer) *server.Options {
		t.Helper()
		file := filepath.Join(t.TempDir(), "conf")
		if err := os.WriteFile(file, []byte(c.Text()), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := server.ProcessConfigFile(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, c.Text())
		}
		return o
	}
	one := read(process.StreamServer{Name: "js1", Client: "127.0.0.1:10001", Store: "/some/where"})
	if one.ServerName != "js1" || one.Host != "127.0.0.1" || one.Port != 10001 || !one.JetStream ||
		one.StoreDir != "/some/where" || one.SyncAlways || one.Cluster.Port != 0 || len(one.Routes) != 0 {
		t.Errorf("one node, default: %+v", one)
	}
	three := read(process.StreamServer{
		Name: "js2", Client: "127.0.0.1:10002", Store: "/s", Always: true, Cluster: "bench", Route: "127.0.0.1:10005",
		Routes:    []string{"127.0.0.1:10004", "127.0.0.1:10005", "127.0.0.1:10006"},
		Advertise: "127.0.0.1:10007", Monitor: "127.0.0.1:10008", SystemUser: "sys", SystemPassword: "secret",
	})
	var routes []string
	for _, u := range three.Routes {
		routes = append(routes, u.String())
	}
	want := []string{
		"nats-route://127.0.0.1:10004", "nats-route://127.0.0.1:10005", "nats-route://127.0.0.1:10006",
	}
	if diff := cmp.Diff(want, routes); diff != "" {
		t.Errorf("routes (-want +got):\n%s", diff)
	}
	if !three.SyncAlways || three.Cluster.Name != "bench" || three.Cluster.Port != 10005 ||
		three.Cluster.Advertise != "127.0.0.1:10007" || three.HTTPPort != 10008 || three.NoAuthUser != "app" ||
		len(three.Users) != 2 {
		t.Errorf("three nodes, always: %+v", three)
	}
}

func TestChild(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	c, err := process.StartChild(log, nil, "/bin/sh", "-c", "echo up; exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Signal(0); err != nil || !c.Running() || c.PID() == 0 || c.Log() != log {
		t.Errorf("pid %d, running %t, log %s: %v", c.PID(), c.Running(), c.Log(), err)
	}
	if err := process.Until(t.Context(), func() error {
		if got := c.Tail(3); got != "up\n" {
			return fmt.Errorf("the log ends with %q", got)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if err := c.Kill(); err != nil || c.Running() {
		t.Fatalf("running %t after a kill: %v", c.Running(), err)
	}
	<-c.Done()
	if err := c.Kill(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := process.StartChild(log, nil, filepath.Join(t.TempDir(), "none")); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("no such program: %v", err)
	}
}
