package e2e_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/e2e"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/seal"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
)

// sealed kills the worker that seals right before it commits a seal, and right after, with orders posted before each
// run. In the end each entry is under one seal.
func sealed(t *testing.T, s *installation) {
	posted, period := 0, ""
	post := func() {
		o := s.order()
		if posted > 0 { // the first has the story's own id
			more := strconv.Itoa(posted)
			o.EventID, o.OrderID, o.CustomerID = o.EventID+more, o.OrderID+more, o.CustomerID+more
		}
		posted++
		s.sendAccepted(t, o.JSON())
		require.Eventually(t, func() bool { return status(t, s.store, o.EventID) == "COMPLETED" }, patience, pollInterval)
	}
	task := func() (int, error) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.workerURL+"/tasks/seal-journal", http.NoBody)
		require.NoError(t, err)
		answer, err := e2e.Do(request)
		return answer.Status, err
	}
	for _, want := range []int{0, 4} {
		post()
		post()
		_, err := task()
		require.Error(t, err, "the worker is gone without an answer")
		s.awaitDeath(t)
		s.startWorker(t)
		require.Len(t, s.leaves(t), want, "the seal is there as a whole, or nothing of it")
	}
	post()
	for range 2 { // the second time there is nothing left to seal
		status, err := task()
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
	}
	leaves := s.leaves(t)
	require.Len(t, leaves, posted)
	for _, doc := range s.documents(t, ledger.Entries) {
		entry, err := ledger.Read(doc)
		require.NoError(t, err)
		require.Equal(t, []string{fmt.Sprintf("%d/%d", entry.Seal, entry.Leaf)}, leaves[doc.Key.ID], "one place under one seal")
		period = entry.Period
	}
	require.Contains(t, terminal(t, s.workerURL, "ledger", "verify"), "2 seals, 5 sealed entries and 0 unsealed ones of 1 tenants: 0 findings.")
	var books seal.TrialBalance
	require.NoError(t, json.Unmarshal([]byte(terminal(t, s.workerURL, "ledger", "balances", "--period", period, "--json")), &books))
	require.Equal(t, []int64{2, 0}, []int64{books.Seal, books.Unsealed})
	require.Equal(t, int64(2000*posted), s.balance(t, ledger.UserPoints(s.order().UID)))
	require.Empty(t, s.points)
}

// leaves are the places that seals give to each entry, as seal/leaf.
func (s *installation) leaves(t *testing.T) map[string][]string {
	t.Helper()
	places := map[string][]string{}
	for _, doc := range s.documents(t, seal.Leaves) {
		for i, leaf := range doc.Fields["leaves"].([]any) {
			_, id, ok := strings.Cut(leaf.(string), " ")
			require.True(t, ok)
			places[id] = append(places[id], fmt.Sprintf("%d/%d", doc.Fields["number"], i))
		}
	}
	return places
}

func (s *installation) documents(t *testing.T, collection string) []store.Document {
	t.Helper()
	page, err := s.store.Query(t.Context(), store.Query{Collection: collection, Limit: store.MaxPage})
	require.NoError(t, err)
	return page.Documents
}

// invoiced publishes a financial event of March 2026 of a tenant, in euros, and returns the entry that
// it made. members are those of its data but the currency.
func (s *stack) invoiced(t *testing.T, tenant, event, eventType, members string) ops.JournalEntry {
	t.Helper()
	s.announced(t, tenant, event, eventType, members+`,"currency":"EUR"`)
	id := ledger.EntryID(tenant, event)
	require.Eventually(t, func() bool {
		_, err := s.store.Get(t.Context(), ledger.Key(id))
		return err == nil
	}, patience, pollInterval)
	shown := s.invoicedBefore(t, tenant, event)
	require.Equal(t, []string{id, tenant, event}, []string{shown.ID, shown.Tenant, shown.EventID})
	return shown
}

// announced publishes a financial event of March 2026 of a tenant. members are those of its data.
func (s *stack) announced(t *testing.T, tenant, event, eventType, members string) {
	t.Helper()
	answer := s.signed(t, "/topics/fis-events/messages", fmt.Sprintf(
		`{"message":{"id":%q,"type":%q,"timestamp":"2026-03-01T12:00:00Z","version":1,"data":{%s}},"tenant":%q}`, event, eventType, members, tenant))
	require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
}

