package ingress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
	"github.com/holdfast-mq/holdfast/storage/record"
)

func TestDirectoryReservations(t *testing.T) {
	t.Parallel()
	d := newDirectory(metaView{newFakeMeta(), "n1"})
	reserve := func(account, name string, subjects ...string) error {
		return d.reserve(t.Context(), record.StreamRow{Account: account, Name: name, Subjects: subjects, Group: 1})
	}
	for _, step := range []struct {
		account, name, subjects string
		want                    string
	}{
		{"A", "one", "a.*", ""},
		{"A", "one", "b", "stream name is taken"},
		{"A", "two", "a.b", "10065"},
		{"A", "two", "x a.>", "10065"},
		{"A", "two", "a.b.c", ""},
		{"B", "one", "a.b", ""},      // another account
		{"A/B", "one", "a.b", ""},    // whose name looks like a path
		{"A", "three", ">", "10065"}, // everything
	} {
		err := reserve(step.account, step.name, strings.Fields(step.subjects)...)
		if step.want == "" && err != nil || step.want != "" && (err == nil || !strings.Contains(err.Error(), step.want)) {
			t.Errorf("%s/%s of %q: %v, want %q", step.account, step.name, step.subjects, err, step.want)
		}
	}
	var got []string
	for _, account := range []string{"A", "A/B", "B"} {
		for _, r := range d.rows(account, func(*record.StreamRow) bool { return true }) {
			got = append(got, fmt.Sprintf("%s/%s %d %s", r.Account, r.Name, r.ID, r.Phase))
		}
	}
	want := []string{"A/one 1 creating", "A/two 2 creating", "A/B/one 4 creating", "B/one 3 creating"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
}

// TestDirectoryFollows: a follower reads what changed, not everything.
func TestDirectoryFollows(t *testing.T) {
	t.Parallel()
	fake := newFakeMeta()
	writer, reader := newDirectory(metaView{fake, "n1"}), newDirectory(metaView{fake, "n2"})
	create := func(name string) record.StreamRow {
		t.Helper()
		row := record.StreamRow{Account: "A", Name: name, Subjects: []string{name}, Group: 1}
		if err := writer.reserve(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		row, _ = writer.row("A", name)
		return row
	}
	for i := range 300 {
		create(fmt.Sprint("s", i))
	}
	_, at, all := reader.follow(0)
	if !all {
		t.Fatal("the first look is at everything")
	}
	fake.set(func() { fake.gets, fake.scanned = 0, 0 })
	row := create("new")
	err := writer.change(t.Context(), row, func(r *record.StreamRow) (*record.StreamRow, error) {
		r.Subjects = []string{"other"}
		return r, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	gone, _ := writer.row("A", "s7")
	err = writer.change(t.Context(), gone, func(*record.StreamRow) (*record.StreamRow, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	fake.set(func() { fake.gets, fake.scanned = 0, 0 })
	changed, at, all := reader.follow(at)
	if diff := cmp.Diff([]nameKey{{"A", "new"}, {"A", "s7"}}, changed, cmp.AllowUnexported(nameKey{})); diff != "" || all {
		t.Fatalf("changed (-want +got), all %v:\n%s", all, diff)
	}
	if fake.scanned != 0 || fake.gets != 3 {
		t.Fatalf("%d rows scanned, %d read, want 3 read for 3 changes", fake.scanned, fake.gets)
	}
	if r, ok := reader.cached(nameKey{"A", "new"}); !ok || r.Subjects[0] != "other" {
		t.Fatalf("new is %+v, %v", r, ok)
	}
	if _, ok := reader.cached(nameKey{"A", "s7"}); ok {
		t.Fatal("s7 is still there")
	}
	if changed, _, all := reader.follow(at); len(changed) != 0 || all {
		t.Fatalf("changed %v, all %v, want nothing", changed, all)
	}
	for i := range journalNames + 1 { // more than a journal holds
		create(fmt.Sprint("t", i))
	}
	if changed, _, all := reader.follow(at); len(changed) != journalNames+1 || all {
		t.Fatalf("%d changed, all %v, want %d", len(changed), all, journalNames+1)
	}
}

func TestDirectoryForgetsOldChanges(t *testing.T) {
	t.Parallel()
	d := newDirectory(metaView{newFakeMeta(), "n1"})
	_, at, _ := d.follow(0)
	a := &accountRows{rows: make(map[string]cachedRow)}
	for i := range maxChanges + 1 {
		d.note(nameKey{"A", fmt.Sprint(i)}, a, record.MetaRow{Version: 1, Value: []byte("{}")}, true)
	}
	if changed, next, all := d.follow(at); !all || changed != nil || next != maxChanges+2 {
		t.Fatalf("%d changes, all %v, next %d: who is too far behind looks at everything", len(changed), all, next)
	}
	if len(d.mu.changes) > maxChanges {
		t.Fatalf("%d changes are kept, at most %d", len(d.mu.changes), maxChanges)
	}
}

func TestJournalIsBounded(t *testing.T) {
	t.Parallel()
	var j journal
	for i := range 1000 {
		j = j.with(fmt.Sprint(2*i), fmt.Sprint(2*i+1))
	}
	if j.Count != 2000 || len(j.Names) != journalNames || j.Names[journalNames-1] != "1999" {
		t.Fatalf("count %d, %d names, last %q", j.Count, len(j.Names), j.Names[len(j.Names)-1])
	}
	long := strings.Repeat("n", 255)
	for range 100 {
		j = j.with(long)
	}
	if size := len(encodeJSON(j)); size > journalBytes+64 || len(j.Names) == 0 {
		t.Fatalf("a journal of %d names has %d bytes, at most about %d", len(j.Names), size, journalBytes)
	}
	if j := (journal{}).with(strings.Repeat("n", 2*journalBytes)); j.Count != 1 || len(j.Names) != 0 {
		t.Fatalf("a name that does not fit: %d names of %d", len(j.Names), j.Count)
	}
}

// TestManyReservationsAtOnce: they are written together, each is judged, and no id is
// given twice.
func TestManyReservationsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, manyReservations)
}

func manyReservations(t *testing.T) {
	fake := newFakeMeta()
	a, b := newDirectory(metaView{fake, "n1"}), newDirectory(metaView{fake, "n2"}) // two nodes that write
	writes := 0
	gate := make(chan struct{})
	fake.fail = func([]record.MetaWrite) error { writes++; return nil }
	fake.gate = gate
	const each = 200
	errs := make([]error, 3*each)
	var wg sync.WaitGroup
	for i := range each {
		for k, d := range []*directory{a, b, a} { // the third one of each name, or of its subject
			wg.Go(func() {
				row := record.StreamRow{Account: "A", Name: fmt.Sprint("s", k, ".", i), Group: 1}
				row.Subjects = []string{fmt.Sprint(k, ".", i)}
				if k == 2 && i%2 == 0 {
					row.Name = fmt.Sprint("s0.", i)
				} else if k == 2 {
					row.Subjects = []string{fmt.Sprint("*.", i)}
				}
				errs[3*i+k] = d.reserve(t.Context(), row)
			})
		}
	}
	synctest.Wait()
	close(gate)
	wg.Wait()
	made, ids := 0, map[record.StreamID]bool{}
	for _, r := range newDirectory(metaView{fake, "n3"}).rows("A", func(*record.StreamRow) bool { return true }) {
		made++
		if ids[r.ID] || r.ID == 0 {
			t.Errorf("id %d of %s", r.ID, r.Name)
		}
		ids[r.ID] = true
	}
	good := 0
	for i, err := range errs {
		switch {
		case err == nil:
			good++
		case errors.Is(err, errNameTaken), strings.Contains(err.Error(), "10065"):
		default:
			t.Errorf("reservation %d: %v", i, err)
		}
	}
	if good != made || made < 2*each-each/2 || made > 2*each {
		t.Errorf("%d rows, %d successes", made, good)
	}
	if writes > made/4 {
		t.Errorf("%d writes for %d rows: they are not written together", writes, made)
	}
}

// TestEditsThatEndEarly: one whose time is over takes nobody along, whether it waits or
// has to write.
func TestEditsThatEndEarly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, editsThatEndEarly)
}

func editsThatEndEarly(t *testing.T) {
	fake := newFakeMeta()
	d := newDirectory(metaView{fake, "n1"})
	gate := make(chan struct{})
	fake.gate = gate
	var wg sync.WaitGroup
	errs := make([]error, 20)
	var cancels []context.CancelFunc
	for i := range errs {
		ctx, cancel := context.WithCancel(t.Context())
		cancels = append(cancels, cancel)
		wg.Go(func() {
			row := record.StreamRow{Account: fmt.Sprint("A", i%3), Name: fmt.Sprint("s", i), Group: 1}
			errs[i] = d.reserve(ctx, row)
		})
	}
	synctest.Wait()
	for i := 0; i < len(errs); i += 2 {
		cancels[i]()
	}
	synctest.Wait()
	close(gate)
	wg.Wait()
	for i, err := range errs {
		cancels[i]()
		if _, v := d.row(fmt.Sprint("A", i%3), fmt.Sprint("s", i)); (v != 0) != (err == nil) && !errors.Is(err, context.Canceled) {
			t.Errorf("edit %d: %v, version %d", i, err, v)
		}
		if i%2 == 1 && err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("edit %d: %v", i, err)
		}
	}
	fake.gate = nil
	if err := d.reserve(t.Context(), record.StreamRow{Account: "A0", Name: "last", Group: 1}); err != nil {
		t.Errorf("after all: %v", err)
	}
}

// TestEditsGoTogether: by account, each name once and in order, those that look around alone.
func TestEditsGoTogether(t *testing.T) {
	t.Parallel()
	queue := func(text string) (out []*edit) {
		for word := range strings.FieldsSeq(text) {
			alone := strings.HasSuffix(word, "!")
			account, name, _ := strings.Cut(strings.TrimSuffix(word, "!"), "/")
			out = append(out, &edit{row: record.StreamRow{Account: account, Name: name}, alone: alone})
		}
		return out
	}
	show := func(edits []*edit) string {
		var out []string
		for _, e := range edits {
			out = append(out, e.row.Account+"/"+e.row.Name)
		}
		return strings.Join(out, " ")
	}
	for _, tc := range [][3]string{
		{"A/a B/b A/c", "A/a A/c", "B/b"},
		{"A/a A/a A/b A/a", "A/a A/b", "A/a A/a"},
		{"A/a! A/b", "A/a", "A/b"},
		{"A/a A/b! A/b A/c", "A/a A/c", "A/b A/b"},
	} {
		batch, rest := together(queue(tc[0]))
		if show(batch) != tc[1] || show(rest) != tc[2] {
			t.Errorf("%s: together %s, later %s; want %s and %s", tc[0], show(batch), show(rest), tc[1], tc[2])
		}
	}
	batch, rest := together(queue(strings.Repeat("A/a ", 1)))
	if len(batch) != 1 || len(rest) != 0 {
		t.Error("one alone")
	}
	many := make([]*edit, 2*maxEdits)
	for i := range many {
		many[i] = &edit{row: record.StreamRow{Account: "A", Name: fmt.Sprint(i)}}
	}
	if batch, _ := together(many); len(batch) != maxEdits {
		t.Errorf("%d together, at most %d", len(batch), maxEdits)
	}
	for i := range many {
		many[i].row.Name = fmt.Sprint(i, strings.Repeat("n", maxEditNames/2))
	}
	if batch, _ := together(many); len(batch) != 1 {
		t.Errorf("%d with long names", len(batch))
	}
}

// TestPages: live ones in order of name whatever the order of creation, after removals too.
func TestPages(t *testing.T) {
	t.Parallel()
	d := newDirectory(metaView{newFakeMeta(), "n1"})
	create := func(name string) {
		t.Helper()
		row := record.StreamRow{Account: "A", Name: name, Subjects: []string{name}, Group: 1}
		if err := d.reserve(t.Context(), row); err != nil {
			t.Fatal(err)
		}
		d.page("A", nil, 0, 1)
	}
	change := func(name string, f func(*record.StreamRow) (*record.StreamRow, error)) {
		t.Helper()
		row, _ := d.row("A", name)
		if err := d.change(t.Context(), row, f); err != nil {
			t.Fatal(err)
		}
	}
	live := func(name string) {
		t.Helper()
		change(name, func(r *record.StreamRow) (*record.StreamRow, error) {
			next := *r
			next.Phase = record.StreamLive
			return &next, nil
		})
	}
	names := func(offset, limit int, keep func(*record.StreamRow) bool) string {
		rows, total := d.page("A", keep, offset, limit)
		out := fmt.Sprint(total)
		for _, r := range rows {
			out += " " + r.Name
		}
		return out
	}
	every := func(*record.StreamRow) bool { return true }
	check := func(offset, limit int, want string) {
		t.Helper()
		for _, keep := range []func(*record.StreamRow) bool{nil, every} {
			if got := names(offset, limit, keep); got != want {
				t.Errorf("from %d: %q, want %q (all: %v)", offset, got, want, keep == nil)
			}
		}
	}
	for _, name := range []string{"d", "b", "e", "a", "c"} {
		create(name)
	}
	check(0, 9, "0")
	for _, name := range []string{"d", "b", "e", "a"} {
		live(name)
	}
	check(0, 9, "4 a b d e")
	check(1, 2, "4 b d")
	live("c")
	check(0, 2, "5 a b")
	check(2, 2, "5 c d")
	check(4, 2, "5 e")
	check(5, 2, "5")
	check(9, 2, "5")
	change("c", func(*record.StreamRow) (*record.StreamRow, error) { return nil, nil })
	check(1, 2, "4 b d")
	create("c")
	check(0, 9, "4 a b d e")
	live("c")
	check(0, 9, "5 a b c d e")
	if got := names(0, 9, func(r *record.StreamRow) bool { return r.Name > "c" }); got != "2 d e" {
		t.Errorf("some: %q", got)
	}
	if rows, total := d.page("none", nil, 0, 9); len(rows) != 0 || total != 0 {
		t.Errorf("of no account: %v, %d", rows, total)
	}
}

// TestDirectoryAgainstTheRows follows random changes and compares with a fresh look.
func TestDirectoryAgainstTheRows(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 5))
	fake := newFakeMeta()
	writer, reader := newDirectory(metaView{fake, "n1"}), newDirectory(metaView{fake, "n2"})
	mine := map[nameKey]record.StreamID{}
	at := 0
	for step := range 600 {
		account, name := string(rune('A'+rng.IntN(2))), fmt.Sprint("s", rng.IntN(30))
		if row, v := writer.row(account, name); v == 0 {
			_ = writer.reserve(context.Background(), record.StreamRow{Account: account, Name: name, Group: uint32(1 + rng.IntN(3))})
		} else {
			_ = writer.change(context.Background(), row, func(r *record.StreamRow) (*record.StreamRow, error) {
				if rng.IntN(2) == 0 {
					return nil, nil
				}
				r.Phase = record.StreamLive
				return r, nil
			})
		}
		if rng.IntN(5) != 0 {
			continue
		}
		changed, next, all := reader.follow(at)
		at = next
		if all {
			clear(mine)
			for _, r := range reader.rows("", func(*record.StreamRow) bool { return true }) {
				mine[nameKey{r.Account, r.Name}] = r.ID
			}
		}
		for _, key := range changed {
			delete(mine, key)
			if r, ok := reader.cached(key); ok {
				mine[key] = r.ID
			}
		}
		want := map[nameKey]record.StreamID{}
		groups := map[uint32]int{}
		for _, r := range newDirectory(metaView{fake, "n3"}).rows("", func(*record.StreamRow) bool { return true }) {
			want[nameKey{r.Account, r.Name}] = r.ID
			groups[r.Group]++
		}
		if diff := cmp.Diff(want, mine, cmp.AllowUnexported(nameKey{})); diff != "" {
			t.Fatalf("seed %d step %d (-want +got):\n%s", seed, step, diff)
		}
		least := slices.Min([]int{groups[1], groups[2], groups[3]})
		if g := reader.emptiest(3); groups[g] != least {
			t.Fatalf("seed %d step %d: group %d has %d streams, the fewest is %d", seed, step, g, groups[g], least)
		}
	}
}

