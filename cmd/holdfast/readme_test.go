package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReadmeFlags checks that the README's table of settings is what the command line says.
func TestReadmeFlags(t *testing.T) {
	t.Parallel()
	var c cli
	env := &environment{ctx: t.Context(), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	p, err := newParser(&c, env, "the host name", func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	want.WriteString("| Flag | Default | Meaning |\n|---|---|---|\n")
	for _, command := range p.Model.Children {
		if command.Name != "serve" {
			continue
		}
		for _, f := range command.Flags {
			name, value := "--"+f.Name, f.Default
			if f.PlaceHolder != "" {
				name += " " + f.PlaceHolder
			}
			if f.IsSlice() {
				name += ",…"
			}
			if value != "" && value != "the host name" {
				value = "`" + value + "`"
			}
			fmt.Fprintf(&want, "| `%s` | %s | %s |\n", name, value, f.Help)
			if env := "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-",
				"_")); len(f.Envs) != 1 || f.Envs[0] != env {
				t.Errorf("--%s is %v in the environment, want %s", f.Name, f.Envs, env)
			}
		}
	}
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "<!-- flags: checked by a test -->\n")
	got, _, found := strings.Cut(rest, "<!-- end of flags -->")
	if diff := cmp.Diff(want.String(), got); diff != "" || !found {
		t.Errorf("the README's table of flags (-command line +README):\n%s\nIt should be:\n%s", diff,
			want.String())
	}
}

// TestReadmeCommands checks that every command is in the package comment, and none that is not there.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var c cli
	env := &environment{ctx: t.Context(), stdout: &bytes.Buffer{}, stderr: &bytes.Buffer{}}
	p, err := newParser(&c, env, "host", func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, leaf := range p.Model.Leaves(true) {
		name, _, _ := strings.Cut(strings.TrimPrefix(leaf.FullPath(), "holdfast "), " <")
		if !strings.Contains(string(b), "//\t"+name) && !strings.Contains(string(b), ", "+name+" ") {
			t.Errorf("doc.go does not name the command %q", name)
		}
	}
}
