package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

const apiPrefix = jsapi.DefaultPrefix + "."

func decode(b []byte, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("answer %.200q: %w", b, err)
	}
	return nil
}

// settle returns when both sides show the same, or differ for Patience; then it reports how.
func (r *runner) settle(ctx context.Context) error {
	deadline := time.Now().Add(r.opts.Patience)
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		diffs, pending, err := r.look(ctx)
		if err != nil {
			return err
		}
		diffs = r.explain(diffs)
		if unexplained(diffs) == 0 && !pending || time.Now().After(deadline) {
			r.found(diffs)
			return r.part(ctx, diffs)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func unexplained(diffs []Diff) int {
	n := 0
	for i := range diffs {
		if diffs[i].Explained == "" {
			n++
		}
	}
	return n
}

// found keeps differences.
func (r *runner) found(diffs []Diff) {
	for _, d := range diffs {
		d.Step, d.Op = r.step, r.op
		if d.Explained != "" {
			r.res.Explained[d.Explained]++
			continue
		}
		r.res.Diffs = append(r.res.Diffs, d)
	}
	// All that differs is explained, or the script is over.
	r.doneW, r.doneG = r.p.want.counts(), r.p.got.counts()
}

// undo takes back on the JetStream side what Holdfast refused as not supported.
func (r *runner) undo(ctx context.Context) error {
	if r.op.Undo == "" {
		return nil
	}
	diffs := r.explain(r.compareBoxes())
	if !slices.ContainsFunc(diffs, func(d Diff) bool { return d.Explained == notSupported }) {
		return nil
	}
	r.found(diffs)
	_, err := r.p.want.request(ctx, r.op.Undo, "", "")
	return err
}

// look compares what arrived since the last step and the state. pending says that JetStream is about to deliver.
func (r *runner) look(ctx context.Context) (diffs []Diff, pending bool, err error) {
	states, pending, err := r.compareState(ctx)
	if err != nil {
		return nil, false, err
	}
	return append(r.compareBoxes(), states...), pending, nil
}

func (r *runner) compareBoxes() []Diff {
	w, g := r.p.want.counts(), r.p.got.counts()
	boxes := maps.Clone(w)
	maps.Copy(boxes, g)
	nw, ng := r.p.want.normaliser(), r.p.got.normaliser()
	merged := func(c *client, n *normaliser, done map[string]int) map[string][]message {
		out := make(map[string][]message)
		for box := range boxes {
			if r.gone[box] {
				continue
			}
			got, _ := c.box(box)
			key := n.text(box)
			if from := done[box]; from < len(got) {
				out[key] = append(out[key], got[from:]...)
			}
		}
		return out
	}
	mw, mg := merged(r.p.want, nw, r.doneW), merged(r.p.got, ng, r.doneG)
	keys := maps.Clone(mw)
	maps.Copy(keys, mg)
	var out []Diff
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if strings.HasPrefix(key, "$JS.EVENT.") && strings.HasSuffix(key, "."+unbuilt) {
			continue // of what JetStream made and Holdfast refused
		}
		if strings.Contains(key, ".DELETED.") && len(mw[key]) == 0 && len(mg[key]) == 1 && r.op.deletesStream() {
			continue // JetStream puts these into a queue that it closes: some get lost
		}
		w, g := nw.views(mw[key]), ng.views(mg[key])
		if strings.HasPrefix(key, jsapi.SubjectMsgTerminated) { // JetStream tells in any order of those that leave together
			sortViews(w)
			sortViews(g)
		}
		out = append(out, compareBox(r.title(key), w, g, r.loose[key])...)
	}
	return out
}

// title says what a box is.
func (r *runner) title(box string) string {
	switch {
	case box == r.inbox:
		return "answer"
	case strings.HasPrefix(box, "$JS.EVENT."):
		return "advisory " + strings.TrimPrefix(box, "$JS.EVENT.")
	}
	return lateInbox + strings.TrimPrefix(box, "one.")
}

// lateInbox begins the title of the inbox of an earlier step.
const lateInbox = "inbox of step "

// compareState compares the lists of streams, and of consumers of the streams that the step may have touched.
func (r *runner) compareState(ctx context.Context) (diffs []Diff, pending bool, err error) {
	want, got, err := r.both(ctx, apiPrefix+"STREAM.LIST", "")
	if err != nil {
		return nil, false, err
	}
	diffs = compareText("streams", want, got)
	if err := r.w.setStreams(want); err != nil {
		return nil, false, err
	}
	touched := r.op.Streams
	if len(touched) == 0 {
		touched = r.w.names()
	}
	for _, name := range touched {
		if r.w.streams[name] == nil {
			continue
		}
		want, got, err := r.both(ctx, apiPrefix+"CONSUMER.LIST."+name, "")
		if err != nil {
			return nil, false, err
		}
		diffs = append(diffs, compareText("consumers of "+name, want, got)...)
		if err := r.w.setConsumers(name, want); err != nil {
			return nil, false, err
		}
	}
	r.w.deliveries, r.w.last = r.p.want.deliveries()
	return diffs, r.w.pending(), nil
}

// both asks both sides and normalises the answers.
func (r *runner) both(ctx context.Context, subject, body string) (want, got string, err error) {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	var out [2]string
	for i, c := range []*client{r.p.want, r.p.got} {
		b, err := c.request(ctx, subject, "", body)
		if err != nil {
			return "", "", err
		}
		out[i] = c.normaliser().body(b)
	}
	return out[0], out[1], nil
}

// unbuilt is the name of streams and consumers with features that this version of Holdfast may refuse.
const unbuilt = "U"

// maxFinal bounds the messages of a stream that are compared at the end.
const maxFinal = 400

// final compares everything once more, each message included.
func (r *runner) final(ctx context.Context) error {
	r.inbox = ""
	if err := r.settle(ctx); err != nil || len(r.res.Diffs) > 0 {
		return err
	}
	var diffs []Diff
	ask := func(what, subject, body string) error {
		want, got, err := r.both(ctx, subject, body)
		diffs = append(diffs, compareText(what, want, got)...)
		return err
	}
	for _, name := range r.w.names() {
		err := ask("details of "+name, apiPrefix+"STREAM.INFO."+name, `{"deleted_details":true,"subjects_filter":">"}`)
		if err != nil {
			return err
		}
		st := r.w.streams[name].info.State
		for seq := st.FirstSeq; seq > 0 && seq <= min(st.LastSeq, st.FirstSeq+maxFinal); seq++ {
			id := strconv.FormatUint(seq, 10)
			if err := ask("message "+id+" of "+name, apiPrefix+"STREAM.MSG.GET."+name, `{"seq":`+id+`}`); err != nil {
				return err
			}
		}
	}
	r.found(r.explain(diffs))
	return nil
}
