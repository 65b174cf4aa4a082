package ops_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// request sends a body by a method, as an operator on this machine, and returns the answer.
func (r *rig) request(t *testing.T, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader([]byte(body)))
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	request.Header.Set("X-Operator", "ada")
	recorder := httptest.NewRecorder()
	r.router.ServeHTTP(recorder, request)
	return recorder
}

func TestAProductIsSetShownAndRetired(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "hat", "", 200, `{"tenant":"default","id":"hat","points":250,"state":"active","origin":"catalog"}`},
		{"GET", "new:1", "", 404, "product_unknown"},
		{"PUT", "new:1", `{"points":500,"why":"sold since today"}`, 200, `{"tenant":"default","id":"new:1","points":500,"state":"active","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"GET", "new:1", "", 200, `{"tenant":"default","id":"new:1","points":500,"state":"active","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"GET", "new%3A1", "", 200, `{"tenant":"default","id":"new:1","points":500,"state":"active","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"PUT", "hat", `{"points":300,"why":"dearer"}`, 200, `{"tenant":"default","id":"hat","points":300,"state":"active","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"GET", "hat?tenant=acme", "", 200, `{"tenant":"acme","id":"hat","points":250,"state":"active","origin":"catalog"}`},
		{"PUT", "hat?tenant=acme", `{"points":7,"why":"theirs","expect":250}`, 200, `{"tenant":"acme","id":"hat","points":7,"state":"active","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"PUT", "hat?tenant=a%2Fb", `{"points":7,"why":"w"}`, 400, "tenant_invalid"},
		{"PUT", "hat", `{"points":400,"why":"dearer","expect":250}`, 409, "changed"},
		{"PUT", "hat", `{"points":300,"why":"dearer, sent again","expect":250}`, 200, `{"tenant":"default","id":"hat","points":300,"state":"active","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"PUT", "odd", `{"points":1,"why":"w","expect":1}`, 409, "changed"},
		{"DELETE", "hat", `{"why":"sold out","expect":0}`, 409, "changed"},
		{"DELETE", "hat", `{"why":"sold out","expect":300}`, 200, `{"tenant":"default","id":"hat","points":300,"state":"retired","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"DELETE", "hat", `{"why":"sent again"}`, 200, `{"tenant":"default","id":"hat","points":300,"state":"retired","origin":"store","since":"2026-03-02T10:15:00Z"}`},
		{"GET", "hat", "", 404, "product_retired"},
		{"DELETE", "odd", `{"why":"gone"}`, 404, "product_unknown"},
	} {
		got := r.request(t, step.method, "/v1/ops/products/"+step.path, step.body)
		require.Equal(t, step.status, got.Code, "%s %s: %s", step.method, step.path, got.Body)
		if step.status == http.StatusOK {
			require.JSONEq(t, step.want, got.Body.String())
			continue
		}
		require.Equal(t, "application/problem+json", got.Header().Get("Content-Type"))
		require.Contains(t, got.Body.String(), `"code":"`+step.want+`"`)
	}
	got := r.request(t, http.MethodGet, "/v1/ops/products/hat/changes", "")
	require.JSONEq(t, `{"next":"","items":[
		{"kind":"product","tenant":"default","subject":"hat","action":"retire","who":"local:ada","why":"sold out","at":"2026-03-02T10:15:00Z",
			"before":{"points":300,"state":"active","origin":"store"},"after":{"points":300,"state":"retired","origin":"store"}},
		{"kind":"product","tenant":"default","subject":"hat","action":"set","who":"local:ada","why":"dearer","at":"2026-03-02T10:15:00Z",
			"before":{"points":250,"state":"active","origin":"catalog"},"after":{"points":300,"state":"active","origin":"store"}}
	]}`, sorted(t, got.Body.Bytes()))
	require.Contains(t, r.log.String(), `"product":"new:1"`)
	require.NotContains(t, r.log.String(), "sold", "a reason is for the audit")
}

// sorted is a history with its retirement first: this rig's clock stands still.
func sorted(t *testing.T, body []byte) string {
	t.Helper()
	var history ops.List[audit.Entry]
	require.NoError(t, json.Unmarshal(body, &history))
	if len(history.Items) == 2 && history.Items[0].Action == "set" {
		history.Items[0], history.Items[1] = history.Items[1], history.Items[0]
	}
	text, err := json.Marshal(history)
	require.NoError(t, err)
	return string(text)
}

func TestAChangeOfAProductThatIsNotMeantSoIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		code               string
	}{
		"no body":                       {"PUT", "hat", ``, 400, "body_malformed"},
		"points that are text":          {"PUT", "hat", `{"points":"5","why":"w"}`, 400, "body_malformed"},
		"points that are a fraction":    {"PUT", "hat", `{"points":1.5,"why":"w"}`, 400, "body_malformed"},
		"points that are twice there":   {"PUT", "hat", `{"points":5,"points":6,"why":"w"}`, 400, "body_malformed"},
		"points under another name":     {"PUT", "hat", `{"Points":5,"why":"w"}`, 400, "body_malformed"},
		"a member that nobody knows":    {"PUT", "hat", `{"points":5,"why":"w","since":"2026-03-02T10:15:00Z"}`, 400, "body_malformed"},
		"two documents":                 {"PUT", "hat", `{"points":5,"why":"w"}{}`, 400, "body_malformed"},
		"a body without end":            {"PUT", "hat", `{"points":5,"why":"` + strings.Repeat("w", 64<<10) + `"}`, 400, "body_malformed"},
		"no points":                     {"PUT", "hat", `{"why":"w"}`, 422, "refused"},
		"fewer points than none":        {"PUT", "hat", `{"points":-5,"why":"w"}`, 422, "refused"},
		"more points than there may be": {"PUT", "hat", `{"points":1000000001,"why":"w"}`, 422, "refused"},
		"no reason":                     {"PUT", "hat", `{"points":5}`, 422, "refused"},
		"a reason that is none":         {"PUT", "hat", `{"points":5,"why":"  "}`, 422, "refused"},
		"an id that no order can have":  {"PUT", "ilse@example.org", `{"points":5,"why":"w"}`, 422, "refused"},
		"the end without a reason":      {"DELETE", "hat", `{}`, 422, "refused"},
		"the end without a body":        {"DELETE", "hat", ``, 400, "body_malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			got := r.request(t, test.method, "/v1/ops/products/"+test.path, test.body)
			require.Equal(t, test.status, got.Code, got.Body)
			require.Contains(t, got.Body.String(), `"code":"`+test.code+`"`)
			require.NotContains(t, got.Body.String()+r.log.String(), "ilse")
			for _, collection := range []string{products.Collection, audit.Collection} {
				page, err := r.store.Query(t.Context(), store.Query{Collection: collection, Limit: 1})
				require.NoError(t, err)
				require.Empty(t, page.Documents)
			}
		})
	}
}

