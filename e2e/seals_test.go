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
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// sealing is a Billhook whose sealer dies twice: right before it commits a seal, and right after.
type sealing struct {
	store     store.Store
	workerURL string
	// post has an order of a new user credited.
	post func(t *testing.T) e2e.Order
	// die runs the task that seals until its worker is gone, and starts the next worker.
	die func(t *testing.T, afterCommit bool)
	// seal runs the task to its end.
	seal func(t *testing.T)
}

// run posts orders before each run of the sealer. In the end each entry is under one seal.
func (s sealing) run(t *testing.T) {
	t.Helper()
	period := ledger.PeriodOf(time.Now())
	var posted []e2e.Order
	for _, afterCommit := range []bool{false, true} {
		posted = append(posted, s.post(t), s.post(t))
		s.die(t, afterCommit)
		want := 0
		if afterCommit {
			want = len(posted)
		}
		require.Len(t, s.leaves(t), want, "the seal is there as a whole, or nothing of it")
	}
	posted = append(posted, s.post(t))
	s.seal(t)
	s.seal(t) // there is nothing left to seal

	leaves := s.leaves(t)
	require.Len(t, leaves, len(posted))
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
	credited := map[string]int64{}
	for _, b := range books.Balances {
		credited[b.Account] = b.Credit - b.Debit
	}
	require.Equal(t, map[string]int64{"points:user": 2000 * int64(len(posted)), "points:issued": -2000 * int64(len(posted))}, credited)
	for _, o := range posted {
		require.Equal(t, int64(2000), balanceIn(t, s.store, ledger.UserPoints(o.UID)))
	}
}

// leaves are the places that seals give to each entry, as seal/leaf.
func (s sealing) leaves(t *testing.T) map[string][]string {
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

func (s sealing) documents(t *testing.T, collection string) []store.Document {
	t.Helper()
	page, err := s.store.Query(t.Context(), store.Query{Collection: collection, Limit: store.MaxPage})
	require.NoError(t, err)
	return page.Documents
}

// sealed kills the workers that seal at their fail points.
func sealed(t *testing.T, s *installation) {
	n := 0
	post := func(t *testing.T) e2e.Order {
		t.Helper()
		o := s.order()
		if n > 0 { // the first has the story's own id
			more := strconv.Itoa(n)
			o.EventID, o.OrderID, o.CustomerID, o.UID = o.EventID+more, o.OrderID+more, o.CustomerID+more, o.UID+"-"+more
		}
		n++
		s.sendAccepted(t, o.JSON())
		require.Eventually(t, func() bool { return status(t, s.store, o.EventID) == "COMPLETED" }, patience, pollInterval)
		return o
	}
	task := func(t *testing.T) (int, error) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.workerURL+"/tasks/seal-journal", http.NoBody)
		require.NoError(t, err)
		answer, err := e2e.Do(request)
		return answer.Status, err
	}
	sealing{
		store: s.store, workerURL: s.workerURL, post: post,
		die: func(t *testing.T, _ bool) {
			t.Helper()
			_, err := task(t)
			require.Error(t, err, "the worker is gone without an answer")
			s.awaitDeath(t)
			s.startWorker(t)
		},
		seal: func(t *testing.T) {
			t.Helper()
			status, err := task(t)
			require.NoError(t, err)
			require.Equal(t, http.StatusOK, status)
		},
	}.run(t)
	require.Empty(t, s.points)
}

