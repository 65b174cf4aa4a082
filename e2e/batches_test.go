package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// tell publishes an event on a shared topic, as the doors do, and returns its id. key is what the
// message waits behind; empty: nothing.
func (s *stack) tell(t *testing.T, topic, eventType, key string, data map[string]any) (id string) {
	t.Helper()
	id = "evt-" + uuid.NewString()
	s.tellOf(t, news{id, topic, eventType, key}, data)
	return id
}

// news is an event of an id that is known before, so that the service can be told what to do with it.
type news struct{ id, topic, eventType, key string }

func (s *stack) tellOf(t *testing.T, n news, data map[string]any) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"id": n.id, "type": n.eventType, "timestamp": "2026-11-20T09:00:00Z", "version": 1, "data": data})
	require.NoError(t, err)
	m := contract.Message{Data: body, OrderingKey: n.key, Attributes: map[string]string{
		"event_id": n.id, "event_type": n.eventType, "contract": contract.MessageV1, "routing_key": n.eventType, "ordering_key": "unknown",
	}}
	if n.key != "" {
		m.Attributes["ordering_key"] = n.key
	}
	if order, ok := data["order_id"].(string); ok {
		m.Attributes["order_id"] = order
	}
	_, err = s.publish(t.Context(), n.topic, m)
	require.NoError(t, err)
}

// recordOf is the record of an event of a queue; ok reports whether there is one.
func (s *stack) recordOf(t *testing.T, queue, id string) (record dedupe.Record, ok bool) {
	t.Helper()
	doc, err := s.store.Get(t.Context(), dedupe.Key(queue, dedupe.DefaultTenant, id))
	if errors.Is(err, store.ErrNotFound) {
		return record, false
	}
	require.NoError(t, err)
	record, err = dedupe.FromDocument(doc)
	require.NoError(t, err)
	return record, true
}

// ends waits for the end of an event of a queue, and returns its record.
func (s *stack) ends(t *testing.T, queue, id string) dedupe.Record {
	t.Helper()
	var record dedupe.Record
	require.Eventually(t, func() bool {
		record, _ = s.recordOf(t, queue, id)
		return record.Status == dedupe.Completed || record.Status == dedupe.DeadLettered
	}, patience, pollInterval)
	return record
}

// deliveriesOf are what the service got of events, in the order of their arrival.
func (s *stack) deliveriesOf(ids ...string) (all []standin.Delivery) {
	for _, d := range s.service.Deliveries() {
		if slices.Contains(ids, d.EventID) {
			all = append(all, d)
		}
	}
	return all
}

// One item of a bulk is told to come later, and one is refused: the others are done.
func halfFailedBulk(t *testing.T, s *stack) {
	var ids, documents []string
	for range 5 {
		ids, documents = append(ids, "evt-"+uuid.NewString()), append(documents, "p-"+uuid.NewString())
	}
	require.NoError(t, s.service.TellOf("default~"+documents[1], standin.Fail, 1))
	require.NoError(t, s.service.TellOf("default~"+documents[3], standin.Refuse, 1))
	for i, id := range ids {
		s.tellOf(t, news{id, "search", "product.updated", documents[i]}, map[string]any{"document_id": documents[i], "version": 1})
	}
	outcomes := map[string]int{}
	for i, id := range ids {
		record := s.ends(t, "search-index", id)
		for _, d := range s.deliveriesOf("default~" + documents[i]) {
			outcomes[d.Outcome]++
			require.Equal(t, "/products/_bulk", d.Path)
		}
		if i == 3 {
			require.Equal(t, []any{dedupe.DeadLettered, "callee_refused_400"}, []any{record.Status, record.LastError})
			require.Empty(t, s.service.Document("/products/_bulk", "default~"+documents[i]))
			continue
		}
		require.Equal(t, "delivered", record.Result)
		require.Equal(t, 1, s.service.Applied("default~"+documents[i]))
	}
	require.Equal(t, map[string]int{standin.Failed: 1, standin.Refused: 1, standin.Applied: 4}, outcomes, "what failed was sent again, and nothing else")
}

