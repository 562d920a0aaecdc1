package settings

import (
	"io"
	"log/slog"
	"strings"

	"github.com/go-logr/logr"
)

// Logging says what is logged and how.
type Logging struct {
	Level  string
	Format string
}

// AddFlags adds the flags of logging to f.
func (l *Logging) AddFlags(f *Flags) {
	f.Enum(&l.Level, "info", []string{"debug", "info", "error"}, Flag{Name: "log-level", Usage: "the least important messages that are logged"})
	f.Enum(&l.Format, "json", []string{"json", "text"}, Flag{Name: "log-format", Usage: "how messages are logged, to standard error"})
}

// Logger makes a logger that writes to w.
func (l *Logging) Logger(w io.Writer) logr.Logger {
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "error": slog.LevelError}
	opts := &slog.HandlerOptions{Level: levels[l.Level], ReplaceAttr: nameLevel}
	if l.Format == "text" {
		return logr.FromSlogHandler(slog.NewTextHandler(w, opts))
	}
	return logr.FromSlogHandler(slog.NewJSONHandler(w, opts))
}

// nameLevel writes logr's V(1) as "debug"; slog on its own would say "INFO-1".
func nameLevel(_ []string, a slog.Attr) slog.Attr {
	if a.Key != slog.LevelKey {
		return a
	}
	level, ok := a.Value.Any().(slog.Level)
	if ok && level < slog.LevelInfo {
		return slog.String(slog.LevelKey, "debug")
	}
	return slog.String(slog.LevelKey, strings.ToLower(a.Value.String()))
}
