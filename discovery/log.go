package discovery

import (
	"bytes"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// libraryLog is the logger for what runs on goroutines of Serf and memberlist. Those end a moment after their
// Shutdown has returned; once it is silenced nothing reaches the logger any more, which may be gone by then.
type libraryLog struct {
	log *zap.Logger

	mu     sync.RWMutex
	silent bool // guarded by mu
}

func newLibraryLog(log *zap.Logger) *libraryLog {
	return &libraryLog{log: log.WithOptions(zap.WithCaller(false))}
}

// entry logs unless silenced.
func (l *libraryLog) entry(level zapcore.Level, text string, fields ...zap.Field) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.silent {
		return
	}
	if entry := l.log.Check(level, text); entry != nil {
		entry.Write(fields...)
	}
}

// silence drops everything from now on; when it returns nothing is being logged.
func (l *libraryLog) silence() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.silent = true
}

// Write takes one line of the libraries, like "2006/01/02 15:04:05 [WARN] memberlist: text"; the standard
// library's logger calls it once per line.
func (l *libraryLog) Write(line []byte) (int, error) {
	level, text := parseLogLine(line)
	l.entry(level, text)
	return len(line), nil
}

// parseLogLine splits a line into level and text. A line without a level is informational.
func parseLogLine(line []byte) (zapcore.Level, string) {
	line = bytes.TrimSpace(line)
	open := bytes.IndexByte(line, '[')
	if open < 0 {
		return zapcore.InfoLevel, string(line)
	}
	name, text, ok := bytes.Cut(line[open+1:], []byte("]"))
	if !ok {
		return zapcore.InfoLevel, string(line)
	}
	text = bytes.TrimSpace(text)
	switch string(name) {
	case "DEBUG":
		return zapcore.DebugLevel, string(text)
	case "INFO":
		return zapcore.InfoLevel, string(text)
	case "WARN":
		return zapcore.WarnLevel, string(text)
	case "ERR", "ERROR":
		return zapcore.ErrorLevel, string(text)
	}
	return zapcore.InfoLevel, string(line)
}
