package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/cmd/node"
)

// try runs a command line and returns its exit code and what it printed.
func try(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(&environment{ctx: t.Context(), stdout: &out, stderr: &errs, args: args})
	return code, out.String(), errs.String()
}

// parsed returns the configuration that a command line of serve means.
func parsed(t *testing.T, args ...string) (node.Config, error) {
	t.Helper()
	var c cli
	env := &environment{ctx: t.Context(), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	p, err := newParser(&c, env, "host", func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Parse(append([]string{"serve"}, args...))
	return c.Serve.config(), err
}

func TestExitCodes(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, tt := range []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string
	}{
		{"no command", nil, exitOK, "Commands:", ""},
		{"help", []string{"serve", "--help"}, exitOK, "--node-id", ""},
		{"version", []string{"version"}, exitOK, "holdfast " + node.Version, ""},
		{"unknown command", []string{"run"}, exitUsage, "", "unexpected argument run"},
		{"unknown flag", []string{"serve", "--port", "1"}, exitUsage, "", "unknown flag --port"},
		{"salvage of nothing", []string{"salvage", empty, empty}, exitUsage, "", "is no data directory of a node"},
		{"no number", []string{"serve", "--groups", "x"}, exitUsage, "", "--groups"},
		{
			"bad configuration",
			[]string{"serve", "--node-id", "", "--max-voters", "2"},
			exitUsage, "",
			"--max-voters: is 2",
		},
		{"no level", []string{"serve", "--log-level", "loud"}, exitUsage, "", `--log-level: "loud"`},
		{
			"level above error",
			[]string{"serve", "--log-level", "fatal"},
			exitUsage, "",
			"give debug, info, warn or error",
		},
		{"no format", []string{"serve", "--log-format", "xml"}, exitUsage, "", `--log-format: "xml"`},
		{
			"no file",
			[]string{"serve", "--config", filepath.Join(empty, "x")},
			exitUsage, "",
			"--config: open",
		},
		{"check of nothing", []string{"check", empty}, exitUsage, "", "is no data directory of a node"},
		{"dump of nothing", []string{"dump", empty}, exitUsage, "", "is no data directory of a node"},
		{
			"nobody to ask",
			[]string{"cluster", "status", "--admin", "127.0.0.1:1"},
			exitFailed, "",
			"(--admin)",
		},
		{"group missing", []string{"cluster", "transfer"}, exitUsage, "", "--group"},
		{"node missing", []string{"cluster", "remove"}, exitUsage, "", "<node>"},
		{"short demo", []string{"demo", "--duration", "19s"}, exitUsage, "", "give 20s to 1m40s"},
		{"long demo", []string{"demo", "--duration", "101s"}, exitUsage, "", "give 20s to 1m40s"},
		{"odd publishers", []string{"demo", "--publishers", "6"}, exitUsage, "", "multiple of 4"},
		{"many publishers", []string{"demo", "--publishers", "68"}, exitUsage, "", "at most 64"},
		{"demo profile", []string{"demo", "--profile", "local"}, exitUsage, "", "lan or fast"},
	} {
		code, stdout, stderr := try(t, tt.args...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: code %d (want %d), stdout %q, stderr %q", tt.name, code, tt.code, stdout, stderr)
		}
	}
	if got := exitCode(&environment{stderr: &bytes.Buffer{}}, atOnce(syscall.SIGINT)); got != 130 {
		t.Errorf("second SIGINT: %d, want 130", got)
	}
	if got := exitCode(&environment{stderr: &bytes.Buffer{}}, atOnce(syscall.SIGTERM)); got != 143 {
		t.Errorf("second SIGTERM: %d, want 143", got)
	}
	foreign := &exitError{exitStopped, fmt.Errorf("stopped: %w", &node.ConfigError{Setting: "--data-dir"})}
	if got := exitCode(&environment{stderr: &bytes.Buffer{}}, foreign); got != exitUsage {
		t.Errorf("a configuration that only other nodes could refuse: %d, want 2", got)
	}
	if got := exitCode(&environment{stderr: &bytes.Buffer{}}, errors.New("x")); got != exitFailed {
		t.Errorf("any error: %d, want 1", got)
	}
}

// TestPrecedence: flag before environment before file before default.
func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	text := "node-id: of-file\ngroups: 2\nmax-voters: 3\nprofile: fast\n" +
		"join: [127.0.0.1:7001, 127.0.0.1:7002]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOLDFAST_GROUPS", "3")
	t.Setenv("HOLDFAST_MAX_VOTERS", "7")
	t.Setenv("HOLDFAST_CONFIG", file)
	t.Setenv("HOLDFAST_CLUSTER_SECRET", "hush")
	got, err := parsed(t, "--max-voters", "9")
	if err != nil {
		t.Fatal(err)
	}
	want := node.DefaultConfig()
	want.NodeID, want.Profile, want.Join = "of-file", "fast", []string{"127.0.0.1:7001", "127.0.0.1:7002"}
	want.Groups, want.MaxVoters, want.ClusterSecret = 3, 9, "hush"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err = parsed(t, "--config", file, "--join", "127.0.0.1:7003", "--node-id", "of-flag")
	if err != nil || got.NodeID != "of-flag" || !cmp.Equal(got.Join, []string{"127.0.0.1:7003"}) {
		t.Errorf("flags: %+v, %v", got, err)
	}
}

