package e2e_test

import (
	"bytes"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/platform/signature"
)

// signed posts a body to a path of the door for producers.
func (s *stack) signed(t *testing.T, path, body string) e2e.Answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhookURL+path, bytes.NewReader([]byte(body)))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	signer, err := signature.NewSigner(signature.Generic, e2e.Secret)
	require.NoError(t, err)
	for name, value := range signer.SignFor(request.URL.RequestURI(), "", []byte(body), time.Now()) {
		request.Header.Set(name, value)
	}
	answer, err := e2e.Do(request)
	require.NoError(t, err)
	return answer
}

// TestAJobOfCloudSchedulerSendsByATokenForItsQueueAlone, the same body at every run.
func TestAJobOfCloudSchedulerSendsByATokenForItsQueueAlone(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t)
	const path = "/queues/events-normal/messages"
	job := fmt.Sprintf("invoices-%d", s.seq.Add(1))
	body := fmt.Sprintf(`{"type":"invoice_generation","version":1,"data":{"subscription_id":%q}}`, job)
	run := func(to, tokenFor, at string) e2e.Answer {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.webhookURL+to, bytes.NewReader([]byte(body)))
		require.NoError(t, err)
		token, err := s.accountToken(tokenFor, "scheduler")
		require.NoError(t, err)
		for name, value := range map[string]string{
			"Content-Type": "application/json", "Authorization": "Bearer " + token, "X-CloudScheduler-JobName": job, "X-CloudScheduler-ScheduleTime": at,
		} {
			request.Header.Set(name, value)
		}
		answer, err := e2e.Do(request)
		require.NoError(t, err)
		return answer
	}
	for _, at := range []string{"2026-03-01T06:00:00Z", "2026-03-01T06:00:00Z", "2026-04-01T06:00:00Z"} {
		answer := run(path, path, at)
		require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
		require.Equal(t, job+"-"+at, answer.EventID)
	}
	for _, at := range []string{"2026-03-01T06:00:00Z", "2026-04-01T06:00:00Z"} {
		s.until(t, job+"-"+at, "processed")
		require.Equal(t, 1, s.service.Applied(job+"-"+at))
	}
	s.until(t, job+"-2026-03-01T06:00:00Z", "duplicate")
	const money = "/queues/pay-refund-initiation/messages"
	require.Equal(t, "account_not_allowed", run(money, money, "2026-03-01T06:00:00Z").Code)
	require.Equal(t, "token_invalid", run(path, money, "2026-03-01T06:00:00Z").Code)
}
