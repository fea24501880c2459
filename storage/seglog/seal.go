package seglog

import (
	"fmt"
	"slices"
	"time"
)

// SetSealPayload sets the opaque bytes that the next seals carry. They also ride on a batch when they have
// changed and the log is too busy to be sealed, and are repeated at each segment's head. It writes nothing by
// itself and promises nothing about when the payload is durable.
func (l *Log) SetSealPayload(payload []byte) error {
	if len(payload) > MaxSealPayload {
		return fmt.Errorf("%w: seal payload has %d bytes, the limit is %d",
			ErrTooLarge, len(payload), MaxSealPayload)
	}
	l.view.mu.Lock()
	defer l.view.mu.Unlock()
	l.view.st.payload = slices.Clone(payload)
	l.view.version++
	return nil
}

// SealPayload returns the payload last set, or else the newest one that Open found. nil if there is none.
func (l *Log) SealPayload() []byte {
	l.view.mu.RLock()
	defer l.view.mu.RUnlock()
	return slices.Clone(l.view.st.payload)
}

// Seal writes a seal behind the last batch, without a sync of its own: once the seal has reached the disk,
// damage in the last batch is told from a torn write. A torn seal only leaves the batch unsealed. The next
// batch overwrites the seal. Sealing again writes only if the payload has changed.
func (l *Log) Seal() error {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.seal()
}

func (l *Log) seal() error {
	if err := l.begin(); err != nil {
		return err
	}
	defer l.end()
	return l.writeSeal()
}

func (l *Log) writeSeal() error {
	seg := l.view.st.active()
	l.view.mu.RLock()
	payload, version := l.view.st.payload, l.view.version
	l.view.mu.RUnlock()
	if seg.end == segmentHeaderSize || l.w.sealed && l.w.inSeal == version {
		return nil
	}
	b := &l.w.enc
	b.reset(recordPrefix + int64(len(payload)) + recordTrailer)
	b.payload(payload)
	if seg.end+b.size() > seg.size {
		return nil // the list of the next rotation covers the batch
	}
	buf, _ := b.finish(batchSeal, seg.use, seg.end, seg.chain)
	if _, err := seg.file.WriteAt(buf, seg.end); err != nil {
		l.w.sealed = false
		if isNoSpace(err) {
			return noSpace("seal "+seg.name, err)
		}
		return l.fail(fmt.Errorf("seal %s: %w", seg.name, err))
	}
	l.w.sealed, l.w.inSeal = true, version
	l.counters.seals.Add(1)
	return nil
}

// sealDurably is for Close: after it, nothing of the log can be taken for torn.
func (l *Log) sealDurably() error {
	if err := l.writeSeal(); err != nil {
		return err
	}
	return l.sync(l.view.st.active())
}

// sealer seals when nothing was written for SealAfter. It ends when stop is closed.
func (l *Log) sealer() {
	timer := time.NewTimer(l.cfg.SealAfter)
	defer timer.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-l.wake:
		}
		for wait := l.cfg.SealAfter; wait > 0; wait = l.sealIfIdle() {
			timer.Reset(wait)
			select {
			case <-l.stop:
				return
			case <-timer.C:
			}
		}
	}
}

// sealIfIdle seals and returns 0, or returns how long to wait before it can be time.
func (l *Log) sealIfIdle() time.Duration {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	idle := l.elapsed() - time.Duration(l.written.Load())
	if idle < l.cfg.SealAfter {
		return l.cfg.SealAfter - idle
	}
	// A failure is stored, logged and returned to the next writer; a full disk only leaves the log unsealed.
	_ = l.seal()
	return 0
}
