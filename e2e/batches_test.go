package e2e_test

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
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

// recordOf is the record of a tenant's event of a queue; ok reports whether there is one.
func (s *stack) recordOf(t *testing.T, queue, tenant, id string) (record dedupe.Record, ok bool) {
	t.Helper()
	doc, err := s.store.Get(t.Context(), dedupe.Key(queue, tenant, id))
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
	return s.endsOf(t, queue, dedupe.DefaultTenant, id)
}

// endsOf waits for the end of a tenant's event.
func (s *stack) endsOf(t *testing.T, queue, tenant, id string) (record dedupe.Record) {
	t.Helper()
	require.Eventually(t, func() bool {
		record, _ = s.recordOf(t, queue, tenant, id)
		return record.Status == dedupe.Completed || record.Status == dedupe.DeadLettered
	}, patience, pollInterval, "%s %s %s", queue, tenant, id)
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
