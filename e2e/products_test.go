package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/platform/audit"
)

// setProduct sets what a product is worth from now on.
func (s *stack) setProduct(t *testing.T, id string, points int64) products.Product {
	t.Helper()
	var p products.Product
	s.ask(t, http.MethodPut, "/v1/ops/products/"+id, ops.SetProduct{Points: points, Change: products.Change{Why: "sold since today"}}, &p)
	return p
}

// refused calls the worker's ops API and returns the code of its refusal.
func (s *stack) refused(t *testing.T, method, path string, question any, status int) string {
	t.Helper()
	body, err := json.Marshal(question)
	require.NoError(t, err)
	request, err := http.NewRequestWithContext(t.Context(), method, s.workerURL+path, bytes.NewReader(body))
	require.NoError(t, err)
	got, err := e2e.Do(request)
	require.NoError(t, err)
	require.Equal(t, status, got.Status, got.Body)
	return got.Code
}

// tried is what a trial says of an event: its outcome, and its reason or result.
func (s *stack) tried(t *testing.T, eventID string) [2]string {
	t.Helper()
	var trial dryrun.Trial
	s.ask(t, http.MethodPost, "/v1/ops/events/try", ops.Try{EventID: eventID}, &trial)
	return [2]string{string(trial.Outcome), trial.Reason + trial.Result}
}

// productSet follows the runbook: the dead letter names the product, the product is set, a trial
// says that the order would be credited, and the replay credits it.
func productSet(t *testing.T, s *stack) {
	const product = "700000000000000997"
	o := s.newOrder()
	o.Lines = append(o.Lines, e2e.Line{Product: product, Quantity: 3, Price: 500})
	s.accepted(t, o.JSON())
	deliveries := s.until(t, o.EventID, "dead_lettered")
	require.Contains(t, []int{http.StatusBadRequest, http.StatusOK}, deliveries[0].Status, "as the contract and the budget of nacks have it")
	require.Equal(t, "unknown_product", deliveries[0].Reason)
	item := s.letter(t, e2e.Queue, o.EventID)
	require.EqualValues(t, http.StatusBadRequest, item.Status)
	require.Equal(t, product, item.Detail, "it says which product")
	require.Equal(t, "product_unknown", s.refused(t, http.MethodGet, "/v1/ops/products/"+product, nil, http.StatusNotFound))
	open := s.openLetters(t)
	require.Equal(t, [2]string{"dead_lettered", "unknown_product"}, s.tried(t, o.EventID))

	set := s.setProduct(t, product, 500)
	require.Equal(t, [2]string{"processed", "credited"}, s.tried(t, o.EventID))
	require.Zero(t, s.balance(t, ledger.UserPoints(o.UID)), "a trial credits nothing")
	require.Equal(t, products.FromStore, set.Origin)
	s.replay(t, item)
	s.until(t, o.EventID, "processed")
	require.EqualValues(t, 2*1000+3*500, s.balance(t, ledger.UserPoints(o.UID)))
	require.Equal(t, open-1, s.openLetters(t))
	require.Equal(t, "COMPLETED", status(t, s.store, o.EventID))
	var story ops.Letter
	s.ask(t, http.MethodGet, "/v1/ops/dead-letters/"+url.PathEscape(item.ID), nil, &story)
	require.Equal(t, deadletter.Processed, story.State)
	var history ops.List[audit.Entry]
	s.ask(t, http.MethodGet, "/v1/ops/products/"+product+"/changes", nil, &history)
	require.Len(t, history.Items, 1)
	require.Equal(t, "local:drill", history.Items[0].Who)
	require.Equal(t, "sold since today", history.Items[0].Why)
	require.Nil(t, history.Items[0].Before)
	require.EqualValues(t, 500, history.Items[0].After["points"])
	require.Equal(t, set.Since, history.Items[0].At)
}

// productChanged changes a product of the catalog, and retires it.
func productChanged(t *testing.T, s *stack) {
	credited := func(want int64) {
		t.Helper()
		o := s.newOrder()
		o.Lines = []e2e.Line{{Product: vip, Quantity: 2, Price: 250}}
		s.accepted(t, o.JSON())
		s.until(t, o.EventID, "processed")
		require.Equal(t, want, s.balance(t, ledger.UserPoints(o.UID)))
	}
	credited(2 * 250)
	s.setProduct(t, vip, 300) // set by the process that credits, so it takes effect at once
	credited(2 * 300)

	var retired products.Product
	s.ask(t, http.MethodDelete, "/v1/ops/products/"+vip, products.Change{Why: "sold out"}, &retired)
	require.Equal(t, products.Retired, retired.State)
	require.Equal(t, "product_retired", s.refused(t, http.MethodGet, "/v1/ops/products/"+vip, nil, http.StatusNotFound))
	o := s.newOrder()
	o.Lines = []e2e.Line{{Product: vip, Quantity: 2, Price: 250}}
	s.accepted(t, o.JSON())
	s.until(t, o.EventID, "dead_lettered")
	item := s.letter(t, e2e.Queue, o.EventID)
	require.Equal(t, vip, item.Detail)

	s.setProduct(t, vip, 250) // the value that other cases expect
	s.replay(t, item)
	s.until(t, o.EventID, "processed")
	require.EqualValues(t, 2*250, s.balance(t, ledger.UserPoints(o.UID)))
	var all ops.List[products.Product]
	s.ask(t, http.MethodGet, "/v1/ops/products", nil, &all)
	found := map[string]string{}
	for _, p := range all.Items {
		found[p.ID] = p.Origin
	}
	require.Equal(t, products.FromCatalog, found[points])
	require.Equal(t, products.FromStore, found[vip])
}
