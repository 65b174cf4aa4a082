package worker_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/apps/products"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/store/storetest"
)

// TestWhatACreditReadsOfItsProducts counts, in the worker as it is put together, what a
// credit costs the store: one round trip and three documents, and a read for each product that
// was not asked for in a while.
func TestWhatACreditReadsOfItsProducts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	var counter *storetest.Counter
	w, err := worker.New(config(t, func(c *worker.Config) {
		counter = &storetest.Counter{Store: c.Store}
		c.Store, c.Publisher, c.Now = counter, somewhere{}, func() time.Time { return now }
	}))
	require.NoError(t, err)
	const points, vip, unknown = "411486491630370501", "411486491630370502", "999999999999999999"
	deliver := func(id string, products ...string) int {
		order := &contract.Order{ID: "order-" + id, CustomerID: "customer-" + id}
		for _, product := range products {
			order.Items = append(order.Items, contract.Item{ProductID: product, Quantity: 1})
		}
		return posted(t, w, "/push/paynow-events", contract.Of(&contract.PayNow{
			EventID: id, EventType: contract.OrderPaid, Timestamp: "2026-03-02T10:15:00Z", Data: contract.PayNowData{Order: order},
		}))
	}
	change := func(method, body string) int { return asked(w, method, "/v1/ops/products/"+unknown, body).Code }
	for _, step := range []struct {
		does                      string
		do                        func() int
		code                      int
		reads, commits, documents int64
	}{
		{"the first order asks for its product, and whether any message waits", func() int { return deliver("a", points) }, 200, 2, 1, 3},
		{"the next does not", func() int { return deliver("b", points, points) }, 200, 0, 1, 3},
		{"another product is asked for", func() int { return deliver("c", points, vip) }, 200, 1, 1, 3},
		{"in a while each is asked for again, and that", func() int { now = now.Add(products.RememberedFor); return deliver("d", points, vip, points) }, 200, 3, 1, 3},
		{"an unknown one is asked for each time, beside the record", func() int { return deliver("e", points, unknown) }, 400, 2, 1, 1},
		{"and again, where nothing is nacked for it any more", func() int { return deliver("f", unknown) }, 200, 2, 1, 1},
		{"setting it is a read and a commit with its audit", func() int { return change(http.MethodPut, `{"points":500,"why":"w"}`) }, 200, 1, 1, 2},
		{"then it is asked for once", func() int { return deliver("g", points, unknown) }, 200, 1, 1, 3},
		{"and known", func() int { return deliver("h", points, unknown) }, 200, 0, 1, 3},
		{"retiring it is the same", func() int { return change(http.MethodDelete, `{"why":"w"}`) }, 200, 1, 1, 2},
		{"and it is unknown at once", func() int { return deliver("i", points, unknown) }, 200, 2, 1, 1},
	} {
		did := spent(counter, func() { require.Equal(t, step.code, step.do(), step.does) })
		require.Equal(t, []int64{step.reads, step.commits, step.documents}, did, step.does)
	}
	account, err := counter.Get(t.Context(), ledger.CustomerPoints("customer-h").Key("default"))
	require.NoError(t, err)
	require.EqualValues(t, 1500, account.Fields["balance"])
}
