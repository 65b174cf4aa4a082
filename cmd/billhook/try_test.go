package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/console/access"
	"billhook/internal/contract"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/telemetry"
)

// letterBox takes what is published, and anybody's push.
type letterBox struct{ letters []contract.Message }

func (b *letterBox) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	if strings.HasSuffix(topic, "-dlq") {
		b.letters = append(b.letters, m)
	}
	return "1", nil
}

func (*letterBox) Verify(context.Context, string) error { return nil }

// serveWorker serves a whole worker, in whose store an order of an unknown product is a dead letter,
// and the refund of an order that has not come waits.
func serveWorker(t *testing.T) (address string) {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	targets, err := delivery.Open(c, "", func(catalog.Target) (string, []string) {
		return "http://127.0.0.1:1", []string{"a-secret-of-more-than-24-bytes"}
	}, time.Now)
	require.NoError(t, err)
	box := &letterBox{}
	w, err := worker.New(worker.Config{
		Catalog: c, Store: openStore(t), Publisher: box, Targets: targets, Authenticator: box, Access: access.Access{Tokens: []string{opsToken}},
		Log: slog.New(slog.DiscardHandler), Metrics: telemetry.NewMetrics(), Now: func() time.Time { return time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC) },
	})
	require.NoError(t, err)
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	push := func(path string, m contract.Message) {
		t.Helper()
		body, err := json.Marshal(map[string]any{
			"message":      map[string]any{"data": m.Data, "messageId": "17", "attributes": m.Attributes, "publishTime": "2026-03-02T10:15:00Z"},
			"subscription": "projects/p/subscriptions/s",
		})
		require.NoError(t, err)
		w.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(body)))
	}
	for id, eventType := range map[string]string{"e-paid": "order.paid", "e-refund": "order.refunded"} {
		push("/push/paynow-events", contract.Message{Data: payNow(id, eventType), Attributes: map[string]string{
			"event_id": id, "event_type": eventType, "contract": "paynow.v1", "paynow_customer_id": "c1", "ordering_key": "c-" + id,
		}})
	}
	require.Len(t, box.letters, 1)
	push("/push/dead-letters/paynow-events", box.letters[0])
	return server.URL
}

// payNow is an event about an order of two pieces of a product that no catalog has.
func payNow(id, eventType string) []byte {
	return fmt.Appendf(nil, `{"eventId":%q,"eventType":%q,"timestamp":"2026-03-02T10:00:00Z","data":{"order":{"id":%q,"customerId":"c1","items":[{"productId":"new","quantity":2}]}}}`,
		id, eventType, "order-"+id)
}

func TestEventsAreTriedFromATerminal(t *testing.T) {
	t.Parallel()
	worker := serveWorker(t)
	folder := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	sold := filepath.Dir(write("sold/products.yaml", "products: {new: {points: 300}}\n"))
	wrong := filepath.Dir(write("wrong/products.yaml", "products: {new: {points: 0}}\n"))
	body := write("body.json", string(payNow("e-new", "order.paid")))
	letter := write("letter.json", `{"id":"x","queue":"paynow-events","attributes":{"event_id":"e-other","event_type":"order.paid","ordering_key":"unknown"},"data":`+string(payNow("e-other", "order.paid"))+`}`)
	play(t, asAda, worker, []step{
		{line: "events payload e-paid --why OPS-7", want: "\nKEPT IN dead_letter\n…STATE open\n…\"quantity\": 2\n"},
		{line: "events payload e-refund --why OPS-7", want: "KEPT IN delayed\n…order-e-refund"},
		{line: "events try e-paid", want: "EVENT e-paid\n…KEPT AS dead_letter …HANDLER points.credit\n…DETAIL new\n" +
			"…RECORDED DEAD_LETTERED unknown_product, after 1 attempts\n…It would be dead_lettered (400 unknown_product).\n"},
		{line: "events try e-paid --catalog " + sold, want: "…RESULT credited\n…create entries/…+ amount: 600…" +
			"-default~points:customer:c1, + account: \"points:customer:c1\", + balance: 600…It would be processed: credited.\n"},
		{line: "events try e-refund", want: "…KEPT AS delayed …It would be retry (500 order_not_seen).\n"},
		{line: "events try --body " + body + " --queue paynow-events --catalog " + sold, want: "EVENT e-new\n…It would be processed"},
		{line: "events try --message " + letter, want: "EVENT e-other\n…It would be dead_lettered (400 unknown_product).\n"},
		{line: "events try e-paid --catalog " + wrong, fails: "product new: points: must be 1 to 1000000000 (catalog_refused)"},
		{line: "events try e-paid --catalog " + t.TempDir(), fails: "has no .yaml file"},
		{line: "events try", fails: "body_malformed"},
		{line: "events try e-paid --body " + body, fails: "body_malformed"},
		{line: "events try --body " + body, fails: "body_malformed"},
		{line: "events try --message " + write("none.json", `{"queue":"paynow-events","attributes":{"event_id":"e-other"}}`), fails: "A dead letter has its message where its payload is shown."},
		{line: "events try --body " + write("text.txt", "not JSON") + " --queue paynow-events", fails: "text.txt is not JSON"},
	})
}
