// Package telemetry owns the program's reports about itself: one structured line per webhook
// and per delivery, in the form that Cloud Logging reads, and the metrics at /metrics. It
// refuses payloads: callers pass ids, codes and numbers.
package telemetry

import (
	"io"
	"log/slog"
)

// NewLogger returns a logger that writes one JSON object a line, with Cloud
// Logging's names for time, severity and message.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, attr slog.Attr) slog.Attr {
			if len(groups) > 0 {
				return attr
			}
			switch attr.Key {
			case slog.MessageKey:
				attr.Key = "message"
			case slog.LevelKey:
				attr.Key = "severity"
				if level, ok := attr.Value.Any().(slog.Level); ok && level == slog.LevelWarn {
					attr.Value = slog.StringValue("WARNING")
				}
			}
			return attr
		},
	}))
}