// indexed: the index has what was told last of a document, and nothing of one that is deleted. An older version
// changes nothing, and two tenants that name a document alike have one each. Sales have an index of their own.
func indexed(t *testing.T, s *stack) {
	document := "p-" + uuid.NewString()
	tell := func(eventType, tenant string, data map[string]any) (result, holds string) {
		id := "evt-" + uuid.NewString()
		data["document_id"] = document
		body, err := json.Marshal(map[string]any{"id": id, "type": eventType, "timestamp": "2026-11-20T09:00:00Z", "version": 1, "data": data})
		require.NoError(t, err)
		answer := s.signed(t, "/queues/search-index/messages", fmt.Sprintf(`{"tenant":%q,"message":%s}`, tenant, body))
		require.Equal(t, http.StatusAccepted, answer.Status, answer.Body)
		return s.endsOf(t, "search-index", tenant, id).Result, s.service.Document("/products/_bulk", tenant+"~"+document)
	}
	priced := func(tenant, price string, version int) string {
		return fmt.Sprintf(`{"currency":"EUR","document_id":%q,"price":%q,"tenant":%q,"version":%d}`, document, price, tenant, version)
	}
	for _, step := range []struct {
		eventType, tenant, price string
		version                  int
		result, holds            string
	}{
		{"product.created", "default", "9.99", 1, "delivered", priced("default", "9.99", 1)},
		{"product.updated", "default", "7.99", 7, "delivered", priced("default", "7.99", 7)},
		{"product.created", "acme", "1.00", 2, "delivered", priced("acme", "1.00", 2)},
		{"product.updated", "default", "6.99", 6, "not_newer", priced("default", "7.99", 7)},
		{"product.deleted", "default", "", 6, "not_newer", priced("default", "7.99", 7)},
		{"product.deleted", "default", "", 8, "delivered", ""},
		{"product.updated", "default", "7.99", 7, "not_newer", ""},
		{"product.deleted", "default", "", 9, "delivered", ""},
		{"product.updated", "acme", "2.00", 3, "delivered", priced("acme", "2.00", 3)},
	} {
		data := map[string]any{"version": step.version}
		if step.price != "" {
			data["price"], data["currency"] = step.price, "EUR"
		}
		result, holds := tell(step.eventType, step.tenant, data)
		require.Equal(t, []string{step.result, step.holds}, []string{result, holds}, "%+v", step)
	}
	// The newest sale stays, whatever comes last, and no sale changes what the owner's next version meets.
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	sold := func(at time.Time) map[string]any {
		return map[string]any{"version": at.UnixMicro(), "sold_at": at.Format(time.RFC3339Nano)}
	}
	for _, step := range []struct {
		at     time.Time
		result string
	}{{at, "delivered"}, {at.Add(-time.Second), "not_newer"}} {
		result, holds := tell("product.sold", "acme", sold(step.at))
		require.Equal(t, []string{step.result, priced("acme", "2.00", 3)}, []string{result, holds})
		require.JSONEq(t, fmt.Sprintf(`{"document_id":%q,"sold_at":"2026-11-20T09:00:00Z","tenant":"acme","version":%d}`, document, at.UnixMicro()),
			s.service.Document("/sales/_bulk", "acme~"+document))
	}
	result, holds := tell("product.updated", "acme", map[string]any{"version": 4, "price": "3.00", "currency": "EUR"})
	require.Equal(t, []string{"delivered", priced("acme", "3.00", 4)}, []string{result, holds})
}

