package differential

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-mq/holdfast/ingress/jsapi"
)

// Options of a run.
type Options struct {
	// Patience is how long one side may be behind the other. Default DefaultPatience.
	Patience time.Duration
	// Silence is how long both must be silent where no answer is expected. Default DefaultSilence.
	Silence time.Duration
	// Trace is told of every step before it runs. May be nil.
	Trace func(step int, op Op)
}

// Defaults of Options, and the pause between two looks.
const (
	DefaultPatience = 4 * time.Second
	DefaultSilence  = 200 * time.Millisecond
	pollEvery       = 4 * time.Millisecond
	awaitTimeout    = 30 * time.Second
)

// Result is what a run found.
type Result struct {
	// Script is what was run, up to the first difference.
	Script Script
	// Diffs are the differences of the last step that nothing explains.
	Diffs []Diff
	// Explained counts the differences that an entry of the list explains, by its name.
	Explained map[string]int
}

// A source gives the next operation; false ends the script.
type source func(w *world) (Op, bool)

// Replay returns the operations of a script as a source.
func (s Script) source() source {
	return func(*world) (Op, bool) {
		if len(s) == 0 {
			return Op{}, false
		}
		op := s[0]
		s = s[1:]
		return op, true
	}
}

// runner is one run of a script.
type runner struct {
	p      *Pair
	opts   Options
	res    *Result
	w      *world
	step   int
	op     Op
	doneW  map[string]int  // messages of a box that were compared, of JetStream
	doneG  map[string]int  // of Holdfast
	loose  map[string]bool // boxes whose order depends on timing
	gone   map[string]bool // boxes that are not compared any more
	inbox  string
	before before
}

// Replay runs a script.
func (p *Pair) Replay(ctx context.Context, s Script, opts Options) (*Result, error) {
	return p.run(ctx, s.source(), opts)
}

func (p *Pair) run(ctx context.Context, next source, opts Options) (*Result, error) {
	if opts.Patience == 0 {
		opts.Patience = DefaultPatience
	}
	if opts.Silence == 0 {
		opts.Silence = DefaultSilence
	}
	if err := p.reset(ctx); err != nil {
		return nil, err
	}
	r := &runner{
		p: p, opts: opts, w: newWorld(), res: &Result{Explained: make(map[string]int)},
		doneW: make(map[string]int), doneG: make(map[string]int), loose: make(map[string]bool),
		gone: make(map[string]bool),
	}
	for {
		op, ok := next(r.w)
		if !ok {
			break
		}
		r.step++
		r.op = op
		r.remember()
		r.res.Script = append(r.res.Script, op)
		if opts.Trace != nil {
			opts.Trace(r.step, op)
		}
		if err := r.run(ctx); err != nil {
			return nil, fmt.Errorf("step %d, %s: %w", r.step, op, err)
		}
		if len(r.res.Diffs) > 0 {
			return r.res, nil
		}
	}
	r.step++
	r.op = Op{Note: "the end"}
	return r.res, r.final(ctx)
}

// reset deletes every stream and begins a script on both sides.
func (p *Pair) reset(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, c := range []*client{p.want, p.got} {
		p.scripts++
		if err := c.begin(ctx, p.scripts); err != nil {
			return err
		}
		if err := deleteAll(ctx, c); err != nil {
			return err
		}
		p.scripts++
		if err := c.begin(ctx, p.scripts); err != nil {
			return err
		}
	}
	return nil
}

func deleteAll(ctx context.Context, c *client) error {
	for {
		body, err := c.request(ctx, apiPrefix+"STREAM.NAMES", "", "")
		if err != nil {
			return err
		}
		var names jsapi.StreamNamesResponse
		if err := decode(body, &names); err != nil {
			return err
		}
		if len(names.Streams) == 0 {
			return nil
		}
		for _, name := range names.Streams {
			if err := c.deleteStream(ctx, name); err != nil {
				return err
			}
		}
	}
}

// run runs one step and compares.
func (r *runner) run(ctx context.Context) error {
	if r.op.Kind == Await {
		return r.await(ctx)
	}
	advised, _ := r.p.want.box(r.op.Advised)
	box, sent, err := r.send(r.op, strconv.Itoa(r.step))
	if err != nil || !sent {
		return err
	}
	r.inbox = box
	if r.op.Loose {
		r.loose[box] = true
	}
	switch r.op.Kind {
	case Quiet:
		if err := r.barrier(ctx); err != nil {
			return err
		}
	case Call:
		r.wait(ctx, box, answered, r.opts.Patience)
	case Maybe:
		r.wait(ctx, box, answered, r.opts.Silence)
	case Pull:
		r.wait(ctx, box, r.pullEnded, 0)
	default:
	}
	if r.op.Advised != "" {
		ctx, cancel := context.WithTimeout(ctx, r.opts.Silence)
		_ = r.p.want.waitFor(ctx, r.op.Advised, len(advised)) // of a consumer that is not there nothing is advised
		cancel()
	}
	r.learn(box)
	if err := r.undo(ctx); err != nil {
		return err
	}
	return r.settle(ctx)
}

