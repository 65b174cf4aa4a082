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

// letters is the counting task over a store, and an operator over the same.
type letters struct {
	*rig
	store *storetest.Counter
	ids   int
}

func newLetters(t *testing.T) *letters {
	t.Helper()
	counter := &storetest.Counter{Store: storetest.Open(t)}
	l := &letters{rig: rigOn(counter), store: counter}
	queue := func(id string, enabled bool, letter catalog.DeadLetter) catalog.Queue {
		letter.Topic, letter.Retention = id+"-dlq", 14*24*time.Hour
		return catalog.Queue{ID: id, Enabled: enabled, DeadLetter: letter}
	}
	l.service.Catalog.Queues = []catalog.Queue{
		queue("orders", true, catalog.DeadLetter{}), queue("clicks", true, catalog.DeadLetter{Drop: true}),
		queue("refunds", true, catalog.DeadLetter{AlertAbove: 5}), queue("asleep", false, catalog.DeadLetter{}),
	}
	l.service.Operator.Queue = l.service.Catalog.Queue
	return l
}

// bury keeps a dead letter and returns its event's id.
func (l *letters) bury(t *testing.T, queue string) string {
	t.Helper()
	l.ids++
	id := fmt.Sprint("e", l.ids)
	q, _ := l.service.Catalog.Queue(queue)
	_, err := deadletter.Keep(t.Context(), l.store, q, contract.Message{Data: []byte("ilse@example.org"), Attributes: map[string]string{
		"event_id": id, "event_type": "order.paid", "dead_letter_reason": "unknown_product",
	}}, fmt.Sprint("m", l.ids), l.now)
	require.NoError(t, err)
	return id
}

// operate replays or discards the dead letter of an event.
func (l *letters) operate(t *testing.T, kind deadletter.Kind, queue, event string) {
	t.Helper()
	op, err := l.service.Operator.Begin(t.Context(), deadletter.Operation{Kind: kind, Filter: deadletter.Filter{Queue: queue, EventID: event}, Why: "the drill"}, audit.Author{Proof: audit.Identity, Name: "ilse"}, 1)
	require.NoError(t, err)
	op, err = l.service.Operator.Run(t.Context(), op.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, op.Done)
}

// counted calls the task and returns its lines, a queue's each: open, and the oldest's age.
func (l *letters) counted(t *testing.T) []string {
	t.Helper()
	l.log.Reset()
	code, _ := l.call(t, "count-dead-letters")
	require.Equal(t, http.StatusOK, code, l.log.String())
	var lines []string
	for line := range strings.Lines(l.log.String()) {
		if _, rest, found := strings.Cut(line, `"msg":"open dead letters",`); found {
			lines = append(lines, strings.TrimSuffix(rest, "}\n"))
		}
	}
	require.NotContains(t, l.log.String(), "ilse")
	return lines
}

func line(queue string, open, oldest int) string {
	return fmt.Sprintf(`"queue":%q,"open":%d,"more":false,"oldest_seconds":%d`, queue, open, oldest)
}

func TestADeadLetterIsCountedUntilItIsDealtWith(t *testing.T) {
	t.Parallel()
	l := newLetters(t)
	none := []string{line("orders", 0, 0), line("refunds", 0, 0), line("asleep", 0, 0)}
	require.Equal(t, none, l.counted(t), "a queue that drops has none, one that is not enabled may have some")

	first := l.bury(t, "orders")
	l.now = start.Add(time.Minute)
	require.Equal(t, line("orders", 1, 60), l.counted(t)[0])
	second := l.bury(t, "orders")
	l.bury(t, "asleep")
	l.now = start.Add(2 * time.Minute)
	require.Equal(t, []string{line("orders", 2, 120), line("refunds", 0, 0), line("asleep", 1, 60)}, l.counted(t))
	for _, metric := range []string{
		`billhook_dead_letters_open{queue="orders"} 2`, `billhook_dead_letters_oldest_seconds{queue="orders"} 120`,
		`billhook_dead_letters_open{queue="refunds"} 0`, `billhook_dead_letters_open{queue="asleep"} 1`,
	} {
		l.measured(t, metric)
	}

	l.operate(t, deadletter.Replay, "orders", first)
	require.Equal(t, line("orders", 1, 60), l.counted(t)[0], "the oldest is another now")
	l.operate(t, deadletter.Discard, "orders", second)
	require.Equal(t, line("orders", 0, 0), l.counted(t)[0])
	l.measured(t, `billhook_dead_letters_oldest_seconds{queue="orders"} 0`)

	for range 31 {
		l.bury(t, "orders")
	}
	gets, queries, commits := l.store.Gets.Load(), l.store.Queries.Load(), l.store.Commits.Load()
	l.counted(t)
	require.Equal(t, []int64{0, 3 + 2, 0}, []int64{l.store.Gets.Load() - gets, l.store.Queries.Load() - queries, l.store.Commits.Load() - commits},
		"a query for each queue that keeps dead letters, and one for the oldest where there is one, however many there are")
}
