package importer_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/importer"
	"billhook/internal/platform/signature"
)

const secret = "import-secret-of-more-than-24-bytes"

func doorAt(t *testing.T, answer http.HandlerFunc) *importer.HTTPDoor {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	signer, err := signature.NewSigner(signature.Generic, secret)
	require.NoError(t, err)
	return &importer.HTTPDoor{Base: server.URL, Signer: signer, Client: server.Client(), Now: func() time.Time { return now }}
}

func TestAListIsPostedSignedAndEachResultIsRead(t *testing.T) {
	t.Parallel()
	verifier, err := signature.NewVerifier(signature.Generic, []string{secret}, time.Minute, func() time.Time { return now })
	require.NoError(t, err)
	var path string
	var body []byte
	door := doorAt(t, func(w http.ResponseWriter, r *http.Request) {
		path = r.URL.Path
		body, _ = io.ReadAll(r.Body)
		if verifier.Verify(r.Header.Values, body) != nil {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(w, `{"results":[{"status":202,"event_id":"a","message_id":"1"},{"status":422,"code":"contract_broken","detail":"d","violations":[{"path":"payload.email","rule":"undeclared"}]},{"status":503,"code":"key_held_up","retry_after":5}]}`)
	})
	results, err := door.Send(t.Context(), "orders", []importer.Item{
		{Message: []byte(`{"id":"a","n":1.0}`), DeliverAt: now.Add(time.Hour), MaxAttempts: 3}, {Message: []byte(`{"id":"b"}`)},
	})
	require.NoError(t, err)
	require.Equal(t, "/queues/orders/messages", path)
	require.JSONEq(t, `{"messages":[{"message":{"id":"a","n":1.0},"deliver_at":"2026-11-22T13:00:00Z","max_attempts":3},{"message":{"id":"b"}}]}`, string(body))
	require.Equal(t, []importer.Result{
		{Status: 202}, {Status: 422, Code: "contract_broken", Detail: "d", Fields: []string{"payload.email: undeclared"}},
		{Status: 503, Code: "key_held_up", RetryAfter: 5 * time.Second},
	}, results)
}

func TestAnAnswerToTheWholeRequestIsRetriedRefusedOrFinal(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status  int
		header  string
		body    string
		items   int
		want    importer.Result
		refused bool
	}{
		"rate limit":            {status: 429, header: "7", items: 2, want: importer.Result{Status: 429, Code: "c", RetryAfter: 7 * time.Second}},
		"not confirmed":         {status: 503, items: 2, want: importer.Result{Status: 503, Code: "c"}},
		"a single one too big":  {status: 413, items: 1, want: importer.Result{Status: 413, Code: "c"}},
		"a wrong secret":        {status: 401, items: 2, refused: true},
		"no such queue":         {status: 404, items: 2, refused: true},
		"a page of a proxy":     {status: 200, body: "<html>", items: 1, refused: true},
		"an answer of no door":  {status: 200, body: `{"results":[{"ok":true}]}`, items: 1, refused: true},
		"a single bad one":      {status: 422, items: 1, want: importer.Result{Status: 422, Code: "c"}},
		"a redirect, so nobody": {status: 302, items: 1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			door := doorAt(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.header != "" {
					w.Header().Set("Retry-After", test.header)
				}
				w.WriteHeader(test.status)
				if test.body == "" {
					test.body = `{"code":"c"}`
				}
				_, _ = io.WriteString(w, test.body)
			})
			items := make([]importer.Item, test.items)
			for i := range items {
				items[i].Message = json.RawMessage(`{}`)
			}
			results, err := door.Send(t.Context(), "orders", items)
			if test.refused {
				require.ErrorIs(t, err, importer.ErrClosed)
				return
			}
			require.NoError(t, err)
			require.Len(t, results, test.items)
			for _, result := range results {
				require.Equal(t, test.want, result)
			}
		})
	}
}

func TestAListThatIsRefusedAsAWholeIsSentInHalvesSoThatOneMessageIsRefused(t *testing.T) {
	t.Parallel()
	door := doorAt(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var request struct{ Messages []json.RawMessage }
		_ = json.Unmarshal(body, &request)
		if bytes.Contains(body, []byte(`"bad"`)) {
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = io.WriteString(w, `{"code":"contract_broken"}`)
			return
		}
		results := strings.Repeat(`,{"status":202}`, len(request.Messages))
		_, _ = io.WriteString(w, `{"results":[`+results[1:]+`]}`)
	})
	items := make([]importer.Item, 7)
	for i := range items {
		items[i].Message = json.RawMessage(`{"id":"good"}`)
	}
	items[4].Message = json.RawMessage(`{"id":"bad"}`)
	results, err := door.Send(t.Context(), "orders", items)
	require.NoError(t, err)
	for i, result := range results {
		require.Equal(t, i == 4, result.Status == http.StatusUnprocessableEntity, i)
	}
	require.Len(t, results, 7)
}
