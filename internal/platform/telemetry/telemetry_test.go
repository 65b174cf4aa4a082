package telemetry_test

import (
	"bytes"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

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
		log.LogAttrs(t.Context(), level, "delivery", slog.Group("inner", slog.String("level", "kept"), slog.String("msg", "kept")))
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

func TestTheMetricsCountByCode(t *testing.T) {
	t.Parallel()
	m := telemetry.NewMetrics()
	m.Webhook("paynow", 202, "", time.Millisecond)
	m.Delivery("orders", "processed", "credited", time.Millisecond)
	m.Delivery("orders", "processed", "credited", time.Millisecond)
	m.LargeMessage("orders")
	recorder := httptest.NewRecorder()
	m.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), "GET", "/metrics", nil))
	for _, want := range []string{
		`billhook_webhooks_total{reason="",source="paynow",status="202"} 1`,
		`billhook_deliveries_total{outcome="processed",queue="orders",reason="credited"} 2`,
		`billhook_large_messages_total{queue="orders"} 1`,
		`billhook_delivery_duration_seconds_count{queue="orders"} 2`,
		`billhook_webhook_duration_seconds_count{source="paynow"} 1`,
	} {
		require.Contains(t, recorder.Body.String(), want)
	}
}
