package replication

import (
	"fmt"
	"io"
	"log" //nolint:depguard // hclog's interface names log.Logger

	"github.com/hashicorp/go-hclog"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// raftLogger lets hashicorp/raft log through the zap.Logger passed in.
type raftLogger struct {
	z       *zap.Logger
	implied []any
	name    string
}

// newRaftLogger adapts z; z's level decides what is written.
func newRaftLogger(z *zap.Logger) raftLogger {
	return raftLogger{z: z.WithOptions(zap.AddCallerSkip(1))}
}

// The pairs of hclog become zap fields; an odd last one keeps its value under "extra".
func fields(args []any) []zap.Field {
	out := make([]zap.Field, 0, (len(args)+1)/2)
	for len(args) >= 2 {
		out = append(out, field(fmt.Sprint(args[0]), args[1]))
		args = args[2:]
	}
	if len(args) == 1 {
		out = append(out, field("extra", args[0]))
	}
	return out
}

func field(key string, value any) zap.Field {
	switch v := value.(type) {
	case hclog.Format:
		if len(v) == 0 {
			return zap.Skip()
		}
		format, ok := v[0].(string)
		if !ok {
			return zap.String(key, fmt.Sprint(v...))
		}
		return zap.String(key, fmt.Sprintf(format, v[1:]...))
	case error:
		return zap.NamedError(key, v)
	case fmt.Stringer:
		return zap.Stringer(key, v)
	default:
		return zap.Any(key, v)
	}
}

func zapLevel(l hclog.Level) zapcore.Level {
	switch l {
	case hclog.Trace, hclog.Debug:
		return zapcore.DebugLevel
	case hclog.Warn:
		return zapcore.WarnLevel
	case hclog.Error:
		return zapcore.ErrorLevel
	default:
		return zapcore.InfoLevel
	}
}

// Log implements hclog.Logger.
func (l raftLogger) Log(level hclog.Level, msg string, args ...any) {
	if level == hclog.Off {
		return
	}
	if e := l.z.Check(zapLevel(level), msg); e != nil {
		e.Write(fields(args)...)
	}
}

// Trace implements hclog.Logger.
func (l raftLogger) Trace(msg string, args ...any) { l.Log(hclog.Trace, msg, args...) }

// Debug implements hclog.Logger.
func (l raftLogger) Debug(msg string, args ...any) { l.Log(hclog.Debug, msg, args...) }

// Info implements hclog.Logger.
func (l raftLogger) Info(msg string, args ...any) { l.Log(hclog.Info, msg, args...) }

// Warn implements hclog.Logger.
func (l raftLogger) Warn(msg string, args ...any) { l.Log(hclog.Warn, msg, args...) }

// Error implements hclog.Logger.
func (l raftLogger) Error(msg string, args ...any) { l.Log(hclog.Error, msg, args...) }

func (l raftLogger) is(level hclog.Level) bool { return l.z.Core().Enabled(zapLevel(level)) }

// IsTrace implements hclog.Logger.
func (l raftLogger) IsTrace() bool { return l.is(hclog.Trace) }

// IsDebug implements hclog.Logger.
func (l raftLogger) IsDebug() bool { return l.is(hclog.Debug) }

// IsInfo implements hclog.Logger.
func (l raftLogger) IsInfo() bool { return l.is(hclog.Info) }

// IsWarn implements hclog.Logger.
func (l raftLogger) IsWarn() bool { return l.is(hclog.Warn) }

// IsError implements hclog.Logger.
func (l raftLogger) IsError() bool { return l.is(hclog.Error) }

// ImpliedArgs implements hclog.Logger.
func (l raftLogger) ImpliedArgs() []any { return l.implied }

// With implements hclog.Logger.
func (l raftLogger) With(args ...any) hclog.Logger { //nolint:ireturn // the interface says so
	implied := append(append([]any(nil), l.implied...), args...)
	return raftLogger{z: l.z.With(fields(args)...), implied: implied, name: l.name}
}

// Name implements hclog.Logger.
func (l raftLogger) Name() string { return l.name }

// Named implements hclog.Logger.
func (l raftLogger) Named(name string) hclog.Logger { //nolint:ireturn // the interface says so
	if l.name != "" {
		name = l.name + "." + name
	}
	return l.ResetNamed(name)
}

// ResetNamed implements hclog.Logger.
func (l raftLogger) ResetNamed(name string) hclog.Logger { //nolint:ireturn // the interface says so
	return raftLogger{z: l.z, implied: l.implied, name: name}
}

// SetLevel implements hclog.Logger; the level is the zap.Logger's.
func (l raftLogger) SetLevel(hclog.Level) {}

// GetLevel implements hclog.Logger.
func (l raftLogger) GetLevel() hclog.Level {
	for _, level := range []hclog.Level{hclog.Debug, hclog.Info, hclog.Warn} {
		if l.is(level) {
			return level
		}
	}
	return hclog.Error
}

// StandardLogger implements hclog.Logger.
func (l raftLogger) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return zap.NewStdLog(l.z)
}

// StandardWriter implements hclog.Logger.
func (l raftLogger) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}
