package e2e_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listening returns the service's last address in the log.
func (s *stack) listening(service string) string {
	address := ""
	for line := range strings.Lines(s.log.Text()) {
		var said struct{ Message, Service, Address string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Message == "listening" && said.Service == service {
			address = "http://" + said.Address
		}
	}
	return address
}

// doors asks for the metrics at every port, and sends a large body without a signature.
func doors(t *testing.T, s *stack) {
	t.Helper()
	status := func(method, url, body string) int {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		return answer.StatusCode
	}
	for service, url := range map[string]string{"webhook": s.webhookURL, "worker": s.workerURL} {
		require.Equal(t, http.StatusNotFound, status(http.MethodGet, url+"/metrics", ""), service)
		require.Equal(t, http.StatusOK, status(http.MethodGet, url+"/health/live", ""), service)
		metrics := s.listening(service + "-metrics")
		require.NotEmpty(t, metrics, service)
		require.Equal(t, http.StatusOK, status(http.MethodGet, metrics+"/metrics", ""), service)
		require.Equal(t, http.StatusNotFound, status(http.MethodGet, metrics+"/health/live", ""), service)
	}
	require.Equal(t, http.StatusUnauthorized, status(http.MethodPost, s.webhookURL+"/webhooks/paynow", strings.Repeat(" ", 100<<10)))
}
