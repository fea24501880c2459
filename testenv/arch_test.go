package testenv

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The architecture as tests: who may import what, how large a file may be, what lies at the top level, and
// that documents name things that exist. `make arch` runs them; .golangci.yml repeats the import rules so
// that editors show them at once. Run them with -count=1: the test cache does not see what `go list` reads.

const (
	modulePath   = "github.com/holdfast-mq/holdfast"
	maxCodeLines = 400
)

// An importRow says which packages of ours a package may import, in code that is not a test. Patterns are
// relative to the module: "a/b" is that package, "a/..." is a and everything below it.
type importRow struct {
	pkg string
	may []string
	// planned marks a package of the design that need not exist yet. Every other row must match something,
	// so that a renamed package cannot take its rule away unseen.
	planned bool
}

// ourImports is the table. A package of the tree that no row names is a failure: a new package states its
// place.
var ourImports = []importRow{
	{pkg: "storage/record"},
	{pkg: "storage/seglog", may: []string{"storage/record"}},
	{pkg: "storage/disk"},
	{pkg: "storage", may: []string{"storage/record", "storage/seglog"}},
	{pkg: "discovery"},
	{pkg: "replication/clock"},
	{pkg: "replication/lease"},
	{pkg: "replication/marks"},
	{pkg: "replication/membership"},
	{pkg: "replication/command", may: []string{"storage/record"}},
	{pkg: "replication/transport", may: transportParts},
	{pkg: "replication/transport/memnet"},
	{pkg: "replication", may: []string{"storage", "storage/seglog", "storage/record", "replication/..."}},
	{pkg: "ingress/jsapi"},
	{pkg: "ingress/plan", may: []string{"ingress/jsapi", "storage/record", "replication/command"}},
	{pkg: "ingress/link", may: []string{"ingress/jsapi", "storage/record"}},
	{pkg: "ingress/conn", may: []string{"ingress/jsapi", "storage/record"}},
	{pkg: "ingress/hub", may: []string{"ingress/jsapi", "storage/record"}},
	{pkg: "ingress/publish", may: ingressPart},
	{pkg: "ingress/deliver", may: ingressPart},
	{pkg: "ingress/api", may: ingressPart},
	{pkg: "ingress", may: []string{"ingress/...", "storage/record", "replication/command"}},
	{pkg: "cmd/node", may: []string{"ingress/...", "replication/...", "discovery", "storage/..."}},
	{pkg: "cmd/holdfast", may: []string{"cmd/node", "ingress/jsapi", "replication/...", "storage/..."}},
	{pkg: "cmd/jsbench"},
	{pkg: "testenv/...", may: []string{"..."}},
}

// transportParts is what the transport may import: words, formats and what it must ask before it sends.
var transportParts = []string{"storage/record", "replication/command", "replication/clock", "replication/lease"}

// ingressPart is what publish, deliver and api may import: never each other, they meet in ingress.
var ingressPart = []string{
	"ingress/jsapi", "ingress/plan", "ingress/link", "ingress/conn", "storage/record", "replication/command",
}

// A thirdPartyRow says where a library may be imported directly, in code that is not a test.
type thirdPartyRow struct {
	library string // an import path; everything below it too
	only    []string
	but     []string // exceptions below library that only does not govern
}

// thirdParty gives each library its one place.
var thirdParty = []thirdPartyRow{
	{library: "github.com/nats-io/nats-server", only: []string{"ingress/hub", "testenv/..."}},
	{
		library: "github.com/nats-io",
		only:    []string{"ingress/...", "testenv/...", "cmd/jsbench", "cmd/holdfast"},
	},
	{
		library: "github.com/cockroachdb/pebble",
		only:    []string{"storage", "testenv/..."},
		but:     []string{"github.com/cockroachdb/pebble/v2/vfs"},
	},
	{
		library: "github.com/cockroachdb/pebble/v2/vfs",
		only:    []string{"storage", "storage/disk", "storage/seglog", "testenv/..."},
	},
	{
		library: "github.com/hashicorp/raft",
		only:    []string{"replication", "replication/transport", "testenv/..."},
	},
	{library: "github.com/hashicorp/serf", only: []string{"discovery"}},
	{library: "github.com/hashicorp/memberlist", only: []string{"discovery"}},
	{library: "github.com/prometheus", only: []string{"cmd/node", "testenv/..."}},
	{library: "github.com/alecthomas/kong", only: []string{"cmd/...", "testenv/..."}},
}

