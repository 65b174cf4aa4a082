package e2e_test

import (
	"bytes"
	"io"
	"io/fs"
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
	"billhook/e2e"
	"billhook/internal/compose/devstack"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
)

// What somebody adds for a queue that posts to a service of theirs: nothing else.
const (
	aQueue = `
  - id: welcome-mails
    description: Letters to new subscribers.
    enabled: true
    ordering_key: [subscription_id]
    priority: low
    pool: mails
    handlers:
      initial: { post: { target: mailer, path: /v1/letters, reconcile: "/v1/letters/{id}" } }

`
	aTarget = `
  mailer:
    description: Sends letters.
    url_variable: MAILER_URL
    secret_variable: MAILER_SECRET
    scheme: standard
    internal: true
    timeouts: { connect: "2s", total: "10s" }
    concurrency: 4
`
)

func TestAQueueThatPostsToAServiceIsCatalogLinesAlone(t *testing.T) {
	t.Parallel()
	const mailerSecret = "the-mailers-secret-of-more-than-24-bytes"
	dir := t.TempDir()
	shipped := os.DirFS(filepath.Join("..", "catalog"))
	files, err := fs.Glob(shipped, "*.yaml")
	require.NoError(t, err)
	for _, name := range files {
		text, err := fs.ReadFile(shipped, name)
		require.NoError(t, err)
		switch name {
		case "queues.yaml":
			text = bytes.Replace(text, []byte("\nqueues:\n"), []byte("\nqueues:"+aQueue), 1)
		case "targets.yaml":
			text = bytes.Replace(text, []byte("\ntargets:\n"), []byte("\ntargets:"+aTarget), 1)
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	c, err := catalog.Load(dir)
	require.NoError(t, err)

	verifier, err := signature.NewVerifier(signature.Standard, []string{mailerSecret}, time.Minute, time.Now)
	require.NoError(t, err)
	posted := make(chan string, 10)
	mailer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = verifier.Verify(r.Header.Values, body)
		}
		if err != nil {
			w.WriteHeader(http.StatusUnauthorized)
		}
		posted <- strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Idempotency-Key"), string(body)}, " ")
	}))
	t.Cleanup(mailer.Close)
	running, err := devstack.Start(t.Context(), devstack.Config{
		Catalog: c, ProjectID: "e2e", Secrets: map[string][]string{"paynow": {e2e.Secret}, "generic": {e2e.Secret}},
		WebhookPort: "0", WorkerPort: "0", ServicePort: "0", StorePath: filepath.Join(t.TempDir(), "store.db"),
		Targets: map[string]devstack.Place{"mailer": {URL: mailer.URL + "/mail", Secret: mailerSecret}},
		Log:     slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, running.Close()) })

	body := []byte(`{"id":"new-1","action":"initial","created_at":"2026-03-01T12:00:00Z","attempts":0,"correlation_id":"s-1","payload":{"subscription_id":"s-1"}}`)
	signer, err := signature.NewSigner(signature.Generic, e2e.Secret)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, running.WebhookURL+"/queues/welcome-mails/messages", bytes.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range signer.Sign("", body, time.Now()) {
		request.Header.Set(name, value)
	}
	answer, err := e2e.Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	key := handler.CalleeKey("welcome-mails", "default", "new-1")
	require.Equal(t, `POST /mail/v1/letters `+key+` {"event_id":"`+key+`","tenant":"default","source_event_id":"new-1",`+
		`"action":"initial","subscription_id":"s-1","correlation_id":"s-1","created_at":"2026-03-01T12:00:00Z","payload":{"subscription_id":"s-1"}}`, <-posted)
	require.Empty(t, running.Service.Deliveries(), "the stand-in of the other targets was told nothing")
}
