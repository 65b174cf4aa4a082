package pages_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/console/ops/pages"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
)

// streamed is a tail of these looks, or a refusal.
type streamed struct {
	looks   []ops.Look
	refused error
	asked   []string
	// patient: the tail was asked for with a context that does not end.
	patient bool
}

func (o *streamed) Tail(ctx context.Context, query, after string, show func(ops.Look) error) error {
	o.asked = append(o.asked, query+" "+after)
	_, ends := ctx.Deadline()
	o.patient = !ends
	for _, look := range o.looks {
		if err := show(look); err != nil {
			return err
		}
	}
	return o.refused
}

func follow(t *testing.T, tail *streamed, path, last string) *httptest.ResponseRecorder {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	site, err := pages.New(pages.Config{
		Longest: time.Minute,
		API:     answers{"/v1/ops/events?limit=50": ops.List[ops.Line]{}}, Guard: func(next http.Handler) http.Handler { return next }, Tails: tail, Catalog: c,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return noon },
	})
	require.NoError(t, err)
	router := chi.NewRouter()
	site.Routes(router)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	r.Header.Set("Accept-Encoding", "gzip")
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	w := httptest.NewRecorder()
	router.ServeHTTP(w, r)
	return w
}

func TestTheStreamOfLiveIsRowsOfItsPage(t *testing.T) {
	t.Parallel()
	line := ops.Line{EventID: hostile, Queue: "a/b", Tenant: "t", Status: dedupe.Completed, Result: hostile, CreatedAt: noon}
	tail := &streamed{looks: []ops.Look{{ID: "1.2.3", Items: []ops.Line{line}, Skipped: true}, {Items: []ops.Line{}}, {Problem: serve.Refuse(http.StatusServiceUnavailable, "store_unavailable", "It is away.")}, {ID: "1.2.4"}, {ID: "1.2.5"}}}
	w := follow(t, tail, "/ops/live/tail?queue=a&key=k%7C1&other=x&after=0.0.1", "")
	require.Equal(t, []string{"key=k%7C1&queue=a 0.0.1"}, tail.asked)
	require.True(t, tail.patient, "a stream lasts longer than a page")
	require.Equal(t, "text/event-stream", w.Header().Get("Content-Type"))
	require.Empty(t, w.Header().Get("Content-Encoding"), "what is compressed is kept back")
	parts := strings.Split(w.Body.String(), "\n\n")
	require.Len(t, parts, 7)
	require.Equal(t, "retry: 2000", parts[0])
	before, data, _ := strings.Cut(parts[1], "\ndata: ")
	require.Equal(t, "id: 1.2.3\nevent: lines", before)
	require.Equal(t, ":", parts[2])
	require.True(t, strings.HasPrefix(parts[3], "event: problem\ndata: {"), parts[3])
	require.Equal(t, "id: 1.2.4\nevent: lines\ndata: {\"rows\":[],\"skipped\":false}", parts[4], "it is well again")
	require.Equal(t, ":", parts[5])
	var shown struct {
		Rows []struct {
			Record string `json:"record"`
			HTML   string `json:"html"`
		} `json:"rows"`
		Skipped bool `json:"skipped"`
	}
	require.NoError(t, json.Unmarshal([]byte(data), &shown))
	require.True(t, shown.Skipped)
	require.Len(t, shown.Rows, 1)
	require.Equal(t, line.Record(), shown.Rows[0].Record)
	requireHarmless(t, "the stream", shown.Rows[0].HTML)
	require.Contains(t, shown.Rows[0].HTML, "COMPLETED")

	follow(t, tail, "/ops/live/tail?after=0.0.1", "7.7.7")
	require.Equal(t, " 7.7.7", tail.asked[1], "a browser that reconnects knows better")
}

func TestAStreamThatIsRefusedSaysWhy(t *testing.T) {
	t.Parallel()
	w := follow(t, &streamed{refused: serve.Refuse(http.StatusTooManyRequests, "tails_many", "Too many.").After(30)}, "/ops/live/tail", "")
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "30", w.Header().Get("Retry-After"))
	require.Contains(t, w.Body.String(), `"code":"tails_many"`)
}

func TestLiveIsCompleteWithoutAScript(t *testing.T) {
	t.Parallel()
	w := follow(t, &streamed{}, "/ops/live", "")
	require.Equal(t, http.StatusOK, w.Code)
	h := openHouse(t, local)
	page := h.visits(t, http.MethodGet, "/ops/live?queue=x&status=FAILED", nil, nil).Body.String()
	require.Contains(t, page, `href="/ops/live?queue=x&amp;status=FAILED" id="live-refresh">Refresh</a>`)
	require.Contains(t, page, `<option selected>FAILED</option>`)
	require.Contains(t, page, `data-record=`)
	require.Equal(t, []string{"GET /v1/ops/events?limit=50&queue=x&status=FAILED"}, h.api.called())
}
