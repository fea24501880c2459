package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// natsGo is the module whose packages are the suites.
const natsGo = "github.com/nats-io/nats.go/"

// suites are the packages, and whether every test of theirs must be in classes.tsv.
var suites = []struct {
	pkg string
	all bool
}{
	{"jetstream/test", true},
	{"test", false},
}

// binaries is what was built.
type binaries struct {
	tester string
	suites map[string]suite
}

// suite is one compiled package.
type suite struct {
	bin string
	dir string // of its source: test data is found there
}

// build compiles tester and suites into dir.
func build(ctx context.Context, dir string) (*binaries, error) {
	began := time.Now()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	b := &binaries{tester: filepath.Join(dir, "tester"), suites: make(map[string]suite)}
	if _, err := goTool(ctx, "build", "-o", b.tester, "./cmd/tester"); err != nil {
		return nil, err
	}
	for _, s := range suites {
		out := filepath.Join(dir, strings.ReplaceAll(s.pkg, "/", "-")+".test")
		// The tag adds the tests that look inside the client.
		args := []string{"test", "-c", "-vet=off", "-tags=internal_testing", "-o", out, natsGo + s.pkg}
		if _, err := goTool(ctx, args...); err != nil {
			return nil, err
		}
		src, err := goTool(ctx, "list", "-f", "{{.Dir}}", natsGo+s.pkg)
		if err != nil {
			return nil, err
		}
		b.suites[s.pkg] = suite{out, strings.TrimSpace(src)}
	}
	fmt.Printf("built in %v\n", time.Since(began).Round(time.Second))
	return b, nil
}

func goTool(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out), nil
}

// check finds tests that classes.tsv lists and no suite has, and new ones of a suite that it should list.
func (b *binaries) check(ctx context.Context, list classes) error {
	for _, s := range suites {
		cmd := exec.CommandContext(ctx, b.suites[s.pkg].bin, "-test.list", "^Test")
		cmd.Dir, cmd.Env = b.suites[s.pkg].dir, append(os.Environ(), testEnv(unusedURL)...)
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("listing the tests of %s: %w", s.pkg, err)
		}
		have := strings.Fields(string(out))
		for _, c := range list {
			if c.pkg == s.pkg && !slices.Contains(have, c.test) {
				return fmt.Errorf("classes.tsv lists %s, which the suite does not have", c.id)
			}
		}
		for _, name := range have {
			if s.all && list.find(id{s.pkg, name}) == nil {
				return fmt.Errorf("classes.tsv does not list %s.%s", s.pkg, name)
			}
		}
	}
	return nil
}

// unusedURL is a tester for a run that starts no server.
const unusedURL = "nats://127.0.0.1:1"

// testEnv is what the suites read: without the second variable they would start a tester of their own, with
// the real JetStream, if the first were missing.
func testEnv(url string) []string {
	return []string{"TESTER_NATS_URL=" + url, "GITHUB_ACTIONS=true"}
}
