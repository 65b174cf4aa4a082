package ops_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/orders"
	"billhook/internal/apps/orders/orderstest"
	"billhook/internal/console/ops"
)

func TestStockIsSetAndShownAndItsChangesAreAudited(t *testing.T) {
	t.Parallel()
	r := open(t)
	for _, step := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "hat", "", 404, "stock_unknown"},
		{"PUT", "hat", `{"available":5,"why":"counted"}`, 200, `{"tenant":"default","product_id":"hat","available":5,"reserved":0,"sold":0}`},
		{"PUT", "hat", `{"available":0,"why":"lost","expect":5}`, 200, `{"tenant":"default","product_id":"hat","available":0,"reserved":0,"sold":0}`},
		{"PUT", "hat", `{"available":7,"why":"found","expect":5}`, 409, "changed"},
		{"PUT", "hat", `{"why":"found"}`, 400, "body_malformed"},
		{"PUT", "hat", `{"available":-1,"why":"found"}`, 422, "refused"},
		{"PUT", "hat", `{"available":7}`, 422, "refused"},
		{"PUT", "hat", `{"available":7.5,"why":"half a hat"}`, 400, "body_malformed"},
		{"PUT", "a%2Fb", `{"available":7,"why":"w"}`, 422, "refused"},
		{"GET", "hat?tenant=acme", "", 404, "stock_unknown"},
		{"PUT", "hat?tenant=acme", `{"available":3,"why":"theirs"}`, 200, `{"tenant":"acme","product_id":"hat","available":3,"reserved":0,"sold":0}`},
		{"GET", "hat", "", 200, `{"tenant":"default","product_id":"hat","available":0,"reserved":0,"sold":0}`},
	} {
		got := r.request(t, step.method, "/v1/ops/stock/"+step.path, step.body)
		require.Equal(t, step.status, got.Code, "%s %s: %s", step.method, step.body, got.Body)
		if step.status == http.StatusOK {
			require.JSONEq(t, step.want, got.Body.String())
			continue
		}
		require.Contains(t, got.Body.String(), `"code":"`+step.want+`"`)
	}
	require.JSONEq(t, `{"items":[{"tenant":"default","product_id":"hat","available":0,"reserved":0,"sold":0}],"next":""}`, r.request(t, http.MethodGet, "/v1/ops/stock", "").Body.String())
	changes := r.request(t, http.MethodGet, "/v1/ops/stock/hat/changes", "").Body.String()
	require.Contains(t, changes, `"why":"lost"`)
	require.Contains(t, changes, `"who":"local:ada"`)
	require.Contains(t, r.log.String(), `"msg":"stock changed"`)
}

func TestAnOrderIsShownWithItsHistoryAndListedByItsState(t *testing.T) {
	t.Parallel()
	r := open(t)
	shop, err := orderstest.Open(r.store)
	require.NoError(t, err)
	for _, e := range []orderstest.Event{
		orderstest.Created("e1", "o:1"), orderstest.Created("e2", "o2", "hat 1"),
	} {
		_, err = shop.Deliver(t.Context(), r.store, e, false)
		require.NoError(t, err)
	}
	var o orders.Order
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/orders/o%3A1?tenant=default", nil, &o).Code)
	require.Equal(t, orders.PaymentInitiated, o.State)
	require.Len(t, o.History, 4)
	got := r.request(t, http.MethodGet, "/v1/ops/orders/o2", "")
	require.JSONEq(t, `{"order_id":"o2","tenant":"default","state":"OrderCancelled","reason":"out_of_stock","short_of":"hat","user_id":"usr_42",
		"items":[{"product_id":"hat","quantity":1}],"total":100,"created_at":"2026-03-02T12:00:00Z","updated_at":"2026-03-02T12:00:00Z","history":[
		{"state":"OrderCreated","at":"2026-03-02T12:00:00Z","event_id":"e2"},{"state":"ValidateInventory","at":"2026-03-02T12:00:00Z","event_id":"e2"},
		{"state":"OrderCancelled","at":"2026-03-02T12:00:00Z","event_id":"e2"}]}`, got.Body.String())
	for path, want := range map[string][]string{"": {"o:1"}, "?state=OrderCancelled": {"o2"}, "?state=OrderShipped": nil, "?state=all": {"o2", "o:1"}} {
		var list ops.List[orders.Order]
		require.NoError(t, json.Unmarshal(r.request(t, http.MethodGet, "/v1/ops/orders"+path, "").Body.Bytes(), &list))
		var ids []string
		for _, o := range list.Items {
			ids = append(ids, o.ID)
		}
		require.ElementsMatch(t, want, ids, path)
	}
	for path, code := range map[string]string{"/o3": "order_unknown", "/o2?tenant=other": "order_unknown", "?state=Lost": "state_invalid"} {
		require.Contains(t, r.request(t, http.MethodGet, "/v1/ops/orders"+path, "").Body.String(), `"code":"`+code+`"`, path)
	}
}
