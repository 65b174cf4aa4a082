package ops_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
)

// change asks for a change and returns the answer.
func (r *rig) change(t *testing.T, method, path, body string, into any) int {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewReader([]byte(body)))
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	request.Header.Set("X-Operator", "ilse")
	recorder := httptest.NewRecorder()
	r.router.ServeHTTP(recorder, request)
	if into != nil {
		require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), into), recorder.Body.String())
	}
	return recorder.Code
}

func TestACustomerIsLinkedAndUnlinkedAndBothAreAudited(t *testing.T) {
	t.Parallel()
	r := open(t)
	const path = "/v1/ops/customers/c1"
	writes, err := ledger.Credit(ledger.Move{
		Tenant: "default", Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: ledger.CustomerPoints("c1"), Amount: 100, Currency: ledger.Points, CreatedAt: at,
	})
	require.NoError(t, err)
	r.commit(t, writes...)
	require.Equal(t, http.StatusNotFound, r.ask(t, path, nil, nil).Code)
	var state customers.State
	require.Equal(t, http.StatusOK, r.ask(t, path+"/preview", nil, &state).Code)
	require.Equal(t, int64(100), state.GuestPoints)
	require.Equal(t, http.StatusNotFound, r.change(t, http.MethodDelete, path, `{"why":"x"}`, nil))

	var done customers.Linked
	require.Equal(t, http.StatusOK, r.change(t, http.MethodPut, path, `{"uid":"u1","why":"ticket 7","expect":""}`, &done))
	require.Equal(t, int64(100), done.MovedPoints)
	require.Equal(t, http.StatusOK, r.ask(t, path, nil, &state).Code)
	require.Equal(t, "u1", state.UID)
	var account ops.Account
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/accounts/points:user:u1", nil, &account).Code)
	require.Equal(t, int64(100), account.Balance)
	require.Equal(t, ledger.KindTransferIn, account.Entries[0].Kind)
	require.Equal(t, done.Operation, account.Entries[0].EventID)
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/accounts/points:customer:c1", nil, &account).Code)
	require.Len(t, account.Entries, 2)
	require.Zero(t, account.Balance)

	require.Equal(t, http.StatusOK, r.change(t, http.MethodDelete, path, `{"why":"two people"}`, nil))
	require.Equal(t, http.StatusNotFound, r.ask(t, path, nil, nil).Code)
	var changes ops.List[audit.Entry]
	require.Equal(t, http.StatusOK, r.ask(t, path+"/changes?limit=1", nil, &changes).Code)
	require.Len(t, changes.Items, 1)
	require.NotEmpty(t, changes.Next)
	next := changes.Next
	require.Equal(t, http.StatusOK, r.ask(t, path+"/changes?page="+next, nil, &changes).Code)
	require.Len(t, changes.Items, 1)
	require.Empty(t, changes.Next)
	require.Equal(t, "local:ilse", changes.Items[0].Who)
	require.Contains(t, r.log.String(), `"who":"local:ilse","tenant":"default","customer_id":"c1"`)
	var all ops.List[deadletter.Operation]
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/operations", nil, &all).Code)
	require.Empty(t, all.Items, "what was done to dead letters is listed without it")
}

func TestAChangeOfACustomerThatMakesNoSenseIsRefused(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, store.Create(customers.Key("default", "c1"), map[string]any{"uid": "u1"}))
	for _, test := range []struct {
		method, path, body string
		want               int
	}{
		{http.MethodPut, "/c1", `nonsense`, http.StatusBadRequest},
		{http.MethodPut, "/c1", ``, http.StatusBadRequest},
		{http.MethodPut, "/c1", `{"uid":"u2","uid":"u3","why":"w"}`, http.StatusBadRequest},
		{http.MethodPut, "/c1", `{"UID":"u2","why":"w"}`, http.StatusBadRequest},
		{http.MethodPut, "/c1", `{"uid":"u2","why":"w","points":7}`, http.StatusBadRequest},
		{http.MethodPut, "/c1", `{"uid":"u2","why":"` + strings.Repeat("w", 70_000) + `"}`, http.StatusBadRequest},
		{http.MethodPut, "/c1?force=1", `{"uid":"u2","why":"w"}`, http.StatusBadRequest},
		{http.MethodPut, "/c1", `{"uid":"u2"}`, http.StatusUnprocessableEntity},
		{http.MethodPut, "/c1", `{"uid":"u2","why":" "}`, http.StatusUnprocessableEntity},
		{http.MethodPut, "/c1", `{"why":"w"}`, http.StatusUnprocessableEntity},
		{http.MethodPut, "/c1", `{"uid":"a@example.org","why":"w"}`, http.StatusUnprocessableEntity},
		{http.MethodPut, "/a%20b", `{"uid":"u2","why":"w"}`, http.StatusUnprocessableEntity},
		{http.MethodPut, "/c1", `{"uid":"u2","why":"w","expect":""}`, http.StatusConflict},
		{http.MethodDelete, "/c1", `{"why":""}`, http.StatusUnprocessableEntity},
		{http.MethodDelete, "/c1", `{"why":"w","expect":"u7"}`, http.StatusConflict},
		{http.MethodDelete, "/c2", `{"why":"w"}`, http.StatusNotFound},
		{http.MethodGet, "/a%20b", ``, http.StatusUnprocessableEntity},
		{http.MethodGet, "/c1/changes?limit=0", ``, http.StatusBadRequest},
		{http.MethodGet, "/c1/changes?page=a%2Fb", ``, http.StatusBadRequest},
		{http.MethodPost, "/c1", `{}`, http.StatusMethodNotAllowed},
	} {
		require.Equal(t, test.want, r.change(t, test.method, "/v1/ops/customers"+test.path, test.body, nil), "%s %s %.60s", test.method, test.path, test.body)
	}
	var state customers.State
	r.ask(t, "/v1/ops/customers/c1", nil, &state)
	require.Equal(t, "u1", state.UID)
	r.store.Down(true)
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		require.Equal(t, http.StatusServiceUnavailable, r.change(t, method, "/v1/ops/customers/c1", `{"uid":"u2","why":"w"}`, nil))
	}
}

func TestARefusedSenderChangesNoCustomer(t *testing.T) {
	t.Parallel()
	r := newRig(t, ops.Access{Tokens: []string{token}})
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		require.Equal(t, http.StatusUnauthorized, r.change(t, method, "/v1/ops/customers/c1", `{"uid":"u2","why":"w"}`, nil))
	}
}
