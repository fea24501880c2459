package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

func TestBetween(t *testing.T) {
	t.Parallel()
	doc := "# A\n\n" + beginMarker + "\nold\n" + endMarker + "\n\n## B\n"
	want := "# A\n\n" + beginMarker + "\n\nnew\ntable\n\n" + endMarker + "\n\n## B\n"
	got, err := between([]byte(doc), []byte("new\ntable\n"))
	if diff := cmp.Diff(want, string(got)); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	again, err := between(got, []byte("\nnew\ntable"))
	if diff := cmp.Diff(want, string(again)); err != nil || diff != "" {
		t.Errorf("a second time: %v (-want +got):\n%s", err, diff)
	}
	for _, bad := range []string{
		"", beginMarker, endMarker, endMarker + "\n" + beginMarker, beginMarker + beginMarker + endMarker,
	} {
		if _, err := between([]byte(bad), nil); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestDocumentHasMarkers(t *testing.T) {
	t.Parallel()
	if err := update(filepath.Join("..", "..", "docs", "benchmarks.md"), nil); err != nil {
		t.Error(err)
	}
}

func TestPublish(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	doc := filepath.Join(dir, "doc.md")
	if err := os.WriteFile(doc, []byte(beginMarker+endMarker), 0o640); err != nil {
		t.Fatal(err)
	}
	c := &Config{Out: filepath.Join(dir, "out.md"), JSON: filepath.Join(dir, "out.json"), Update: doc}
	var out bytes.Buffer
	if err := publish(c, "text\n", someDone(), &out); err != nil {
		t.Fatal(err)
	}
	written, err := os.ReadFile(c.Out)
	if err != nil || out.String() != "text\n" || string(written) != "text\n" {
		t.Errorf("printed %q, wrote %q, %v", out.String(), written, err)
	}
	if text, err := os.ReadFile(doc); err != nil || string(text) != beginMarker+"\n\ntext\n\n"+endMarker {
		t.Errorf("the document is %q, %v", text, err)
	}
	lines, err := os.ReadFile(c.JSON)
	if err != nil {
		t.Fatal(err)
	}
	var got []measurement
	for dec := json.NewDecoder(bytes.NewReader(lines)); ; {
		var m measurement
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		got = append(got, m)
	}
	if diff := cmp.Diff(someDone(), got); diff != "" {
		t.Errorf("measurements (-want +got):\n%s", diff)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	done := someDone()
	err := judge(done)
	if !errors.Is(err, errFailed) || !strings.Contains(err.Error(), "default, async-128") {
		t.Errorf("with a failed measurement: %v", err)
	}
	if err := judge(done[:5]); err != nil {
		t.Error(err)
	}
}

// TestUpdateFails checks that a document that cannot be updated is noticed before a run, not after it.
func TestUpdateFails(t *testing.T) {
	t.Parallel()
	c := &Config{Root: t.TempDir(), Update: filepath.Join(t.TempDir(), "none.md")}
	if err := compare(t.Context(), c, io.Discard, io.Discard); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
