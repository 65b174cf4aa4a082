package worker_test

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/ops"
	"billhook/internal/store"
	"billhook/internal/telemetry"
	"billhook/internal/worker"
)

// TestADamagedDocumentStopsNoList damages one document of each collection that people list, and asks for the list.
func TestADamagedDocumentStopsNoList(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Microsecond)
	const none = "9" // sorts before letters
	tenant := sha256.Sum256([]byte("default"))
	shard := dedupe.Shard("orders-process", "default", "e1")
	for collection, test := range map[string]struct {
		id     string
		fields map[string]any
		paths  []string
	}{
		"deadLetters": {"x", map[string]any{"queue": "orders-process", "state": "open", "kept_at": now, "reason": int64(7)}, []string{
			"/v1/ops/dead-letters?queue=orders-process", "/v1/ops/dead-letters?queue=orders-process&state=open", "/ops/dead-letters?queue=orders-process"}},
		"audit":               {"~queue~orders-process~0000000000000000001-x", map[string]any{"kind": "pause", "at": now, "why": int64(7)}, []string{"/v1/ops/audit", "/v1/ops/queues/orders-process/changes", "/ops/audit"}},
		"webhookEvents":       {"x", map[string]any{"shard": shard, "created_at": now, "queue": "orders-process"}, []string{"/v1/ops/events", "/ops/events"}},
		"orders":              {none, map[string]any{"state": "PaymentInitiated"}, []string{"/v1/ops/orders?state=PaymentInitiated"}},
		"stock":               {none, map[string]any{"available": "many"}, []string{"/v1/ops/stock"}},
		"pauses":              {"orders-process", map[string]any{"who": int64(7)}, []string{"/v1/ops/pauses", "/v1/ops/queues", "/ops/"}},
		"products":            {none, map[string]any{"points": "many"}, []string{"/v1/ops/products"}},
		"refunds":             {"x", map[string]any{"reserved_at": now, "state": "refunded"}, []string{"/v1/ops/refunds?state=refunded"}},
		"audit, an operation": {"x", map[string]any{"created_at": now, "progress": "running"}, []string{"/v1/ops/operations", "/ops/operations"}},
		"usage":               {none, map[string]any{"month": "default~2026-03"}, []string{"/v1/ops/usage?month=2026-03"}},
		"periods":             {hex.EncodeToString(tenant[:4]) + "-default~2026-01", map[string]any{"who": int64(7)}, []string{"/v1/ops/journal/periods"}},
		"endpointLists":       {"all~0000000000000000001-x", map[string]any{"url": int64(7)}, []string{"/v1/ops/endpoints"}},
	} {
		t.Run(collection, func(t *testing.T) {
			t.Parallel()
			collection, _, _ := strings.Cut(collection, ",")
			var log strings.Builder
			metrics := telemetry.NewMetrics()
			var db store.Store
			w, err := worker.New(config(t, func(c *worker.Config) {
				c.Log, c.Metrics, db = slog.New(slog.NewJSONHandler(&log, nil)), metrics, c.Store
			}))
			require.NoError(t, err)
			_, err = db.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: collection, ID: test.id}, test.fields)})
			require.NoError(t, err)
			for _, path := range test.paths {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
				r.RemoteAddr, r.Host = "127.0.0.1:4711", "127.0.0.1:8081"
				answer := httptest.NewRecorder()
				w.ServeHTTP(answer, r)
				require.Equal(t, http.StatusOK, answer.Code, "%s: %s", path, answer.Body)
				said := answer.Header().Get(ops.HeaderSkipped)
				if strings.HasPrefix(path, "/ops/") {
					require.Contains(t, answer.Body.String(), "Documents that cannot be read are left out of this page")
					said = answer.Body.String()
				}
				require.Contains(t, said, collection+"/", path)
			}
			require.Contains(t, log.String(), `"msg":"document left out of a list","collection":"`+collection+`"`)
			counted := httptest.NewRecorder()
			metrics.Handler().ServeHTTP(counted, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
			require.Contains(t, counted.Body.String(), `billhook_documents_unreadable_total{collection="`+collection+`"}`)
		})
	}
}
