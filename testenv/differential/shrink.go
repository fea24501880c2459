package differential

import (
	"context"
	"slices"
	"strings"
	"time"
)

// Shrink returns the shortest script it finds, within limit, that ends with the same difference as res. It runs
// scripts with as many operations left out as possible.
func (p *Pair) Shrink(ctx context.Context, res *Result, opts Options, limit time.Duration) *Result {
	if len(res.Diffs) == 0 {
		return res
	}
	deadline := time.Now().Add(limit)
	opts.Patience = min(max(opts.Patience, time.Second), 2*time.Second)
	opts.Trace = nil
	best, key := res, res.Diffs[0].key()
	for _, s := range []Script{res.about(1), res.about(2)} {
		if got, err := p.Replay(ctx, s, opts); err == nil && len(got.Diffs) > 0 && got.Diffs[0].key() == key {
			best = got
			break
		}
	}
	for size := len(best.Script) / 2; size >= 1; {
		shorter := false
		// From the end: what is near the difference is needed more often, so the early parts go last.
		for from := 0; from+size < len(best.Script) && time.Now().Before(deadline); {
			s := slices.Concat(best.Script[:from], best.Script[from+size:])
			got, err := p.Replay(ctx, s, opts)
			if err == nil && len(got.Diffs) > 0 && got.Diffs[0].key() == key {
				best, shorter = got, true
				continue
			}
			from += size
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
		if !shorter || size > 1 {
			if size == 1 {
				break
			}
			size /= 2
		}
	}
	return best
}

// about returns the operations that name one of the streams of the last n.
func (r *Result) about(n int) Script {
	names := map[string]bool{}
	for _, op := range r.Script[max(len(r.Script)-n, 0):] {
		for _, name := range append(streamNames(), timedStream, unbuilt) {
			if op.names(name) {
				names[name] = true
			}
		}
	}
	var out Script
	for _, op := range r.Script {
		for name := range names {
			if op.names(name) {
				out = append(out, op)
				break
			}
		}
	}
	return out
}

// names reports whether an operation names a stream or one of its subjects.
func (o Op) names(stream string) bool {
	if o.Ack != nil {
		return o.Ack.Stream == stream
	}
	return slices.Contains(strings.Split(o.Subject, "."), stream) || o.Subject == stream ||
		strings.HasPrefix(o.Subject, prefixOf(stream)+".")
}
