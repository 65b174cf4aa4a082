package worker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/pipeline/tasks"
)

// Beside an emulator no token is asked for: what keeps the pages out that a developer has
// open is that a browser says it is one. A page may also have had its own name led to this
// machine, and then posts to its own origin.
func TestABrowserNeitherPushesNorCallsATask(t *testing.T) {
	t.Parallel()
	w, err := worker.New(config(t, nil))
	require.NoError(t, err)
	paths := []string{"/push/paynow-events", "/push/dead-letters/paynow-events"}
	for _, task := range tasks.Names {
		paths = append(paths, "/tasks/"+task)
	}
	for name, header := range map[string]http.Header{
		"a page of another site":                {"Origin": {"https://elsewhere.example"}, "Sec-Fetch-Site": {"cross-site"}},
		"a page whose name leads here":          {"Origin": {"http://rebound.example:8081"}},
		"a page that hides where it is from":    {"Origin": {"null"}},
		"a page of this machine's other server": {"Origin": {"http://localhost:3000"}, "Sec-Fetch-Site": {"same-site"}},
		"a browser that names no origin":        {"Sec-Fetch-Site": {"none"}},
		"an origin that is empty":               {"Origin": {""}},
	} {
		for _, path := range paths {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(`{}`))
				r.RemoteAddr, r.Host, r.Header = "127.0.0.1:1", "rebound.example:8081", header
				answer := httptest.NewRecorder()
				w.ServeHTTP(answer, r)
				require.Equal(t, http.StatusForbidden, answer.Code)
				require.Contains(t, answer.Body.String(), `"code":"cross_origin"`)
			})
		}
	}
}
