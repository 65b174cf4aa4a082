package operations_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/console"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/filetest"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
)

func TestOpenAccessNeedsTheMachinesOwnHost(t *testing.T) {
	t.Parallel()
	r := open(t)
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8081": 200, "LocalHost:8081": 200, "127.0.0.1": 200, "127.0.0.1:8081": 200,
		"127.5.6.7:1": 200,
		"[::1]":       200, "[::1]:8081": 200, "[::ffff:127.0.0.1]:8081": 200,

		"rebound.example": 403, "rebound.example:8081": 403, "localhost.rebound.example": 403,
		"127.0.0.1.rebound.example": 403,
		"rebound.example:127.0.0.1": 403, "localhost.": 403, "xlocalhost": 403, "0.0.0.0:8081": 403,
		"[::]:8081": 403, "192.0.2.7:8081": 403,
		"127.0.0.1@rebound.example": 403, "128.0.0.1": 403, "": 403, ":8081": 403,
	} {
		for _, change := range []func(*http.Request){
			header("X-Operator", ""), header("X-Operator", "ada"), header("Sec-Fetch-Site", "same-origin"),
		} {
			require.Equal(t, want, r.send(t, http.MethodGet, "/v1/ops/events", "", change, onHost(host)).Code, host)
		}
		change := r.send(t, http.MethodPut, "/v1/ops/stock/hat", `{"available":1,"why":"mended"}`, onHost(host),
			header("Origin", "http://"+host))
		require.Equal(t, want, change.Code, "a page whose own name resolves to this server changes nothing")
	}
	closed := newRig(t, access.Access{Tokens: []string{token}, OpenOnLoopback: true})
	closed.does(t, http.MethodGet, "/v1/ops/events", "", nil, onHost("worker.example"),
		header("Authorization", "Bearer "+token))
}

// inPage runs f as a page for somebody on this machine.
func (r *rig) inPage(t *testing.T, server *api.Server, does func(*http.Request)) {
	t.Helper()
	guard := (&access.Sessions{Access: r.access, Log: server.Log, Now: server.Now}).
		Guard(func(w http.ResponseWriter, _ *http.Request, p *serve.Problem) { p.Write(w) })
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/ops/", nil)
	request.RemoteAddr, request.Host = here, "127.0.0.1:8081"
	request.Header.Set("X-Operator", "ann")
	guard(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		does(r)
	})).ServeHTTP(httptest.NewRecorder(), request)
}

// The time of a page may end between a change and its answer.
func TestCommittedChangeIsNotReportedAsFailed(t *testing.T) {
	t.Parallel()
	r := open(t)
	server := r.over(r.store)
	r.inPage(t, server, func(request *http.Request) {
		ctx, cancel := context.WithCancel(request.Context())
		r.store.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
			defer cancel()
			return do()
		}
		set, _ := server.Find("products set")
		_, err := server.Call(ctx, set,
			console.Input{Path: map[string]string{"id": "hat"}, Body: []byte(`{"points":300,"why":"dearer"}`)})
		require.NoError(t, err)
	})
}

func TestAPIAcceptsNoCookie(t *testing.T) {
	t.Parallel()
	guarded := access.Access{Tokens: []string{token}, OpenOnLoopback: true}
	r := newRig(t, guarded)
	sessions := access.Sessions{
		Access: guarded, Local: []byte("a key of this process"), Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return at },
	}
	for peer, shown := range map[string]string{far: token, here: ""} {
		page := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/ops/", nil)
		page.RemoteAddr, page.Host = peer, "localhost:8081"
		cookie := filetest.Must(sessions.SignIn(page, shown, "ada"))(t)
		r.refuses(t, http.MethodGet, "/v1/ops/events", "", http.StatusUnauthorized, "unauthorized", from(far),
			func(request *http.Request) { request.AddCookie(cookie) })
	}
}