// TestDefaults: without anything given, the command line means node.DefaultConfig.
func TestDefaults(t *testing.T) {
	t.Parallel()
	got, err := parsed(t)
	if err != nil {
		t.Fatal(err)
	}
	want := node.DefaultConfig()
	want.NodeID = "host"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEmptyLists: a variable of a script may be empty, and be nobody.
func TestEmptyLists(t *testing.T) {
	t.Setenv("HOLDFAST_PEERS", "")
	got, err := parsed(t, "--join", "")
	if err != nil || len(got.Join) != 0 || len(got.Peers) != 0 {
		t.Errorf("join %q, peers %q, %v", got.Join, got.Peers, err)
	}
}

func TestParseSettings(t *testing.T) {
	t.Parallel()
	known := []string{"groups", "join", "node-id", "peers"}
	for _, tt := range []struct {
		name, text string
		want       map[string]string
		problem    string
	}{
		{"empty", "# nothing yet\n", map[string]string{}, ""},
		{"values", "node-id: n1\ngroups: 4\n", map[string]string{"node-id": "n1", "groups": "4"}, ""},
		{"list", "join:\n- a:1\n- b:2\n", map[string]string{"join": "a:1,b:2"}, ""},
		{"peers as list", "peers: [n1=a:1, n2=b:2]\n", map[string]string{"peers": "n1=a:1,n2=b:2"}, ""},
		{
			"peers as mapping", "peers:\n  n1: a:1\n  n2: b:2\n",
			map[string]string{"peers": "n1=a:1,n2=b:2"},
			"",
		},
		{
			"unknown", "node-id: n1\nnode_id: n2\n", nil,
			`line 2: unknown setting "node_id"; accepted are groups, join, node-id, peers`,
		},
		{"twice", "groups: 1\ngroups: 2\n", nil, `"groups"`},
		{"no mapping", "- groups\n", nil, "line 1: give settings as name: value"},
		{"two documents", "groups: 1\n---\ngroups: 2\n", nil, "more than one YAML document"},
		{"nested", "groups:\n  a: 1\n", nil, `line 2: "groups" is neither a value nor a list`},
		{"nested list", "join: [[a]]\n", nil, `"join" holds something else than values`},
		{"nested peer", "peers: {n1: [a]}\n", nil, "give id: host:port"},
		{"no YAML", "a: b: c\n", nil, "mapping values are not allowed"},
	} {
		got, err := parseSettings(strings.NewReader(tt.text), known)
		if tt.problem == "" {
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%s: %v (-want +got):\n%s", tt.name, err, diff)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.problem) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.problem)
		}
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add("node-id: n1\njoin: [a:1]\n")
	f.Add("peers: {n1: a:1}\n---\n")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := parseSettings(strings.NewReader(text), []string{"node-id", "join", "peers"})
		if (got == nil) == (err == nil) {
			t.Errorf("settings %v and error %v", got, err)
		}
	})
}

func TestUnknownKeyOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(file, []byte("data_dir: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr := try(t, "serve", "--config", file)
	for _, want := range []string{
		file, `unknown setting "data_dir"`, "data-dir", "log-level",
		"bootstrap-expect",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("%q does not say %q", stderr, want)
		}
	}
	if code != exitUsage || strings.Contains(stderr, " config,") {
		t.Errorf("code %d, %q", code, stderr)
	}
}
