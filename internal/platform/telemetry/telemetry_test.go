package telemetry_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/telemetry"
)

func TestALineHasTheNamesOfCloudLogging(t *testing.T) {
	t.Parallel()
	for level, want := range map[slog.Level]string{
		slog.LevelDebug: "DEBUG", slog.LevelInfo: "INFO", slog.LevelWarn: "WARNING", slog.LevelError: "ERROR",
	} {
		var out bytes.Buffer
		telemetry.NewLogger(&out, level+1).LogAttrs(t.Context(), level, "below the logger's level")
		telemetry.NewLogger(&out, level).LogAttrs(t.Context(), level, "delivery",
			slog.Group("inner", slog.String("level", "kept"), slog.String("msg", "kept")))
		line := filetest.JSON[map[string]any](t, out.Bytes())
		require.Equal(t, "delivery", line["message"])
		require.Equal(t, want, line["severity"])
		require.NotEmpty(t, line["time"])
		require.Equal(t, map[string]any{"level": "kept", "msg": "kept"}, line["inner"])
	}
}

var metric = regexp.MustCompile(`(?m)^# HELP (billhook_\S+) (.*)\.\n# TYPE \S+ (\w+)\n[^ {]+(.*)`)

// metricsOf are the metrics that a service shows after each method was called, by kind.
func metricsOf(t *testing.T) map[string][]string {
	t.Helper()
	m := telemetry.NewMetrics()
	for counts, call := range reflect.ValueOf(m).Methods() {
		var arguments []reflect.Value
		for in := range counts.Type.Ins() {
			arguments = append(arguments, reflect.Zero(in))
		}
		call.Call(arguments[1:]) // without the receiver
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	metrics := map[string][]string{}
	for _, found := range metric.FindAllStringSubmatch(w.Body.String(), -1) {
		text := fmt.Sprintf("`%s`: %s", found[1], found[2])
		labels := filetest.Map(regexp.MustCompile(`\w+=`).FindAllString(found[4], -1), func(label string) string {
			return strings.TrimSuffix(label, "=")
		})
		labels = slices.DeleteFunc(labels, func(label string) bool { return label == "le" })
		if len(labels) > 0 {
			text += " (" + strings.Join(labels, ", ") + ")"
		}
		metrics[found[3]] = append(metrics[found[3]], text)
	}
	return metrics
}

// linesOf are the rows of the log lines that the recording of the surface has, each with all its fields.
func linesOf(t *testing.T) (rows []string) {
	t.Helper()
	type line map[string]any
	const folder = "../../../e2e/testdata/surface/log/"
	events := filetest.JSON[[]struct{ Lines []line }](t, filetest.Read(t, folder+"events.json"))
	others := filetest.JSON[[]struct{ Line line }](t, filetest.Read(t, folder+"others.json"))
	lines := filetest.Map(others, func(other struct{ Line line }) line { return other.Line })
	for _, event := range events {
		lines = append(lines, event.Lines...)
	}
	fields := map[string]line{}
	for _, l := range lines {
		message := l["message"].(string)
		if fields[message] == nil {
			fields[message] = line{}
		}
		maps.Copy(fields[message], l)
	}
	for _, message := range slices.Sorted(maps.Keys(fields)) {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(fields[message])) {
			if !slices.Contains([]string{"message", "severity", "time"}, name) {
				names = append(names, "`"+name+"`")
			}
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", message, strings.Join(names, ", ")))
	}
	require.Greater(t, len(rows), 5)
	return rows
}

func TestThePageOfMetricsHasThoseOfTheCode(t *testing.T) {
	t.Parallel()
	metrics, rows := metricsOf(t), ""
	for _, kind := range []struct{ of, name string }{
		{"counter", "counter"}, {"histogram", "histogram"}, {"gauge", "gauge, of one instance"},
	} {
		rows += fmt.Sprintf("| %s | %s |\n", kind.name, strings.Join(metrics[kind.of], "<br>"))
	}
	page := "# Metrics and log lines\n\nMade of the code, and of the recorded log, by `go test " +
		"./internal/platform/telemetry -update`.\n\n" +
		"## Metrics\n`GET /metrics` at `METRICS_PORT`, in Prometheus' format. The alerts need no scrape: they " +
		"are on Google's own metrics and\n" +
		"on those that Terraform makes of log lines (`log_metrics` in `terraform/modules/alerts`), such as\n" +
		"`logging.googleapis.com/user/billhook-webhooks`.\n\n" +
		"| kind | metrics, with their labels |\n| --- | --- |\n" + rows +
		"\n## Log lines\nOne JSON object a line, with `time`, `severity` and `message`. No line has a payload " +
		"or a secret.\n" +
		"A `reason` is one of [reasons](reasons.md) or [answers](answers.md).\n\n" +
		"| message | fields |\n| --- | --- |\n" + strings.Join(linesOf(t), "")
	filetest.Recorded(t, page, "..", "..", "..", "docs", "reference", "metrics.md")
}
