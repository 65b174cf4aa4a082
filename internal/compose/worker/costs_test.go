package worker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/customers"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/products"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/store"
)

// TestCreditCostsByWhatIsKnownOfItsCustomer counts on the whole worker, with the program's own handlers: a credit of a
// known customer is one round trip, no read, three documents. What is told of an order of the shop costs the two
// documents of the outbox, and two reads and a commit that remove them when it is published. It costs nothing where the
// queue of orders does not run.
func TestCreditCostsByWhatIsKnownOfItsCustomer(t *testing.T) {
	t.Parallel()
	const differs = "credited_mapping_differs"
	for name, test := range map[string]struct {
		// mapped is what the store says of the customer, which this worker has not heard; before is the uid of an order
		// that this worker has credited to the customer; a uid with an asterisk was looked up by the customer.
		mapped, before, uid string
		// shopOrder is the shop's own order that was paid. everyQueue runs, that of orders too.
		shopOrder  string
		everyQueue bool
		reason     string
		// cost is reads, commits, and documents written.
		cost []int64
	}{
		"a guest's":                                  {"", "-", "", "", false, "credited", []int64{0, 1, 3}},
		"a guest's, where every queue runs":          {"", "-", "", "", true, "credited", []int64{0, 1, 3}},
		"of an order of the shop":                    {"", "-", "", "cart-7", true, "credited", []int64{2, 2, 7}},
		"of an order of the shop, which runs not":    {"", "-", "", "cart-7", false, "credited", []int64{0, 1, 3}},
		"a customer's first that names both":         {"", "-", "u1", "", false, "credited", []int64{0, 1, 4}},
		"the next":                                   {"", "u1", "u1", "", false, "credited", []int64{0, 1, 3}},
		"one after a guest's":                        {"", "", "u1", "", false, "credited", []int64{0, 1, 4}},
		"whom another instance knows":                {"u1", "-", "u1", "", false, "credited", []int64{2, 2, 3}},
		"who is known from looking":                  {"u1", "u1", "u1", "", false, "credited", []int64{0, 1, 3}},
		"whom another instance knows as another":     {"u2", "-", "u1", "", false, differs, []int64{2, 2, 3}},
		"who is known here as another":               {"", "u2", "u1", "", false, differs, []int64{1, 1, 3}},
		"one whose uid was looked up":                {"u1", "-", "u1*", "", false, "credited", []int64{0, 1, 3}},
		"a guest's, though it is known who they are": {"", "u1", "", "", false, "credited", []int64{0, 1, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broker := &shelves{}
			w, counter := counting(t, func(c *worker.Config) {
				if c.Publisher = broker; !test.everyQueue {
					var err error
					c.Catalog, err = c.Catalog.Only([]string{"paynow-events", "pay-subscription-update"})
					require.NoError(t, err)
				}
				if test.mapped != "" {
					_, err := c.Store.Commit(t.Context(), []store.Write{store.Create(customers.Key("default", "c1"), map[string]any{"uid": test.mapped})})
					require.NoError(t, err)
				}
			})
			pay := func(event, customer, uid, shopOrder string) (int, string) {
				attributes := []string{"ordering_key", customer, "paynow_customer_id", customer}
				uid, lookedUp := strings.CutSuffix(uid, "*")
				if uid != "" {
					attributes = append(attributes, "uid", uid, "ordering_key", uid)
				}
				if lookedUp {
					attributes = append(attributes, "uid_source", "customer")
				}
				if shopOrder != "" {
					attributes = append(attributes, "shop_order_id", shopOrder)
				}
				return posted(t, w, "/push/paynow-events", paidOrder(event, customer, "411486491630370501"), attributes...)
			}
			pay("warm", "another", "", "") // the product is known now, and that nothing waits
			if test.before != "-" {
				pay("before", "c1", test.before, "")
			}
			broker.all()
			require.Equal(t, test.cost, spent(counter, func() {
				_, reason := pay("e1", "c1", test.uid, test.shopOrder)
				require.Equal(t, test.reason, reason)
			}))
			told := broker.take("orders")
			require.Equal(t, test.shopOrder != "" && test.everyQueue, len(told) == 1)
			code, _ := pay("e1", "c1", test.uid, test.shopOrder)
			require.Equal(t, http.StatusNoContent, code, "a duplicate")
			require.Empty(t, broker.all(), "tells nothing")
			for _, m := range told {
				require.Equal(t, "cart-7", m.Attributes["order_id"])
				require.Contains(t, string(m.Data), `"data":{"order_id":"cart-7","payment_id":"order-e1"}`)
			}
		})
	}
}

