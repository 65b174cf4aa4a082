package e2e_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/devstack"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
)

// What somebody adds for a queue that posts to a service of theirs: nothing else.
const (
	aQueue = `  - id: welcome-mails
    description: Letters to new subscribers.
    enabled: true
    ordering_key: [subscription_id]
    priority: low
    pool: mails
    handlers:
      initial: { post: { target: mailer, path: /v1/letters, reconcile: "/v1/letters/{id}" } }

`
	aTarget = `  mailer:
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
	folder := addedTo(t, map[string]string{"queues.yaml, under queues": aQueue, "targets.yaml, under targets": aTarget})
	s := startEmbedded(t, loaded(t, folder), func(config *devstack.Config) {
		config.Targets["mailer"] = devstack.Place{URL: mailer.URL + "/mail", Secret: mailerSecret}
	})
	answer := s.signed(t, "/queues/welcome-mails/messages", envelope("new-1", "initial", `{"subscription_id":"s-1"}`, `"correlation_id":"s-1",`))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
	key := handler.CalleeKey("welcome-mails", "default", "new-1")
	require.Equal(t, `POST /mail/v1/letters `+key+` {"event_id":"`+key+`","tenant":"default","source_event_id":"new-1",`+
		`"action":"initial","subscription_id":"s-1","correlation_id":"s-1","created_at":"2026-03-01T12:00:00Z","payload":{"subscription_id":"s-1"}}`, <-posted)
	require.Empty(t, s.service.Deliveries(), "the stand-in of the other targets was told nothing")
}
