package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/holdfast-mq/holdfast/testenv/jepsen"
)

// TestMustRun gives the command reports of runs that did, and did not, come to a fault.
func TestMustRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "reports.json")
	text, err := json.Marshal([]*jepsen.Report{{
		Kind: jepsen.Holdfast, Seed: 1, Nemeses: []string{"kill", "eio"}, Verdict: &jepsen.Verdict{},
		Steps: []jepsen.StepReport{{Step: "kill for 1s"}}, NotRun: map[string]string{"eio": "needs disks"},
	}})
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		args []string
		want error
	}{
		{"not asked for", nil, nil},
		{"it ran", []string{"--must-run", "kill"}, nil},
		{"it did not", []string{"--must-run", "eio"}, errMissed},
		{"not all did", []string{"--must-run", "all"}, errMissed},
	} {
		var c cli
		parser, err := kong.New(&c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(append([]string{"--from", file, "--nemesis", "kill,eio"}, tt.args...)); err != nil {
			t.Fatal(err)
		}
		if err := c.run(t.Context(), io.Discard); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}
