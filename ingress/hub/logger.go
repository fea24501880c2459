package hub

import (
	"fmt"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// logger adapts nats-server's logger to zap. Its Fatalf does not end the process.
type logger struct {
	log     *zap.Logger
	onFatal func(error)

	mu    sync.Mutex
	ready bool  // the server is up: later failures go to onFatal
	fatal error // the first failure before that
	fired chan struct{}
}

func newLogger(log *zap.Logger, onFatal func(error)) *logger {
	return &logger{log: log, onFatal: onFatal, fired: make(chan struct{})}
}

// failed returns the first fatal failure before the server was ready.
func (l *logger) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// setReady sends later fatal failures to the callback. It reports a failure that came before.
func (l *logger) setReady() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ready = l.fatal == nil
	return l.fatal
}

func (l *logger) write(level zapcore.Level, format string, v []any) {
	if ce := l.log.Check(level, ""); ce != nil {
		ce.Message = fmt.Sprintf(format, v...)
		ce.Write()
	}
}

// Noticef implements nats-server's Logger.
func (l *logger) Noticef(format string, v ...any) { l.write(zapcore.InfoLevel, format, v) }

// Warnf implements nats-server's Logger.
func (l *logger) Warnf(format string, v ...any) { l.write(zapcore.WarnLevel, format, v) }

// Errorf implements nats-server's Logger.
func (l *logger) Errorf(format string, v ...any) { l.write(zapcore.ErrorLevel, format, v) }

// Debugf implements nats-server's Logger.
func (l *logger) Debugf(format string, v ...any) { l.write(zapcore.DebugLevel, format, v) }

// Tracef implements nats-server's Logger.
func (l *logger) Tracef(format string, v ...any) { l.write(zapcore.DebugLevel, format, v) }

// Fatalf implements nats-server's Logger. The caller inside nats-server returns after it.
func (l *logger) Fatalf(format string, v ...any) {
	l.write(zapcore.ErrorLevel, format, v)
	err := fmt.Errorf(format, v...)
	l.mu.Lock()
	call := l.ready && l.onFatal != nil
	if !l.ready && l.fatal == nil {
		l.fatal = err
		close(l.fired)
	}
	l.mu.Unlock()
	if call {
		l.onFatal(err)
	}
}
