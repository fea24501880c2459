package ingress

import (
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-mq/holdfast/storage/record"
)

// syncDirectory takes over what changed in the directory about the streams of the group.
func (e *engine) syncDirectory() {
	changed, next, all := e.srv.dir.follow(e.directory)
	e.directory = next
	if !all {
		for _, key := range changed {
			row, ok := e.srv.dir.cached(key)
			e.takeRow(key, &row, ok && e.mine(&row))
		}
		return
	}
	seen := make(map[record.StreamID]bool, len(e.streams))
	for _, row := range e.srv.dir.rows("", e.mine) {
		seen[row.ID] = true
		e.takeRow(nameKey{row.Account, row.Name}, &row, true)
	}
	for id, st := range e.streams {
		if !seen[id] {
			e.drop(st)
		}
	}
}

// mine says that a row is of a stream of this group that this node can serve.
func (e *engine) mine(row *record.StreamRow) bool {
	return row.Group == e.group && row.ID != 0 && e.srv.account(row.Account) != nil
}

// takeRow takes over the row of a name; there says that a stream of this group has it.
func (e *engine) takeRow(key nameKey, row *record.StreamRow, there bool) { //nolint:revive // flag-parameter: a fact
	st := e.byName[key]
	if st != nil && (!there || st.row.ID != row.ID) {
		e.drop(st)
		st = nil
	}
	if !there {
		return
	}
	if st == nil {
		st = &stream{
			e: e, name: row.Name, row: *row, acct: e.srv.account(row.Account),
			subs: make(map[string]func()), consumers: make(map[string]*consumer),
		}
		e.streams[row.ID] = st
		e.byName[key] = st
	}
	st.row = *row
	e.advance(st)
	if len(e.unfinished) > 0 {
		e.resume(st)
	}
}

// drop forgets a stream that is gone.
func (e *engine) drop(st *stream) {
	st.gone = true
	st.unsubscribe()
	e.timers.set(st, 0)
	e.timers.set(&st.ids, 0)
	for _, c := range st.consumers {
		c.deleted(e)
	}
	delete(e.streams, st.row.ID)
	if e.byName[nameKey{st.row.Account, st.row.Name}] == st {
		delete(e.byName, nameKey{st.row.Account, st.row.Name})
	}
	e.p.Forget(st.row.ID)
}

// advance brings a stream to what its directory row says.
func (e *engine) advance(st *stream) {
	if e.streams[st.row.ID] != st {
		return // gone meanwhile
	}
	switch st.row.Phase {
	case record.StreamLive:
		if st.row.Request != nil && !e.load(st) {
			return // the group can not be read, the term is ending
		}
		if err := st.subscribe(); err != nil {
			e.failed(st, "subscribing a stream's subjects", err)
			return
		}
		if st.row.Request != nil {
			e.finishUpdate(st)
		}
	case record.StreamCreating:
		e.finishCreate(st)
	case record.StreamDeleting:
		e.finishDelete(st)
	}
}

// settled ends a step of a stream's life; the row may ask for the next one.
func (e *engine) settled(st *stream) {
	st.busy = false
	e.syncDirectory()
	e.advance(st)
}

// retryStep is the pause before a step of a stream's life is tried again.
const retryStep = time.Second

// failed says that a step of a stream's life was not done; it is tried again, by
// this leader or the next, as the directory row still asks for it. It may be called
// from any goroutine.
func (e *engine) failed(st *stream, what string, err error) {
	if e.ctx.Err() != nil {
		return
	}
	e.log.Warn(what, zap.String("stream", st.name), zap.Error(err))
	e.q.push(event{kind: evRun, fn: func(e *engine) { e.later(retryStep, func(e *engine) { e.settled(st) }) }})
}
