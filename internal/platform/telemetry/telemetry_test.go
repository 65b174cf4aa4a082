package telemetry_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"slices"
	"strconv"
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
		log := telemetry.NewLogger(&out, slog.LevelDebug)
		log.LogAttrs(t.Context(), level, "delivery", slog.Group("inner", slog.String("level", "kept"),
			slog.String("msg", "kept")))
		line := filetest.JSON[map[string]any](t, out.Bytes())
		require.Equal(t, "delivery", line["message"])
		require.Equal(t, want, line["severity"])
		require.NotEmpty(t, line["time"])
		require.Equal(t, map[string]any{"level": "kept", "msg": "kept"}, line["inner"])
	}
}

func TestALineBelowTheLevelIsNotWritten(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	telemetry.NewLogger(&out, slog.LevelWarn).Info("quiet")
	require.Empty(t, out.String())
}

// textOf returns the value of a string, also one that is written in several parts.
func textOf(t *testing.T, expression ast.Expr) string {
	t.Helper()
	switch e := expression.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return filetest.Must(strconv.Unquote(e.Value))(t)
		}
	case *ast.BinaryExpr:
		return textOf(t, e.X) + textOf(t, e.Y)
	}
	return ""
}

// metricsOf are the metrics that the package declares, by kind.
func metricsOf(t *testing.T) map[string][]string {
	t.Helper()
	metrics := map[string][]string{}
	file := filetest.Must(parser.ParseFile(token.NewFileSet(), "telemetry.go", nil, 0))(t)
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		var texts []string
		for _, argument := range call.Args {
			if text := textOf(t, argument); text != "" {
				texts = append(texts, text)
			}
		}
		if kind, ok := call.Fun.(*ast.Ident); ok && len(texts) > 1 && strings.HasPrefix(texts[0], "billhook_") {
			metric := fmt.Sprintf("`%s`: %s", texts[0], strings.TrimSuffix(texts[1], "."))
			if len(texts) > 2 {
				metric += " (" + strings.Join(texts[2:], ", ") + ")"
			}
			metrics[kind.Name] = append(metrics[kind.Name], metric)
		}
		return true
	})
	require.Greater(t, len(metrics["counter"]), 10)
	return metrics
}

// linesOf are the rows of the log lines that the recording of the surface has, each with all its fields.
func linesOf(t *testing.T) (rows []string) {
	t.Helper()
	type line map[string]any
	const folder = "../../../e2e/testdata/surface/log/"
	events := filetest.JSON[[]struct{ Lines []line }](t, filetest.Read(t, folder+"events.json"))
	others := filetest.JSON[[]struct{ Line line }](t, filetest.Read(t, folder+"others.json"))
	fields := map[string]map[string]any{}
	add := func(l line) {
		message := l["message"].(string)
		if fields[message] == nil {
			fields[message] = map[string]any{}
		}
		maps.Copy(fields[message], l)
	}
	for _, event := range events {
		for _, l := range event.Lines {
			add(l)
		}
	}
	for _, other := range others {
		add(other.Line)
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
		{"counter", "counter"}, {"seconds", "histogram"}, {"gauge", "gauge, of one instance"},
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