// requireProven seals, and expects a tenant's books to hold so many entries, and a proof of this one.
func (s *stack) requireProven(t *testing.T, tenant, event string, entries int) {
	t.Helper()
	_, err := s.task(t.Context(), "seal-journal")
	require.NoError(t, err)
	require.Contains(t, terminal(t, s.workerURL, "ledger", "verify", "--tenant", tenant),
		fmt.Sprintf("%d sealed entries and 0 unsealed ones of 1 tenants: 0 findings.", entries))
	proof, kept := t.TempDir()+"/proof", t.TempDir()+"/seals"
	terminal(t, s.workerURL, "ledger", "export", "--seals", "--tenant", tenant, "--out", kept)
	terminal(t, s.workerURL, "ledger", "prove", event, "--tenant", tenant, "--out", proof)
	var proven seal.Proven
	said, err := billhook(t, "ledger", "check-proof", proof, "--seals", kept, "--json")
	require.NoError(t, err, said)
	require.NoError(t, json.Unmarshal([]byte(said), &proven))
	require.Equal(t, tenant, proven.Tenant)
	require.Contains(t, string(proven.Entry), event)
}

// tenantsApart: two tenants have a financial event of the same id.
func tenantsApart(t *testing.T, s *stack) {
	unique := uuid.NewString()
	one, other, event := "one-"+unique, "other-"+unique, "invoice-"+unique
	const invoice = `"invoice_id":"i-1","amount":"%d.00"`
	first := s.invoiced(t, one, event, "billing.invoice.paid", fmt.Sprintf(invoice, 10))
	second := s.invoiced(t, other, event, "billing.invoice.paid", fmt.Sprintf(invoice, 20))
	require.NotEqual(t, first.ID, second.ID)
	require.Equal(t, []int64{1000, 2000}, []int64{first.Lines[0].Debit, second.Lines[0].Debit})
	s.requireProven(t, one, event, 1)
	s.requireProven(t, other, event, 1)

	// The one is undone; the other stays.
	terminal(t, s.workerURL, "ledger", "revert", event, "--tenant", one, "--why", "a typo", "--yes")
	require.Equal(t, ledger.ReversalID(first.ID), s.invoicedBefore(t, one, event).RevertedBy)
	require.Empty(t, s.invoicedBefore(t, other, event).RevertedBy)
	require.NotContains(t, terminal(t, s.workerURL, "ledger", "export", "--tenant", other, "--period", "2026-03"), first.ID)
	s.requireProven(t, other, event, 1)
}

// ordersApart: two tenants have an order, its event and its refund of the same ids. The refund comes
// under two events.
func ordersApart(t *testing.T, s *stack) {
	o, acme := s.newOrder(), "acme-"+uuid.NewString()
	user := ledger.UserPoints(o.UID)
	of := func(tenant string) (balance int64) {
		doc, err := s.store.Get(t.Context(), user.Key(tenant))
		if err != nil {
			require.ErrorIs(t, err, store.ErrNotFound)
		}
		balance, _ = doc.Fields["balance"].(int64)
		return balance
	}
	put := func(tenant, id, eventType string, data contract.PayNowData) {
		body, err := contract.Of(&contract.PayNow{EventID: id, EventType: eventType, Timestamp: time.Now().UTC().Format(time.RFC3339), Data: data}).Append(nil)
		require.NoError(t, err)
		_, err = s.publish(t.Context(), e2e.Queue, contract.Message{Data: body, Attributes: map[string]string{
			"contract": contract.PayNowV1, "event_id": id, "event_type": eventType, "ordering_key": o.UID, "uid": o.UID, "tenant": tenant,
		}})
		require.NoError(t, err)
	}
	order := &contract.Order{ID: o.OrderID, CustomerID: o.CustomerID, Currency: "USD", Total: "20.00", Items: []contract.Item{{ProductID: points, Quantity: 2}}}
	for _, tenant := range []string{dedupe.DefaultTenant, acme} {
		put(tenant, o.EventID, contract.OrderPaid, contract.PayNowData{Order: order})
		require.Eventually(t, func() bool { return of(tenant) == 2000 }, patience, pollInterval, "the points of %s", tenant)
	}
	refund := contract.PayNowData{Order: &contract.Order{ID: o.OrderID, Currency: "USD"}, Refund: &contract.Refund{ID: "r" + o.EventID, Amount: "5.00"}}
	for _, id := range []string{o.EventID + "1", o.EventID + "2"} {
		put(acme, id, contract.OrderRefunded, refund)
		s.until(t, id, "processed")
	}
	require.Equal(t, []int64{2000, 1500}, []int64{of(dedupe.DefaultTenant), of(acme)}, "each has its own, and a refund is one under any event")
	require.Contains(t, terminal(t, s.workerURL, "ledger", "account", string(user), "--tenant", acme), "has 1500 points")
}

// invoicedBefore returns the entry that a tenant's event has made.
func (s *stack) invoicedBefore(t *testing.T, tenant, event string) (shown ops.JournalEntry) {
	t.Helper()
	s.ask(t, http.MethodGet, "/v1/ops/journal/entries/"+event+"?tenant="+tenant, nil, &shown)
	return shown
}
