package jepsen

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Merge puts reports together that several runs wrote. Of two of the same system, seed and faults
// the later one counts. They are ordered by system, then by seed.
func Merge(lists ...[]*Report) []*Report {
	key := func(r *Report) string {
		return fmt.Sprintf("%d %20d %d %s", slices.Index(Kinds(), r.Kind), r.Seed, r.size(), strings.Join(r.Nemeses, ","))
	}
	byKey := make(map[string]*Report)
	for _, r := range slices.Concat(lists...) {
		byKey[key(r)] = r
	}
	var out []*Report
	for _, k := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, byKey[k])
	}
	return out
}

// tally is the sum of the runs of one system.
type tally struct {
	kind    Kind
	runs    []*Report
	seeds   []uint64
	minutes float64
	sum     StreamVerdict // over all streams and runs
	work    WorkVerdict
	reg     RegisterVerdict
	apart   int // acked, and missing on one node only
	back    int // runs after which the system came back by itself
	longest Moment
	rate    float64 // the median
	// came is how often each fault was carried out; missed in how many runs there was none of
	// one, by fault and reason.
	came   map[string]int
	missed map[string]map[string]int
	left   map[string]int
	failed int
	broken []string
}

// tallies sums reports by system, in the order of Kinds.
func tallies(reports []*Report) []*tally {
	var out []*tally
	for _, kind := range Kinds() {
		t := &tally{kind: kind, came: map[string]int{}, missed: map[string]map[string]int{}, left: map[string]int{}}
		var rates []float64
		for _, r := range reports {
			if r.Kind == kind {
				t.add(r)
				rates = append(rates, r.Rate)
			}
		}
		if len(t.runs) > 0 {
			t.rate = median(rates)
			out = append(out, t)
		}
	}
	return out
}

// median is that of values; of an even number of them the mean of the two in the middle.
func median(values []float64) float64 {
	s, n := slices.Sorted(slices.Values(values)), len(values)
	return (s[(n-1)/2] + s[n/2]) / 2
}

func (t *tally) add(r *Report) {
	t.runs, t.minutes = append(t.runs, r), t.minutes+r.Seconds/60
	t.seeds = append(t.seeds, r.Seed)
	for _, s := range r.Verdict.Streams {
		t.stream(&s)
	}
	v := r.Verdict
	t.work.AfterAck.Count += v.Work.AfterAck.Count
	t.work.Excused.Count += v.Work.Excused.Count
	t.work.Queue.Count += v.Work.Queue.Count
	t.reg.Nonlinear.Count += v.Registers.Nonlinear.Count
	t.reg.Subjects += v.Registers.Subjects
	if v.Unready == "" && v.Work.Drained {
		t.back++
	}
	for _, gap := range r.gaps() {
		t.longest = max(t.longest, gap)
	}
	for _, s := range r.Steps {
		t.came[baseOf(s.fault())]++
	}
	for name, why := range r.NotRun {
		if t.missed[name] == nil {
			t.missed[name] = map[string]int{}
		}
		t.missed[name][why]++
	}
	for name, n := range r.LeftOutOf {
		t.left[name] += n
	}
	t.failed += len(r.Failed)
	t.broken = append(t.broken, r.Broken...)
}

func (t *tally) stream(s *StreamVerdict) {
	t.sum.Acked += s.Acked
	t.sum.Unknown += s.Unknown
	t.sum.Lost.Count += s.Lost.Count
	t.sum.Prefix += s.Prefix
	t.sum.Middle += s.Middle
	t.sum.Postfix += s.Postfix
	t.sum.Stored.Count += s.Stored.Count
	t.sum.Duplicates.Count += s.Duplicates.Count
	t.sum.Changed.Count += s.Changed.Count
	t.sum.Disorder.Count += s.Disorder.Count
	t.sum.Differs.Count += s.Differs.Count
	t.sum.Unreadable += s.Unreadable
	for _, k := range s.LostBy {
		t.apart += k
	}
}

// row is one line of the comparison.
type row struct{ name, value string }

// rows are the lines of the comparison, in order.
func (t *tally) rows() []row {
	n := strconv.Itoa
	return []row{
		{"runs, minutes of load and faults", fmt.Sprintf("%d, %.1f", len(t.runs), t.minutes)},
		{"faults carried out", n(t.steps())},
		{"publishes acked", n(t.sum.Acked)},
		{"outcome unknown", n(t.sum.Unknown)},
		{"**acked and lost**", n(t.sum.Lost.Count)},
		{
			"of them before / between / after what is there",
			fmt.Sprintf("%d / %d / %d", t.sum.Prefix, t.sum.Middle, t.sum.Postfix),
		},
		{"acked, in a stream that cannot be read any more", n(t.sum.Unreadable)},
		{"acked, and missing on one node only", n(t.apart)},
		{"refused, and stored", n(t.sum.Stored.Count)},
		{"stored twice", n(t.sum.Duplicates.Count)},
		{"another sequence than acked", n(t.sum.Changed.Count)},
		{"sequences against the order of acks", n(t.sum.Disorder.Count)},
		{"sequences that differ between nodes", n(t.sum.Differs.Count)},
		{"delivered > 1 s after a confirmed ack", n(t.work.AfterAck.Count)},
		{"the same around pauses and cuts", n(t.work.Excused.Count)},
		{"messages whose events no queue explains", n(t.work.Queue.Count)},
		{"registers not linearizable", fmt.Sprintf("%d of %d", t.reg.Nonlinear.Count, t.reg.Subjects)},
		{"came back by itself", fmt.Sprintf("%d of %d", t.back, len(t.runs))},
		{"longest time in a fault without an acked publish", fmt.Sprintf("%.0f s", t.longest.Seconds())},
		{"acked publishes per second under faults, median", fmt.Sprintf("%.0f", t.rate)},
	}
}