// TestCreditReadsAProductOnceInAWhile counts, in the worker as it is put together, what a credit costs the store: one
// round trip and three documents, and a read for each product that was not asked for in a while.
func TestCreditReadsAProductOnceInAWhile(t *testing.T) {
	t.Parallel()
	now := morning
	w, counter := counting(t, func(c *worker.Config) { c.Now = func() time.Time { return now } })
	const points, vip, unknown = "411486491630370501", "411486491630370502", "999999999999999999"
	n := 0
	deliver := func(products ...string) func() int {
		return func() int {
			n++
			code, _ := posted(t, w, "/push/paynow-events", paidOrder(fmt.Sprint("e", n), fmt.Sprint("customer-", n), products...))
			return code
		}
	}
	change := func(method, body string) func() int {
		return func() int { return asked(w, method, "/v1/ops/products/"+unknown, body).Code }
	}
	for _, step := range []struct {
		does string
		do   func() int
		code int
		cost []int64
	}{
		{"the first order asks for its product, and whether any message waits", deliver(points), 200, []int64{2, 1, 3}},
		{"the next does not", deliver(points, points), 200, []int64{0, 1, 3}},
		{"another product is asked for", deliver(points, vip), 200, []int64{1, 1, 3}},
		{"in a while each is asked for again, and that", func() int { now = now.Add(products.RememberedFor); return deliver(points, vip, points)() }, 200, []int64{3, 1, 3}},
		{"an unknown one is asked for each time, beside the record", deliver(points, unknown), 400, []int64{2, 1, 1}},
		{"and again, where nothing is nacked for it any more", deliver(unknown), 200, []int64{2, 1, 1}},
		{"setting it is a read and a commit with its audit", change(http.MethodPut, `{"points":500,"why":"w"}`), 200, []int64{1, 1, 2}},
		{"then it is asked for once", deliver(points, unknown), 200, []int64{1, 1, 3}},
		{"and known", deliver(points, unknown), 200, []int64{0, 1, 3}},
		{"retiring it is the same", change(http.MethodDelete, `{"why":"w"}`), 200, []int64{1, 1, 2}},
		{"and it is unknown at once", deliver(points, unknown), 200, []int64{2, 1, 1}},
	} {
		require.Equal(t, step.cost, spent(counter, func() { require.Equal(t, step.code, step.do(), step.does) }), step.does)
	}
	account, err := counter.Get(t.Context(), ledger.CustomerPoints("customer-8").Key("default"))
	require.NoError(t, err)
	require.EqualValues(t, 1500, account.Fields["balance"])
}

// TestUsageCostsTheSameHoweverMuchWasCounted: whether messages of its key wait, the total, the period; the record, the
// entry, the total.
func TestUsageCostsTheSameHoweverMuchWasCounted(t *testing.T) {
	t.Parallel()
	w, counter := counting(t, nil)
	for i := range 50 {
		did := spent(counter, func() {
			code, reason := posted(t, w, "/push/events-high", contract.Of(&contract.Event{
				ID: fmt.Sprint("u-", i), Type: "usage_tracking", Version: 1, Timestamp: "2026-03-02T10:15:00Z",
				Data: map[string]any{"subscription_id": "s-1", "meter": "calls", "quantity": 1},
			}))
			require.Equal(t, 200, code, reason)
		})
		require.Equal(t, []int64{3, 1, 3}, did)
	}
}
