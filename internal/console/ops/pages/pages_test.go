package pages_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/console/ops/pages"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// answers is an API that answers each path with a value as JSON.
type answers map[string]any

func (a answers) Call(ctx context.Context, _, path string, _, answer any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	body, err := json.Marshal(a[path])
	if err != nil {
		return err
	}
	return json.Unmarshal(body, answer)
}

// serving are the pages over an API, for whoever asks.
func serving(t *testing.T, api pages.Caller) http.Handler {
	t.Helper()
	cat, err := catalog.Load("")
	require.NoError(t, err)
	site, err := pages.New(pages.Config{
		Longest: time.Minute,
		API:     api, Guard: func(next http.Handler) http.Handler { return next }, Catalog: cat,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
	})
	require.NoError(t, err)
	router := chi.NewRouter()
	site.Routes(router)
	return router
}

// look returns what is answered to a GET.
func look(t *testing.T, site http.Handler, path string) (status int, body string) {
	t.Helper()
	w := httptest.NewRecorder()
	site.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	text, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Code, string(text)
}

func TestTheOverviewShowsEachQueue(t *testing.T) {
	t.Parallel()
	site := serving(t, answers{"/v1/ops/queues": ops.Queues{Items: []ops.Queue{{ID: "one-queue", Enabled: true}}}})
	status, body := look(t, site, "/ops/")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, body, `href="/ops/queues/one-queue"`)
}

func TestWhatIsNotSeenIsShownAsANumberOnAnyPage(t *testing.T) {
	t.Parallel()
	site := serving(t, answers{"/v1/ops/queues": ops.Queues{Items: []ops.Queue{{ID: "a\u202eb\x1b[2J<script>", Enabled: true}}}})
	_, body := look(t, site, "/ops/")
	require.Contains(t, body, `a\u202eb\x1b[2J&lt;script&gt;`)
}

func TestAnUnknownPageIsSaidToBeUnknown(t *testing.T) {
	t.Parallel()
	status, body := look(t, serving(t, answers{}), "/ops/nothing-here")
	require.Equal(t, http.StatusNotFound, status)
	require.Contains(t, body, "There is no page at this address.")
}