func trackedWithoutRecord(t *testing.T, s *stack) {
	var ids []string
	for range 3 {
		ids = append(ids, "evt-"+uuid.NewString())
	}
	require.NoError(t, s.service.TellOf(ids[1], standin.Refuse, 1))
	for _, id := range ids {
		s.tellOf(t, news{id, "analytics", "analytics.event", ""}, map[string]any{"name": "page_seen"})
	}
	require.Eventually(t, func() bool { return len(s.deliveriesOf(ids...)) == len(ids) }, patience, pollInterval)
	outcomes := map[string]int{}
	for _, d := range s.deliveriesOf(ids...) {
		outcomes[d.Outcome]++
		require.Equal(t, "/v1/events", d.Path)
	}
	require.Equal(t, map[string]int{standin.Refused: 1, standin.Applied: 2}, outcomes, "one is lost, and not tried again")
	for _, id := range ids {
		_, found := s.recordOf(t, "analytics-track", id)
		require.False(t, found)
	}
}

// orderNotified: an order's notifications go out on each channel of the matrix, once.
func orderNotified(t *testing.T, s *stack) {
	user, order := "user-"+uuid.NewString(), "order-"+uuid.NewString()
	id := s.tell(t, "notifications", "order.confirmed", "", map[string]any{"order_id": order, "user_id": user})
	record := s.ends(t, "notifications-fanout", id)
	require.Equal(t, "fanned_out", record.Result)
	require.Len(t, record.Emitted, 3)
	var told []string
	for _, emitted := range handler.EmittedIDs(record.Emitted) {
		require.Equal(t, "delivered", s.ends(t, "notifications-send", emitted).Result)
		require.Equal(t, 1, s.service.Applied(emitted))
		delivered := s.deliveriesOf(emitted)
		require.NotEmpty(t, delivered)
		told = append(told, delivered[0].Action+" "+delivered[0].Path)
	}
	require.ElementsMatch(t, []string{
		"notification.email.order_confirmed /v1/notifications/email",
		"notification.sms.order_confirmed /v1/notifications/sms",
		"notification.push.order_confirmed /v1/notifications/push",
	}, told)
}

func notificationRefused(t *testing.T, s *stack) {
	id := s.tell(t, "notifications", "order.shipped", "", map[string]any{"order_id": "order-" + uuid.NewString()})
	record := s.ends(t, "notifications-fanout", id)
	require.Equal(t, dedupe.DeadLettered, record.Status)
	require.Equal(t, "user_missing", record.LastError)
	require.NotContains(t, strings.Join(handler.EmittedIDs(record.Emitted), ""), "-", "nobody was told")
}

// The fanout's own ends: an event that comes twice is fanned out once, one that finds the store down
// is fanned out later, and one that is too old tells nobody.
func fannedOutOnce(t *testing.T, s *stack) {
	reviewed := func(first time.Time) (id string) {
		id = "evt-" + uuid.NewString()
		body := `{"id":"` + id + `","type":"review.received","version":1,"timestamp":"2026-11-20T09:00:00Z","data":{"user_id":"u-1","product_id":"p-1"}}`
		send := func() {
			_, err := s.publish(t.Context(), "notifications", contract.Message{Data: []byte(body), Attributes: map[string]string{
				contract.AttrContract: contract.MessageV1, contract.AttrEventID: id, contract.AttrEventType: "review.received",
				contract.AttrRoutingKey: "review.received", contract.AttrOrderingKey: contract.UnknownOrderingKey, contract.AttrFirstPublished: first.UTC().Format(time.RFC3339Nano),
			}})
			require.NoError(t, err)
		}
		send()
		send()
		return id
	}
	s.storeDown(true)
	late := reviewed(time.Now())
	s.until(t, late, "retry")
	s.storeDown(false)
	record := s.ends(t, "notifications-fanout", late)
	require.Equal(t, "fanned_out", record.Result)
	require.Len(t, record.Emitted, 1, "an e-mail, and nothing else")
	s.until(t, late, "duplicate")
	s.until(t, record.Emitted[0].EventID, "processed")
	require.Equal(t, 1, s.service.Applied(record.Emitted[0].EventID))

	stale := reviewed(time.Now().Add(-25 * time.Hour))
	s.untilMany(t, stale, "expired", 2)
	_, found := s.recordOf(t, "notifications-fanout", stale)
	require.False(t, found)
}