func (t *tally) steps() (n int) {
	for _, k := range t.came {
		n += k
	}
	return n
}

// head is the name of the system in a table.
func (t *tally) head() string { return t.kind.head() }

// Table compares the sums of reports by system, in markdown: one column for each.
func Table(reports []*Report) string {
	all := tallies(reports)
	if len(all) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s.\n\n| |", seedsText(all), sizesText(reports))
	for _, t := range all {
		fmt.Fprintf(&b, " %s |", t.head())
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(all)) + "\n")
	lines := make([][]row, len(all))
	for k, t := range all {
		lines[k] = t.rows()
	}
	for i, line := range lines[0] {
		fmt.Fprintf(&b, "| %s |", line.name)
		for k := range all {
			fmt.Fprintf(&b, " %s |", lines[k][i].value)
		}
		b.WriteString("\n")
	}
	b.WriteString("\n" + faultsText(all))
	for _, t := range all {
		b.WriteString(t.notes())
	}
	return b.String()
}

// sizesText says of how many nodes the clusters were.
func sizesText(reports []*Report) string {
	words := map[int]string{3: "three nodes, three replicas", 5: "five nodes, five replicas"}
	var texts []string
	for _, n := range sizes() {
		if slices.ContainsFunc(reports, func(r *Report) bool { return r.size() == n }) {
			texts = append(texts, words[n])
		}
	}
	return strings.Join(texts, "; ")
}

// seedsText names the seeds, for each system if they differ.
func seedsText(all []*tally) string {
	list := func(t *tally) string {
		seeds := slices.Compact(slices.Sorted(slices.Values(t.seeds)))
		texts := make([]string, len(seeds))
		for i, s := range seeds {
			texts[i] = strconv.FormatUint(s, 10)
		}
		word := "Seed "
		if len(texts) > 1 {
			word = "Seeds "
		}
		return word + strings.Join(texts, ", ")
	}
	same := !slices.ContainsFunc(all, func(t *tally) bool { return list(t) != list(all[0]) })
	if same {
		return list(all[0])
	}
	var texts []string
	for _, t := range all {
		texts = append(texts, t.head()+": "+list(t))
	}
	return strings.Join(texts, "; ")
}

// faultsText says how often each fault came, on each of the systems where that differs.
func faultsText(all []*tally) string {
	names := make(map[string]bool)
	for _, t := range all {
		for _, r := range t.runs {
			for _, name := range r.Nemeses {
				names[baseOf(name)] = true
			}
		}
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		var counts []string
		for _, t := range all {
			counts = append(counts, strconv.Itoa(t.came[name]))
		}
		if len(slices.Compact(slices.Clone(counts))) == 1 {
			counts = counts[:1]
		}
		texts = append(texts, name+" "+strings.Join(counts, "/"))
	}
	return fmt.Sprintf("Faults, with how often each was carried out (column by column, where that differs): %s.\n",
		strings.Join(texts, ", "))
}

// notes say what else there is to know of the runs of a system.
func (t *tally) notes() string {
	var b strings.Builder
	runs := len(t.runs)
	byReason := make(map[string][]string) // faults, in order, with the number of runs
	for _, name := range slices.Sorted(maps.Keys(t.missed)) {
		for _, why := range slices.Sorted(maps.Keys(t.missed[name])) {
			byReason[why] = append(byReason[why], fmt.Sprintf("%s in %d of %d runs", name, t.missed[name][why], runs))
		}
	}
	for _, why := range slices.Sorted(maps.Keys(byReason)) {
		fmt.Fprintf(&b, "\nNot run on %s: %s (%s).\n", t.head(), strings.Join(byReason[why], ", "), why)
	}
	if len(t.left) > 0 {
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(t.left)) {
			texts = append(texts, fmt.Sprintf("%s %d", name, t.left[name]))
		}
		fmt.Fprintf(&b, "\nLeft out on %s, because not every node was well: %s.\n", t.head(), strings.Join(texts, ", "))
	}
	if t.failed > 0 {
		fmt.Fprintf(&b, "\nOf the faults on %s, %d did not come to their end.\n", t.head(), t.failed)
	}
	if len(t.broken) > 0 {
		fmt.Fprintf(&b, "\nPromises of %s broken during a fault: %s.\n", t.head(), strings.Join(t.broken, "; "))
	}
	return b.String()
}
