package worker_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/stretchr/testify/require"

	"billhook/internal/apps/endpoints"
	"billhook/internal/compose/worker"
	"billhook/internal/console/ops"
)

// TestAnAlarmThatRingsEarlyForTheOtherWorker: a task of the alarm comes when the clock of the worker that has asked
// for it says so, and may come to the other one. That finds nothing due, and its message is released by the
// scheduler's minute: once, and five minutes late at most.
func TestAnAlarmThatRingsEarlyForTheOtherWorker(t *testing.T) {
	t.Parallel()
	count, alarm := &tally{fails: 1}, &recorder{}
	a := newApart(t, fiveMinutes, func(c *worker.Config) {
		ours(count.tx, nil)(c)
		c.Alarm = alarm
	})
	code, _, _ := a.deliver(a.ahead, "ours", confirmed(t, "e1", nil))
	require.Equal(t, http.StatusOK, code, "it is kept")
	require.Len(t, *alarm, 1)
	a.clock.Next((*alarm)[0].Add(-fiveMinutes).Sub(a.clock.Now())) // it rings
	for minute := range 6 {
		a.task(a.behind, "release-delayed")
		back := a.broker.take("ours")
		if minute < 5 {
			require.Empty(t, back, "nothing is due for this worker")
			a.clock.Next(time.Minute)
			continue
		}
		require.Len(t, back, 1, "the minute when it is due for this worker, too")
		_, outcome, _ := a.deliver(a.behind, "ours", back[0])
		require.Equal(t, "processed", outcome)
	}
	a.task(a.ahead, "release-delayed")
	require.Empty(t, a.broker.take("ours"))
	require.Equal(t, 2, count.calls)
}

// TestADeadLetterBetweenClocksFiveMinutesApart: a worker forgets a dead letter five minutes before the other does,
// whichever of them has kept it.
func TestADeadLetterBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, keeps string, keeper func(*apart) *worker.Worker) {
		a := newApart(t, fiveMinutes, ours((&tally{}).tx, nil))
		a.deliver(a.behind, "ours", message(t, "e1", "order.cancelled", map[string]any{"order_id": "o", "reason": "no"}, nil))
		for _, m := range a.broker.take("ours-dlq") {
			code, _, _ := a.deliver(keeper(a), "dead-letters/ours", m)
			require.Equal(t, http.StatusNoContent, code)
		}
		listed := func(w http.Handler) int {
			var list struct{ Items []any }
			answered(t, w, "/v1/ops/dead-letters?queue=ours&state=open", &list)
			return len(list.Items)
		}
		forgets := 14 * 24 * time.Hour // for the worker behind
		if keeps == "ahead" {
			forgets += fiveMinutes
		}
		a.clock.Next(forgets - fiveMinutes - time.Second)
		require.Equal(t, []int{1, 1}, []int{listed(a.behind), listed(a.ahead)})
		a.clock.Next(time.Second)
		require.Equal(t, []int{1, 0}, []int{listed(a.behind), listed(a.ahead)})
		a.clock.Next(fiveMinutes - time.Second)
		require.Equal(t, 1, listed(a.behind))
		a.clock.Next(time.Second)
		require.Equal(t, 0, listed(a.behind))
	})
}

// TestAnOldSecretBetweenClocksFiveMinutesApart: a worker signs with the secret before a rotation for five minutes
// longer than the other. The new one signs from the rotation on, so no receiver is left without a signature.
func TestAnOldSecretBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	either(t, func(t *testing.T, rotates string, rotator func(*apart) *worker.Worker) {
		var signatures string
		partner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { signatures = r.Header.Get("webhook-signature") }))
		defer partner.Close()
		a := newApart(t, fiveMinutes, func(c *worker.Config) { c.PrivateEndpoints = true })
		does := func(w http.Handler, path, body string) {
			t.Helper()
			answer := asked(w, http.MethodPost, "/v1/ops/endpoints"+path, body)
			require.Less(t, answer.Code, 300, "%s", answer.Body)
		}
		added, err := json.Marshal(ops.AddEndpoint{New: endpoints.New{ID: "partner", Tenant: "acme", URL: partner.URL, Events: []string{"order.#"}}, Change: endpoints.Change{Why: "a partner"}})
		require.NoError(t, err)
		does(a.behind, "", string(added))
		does(rotator(a), "/partner/rotate", `{"why":"due"}`)
		signs := func(w http.Handler) int {
			signatures = ""
			does(w, "/partner/test", "")
			return strings.Count(signatures, "v1,")
		}
		ends := 24 * time.Hour // for the worker behind
		if rotates == "ahead" {
			ends += fiveMinutes
		}
		a.clock.Next(ends - fiveMinutes - time.Second)
		require.Equal(t, []int{2, 2}, []int{signs(a.behind), signs(a.ahead)})
		a.clock.Next(time.Second)
		require.Equal(t, []int{2, 1}, []int{signs(a.behind), signs(a.ahead)})
		a.clock.Next(fiveMinutes)
		require.Equal(t, []int{1, 1}, []int{signs(a.behind), signs(a.ahead)})
	})
}