// standardOnly lists packages that import nothing but the standard library, apart from the packages of ours
// in their row.
var standardOnly = []string{"storage/record", "ingress/jsapi", "replication/command"}

// A reachRow says which libraries a package may not reach over any chain of imports.
type reachRow struct {
	pkg   string
	never []string
}

var neverReaches = []reachRow{
	{pkg: "ingress/...", never: []string{
		"github.com/cockroachdb/pebble", "github.com/hashicorp/raft", "github.com/hashicorp/serf",
	}},
	{pkg: "storage/...", never: []string{
		"github.com/hashicorp/raft", "github.com/hashicorp/serf", "github.com/nats-io",
	}},
	{pkg: "replication/...", never: []string{"github.com/hashicorp/serf", "github.com/nats-io"}},
	{pkg: "discovery", never: []string{
		"github.com/hashicorp/raft", "github.com/cockroachdb/pebble", "github.com/nats-io",
	}},
}

// topLevel is the fixed top level; names with a leading dot and what .gitignore names are free.
var topLevel = []string{
	"cmd", "ingress", "replication", "discovery", "storage", "testenv", "docs",
	"go.mod", "go.sum", "Makefile", "README.md", "LICENSE", "CHANGELOG.md",
}

// TestArchImports checks the table of our own imports.
func TestArchImports(t *testing.T) {
	t.Parallel()
	report(t, checkImports(loadGraph(t), ourImports))
}

// TestArchThirdParty checks that each library is imported in its one place.
func TestArchThirdParty(t *testing.T) {
	t.Parallel()
	report(t, checkThirdParty(loadGraph(t), thirdParty, standardOnly))
}

// TestArchReach checks the transitive rules.
func TestArchReach(t *testing.T) {
	t.Parallel()
	report(t, checkReach(loadGraph(t), neverReaches))
}

// TestArchPackageDocs checks that every package has a doc.go that opens with its contract.
func TestArchPackageDocs(t *testing.T) {
	t.Parallel()
	for _, p := range loadGraph(t).ours() {
		if problem := checkDoc(p); problem != "" {
			t.Error(problem)
		}
	}
}

// TestArchFileSizes checks that no file is longer than one can hold in mind. Tests and tables of data are
// free.
func TestArchFileSizes(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	for _, file := range sourceFiles(t, root) {
		name := filepath.Base(file)
		free := strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_table.go")
		if free || !strings.HasSuffix(name, ".go") {
			continue
		}
		src, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if n := codeLines(src); n > maxCodeLines {
			t.Errorf("%s has %d lines of code, at most %d", file, n, maxCodeLines)
		}
	}
}

// TestArchTopLevel checks that nothing new appears beside the folders of the message's path.
func TestArchTopLevel(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	ignored := gitIgnored(t, root)
	for _, e := range entries {
		name := e.Name()
		fixed := slices.Contains(topLevel, name) || slices.Contains(ignored, name)
		if !fixed && !strings.HasPrefix(name, ".") {
			t.Errorf("%s does not belong at the top level, which is: %s", name, strings.Join(topLevel, " "))
		}
	}
}

// TestArchDocuments checks that links in the documents resolve and that files they name exist.
func TestArchDocuments(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	for _, file := range sourceFiles(t, root) {
		if !strings.HasSuffix(file, ".md") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range checkDocument(os.DirFS(root), file, string(text)) {
			t.Error(problem)
		}
	}
}

// TestArchStandsAlone checks that nothing in the tree depends on where it was written.
func TestArchStandsAlone(t *testing.T) {
	t.Parallel()
	root := moduleRoot(t)
	for _, file := range sourceFiles(t, root) {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		if found := outsidePath.FindString(string(text)); found != "" {
			t.Errorf("%s names a path outside the tree: %q", file, strings.TrimSpace(found))
		}
	}
}

