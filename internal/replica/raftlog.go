package replica

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger passes what raft says to slog. What raft calls information is about single messages of single groups, and what
// it warns of happens to a thousand groups at once: debug. What an operator has to know the host says, once for a node.
type raftLogger struct {
	log   *slog.Logger
	group GroupID
}

func (l *raftLogger) say(level slog.Level, text func() string) {
	if l.log.Enabled(context.Background(), level) {
		l.log.Log(context.Background(), level, text(), "group", l.group)
	}
}

func (l *raftLogger) line(level slog.Level, v []any) {
	l.say(level, func() string { return fmt.Sprint(v...) })
}

func (l *raftLogger) format(level slog.Level, format string, v []any) {
	l.say(level, func() string { return fmt.Sprintf(format, v...) })
}

func (l *raftLogger) Debug(v ...any)                   { l.line(slog.LevelDebug, v) }
func (l *raftLogger) Debugf(format string, v ...any)   { l.format(slog.LevelDebug, format, v) }
func (l *raftLogger) Info(v ...any)                    { l.line(slog.LevelDebug, v) }
func (l *raftLogger) Infof(format string, v ...any)    { l.format(slog.LevelDebug, format, v) }
func (l *raftLogger) Warning(v ...any)                 { l.line(slog.LevelDebug, v) }
func (l *raftLogger) Warningf(format string, v ...any) { l.format(slog.LevelDebug, format, v) }
func (l *raftLogger) Error(v ...any)                   { l.line(slog.LevelError, v) }
func (l *raftLogger) Errorf(format string, v ...any)   { l.format(slog.LevelError, format, v) }

// Fatal and Panic are broken invariants: Group.guard turns them into a fence.
func (l *raftLogger) Fatal(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l *raftLogger) Fatalf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
func (l *raftLogger) Panic(v ...any)                 { panic(fmt.Sprint(v...)) }
func (l *raftLogger) Panicf(format string, v ...any) { panic(fmt.Sprintf(format, v...)) }