// send sends an operation to both; false if there is nothing to refer to.
func (r *runner) send(op Op, id string) (box string, sent bool, err error) {
	now := time.Now()
	box = boxOf(&op, id)
	errW := r.p.want.send(&op, id, now)
	errG := r.p.got.send(&op, id, now)
	switch {
	case errors.Is(errW, errSkipped) && errors.Is(errG, errSkipped):
		return box, false, nil
	case errors.Is(errW, errSkipped) != errors.Is(errG, errSkipped):
		r.found([]Diff{{What: "delivery to ack", Want: fmt.Sprint(errW), Got: fmt.Sprint(errG)}})
		return box, false, nil
	}
	return box, true, errors.Join(errW, errG)
}

// barrier sends what has no effect and is answered after everything before it.
func (r *runner) barrier(ctx context.Context) error {
	op := r.op
	op.Kind = Maybe
	if op.Ack != nil || strings.HasPrefix(op.Subject, "$JS.ACK.") {
		op.Body = "barrier"
	} else {
		op.Header, op.Body = "NATS/1.0\r\n"+jsapi.HdrExpectedStream+": no-such-stream\r\n\r\n", ""
	}
	box, sent, err := r.send(op, strconv.Itoa(r.step)+"b")
	if err == nil && sent {
		r.wait(ctx, box, answered, r.opts.Silence)
	}
	return err
}

func answered(views []message) bool { return len(views) > 0 }

// pullEnded reports whether a pull request got all it will get.
func (r *runner) pullEnded(got []message) bool {
	n := 0
	for i := range got {
		if h := string(got[i].header); len(got[i].data) == 0 && strings.HasPrefix(h, "NATS/1.0 ") &&
			!strings.HasPrefix(h, "NATS/1.0 100") {
			return true
		}
		if strings.HasPrefix(got[i].reply, "$JS.ACK.") {
			n++
		}
	}
	return n >= max(r.op.Batch, 1)
}

// wait returns when ended holds on both sides, or on one and not on the other for Patience, or, with quiet
// above 0, on none of them for so long.
func (r *runner) wait(ctx context.Context, box string, ended func([]message) bool, quiet time.Duration) {
	if quiet == 0 {
		quiet = awaitTimeout
	}
	deadline := time.NewTimer(quiet)
	defer deadline.Stop()
	one := false
	for {
		w, changedW := r.p.want.box(box)
		g, changedG := r.p.got.box(box)
		switch endW, endG := ended(w), ended(g); {
		case endW && endG:
			return
		case endW != endG && !one:
			one = true
			deadline.Reset(r.opts.Patience)
		}
		select {
		case <-changedW:
		case <-changedG:
		case <-deadline.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// await repeats the request on each side until its answer has the text.
func (r *runner) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, awaitTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var errs [2]error
	for i, c := range []*client{r.p.want, r.p.got} {
		wg.Go(func() { errs[i] = r.awaitOn(ctx, c) })
	}
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		if ctx.Err() == nil {
			return err
		}
		r.found([]Diff{{What: "await", Want: fmt.Sprint(errs[0]), Got: fmt.Sprint(errs[1])}})
	}
	return r.settle(ctx)
}

func (r *runner) awaitOn(ctx context.Context, c *client) error {
	t := time.NewTicker(pollEvery)
	defer t.Stop()
	for {
		body, err := c.request(ctx, c.expand(r.op.Subject, time.Now()), r.op.Header, r.op.Body)
		if err != nil || strings.Contains(string(body), r.op.Until) {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: last answer %s", c.name, body)
		}
	}
}

// learn takes generated names from the answers of consumer creates.
func (r *runner) learn(box string) {
	if !strings.HasPrefix(r.op.Subject, apiPrefix+"CONSUMER.CREATE.") {
		return
	}
	for _, c := range []*client{r.p.want, r.p.got} {
		got, _ := c.box(box)
		var a struct {
			Error *jsapi.Error `json:"error"`
			Name  string       `json:"name"`
		}
		if len(got) == 1 && decode(got[0].data, &a) == nil && a.Error == nil && a.Name != "" &&
			!strings.Contains(r.op.Body+r.op.Subject, a.Name) {
			c.named(a.Name)
		}
	}
}