// TestArchChecksCanFail runs each check on a small tree that breaks its rule.
func TestArchChecksCanFail(t *testing.T) {
	t.Parallel()
	g := fakeGraph(map[string][]string{
		"storage":         {"storage/record", "github.com/hashicorp/raft"},
		"storage/record":  {"fmt", "example.com/lib"},
		"ingress":         {"ingress/publish"},
		"ingress/publish": {"storage"},
		"stray":           {},
	}, map[string][]string{
		"example.com/lib":           {"example.com/deep"},
		"example.com/deep":          {"github.com/hashicorp/serf/serf"},
		"github.com/hashicorp/raft": {},
	})
	rows := []importRow{
		{pkg: "storage", may: []string{"storage/record"}},
		{pkg: "storage/record"},
		{pkg: "ingress/...", may: []string{"ingress/..."}},
		{pkg: "gone"},
		{pkg: "later", planned: true},
	}
	const document = "# A Title\n[ok](#a-title) [bad](#b) [gone](docs/x.md) [web](https://example.com)\n" +
		"`storage/gone.go` `a/b`\n"
	reach := []reachRow{{pkg: "ingress/...", never: []string{"github.com/hashicorp/serf"}}}
	tests := []struct {
		name string
		got  []string
		want []string
	}{
		{"imports", checkImports(g, rows), []string{
			"ingress/publish imports storage; it may import: ingress/...",
			"stray is in no row of the import table: say what it may import",
			"the import table names gone, which does not exist",
		}},
		{"third party", checkThirdParty(g, thirdParty, []string{"storage/record"}), []string{
			"storage imports github.com/hashicorp/raft, " +
				"which belongs in replication, replication/transport, testenv/...",
			"storage/record imports example.com/lib; it may import the standard library only",
		}},
		{"reach", checkReach(g, reach), []string{
			"ingress reaches github.com/hashicorp/serf: " +
				"ingress > ingress/publish > storage > storage/record > example.com/lib > " +
				"example.com/deep > github.com/hashicorp/serf/serf",
			"ingress/publish reaches github.com/hashicorp/serf: " +
				"ingress/publish > storage > storage/record > example.com/lib > " +
				"example.com/deep > github.com/hashicorp/serf/serf",
		}},
		{"document", checkDocument(os.DirFS(t.TempDir()), "README.md", document), []string{
			"README.md links to #b, but has no such heading",
			"README.md links to docs/x.md, which does not exist",
			"README.md names storage/gone.go, which does not exist",
		}},
		{"path", outsidePath.FindAllString("see ."+"./shared/x in /work"+"/main", -1), []string{
			" ." + "./shared/", " /work" + "/",
		}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, tt.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	src := "package a\n\n// one\n/* two\nthree */\nvar x = `\n\n`\n\nfunc f() {\n\t_ = x // four\n}\n"
	if got := codeLines([]byte(src)); got != 7 {
		t.Errorf("codeLines = %d, want 7", got)
	}
}

// outsidePath matches a path that exists only where the project was written. It is built in pieces so as
// not to match itself.
var outsidePath = regexp.MustCompile("(^|[\\s\"'`(=:])(/work" + "/|\\.\\." + "/shared/)")

func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// A listedPackage is the part of `go list -json` that the checks read.
type listedPackage struct {
	ImportPath string
	Name       string
	Dir        string
	Imports    []string
	Standard   bool
}

// An importGraph holds every package that the module's code reaches, tests left out.
type importGraph map[string]listedPackage

// loadGraph asks the go command; what it prints is complete only if it exits well.
func loadGraph(t *testing.T) importGraph {
	t.Helper()
	fields := "-json=ImportPath,Name,Dir,Imports,Standard"
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", fields, "./...")
	cmd.Dir = moduleRoot(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	g := importGraph{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listedPackage
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return g
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		g[p.ImportPath] = p
	}
}

// fakeGraph makes a graph of packages of ours (relative names) and of others; an import that neither lists
// is standard.
func fakeGraph(ours, others map[string][]string) importGraph {
	g := importGraph{}
	add := func(path string, imports []string) {
		p := listedPackage{ImportPath: path}
		for _, i := range imports {
			if _, isOurs := ours[i]; isOurs {
				i = modulePath + "/" + i
			}
			p.Imports = append(p.Imports, i)
			if _, known := g[i]; !known {
				g[i] = listedPackage{ImportPath: i, Standard: !strings.Contains(i, ".")}
			}
		}
		g[path] = p
	}
	for path, imports := range others {
		add(path, imports)
	}
	for name, imports := range ours {
		add(modulePath+"/"+name, imports)
	}
	return g
}

// ours returns the packages of this module by import path.
func (g importGraph) ours() []listedPackage {
	var out []listedPackage
	for _, p := range g {
		if _, ok := relative(p.ImportPath); ok {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b listedPackage) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	return out
}

// relative strips the module path; ok is false for a package that is not ours.
func relative(path string) (name string, ok bool) {
	return strings.CutPrefix(path, modulePath+"/")
}

// display names a package the way the tables do.
func display(path string) string {
	if name, ok := relative(path); ok {
		return name
	}
	return path
}

// matches reports whether a relative package name fits a pattern.
func matches(pattern, name string) bool {
	if pattern == "..." {
		return true
	}
	if base, below := strings.CutSuffix(pattern, "/..."); below {
		return name == base || strings.HasPrefix(name, base+"/")
	}
	return pattern == name
}

func matchesAny(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, name) })
}

// within reports whether path is library or below it, a major version being part of the library.
func within(library, path string) bool {
	return path == library || strings.HasPrefix(path, library+"/")
}

func checkImports(g importGraph, rows []importRow) []string {
	var problems []string
	used := map[string]bool{}
	for _, p := range g.ours() {
		name := display(p.ImportPath)
		i := slices.IndexFunc(rows, func(r importRow) bool { return matches(r.pkg, name) })
		if i < 0 {
			problems = append(problems, name+" is in no row of the import table: say what it may import")
			continue
		}
		used[rows[i].pkg] = true
		for _, path := range p.Imports {
			if imported, ok := relative(path); ok && !matchesAny(rows[i].may, imported) {
				problems = append(problems, fmt.Sprintf("%s imports %s; it may import: %s",
					name, imported, strings.Join(rows[i].may, " ")))
			}
		}
	}
	for _, r := range rows {
		if !r.planned && !used[r.pkg] {
			problems = append(problems, fmt.Sprintf("the import table names %s, which does not exist", r.pkg))
		}
	}
	return problems
}

func checkThirdParty(g importGraph, rows []thirdPartyRow, standard []string) []string {
	var problems []string
	for _, p := range g.ours() {
		name := display(p.ImportPath)
		for _, path := range p.Imports {
			if _, isOurs := relative(path); isOurs || g[path].Standard {
				continue
			}
			if slices.Contains(standard, name) {
				problems = append(problems,
					fmt.Sprintf("%s imports %s; it may import the standard library only", name, path))
				continue
			}
			i := slices.IndexFunc(rows, func(r thirdPartyRow) bool { return r.refuses(name, path) })
			if i >= 0 {
				problems = append(problems, fmt.Sprintf("%s imports %s, which belongs in %s",
					name, path, strings.Join(rows[i].only, ", ")))
			}
		}
	}
	return problems
}

// refuses reports whether the row keeps the package name from importing path.
func (r thirdPartyRow) refuses(name, path string) bool {
	free := slices.ContainsFunc(r.but, func(b string) bool { return within(b, path) })
	return within(r.library, path) && !free && !matchesAny(r.only, name)
}

func checkReach(g importGraph, rows []reachRow) []string {
	var problems []string
	for _, p := range g.ours() {
		name := display(p.ImportPath)
		for _, r := range rows {
			if !matches(r.pkg, name) {
				continue
			}
			for _, library := range r.never {
				if chain := g.chain(p.ImportPath, library); chain != nil {
					problems = append(problems,
						fmt.Sprintf("%s reaches %s: %s", name, library, strings.Join(chain, " > ")))
				}
			}
		}
	}
	return problems
}

// chain returns a shortest chain of imports from a package to a library, nil if there is none.
func (g importGraph) chain(from, library string) []string {
	cameFrom := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if within(library, at) {
			var chain []string
			for ; at != ""; at = cameFrom[at] {
				chain = append(chain, display(at))
			}
			slices.Reverse(chain)
			return chain
		}
		for _, next := range g[at].Imports {
			if _, seen := cameFrom[next]; !seen {
				cameFrom[next] = at
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// checkDoc returns what is wrong with the doc.go of a package, "" if nothing.
func checkDoc(p listedPackage) string {
	name := display(p.ImportPath)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, "doc.go"), nil,
		parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		return fmt.Sprintf("%s has no doc.go that states its contract: %v", name, err)
	}
	want := "Package " + p.Name
	if p.Name == "main" {
		want = "Command " + filepath.Base(p.Dir)
	}
	if text := docText(file.Doc); !strings.HasPrefix(text, want+" ") {
		return fmt.Sprintf("%s: the package comment in doc.go should begin with %q", name, want)
	}
	return ""
}

func docText(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	return c.Text()
}

// codeLines counts the lines that hold code: not blank, not comment only.
func codeLines(src []byte) int {
	fset := token.NewFileSet()
	file := fset.AddFile("", fset.Base(), len(src))
	var s scanner.Scanner
	s.Init(file, src, nil, 0)
	lines := map[int]bool{}
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		if tok == token.SEMICOLON && lit == "\n" {
			continue
		}
		first := file.Line(pos)
		for i := range strings.Count(lit, "\n") + 1 {
			lines[first+i] = true
		}
	}
}

var (
	linkMark    = regexp.MustCompile(`\]\(([^)\s]+)(?:\s+"[^"]*")?\)`)
	headingMark = regexp.MustCompile(`(?m)^#{1,6}\s+(.+?)\s*$`)
	codeMark    = regexp.MustCompile("`([^`\n]+)`")
	fenceMark   = regexp.MustCompile("(?s)(?:^|\n)```.*?\n```")
	filePath    = regexp.MustCompile(`^(cmd|ingress|replication|discovery|storage|testenv|docs)/[\w./-]*$`)
	notInAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// checkDocument returns the links of a Markdown file that lead nowhere and the files it names that do not
// exist.
func checkDocument(root fs.FS, file, text string) []string {
	var problems []string
	text = fenceMark.ReplaceAllString(text, "")
	anchors := map[string]bool{}
	for _, h := range headingMark.FindAllStringSubmatch(text, -1) {
		anchor := notInAnchor.ReplaceAllString(strings.ToLower(h[1]), "")
		anchors[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	exists := func(name string) bool {
		_, err := fs.Stat(root, strings.TrimSuffix(filepath.ToSlash(filepath.Clean(name)), "/"))
		return err == nil
	}
	for _, m := range linkMark.FindAllStringSubmatch(text, -1) {
		target, anchor, _ := strings.Cut(m[1], "#")
		switch {
		case strings.Contains(m[1], "://"), strings.HasPrefix(m[1], "mailto:"):
		case target == "" && !anchors[anchor]:
			problems = append(problems, fmt.Sprintf("%s links to #%s, but has no such heading", file, anchor))
		case target != "" && !exists(filepath.Join(filepath.Dir(file), target)):
			problems = append(problems, fmt.Sprintf("%s links to %s, which does not exist", file, target))
		}
	}
	for _, m := range codeMark.FindAllStringSubmatch(text, -1) {
		if name := m[1]; filePath.MatchString(name) && !strings.HasSuffix(name, "/...") && !exists(name) {
			problems = append(problems, fmt.Sprintf("%s names %s, which does not exist", file, name))
		}
	}
	return problems
}

// moduleRoot finds the directory of go.mod above the test.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
	}
}

// gitIgnored returns the top-level names that .gitignore gives whole ("/name" or "/name/").
func gitIgnored(t *testing.T, root string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, ".gitignore"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		if name := strings.Trim(strings.TrimSpace(line), "/"); strings.HasPrefix(line, "/") {
			names = append(names, name)
		}
	}
	return names
}

// sourceFiles lists the text files of the tree, relative to its root: what git ignores, git's own and
// archives left out.
func sourceFiles(t *testing.T, root string) []string {
	t.Helper()
	ignored := append(gitIgnored(t, root), ".git")
	var files []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && slices.Contains(ignored, name):
			return filepath.SkipDir
		case d.Type().IsRegular() && slices.Contains(textFiles, filepath.Ext(name)):
			files = append(files, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// textFiles are the extensions of files that people write; Makefile, LICENSE and .ci/run have none.
var textFiles = []string{
	"", ".go", ".md", ".mod", ".yml", ".yaml", ".sh", ".tsv", ".txt", ".conf", ".html", ".js", ".css",
}