func TestProductsAndTheirHistoryComePageByPage(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 5 {
		require.Equal(t, http.StatusOK, r.request(t, http.MethodPut, fmt.Sprint("/v1/ops/products/p", i), `{"points":1,"why":"w"}`).Code)
		require.Equal(t, http.StatusOK, r.request(t, http.MethodPut, "/v1/ops/products/hat", fmt.Sprintf(`{"points":%d,"why":"w"}`, i+1)).Code)
	}
	for path, want := range map[string]int{"/v1/ops/products": 6, "/v1/ops/products/hat/changes": 5} {
		found := 0
		for page := ""; ; {
			var list ops.List[json.RawMessage]
			require.Equal(t, http.StatusOK, r.ask(t, path+"?limit=2"+page, nil, &list).Code)
			found += len(list.Items)
			if list.Next == "" {
				break
			}
			require.Len(t, list.Items, 2)
			page = "&page=" + list.Next
		}
		require.Equal(t, want, found, path)
	}
	for _, path := range []string{"?page=x", "?limit=0", "?limit=1001", "?state=active", "/hat/changes?page=x"} {
		require.Equal(t, http.StatusBadRequest, r.ask(t, "/v1/ops/products"+path, nil, nil).Code, path)
	}
}

func TestProductsAreNoFourHundredsWhileTheStoreIsDown(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.store.Down(true)
	for _, path := range []string{"", "/hat", "/hat/changes"} {
		require.Equal(t, http.StatusServiceUnavailable, r.request(t, http.MethodGet, "/v1/ops/products"+path, "").Code, path)
	}
	require.Equal(t, http.StatusServiceUnavailable, r.request(t, http.MethodPut, "/v1/ops/products/hat", `{"points":5,"why":"w"}`).Code)
	require.Equal(t, http.StatusServiceUnavailable, r.request(t, http.MethodDelete, "/v1/ops/products/hat", `{"why":"w"}`).Code)
}
