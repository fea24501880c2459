package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
)

func TestStreamConfig(t *testing.T) {
	t.Parallel()
	read := func(c streamConfig) *server.Options {
		t.Helper()
		file := filepath.Join(t.TempDir(), "conf")
		if err := os.WriteFile(file, []byte(c.text()), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := server.ProcessConfigFile(file)
		if err != nil {
			t.Fatalf("%v\n%s", err, c.text())
		}
		return o
	}
	one := read(streamConfig{name: "js1", client: "127.0.0.1:10001", store: "/some/where"})
	if one.ServerName != "js1" || one.Host != "127.0.0.1" || one.Port != 10001 || !one.JetStream ||
		one.StoreDir != "/some/where" || one.SyncAlways || one.Cluster.Port != 0 || len(one.Routes) != 0 {
		t.Errorf("one node, default: %+v", one)
	}
	three := read(streamConfig{
		name: "js2", client: "127.0.0.1:10002", store: "/s", always: true, route: "127.0.0.1:10005",
		routes: []string{"127.0.0.1:10004", "127.0.0.1:10005", "127.0.0.1:10006"},
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
	if !three.SyncAlways || three.Cluster.Name != "bench" || three.Cluster.Port != 10005 {
		t.Errorf("three nodes, always: %+v", three)
	}
}

func TestChild(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "log")
	c, err := startChild(log, "/bin/sh", "-c", "echo up; exec sleep 600")
	if err != nil {
		t.Fatal(err)
	}
	if cpu, err := serversCPU([]int{c.pid()}); err != nil || cpu > time.Minute {
		t.Errorf("%v, %v", cpu, err)
	}
	if err := c.kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := serversCPU([]int{c.pid()}); err == nil {
		t.Error("the process is still there")
	}
	if err := c.kill(); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if _, err := startChild(log, filepath.Join(t.TempDir(), "none")); err == nil ||
		!strings.Contains(err.Error(), "no such file") {
		t.Errorf("no such program: %v", err)
	}
}
