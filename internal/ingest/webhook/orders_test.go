package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/webhook"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/store"
)

// shelfOfOrders has the order o-1 of each tenant, and fails for those that are "broken".
type shelfOfOrders struct{}

func (shelfOfOrders) Get(_ context.Context, key store.Key) (store.Document, error) {
	switch {
	case strings.Contains(key.ID, "broken"):
		return store.Document{}, errors.New("the database is down")
	case !strings.HasSuffix(key.ID, "~o-1"):
		return store.Document{}, store.ErrNotFound
	}
	_, rest, _ := strings.Cut(key.ID, "-")
	tenant, _, _ := strings.Cut(rest, "~")
	return store.Document{Key: key, Version: 1, Fields: map[string]any{
		"order_id": "o-1", "tenant": tenant, "user_id": "usr_1", "state": "OrderCancelled", "reason": "out_of_stock", "short_of": "p-" + tenant,
		"items": map[string]any{"p-" + tenant: int64(3)}, "created_at": fixed, "updated_at": fixed.Add(time.Second),
		"history": []any{map[string]any{"state": "OrderCancelled", "at": fixed, "event_id": "e1"}},
	}}, nil
}

func (d *door) ask(t *testing.T, path, destination, secret string, at time.Time) *httptest.ResponseRecorder {
	t.Helper()
	signer, err := signature.NewSigner(signature.Generic, secret)
	require.NoError(t, err)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
	for name, value := range signer.SignFor(destination, "", nil, at) {
		r.Header.Set(name, value)
	}
	return d.send(r)
}

func TestWhoHasSentAnOrderLearnsWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	const other = "another-secret-of-more-than-24-bytes"
	for name, test := range map[string]struct {
		path, destination, secret string
		at                        time.Time
		status                    int
		code                      string // or the product that was short
	}{
		"an order":               {"/orders/o-1", "/orders/o-1", genericSecret, fixed, 200, "p-default"},
		"a tenant's":             {"/orders/o-1?tenant=acme", "/orders/o-1?tenant=acme", genericSecret, fixed, 200, "p-acme"},
		"one of nobody":          {"/orders/o-2", "/orders/o-2", genericSecret, fixed, 404, "order_unknown"},
		"an id that is none":     {"/orders/%20", "/orders/%20", genericSecret, fixed, 404, "order_unknown"},
		"while nothing is known": {"/orders/broken", "/orders/broken", genericSecret, fixed, 503, "order_lookup_failed"},
		"signed for another":     {"/orders/o-1", "/orders/o-2", genericSecret, fixed, 401, "destination_mismatch"},
		"of another tenant":      {"/orders/o-1?tenant=acme", "/orders/o-1", genericSecret, fixed, 401, "destination_mismatch"},
		"signed for no path":     {"/orders/o-1", "", genericSecret, fixed, 401, "destination_missing"},
		"by another secret":      {"/orders/o-1", "/orders/o-1", other, fixed, 401, "signature_mismatch"},
		"too late":               {"/orders/o-1", "/orders/o-1", genericSecret, fixed.Add(-time.Hour), 401, "timestamp_too_old"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, func(c *webhook.Config) { producing()(c); c.Orders = shelfOfOrders{} })
			w := d.ask(t, test.path, test.destination, test.secret, test.at)
			if test.status != http.StatusOK {
				requireProblem(t, d, w, test.status, test.code, "")
				return
			}
			require.Equal(t, http.StatusOK, w.Code, w.Body)
			var got map[string]any
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			require.Equal(t, map[string]any{
				"order_id": "o-1", "state": "OrderCancelled", "reason": "out_of_stock", "short_of": test.code,
				"created_at": fixed.Format(time.RFC3339Nano), "updated_at": fixed.Add(time.Second).Format(time.RFC3339Nano),
			}, got, "and nothing of who has ordered")
			require.Contains(t, d.log.String(), `"reason":"order_read"`)
		})
	}
}
