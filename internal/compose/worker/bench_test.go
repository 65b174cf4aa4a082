package worker_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
)

// BenchmarkPush delivers events one after the other to the worker as it is put together: each credits points, posts to a
// target or is posted in the journal. looked: every look was asked for before, so that its indexes are kept.
func BenchmarkPush(b *testing.B) {
	answers := httptest.NewServer(&heard{})
	b.Cleanup(answers.Close)
	events := map[string]func(id string) contract.Body{
		"points.credit": func(id string) contract.Body { return paidOrder(id, "customer-"+id, "411486491630370501") },
		"post": func(id string) contract.Body {
			return asks(id, "renewal", contract.Payload{SubscriptionID: "subscription-" + id})
		},
		catalog.JournalPost: func(id string) contract.Body {
			return contract.Of(&contract.Event{
				ID: id, Type: "billing.invoice.paid", Version: 1, Timestamp: "2026-03-02T10:15:00Z",
				Data: map[string]any{"invoice_id": id, "amount": "119.00", "tax_amount": "19.00", "currency": "EUR"},
			})
		},
	}
	for name, body := range events {
		for _, looked := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/looked=%t", name, looked), func(b *testing.B) {
				c := config(b, nil)
				c.Targets = postedTo(b, c.Catalog, answers.URL)
				w, err := worker.New(c)
				require.NoError(b, err)
				if looked {
					w.LookOnce(b.Context())
				}
				q, ok := c.Catalog.HandledBy(name)
				if !ok {
					q.ID = "pay-subscription-update"
				}
				requests := make([]*http.Request, b.N)
				for i := range requests {
					of := body(fmt.Sprintf("event-%07d", i))
					data, err := of.Append(nil)
					require.NoError(b, err)
					id, eventType := of.Identity()
					requests[i] = pushOf(b, "/push/"+q.ID, id, morning, contract.Message{Data: data, Attributes: map[string]string{
						contract.AttrEventID: id, "event_type": eventType, "routing_key": eventType, "ordering_key": "key-" + id,
					}})
				}
				b.ReportAllocs()
				b.ResetTimer()
				for _, r := range requests {
					answer := httptest.NewRecorder()
					w.ServeHTTP(answer, r)
					require.Equal(b, http.StatusOK, answer.Code, answer.Body)
				}
			})
		}
	}
}