// TestSubjectTreeAgainstPairs compares with a look at every pair of subjects.
func TestSubjectTreeAgainstPairs(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 6))
	subject := func() string {
		var tokens []string
		for range 1 + rng.IntN(3) {
			tokens = append(tokens, []string{"a", "b", "c", "*"}[rng.IntN(4)])
		}
		if rng.IntN(4) == 0 {
			tokens = append(tokens, ">")
		}
		return strings.Join(tokens, ".")
	}
	var tree subjectTree[string]
	have := map[string][]string{}
	for step := range 4000 {
		name := fmt.Sprint(rng.IntN(12))
		if old := have[name]; old != nil {
			tree.remove(name, old)
			delete(have, name)
		} else {
			have[name] = []string{subject(), subject()}
			tree.add(name, have[name])
		}
		checkMatches(t, &tree, have, strings.NewReplacer("*", "a", ".>", "").Replace(subject()))
		s, except := subject(), fmt.Sprint(rng.IntN(12))
		want := false
		for other, subjects := range have {
			for _, o := range subjects {
				want = want || other != except && jsapi.SubjectsOverlap(o, s)
			}
		}
		got, ok := tree.overlap(s, except)
		if ok != want {
			t.Fatalf("seed %d step %d: %q overlaps %q, want %v; have %v", seed, step, s, got, want, have)
		}
		if ok && !slices.ContainsFunc(have[got], func(o string) bool { return jsapi.SubjectsOverlap(o, s) }) {
			t.Fatalf("seed %d step %d: %q does not overlap %s of %v", seed, step, s, got, have[got])
		}
	}
	for name, subjects := range have {
		tree.remove(name, subjects)
	}
	if !tree.empty() {
		t.Fatalf("%d tokens are left in an empty tree", len(tree.root.next))
	}
}

// checkMatches compares the values that a subject matches with a look at all of them.
func checkMatches(t *testing.T, tree *subjectTree[string], have map[string][]string, subject string) {
	t.Helper()
	got, want := map[string]int{}, map[string]int{}
	tree.each(subject, func(name string) { got[name]++ })
	for name, subjects := range have {
		for _, s := range subjects {
			if jsapi.SubjectMatches(s, subject) {
				want[name]++
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%q matches (-want +got):\n%s\nhave %v", subject, diff, have)
	}
}
