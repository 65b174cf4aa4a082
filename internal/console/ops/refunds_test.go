package ops_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/payments"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

// says is a gateway that says the same of every order; empty: it does not answer.
type says string

func (s says) Do(_ context.Context, _ string, order []byte) ([]byte, error) {
	var asked struct {
		PaymentID string `json:"payment_id"`
	}
	if err := json.Unmarshal(order, &asked); err != nil || s == "" {
		return nil, errors.New("no answer")
	}
	return fmt.Appendf(nil, `{"payment_id":%q,"status":%q}`, asked.PaymentID, string(s)), nil
}

func (says) Request(string, []byte) handler.Call                     { return handler.Call{} }
func (says) Reconcile(context.Context, string) ([]byte, bool, error) { return nil, false, nil }

// refund asks for a payment's refund, of which the gateway says so.
func refund(t *testing.T, db store.Store, tenant, payment string, gateway says) {
	t.Helper()
	h := payments.Refunds{Gateway: gateway, Store: db, Now: func() time.Time { return time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC) }, RememberFor: time.Hour}.Leased().Leased()
	id := "r-" + payment
	_, _ = h.Do(t.Context(), handler.Event{Queue: "refunds", Tenant: tenant, ID: id, Type: "refund", Attempt: 1, Body: contract.Of(&contract.Envelope{
		ID: id, Action: "refund", CreatedAt: "2026-03-02T09:00:00Z", Payload: contract.Payload{PaymentID: payment},
	})}) // what became of it is what the test asks for
}

func TestARefundIsShownByItsPayment(t *testing.T) {
	t.Parallel()
	r := open(t)
	refund(t, r.store, "default", "pay:1", "succeeded")
	refund(t, r.store, "shop", "pay:1", "declined")
	refund(t, r.store, "default", "pay:2", "")
	for path, test := range map[string]struct {
		status int
		want   string
	}{
		"pay:1": {200, `{"payment_id":"pay:1","tenant":"default","state":"refunded","queue":"refunds","event_id":"r-pay:1","reserved_at":"2026-03-02T09:00:00Z","settled_at":"2026-03-02T09:00:00Z"}`},
		"pay%3A1?tenant=shop": {200, `{"payment_id":"pay:1","tenant":"shop","state":"refused","reason":"refund_declined","queue":"refunds","event_id":"r-pay:1",
			"reserved_at":"2026-03-02T09:00:00Z","settled_at":"2026-03-02T09:00:00Z"}`},
		"pay:2":              {200, `{"payment_id":"pay:2","tenant":"default","state":"under_way","queue":"refunds","event_id":"r-pay:2","reserved_at":"2026-03-02T09:00:00Z"}`},
		"pay:3":              {404, "refund_unknown"},
		"pay:1?tenant=none":  {404, "refund_unknown"},
		"pay%201":            {404, "refund_unknown"},
		"pay:1?tenant=a%20b": {400, "tenant_invalid"},
		"pay:1?queue=q":      {400, "parameter_unknown"},
	} {
		got := r.request(t, http.MethodGet, "/v1/ops/refunds/"+path, "")
		require.Equal(t, test.status, got.Code, "%s: %s", path, got.Body)
		if test.status == http.StatusOK {
			require.JSONEq(t, test.want, got.Body.String())
			continue
		}
		require.Contains(t, got.Body.String(), `"code":"`+test.want+`"`)
	}
}

func TestRefundsAreListedByTheirState(t *testing.T) {
	t.Parallel()
	r := open(t)
	for i := range 5 {
		refund(t, r.store, "default", fmt.Sprint("open-", i), "")
		refund(t, r.store, "default", fmt.Sprint("done-", i), "succeeded")
	}
	refund(t, r.store, "default", "no", "declined")
	list := func(query string) (found []string, pages int) {
		t.Helper()
		for next := ""; ; pages++ {
			got := r.request(t, http.MethodGet, "/v1/ops/refunds?limit=2"+query+next, "")
			require.Equal(t, http.StatusOK, got.Code, got.Body.String())
			var page ops.List[payments.Refund]
			require.NoError(t, json.Unmarshal(got.Body.Bytes(), &page))
			for _, found1 := range page.Items {
				found = append(found, found1.PaymentID)
			}
			if page.Next == "" {
				return found, pages + 1
			}
			next = "&page=" + page.Next
		}
	}
	found, pages := list("")
	require.ElementsMatch(t, []string{"open-0", "open-1", "open-2", "open-3", "open-4"}, found, "what waits is shown first")
	require.Equal(t, 3, pages)
	found, _ = list("&state=refunded")
	require.Len(t, found, 5)
	found, _ = list("&state=refused")
	require.Equal(t, []string{"no"}, found)
	found, _ = list("&state=all")
	require.Len(t, found, 11)
	for query, code := range map[string]string{"state=gone": "state_invalid", "page=x": "page_invalid", "limit=0": "limit_invalid", "payment=p": "parameter_unknown"} {
		got := r.request(t, http.MethodGet, "/v1/ops/refunds?"+query, "")
		require.Equal(t, http.StatusBadRequest, got.Code)
		require.Contains(t, got.Body.String(), code)
	}
}

func TestRefundsAreListedTheNewestFirstAndCostWhatAPageReturns(t *testing.T) {
	t.Parallel()
	for _, refunds := range []int{10, 1_500} {
		t.Run(fmt.Sprint(refunds, " refunds"), func(t *testing.T) {
			t.Parallel()
			r := open(t)
			var writes []store.Write
			for i := range refunds {
				one := payments.Refund{
					PaymentID: fmt.Sprint("pay-", i), Tenant: "default", Queue: "refunds", EventID: fmt.Sprint("r-", i), ReservedAt: at.Add(-time.Duration(i) * time.Minute),
					State: []payments.State{payments.UnderWay, payments.Refunded}[i%2],
				}
				writes = append(writes, store.Create(store.Key{Collection: payments.RefundsCollection, ID: fmt.Sprintf("%04d", (i*7919)%10_000)}, store.Encode(&one)))
			}
			for some := range slices.Chunk(writes, store.MaxWrites) {
				r.commit(t, some...)
			}
			db := &storetest.Counter{Store: r.store}
			r.over(db)
			for query, want := range map[string][]string{"?limit=2": {"pay-0", "pay-2", "pay-4", "pay-6"}, "?limit=2&state=all": {"pay-0", "pay-1", "pay-2", "pay-3"}} {
				var found []string
				for path := query; len(found) < 4; {
					var page ops.List[payments.Refund]
					before := db.Reads.Load()
					require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/refunds"+path, nil, &page).Code)
					require.EqualValues(t, len(page.Items), db.Reads.Load()-before)
					for _, one := range page.Items {
						found = append(found, one.PaymentID)
					}
					path = query + "&page=" + url.QueryEscape(page.Next)
				}
				require.Equal(t, want, found)
			}
		})
	}
}
