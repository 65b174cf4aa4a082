package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
)

var errNotGranted = errors.New("permission denied")

// granted is a broker that lets an account publish where it may, and nowhere else.
type granted struct {
	topics []string
	mu     sync.Mutex
	// taken and refused are the topics, in order.
	taken, refused []string
}

func (g *granted) Publish(_ context.Context, topic string, _ contract.Message) (string, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.topics, topic) {
		g.refused = append(g.refused, topic)
		return "", errNotGranted
	}
	g.taken = append(g.taken, topic)
	return "1", nil
}

// did are the topics that were published to since it was asked last, and those refused.
func (g *granted) did() (taken, refused []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	taken, refused, g.taken, g.refused = g.taken, g.refused, nil, nil
	return taken, refused
}

// TestWhatAWorkerMayPublishIsEnough runs the queues as two pools, each worker with the grants
// that Terraform gives it: sales what its handlers emit and its dead letters, and news, which
// runs the tasks, every queue and its own dead letters.
func TestWhatAWorkerMayPublishIsEnough(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	base := config(t, func(c *worker.Config) { c.Now = func() time.Time { return now } })
	events, _ := base.Catalog.HandledBy("points.credit")
	updates, _ := base.Catalog.EmitsTo("subscriptions.record")
	for i, q := range base.Catalog.Queues {
		base.Catalog.Queues[i].Pool = map[string]string{events.ID: "sales", updates.ID: "news"}[q.ID]
	}
	start := func(pool string, topics ...string) (http.Handler, *granted) {
		c, broker := base, &granted{topics: topics}
		c.Pool, c.Publisher = pool, broker
		w, err := worker.New(c)
		require.NoError(t, err)
		return w, broker
	}
	sales, salesBroker := start("sales", updates.Topic(), events.DeadLetter.Topic)
	news, newsBroker := start("news", events.Topic(), updates.Topic(), updates.DeadLetter.Topic)
	did := func(b *granted, taken, refused []string) {
		t.Helper()
		gotTaken, gotRefused := b.did()
		require.Equal(t, taken, gotTaken)
		require.Equal(t, refused, gotRefused)
	}
	ask := func(h http.Handler, method, path, body string, into any) int {
		t.Helper()
		answer := asked(h, method, path, body)
		if into != nil {
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), into), answer.Body.String())
		}
		return answer.Code
	}

	// What a handler emits.
	require.Equal(t, 200, posted(t, sales, events.PushPath(), contract.Of(&contract.PayNow{
		EventID: "renewed", EventType: contract.SubscriptionRenewed, Timestamp: "2026-03-02T10:15:00Z",
		Data: contract.PayNowData{Subscription: &contract.Subscription{ID: "subscription", CustomerID: "customer"}},
	})))
	did(salesBroker, []string{updates.Topic()}, nil)

	// A dead letter, here and there.
	order := contract.Of(&contract.PayNow{
		EventID: "paid", EventType: contract.OrderPaid, Timestamp: "2026-03-02T10:15:00Z",
		Data: contract.PayNowData{Order: &contract.Order{ID: "order", CustomerID: "customer", Items: []contract.Item{{ProductID: "999999999999999999", Quantity: 1}}}},
	})
	require.Equal(t, 400, posted(t, sales, events.PushPath(), order))
	did(salesBroker, []string{events.DeadLetter.Topic}, nil)
	require.Equal(t, 200, posted(t, news, updates.PushPath(), contract.Of(&contract.Envelope{
		ID: "update", Action: "no such action", CreatedAt: "2026-03-02T10:15:00Z", Payload: contract.Payload{SubscriptionID: "subscription"},
	})))
	did(newsBroker, []string{updates.DeadLetter.Topic}, nil)

	// A replay through the worker that runs the tasks publishes at once. Through another it is
	// written down, and its publishing left to the task.
	replay := func(through http.Handler, id string) {
		t.Helper()
		data, err := order.Append(nil)
		require.NoError(t, err)
		fresh, err := deadletter.Keep(t.Context(), base.Store, events, contract.Message{Data: data, Attributes: map[string]string{
			"event_id": "paid", deadletter.AttrSourceMessageID: id,
		}}, id, now)
		require.NoError(t, err)
		require.True(t, fresh)
		now = now.Add(time.Second)
		var op deadletter.Operation
		require.Equal(t, 201, ask(through, http.MethodPost, "/v1/ops/dead-letters/replay", `{"queue":"`+events.ID+`","expect":1,"why":"mended"}`, &op))
		require.Equal(t, 200, ask(through, http.MethodPost, "/v1/ops/operations/"+op.ID+"/run", "", &op))
		require.Equal(t, deadletter.Finished, op.Progress)
	}
	replay(news, "m-1")
	did(newsBroker, []string{events.Topic()}, nil)
	replay(sales, "m-2")
	did(salesBroker, nil, []string{events.Topic()})
	now = now.Add(time.Minute)
	require.Equal(t, 200, ask(news, http.MethodPost, "/tasks/relay-outbox", "", nil))
	did(newsBroker, []string{events.Topic()}, nil)
}
