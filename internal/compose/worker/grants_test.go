package worker_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
)

// TestWorkerPublishesWithTheGrantsOfTerraform runs the queues as two pools, each worker with the grants that Terraform
// gives it: sales what its handlers emit and its dead letters, and news, which runs the tasks, every queue and its own
// dead letters.
func TestWorkerPublishesWithTheGrantsOfTerraform(t *testing.T) {
	t.Parallel()
	now := morning
	base := config(t, func(c *worker.Config) { c.Now = func() time.Time { return now } })
	events, _ := base.Catalog.HandledBy("points.credit")
	updates, _ := base.Catalog.EmitsTo("subscriptions.record")
	for i, q := range base.Catalog.Queues {
		base.Catalog.Queues[i].Pool = map[string]string{events.ID: "sales", updates.ID: "news"}[q.ID]
	}
	start := func(pool string, topics ...string) (http.Handler, *shelves) {
		c, broker := base, &shelves{granted: topics}
		c.Pool, c.Publisher = pool, broker
		w, err := worker.New(c)
		require.NoError(t, err)
		return w, broker
	}
	sales, salesBroker := start("sales", updates.Topic(), events.DeadLetter.Topic)
	news, newsBroker := start("news", events.Topic(), updates.Topic(), updates.DeadLetter.Topic)
	did := func(b *shelves, taken, refused []string) {
		t.Helper()
		var got []string
		for _, p := range b.all() {
			got = append(got, p.topic)
		}
		require.Equal(t, [][]string{taken, refused}, [][]string{got, b.refused})
		b.refused = nil
	}
	ask := func(want int, h http.Handler, path, body string, into any) {
		t.Helper()
		answer := asked(h, http.MethodPost, path, body)
		require.Equal(t, want, answer.Code, answer.Body.String())
		if into != nil {
			require.NoError(t, json.Unmarshal(answer.Body.Bytes(), into))
		}
	}
	push := func(want int, w http.Handler, path string, body contract.Body) {
		t.Helper()
		code, reason := posted(t, w, path, body)
		require.Equal(t, want, code, reason)
	}

	// What a handler emits, and a dead letter here and there.
	push(200, sales, events.PushPath(), contract.Of(&contract.PayNow{
		EventID: "renewed", EventType: contract.SubscriptionRenewed, Timestamp: "2026-03-02T10:15:00Z",
		Data: contract.PayNowData{Subscription: &contract.Subscription{ID: "subscription", CustomerID: "customer"}},
	}))
	did(salesBroker, []string{updates.Topic()}, nil)
	order := paidOrder("paid", "customer", "999999999999999999")
	push(400, sales, events.PushPath(), order)
	did(salesBroker, []string{events.DeadLetter.Topic}, nil)
	push(200, news, updates.PushPath(), asks("update", "no such action", contract.Payload{SubscriptionID: "subscription"}))
	did(newsBroker, []string{updates.DeadLetter.Topic}, nil)

	// A replay through the worker that runs the tasks publishes at once. Through another it is written down, and its
	// publishing left to the task.
	replay := func(through http.Handler, id string) {
		t.Helper()
		data, err := order.Append(nil)
		require.NoError(t, err)
		attributes := map[string]string{"event_id": "paid", deadletter.AttrSourceMessageID: id}
		_, err = deadletter.Keep(t.Context(), base.Store, events, contract.Message{Data: data, Attributes: attributes}, id, now)
		require.NoError(t, err)
		now = now.Add(time.Second)
		var op deadletter.Operation
		ask(201, through, "/v1/ops/dead-letters/replay", `{"queue":"`+events.ID+`","expect":1,"why":"mended"}`, &op)
		ask(200, through, "/v1/ops/operations/"+op.ID+"/run", "", &op)
		require.Equal(t, deadletter.Finished, op.Progress)
	}
	replay(news, "m-1")
	did(newsBroker, []string{events.Topic()}, nil)
	replay(sales, "m-2")
	did(salesBroker, nil, []string{events.Topic()})
	now = now.Add(time.Minute)
	ask(200, news, "/tasks/relay-outbox", "", nil)
	did(newsBroker, []string{events.Topic()}, nil)
}
