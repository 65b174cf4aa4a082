package tasks_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store/storetest"
)

// bury keeps a dead letter of an event.
func (r *rig) bury(t *testing.T, queue, event string) {
	t.Helper()
	q, _ := r.service.Catalog.Queue(queue)
	_, err := deadletter.Keep(t.Context(), r.db, q, contract.Message{Data: []byte("ilse@example.org"), Attributes: map[string]string{
		"event_id": event, "event_type": "order.paid", "dead_letter_reason": "unknown_product",
	}}, "m-"+event, r.now)
	require.NoError(t, err)
}

// counted calls the task and returns its lines, a queue's each: open, and the oldest's age.
func (r *rig) counted(t *testing.T) (lines []string) {
	t.Helper()
	r.log.Reset()
	code, _ := r.call(t, "count-dead-letters")
	require.Equal(t, http.StatusOK, code, r.log.String())
	for line := range strings.Lines(r.log.String()) {
		if _, rest, found := strings.Cut(line, `"msg":"open dead letters",`); found {
			lines = append(lines, strings.TrimSuffix(rest, "}\n"))
		}
	}
	require.NotContains(t, r.log.String(), "ilse")
	return lines
}

func TestADeadLetterIsCountedUntilItIsDealtWith(t *testing.T) {
	t.Parallel()
	counter := &storetest.Counter{Store: storetest.Open(t)}
	r := rigOn(counter)
	r.service.Catalog.Queues = nil
	for id, letter := range map[string]catalog.DeadLetter{"orders": {}, "clicks": {Drop: true}, "asleep": {}} {
		letter.Retention = 14 * 24 * time.Hour
		r.service.Catalog.Queues = append(r.service.Catalog.Queues, catalog.Queue{ID: id, Enabled: id != "asleep", DeadLetter: letter})
	}
	r.service.Operator.Queue = r.service.Catalog.Queue
	stand := func(orders, oldest, asleep, oldestAsleep int) {
		t.Helper()
		const line = `"queue":%q,"open":%d,"more":false,"oldest_seconds":%d`
		require.ElementsMatch(t, []string{fmt.Sprintf(line, "orders", orders, oldest), fmt.Sprintf(line, "asleep", asleep, oldestAsleep)}, r.counted(t))
		r.measured(t, fmt.Sprintf(`billhook_dead_letters_open{queue="orders"} %d`, orders))
		r.measured(t, fmt.Sprintf(`billhook_dead_letters_oldest_seconds{queue="orders"} %d`, oldest))
	}
	stand(0, 0, 0, 0) // a queue that drops has none, one that is not enabled may have some
	r.bury(t, "orders", "e1")
	r.now = start.Add(time.Minute)
	r.bury(t, "orders", "e2")
	r.bury(t, "asleep", "e3")
	r.now = start.Add(2 * time.Minute)
	stand(2, 120, 1, 60)
	op, err := r.service.Operator.Begin(t.Context(), deadletter.Operation{
		Kind: deadletter.Discard, Filter: deadletter.Filter{Queue: "orders", EventID: "e1"}, Why: "the drill",
	}, audit.Author{Proof: audit.Identity, Name: "ilse"}, 1)
	require.NoError(t, err)
	_, err = r.service.Operator.Run(t.Context(), op.ID)
	require.NoError(t, err)
	stand(1, 60, 1, 60) // the oldest is another now

	for i := range 31 {
		r.bury(t, "orders", fmt.Sprint("many-", i))
	}
	gets, queries, commits := counter.Gets.Load(), counter.Queries.Load(), counter.Commits.Load()
	r.counted(t)
	require.Equal(t, []int64{0, 2 + 2, 0}, []int64{counter.Gets.Load() - gets, counter.Queries.Load() - queries, counter.Commits.Load() - commits},
		"a query for each queue that keeps dead letters, and one for the oldest where there is one, however many there are")
}
