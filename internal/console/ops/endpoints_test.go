package ops_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/endpoints"
	"billhook/internal/console/ops"
	"billhook/internal/platform/store"
)

// willing takes every request.
type willing struct{}

func (willing) Post(context.Context, endpoints.Address, string, []byte) (int, error) { return 204, nil }
func (willing) Check(context.Context, string) error                                  { return nil }

func endpointsOf(s store.Store) *endpoints.Keeper {
	ids, clock := 0, at
	next := func() string { ids++; return fmt.Sprint("id-", ids) }
	return &endpoints.Keeper{
		Store: s, Poster: willing{}, OldSecretFor: time.Hour, NewID: next, NewSecret: func() string { return "whsec_" + next() },
		Now: func() time.Time { clock = clock.Add(time.Second); return clock },
	}
}

func TestAnEndpointIsRegisteredShownAndRemoved(t *testing.T) {
	t.Parallel()
	r := open(t)
	const secretly = `"created_at":"2026-03-02T10:15:01Z","changed_at":"2026-03-02T10:15:01Z"`
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "", `{"id":"p:1","url":"https://p.example/h","events":["a.*"],"tenant":"t1","why":"partner"}`, 201,
			`{"id":"p:1","tenant":"t1","url":"https://p.example/h","events":["a.*"],"state":"enabled",` + secretly + `,"secret":"whsec_id-1"}`},
		{"GET", "/p:1", "", 200, `{"id":"p:1","tenant":"t1","url":"https://p.example/h","events":["a.*"],"state":"enabled",` + secretly + `}`},
		{"GET", "/p%3A1", "", 200, `{"id":"p:1","tenant":"t1","url":"https://p.example/h","events":["a.*"],"state":"enabled",` + secretly + `}`},
		{"POST", "", `{"id":"p:1","url":"https://p.example/h","why":"again"}`, 409, "endpoint_exists"},
		{"POST", "", `{"url":"https://p.example/h"}`, 422, "refused"},
		{"POST", "", `{"url":"https://p.example/h","why":"w","secret":"mine"}`, 400, "body_malformed"},
		{"POST", "/p:1/rotate", `{}`, 422, "refused"},
		{"POST", "/q/rotate", `{"why":"w"}`, 404, "endpoint_unknown"},
		{"POST", "/q/enable", `{"why":"w"}`, 404, "endpoint_unknown"},
		{"POST", "/q/disable", `{"why":"w"}`, 404, "endpoint_unknown"},
		{"POST", "/q/test", "", 404, "endpoint_unknown"},
		{"GET", "/q", "", 404, "endpoint_unknown"},
		{"GET", "?state=odd", "", 400, "state_unknown"},
		{"GET", "?tenant=a/b", "", 400, "tenant_invalid"},
		{"GET", "?state=failing&tenant=t1", "", 400, "parameter_invalid"},
		{"GET", "?events=a", "", 400, "parameter_unknown"},
		{"DELETE", "/p:1", `{}`, 422, "refused"},
		{"DELETE", "/p:1", `{"why":"left"}`, 200, `{"id":"p:1","tenant":"t1","url":"https://p.example/h","events":["a.*"],"state":"enabled",` + secretly + `}`},
		{"DELETE", "/p:1", `{"why":"left"}`, 404, "endpoint_unknown"},
	} {
		got := r.request(t, step.method, "/v1/ops/endpoints"+step.path, step.body)
		require.Equal(t, step.status, got.Code, "%s %s: %s", step.method, step.path, got.Body)
		if step.status < 300 {
			require.JSONEq(t, step.want, got.Body.String())
			continue
		}
		require.Contains(t, got.Body.String(), `"code":"`+step.want+`"`)
		require.NotContains(t, got.Body.String(), "p.example")
	}
	require.Contains(t, r.log.String(), `"msg":"endpoint changed","how":"added","endpoint":"p:1","who":"local:ada"`)
	require.NotContains(t, r.log.String(), "whsec_")
	require.NotContains(t, r.log.String(), "p.example")
	changes := r.request(t, http.MethodGet, "/v1/ops/endpoints/p:1/changes", "").Body.String()
	require.Contains(t, changes, `"action":"remove","who":"local:ada","why":"left"`)
	require.NotContains(t, changes, "whsec_")
}

func TestEndpointsArePagedFromTheNewest(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 5 {
		require.Equal(t, 201, r.request(t, http.MethodPost, "/v1/ops/endpoints", fmt.Sprintf(`{"id":"p%d","url":"https://p.example","tenant":"t%d","why":"w"}`, i, i%2)).Code)
	}
	for list, want := range map[string][]string{"?limit=2": {"p4", "p3", "p2", "p1", "p0"}, "?limit=2&tenant=t0": {"p4", "p2", "p0"}, "?limit=2&state=disabled": nil} {
		var ids []string
		for page := ""; ; {
			var got ops.List[endpoints.Endpoint]
			answer := r.request(t, http.MethodGet, "/v1/ops/endpoints"+list+page, "")
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), &got), answer.Body)
			require.LessOrEqual(t, len(got.Items), 2)
			for _, e := range got.Items {
				ids = append(ids, e.ID)
			}
			if got.Next == "" {
				break
			}
			page = "&page=" + got.Next
		}
		require.Equal(t, want, ids, list)
	}
	var first ops.List[endpoints.Endpoint]
	require.NoError(t, json.Unmarshal(r.request(t, http.MethodGet, "/v1/ops/endpoints?limit=2", "").Body.Bytes(), &first))
	require.Equal(t, 400, r.request(t, http.MethodGet, "/v1/ops/endpoints?tenant=t0&page="+first.Next, "").Code, "a page of another list")
	r.store.Down(true)
	require.Equal(t, 503, r.request(t, http.MethodGet, "/v1/ops/endpoints", "").Code)
}

func TestAnUnknownSenderKeepsNoEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t, ops.Access{Tokens: []string{token}})
	for _, path := range []string{"", "/p/rotate", "/p/enable", "/p/test"} {
		require.Equal(t, http.StatusUnauthorized, r.request(t, http.MethodPost, "/v1/ops/endpoints"+path, `{"why":"w"}`).Code)
	}
}