// On the embedded stack a request is cut off at the commit, as a killed worker would leave it. The
// catalog is that of the killed workers.
func TestASealerThatIsCutOffAtItsCommitSealsEachEntryOnce(t *testing.T) {
	t.Parallel()
	s := startEmbeddedOf(t, shortTimes(t))
	sealing{
		store: s.store, workerURL: s.workerURL,
		post: func(t *testing.T) e2e.Order {
			t.Helper()
			o := s.newOrder()
			s.accepted(t, o.JSON())
			s.until(t, o.EventID, "processed")
			return o
		},
		die: func(t *testing.T, afterCommit bool) {
			t.Helper()
			require.True(t, s.crash(t, afterCommit, "", func() {
				_, err := s.task(t.Context(), "seal-journal")
				require.Error(t, err)
			}))
		},
		seal: func(t *testing.T) {
			t.Helper()
			_, err := s.task(t.Context(), "seal-journal")
			require.NoError(t, err)
		},
	}.run(t)
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

// oddIDs: ids as long as the contract takes them, of the signs that ids of documents and addresses
// give a meaning to. What the contract does not take is refused at the door.
func oddIDs(t *testing.T, s *stack) {
	unique := uuid.NewString()
	const order = `"order_id":%q,"amount":"%d.00"`
	filled := func(with string) string { return (unique + strings.Repeat(with, 128))[:128] }
	for name, with := range map[string]string{
		"dots": ".", "hyphens": "-", "colons": ":", "a mix": "..-_:7E", "what a reversal ends with": "-reversal", "up and up": "._.",
	} {
		t.Run(name, func(t *testing.T) {
			// A tenant is another than one that it begins like, and so is an event.
			tenant, event := filled(with), filled(with)
			entry := s.invoiced(t, tenant, event, "ecommerce.order.completed", fmt.Sprintf(order, filled(with), 10))
			short := s.invoiced(t, tenant, event[:127], "ecommerce.order.completed", fmt.Sprintf(order, filled(with), 20))
			require.NotEqual(t, entry.ID, short.ID)
			s.requireProven(t, tenant, event, 2)
			s.requireProven(t, tenant, entry.ID, 2)
			terminal(t, s.workerURL, "ledger", "revert", event, "--tenant", tenant, "--why", "a typo", "--yes")
			require.Equal(t, ledger.ReversalID(entry.ID), s.invoicedBefore(t, tenant, event).RevertedBy)
			require.Empty(t, s.invoicedBefore(t, tenant, event[:127]).RevertedBy)
			s.requireProven(t, tenant, ledger.ReversalID(entry.ID), 3)
		})
	}
	// A producer that goes round the door makes no entry, and not the reversal of another's event.
	paid := s.invoiced(t, "t-"+unique, "e-"+unique, "billing.invoice.paid", `"invoice_id":"i-1","amount":"10.00"`)
	entries := s.count(t, ledger.Entries, nil)
	for name, forged := range map[string]struct{ tenant, event, reason string }{
		"the id of a reversal": {"t-" + unique, "e-" + unique + "~reversal", "contract_broken"},
		"a path":               {"t-" + unique, "../e-" + unique, "contract_broken"},
		"a tenant and more":    {"t-" + unique + "~e-" + unique, "f-" + unique, "attributes_invalid"},
	} {
		_, err := s.publish(t.Context(), "fis-events", contract.Message{
			Data: fmt.Appendf(nil, `{"id":%q,"type":"billing.invoice.paid","timestamp":"2026-03-01T12:00:00Z","version":1,"producer":"forger","data":{"invoice_id":"i-1","amount":"1.00","currency":"EUR"}}`, forged.event),
			Attributes: map[string]string{
				contract.AttrContract: contract.MessageV1, contract.AttrEventID: forged.event, contract.AttrEventType: "billing.invoice.paid",
				contract.AttrTenant: forged.tenant, contract.AttrRoutingKey: "billing.invoice.paid", contract.AttrOrderingKey: contract.UnknownOrderingKey,
			},
		})
		require.NoError(t, err, name)
		letters := store.Query{Collection: deadletter.Collection, Equal: map[string]any{"event_id": forged.event, "queue": ingestion}, Limit: 2}
		require.Eventually(t, func() bool {
			page, err := s.store.Query(t.Context(), letters)
			return err == nil && len(page.Documents) == 1 && page.Documents[0].Fields["reason"] == forged.reason
		}, patience, pollInterval, name)
	}
	require.Equal(t, entries, s.count(t, ledger.Entries, nil))
	require.Empty(t, s.invoicedBefore(t, paid.Tenant, paid.EventID).RevertedBy)
	s.requireProven(t, paid.Tenant, paid.EventID, 1)

	for name, odd := range map[string]string{
		"a tilde": "a~reversal", "a percent sign": "a%7Ereversal", "a slash": "a/../b", "only dots": "..", "too long": filled(".") + ".", "a NUL": `a\u0000b`,
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			const message = `{"message":{"id":"%s","type":"ecommerce.order.completed","timestamp":"2026-03-01T12:00:00Z","version":1,"data":{"order_id":"%s","amount":"1.00","currency":"EUR"}},"tenant":"%s"}`
			for i := range 3 {
				ids := []any{"e-" + unique, "o-" + unique, "t-" + unique}
				ids[i] = odd
				answer := s.signed(t, "/topics/fis-events/messages", fmt.Sprintf(message, ids...))
				require.Equal(t, http.StatusUnprocessableEntity, answer.Status, "%d: %s", i, answer.Body)
			}
		})
	}
}
