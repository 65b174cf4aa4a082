package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/mirror"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func (r *rig) bury(t *testing.T, queue, event string) {
	t.Helper()
	q, _ := r.service.Catalog.Queue(queue)
	dead := contract.Message{Data: []byte("ilse@example.org"), Attributes: map[string]string{
		"event_id": event, "event_type": "order.paid", "dead_letter_reason": "unknown_product",
	}}
	require.NoError(t, filetest.ErrorOf(deadletter.Keep(t.Context(), r.db, q, dead, "m-"+event, r.now)))
}

// counted calls the task and returns its lines, one of each queue.
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

func TestDeadLetterIsCountedWhileItIsOpen(t *testing.T) {
	t.Parallel()
	counter := &storetest.Counter{Store: storetest.Open(t)}
	r := rigOn(counter)
	r.service.Catalog.Queues = nil
	for id, dead := range map[string]catalog.DeadLetter{"orders": {}, "clicks": {Drop: true}, "asleep": {}} {
		dead.Retention = 14 * 24 * time.Hour
		r.service.Catalog.Queues = append(r.service.Catalog.Queues,
			catalog.Queue{ID: id, Enabled: id != "asleep", DeadLetter: dead})
	}
	count := func(orders, oldest, asleep, oldestAsleep int) {
		t.Helper()
		const line = `"queue":%q,"open":%d,"more":false,"oldest_seconds":%d`
		require.ElementsMatch(t, []string{
			fmt.Sprintf(line, "orders", orders, oldest), fmt.Sprintf(line, "asleep", asleep, oldestAsleep),
		}, r.counted(t))
		r.measured(t, fmt.Sprintf(`billhook_dead_letters_open{queue="orders"} %d`, orders))
		r.measured(t, fmt.Sprintf(`billhook_dead_letters_oldest_seconds{queue="orders"} %d`, oldest))
	}
	count(0, 0, 0, 0) // a queue that drops dead letters has none, a disabled one may have some
	r.bury(t, "orders", "e1")
	r.now = start.Add(time.Minute)
	r.bury(t, "orders", "e2")
	r.bury(t, "asleep", "e3")
	r.now = start.Add(2 * time.Minute)
	count(2, 120, 1, 60)
	for _, doc := range storetest.All(t, r.db, deadletter.Collection) {
		if item := filetest.Must(deadletter.ItemOf(doc))(t); item.EventID == "e1" {
			storetest.Put(t, r.db, item.Dealt(deadletter.Act{Kind: deadletter.Discard}))
		}
	}
	count(1, 60, 1, 60) // the oldest is another now

	for i := range 31 {
		r.bury(t, "orders", fmt.Sprint("many-", i))
	}
	gets, queries, commits := counter.Gets.Load(), counter.Queries.Load(), counter.Commits.Load()
	r.counted(t)
	require.Equal(t, []int64{0, 2 + 2, 0},
		[]int64{counter.Gets.Load() - gets, counter.Queries.Load() - queries, counter.Commits.Load() - commits},
		"two queries for each queue that keeps dead letters")
}

type meter struct {
	held map[string]backlog.Held
	at   time.Time
	err  error
}

func (m meter) Backlogs(context.Context) (map[string]backlog.Held, time.Time, error) {
	return m.held, m.at, m.err
}

func TestBacklogsOfQueuesAreStoredInOneDocument(t *testing.T) {
	t.Parallel()
	type row struct {
		meter   backlog.Counter
		answer  string
		status  int
		written map[string]int64
	}
	filetest.Each(t, map[string]row{
		"counted": {
			meter{
				map[string]backlog.Held{
					"orders-push": {Messages: 7, Oldest: start.Add(-time.Hour)}, "clicks-push": {},
					"asleep-push": {Messages: 9}, "orders-dlq-push": {Messages: 3},
				}, start.Add(-time.Minute), nil,
			},
			`{"queues":3,"messages":16,"kept":1,"pauses_undone":0}`, http.StatusOK,
			map[string]int64{"orders": 7, "clicks": 0, "asleep": 9},
		},
		"the broker knows no subscription": {
			meter{map[string]backlog.Held{}, start, nil},
			`{"queues":0,"messages":0,"kept":0,"pauses_undone":0}`,
			http.StatusOK, nil,
		},
		"without a counter": {
			nil, `{"queues":0,"messages":0,"kept":0,"pauses_undone":0}`, http.StatusOK, nil,
		},
		"the broker denies it": {
			meter{err: errors.New("denied")}, `"code":"task_failed"`, http.StatusServiceUnavailable, nil,
		},
	}, func(t *testing.T, test row) {
		r := newRig(t)
		counter := &storetest.Counter{Store: r.db}
		ingest := storetest.Open(t)
		r.service.Store, r.service.Backlogs, r.service.Ingest = counter, test.meter, &mirror.Mirror{Copies: ingest}
		r.service.Catalog.Queues = []catalog.Queue{
			{ID: "orders", Enabled: true},
			{ID: "clicks", Enabled: true},
			{ID: "asleep"},
			{ID: "unseen", Enabled: true},
		}
		code, body := r.call(t, "count-backlogs")
		require.Equal(t, test.status, code)
		require.Contains(t, body, test.answer)
		require.Contains(t, r.log.String(), `"task":"count-backlogs"`)
		counted := filetest.Must(backlog.Read(t.Context(), r.db))(t)
		require.Equal(t, test.written, counted.Messages)
		if test.written != nil {
			require.Equal(t, start.Add(-time.Minute), counted.At, "the time of the count, not of the task")
			require.Equal(t, map[string]time.Time{"orders": start.Add(-time.Hour)}, counted.Oldest)
			require.Equal(t, int64(1), counter.Written.Load())
			require.Equal(t, counted, filetest.Must(backlog.Read(t.Context(), ingest))(t), "for the webhook service")
			r.measured(t, `billhook_backlog_messages{queue="orders"} 7`)
		}
	})
}

// subscription is the state of a queue's subscription; empty: it cannot be read.
type subscription pause.Standing

func (s subscription) Standing(context.Context, catalog.Queue) (pause.Standing, error) {
	if s == "" {
		return pause.Unknown, errors.New("PermissionDenied")
	}
	return pause.Standing(s), nil
}

func TestUndonePauseIsALogLineForTheAlert(t *testing.T) {
	t.Parallel()
	type row struct {
		state  pause.Standing
		since  time.Duration
		undone int
		line   string
	}
	filetest.Each(t, map[string]row{
		"it holds":                        {pause.Paused, time.Hour, 0, ""},
		"it pushes":                       {pause.Pushing, time.Hour, 1, "pause undone"},
		"it is marked and pushes":         {pause.Undone, time.Hour, 1, "pause undone"},
		"it has no endpoint and no mark":  {pause.Unmarked, time.Hour, 0, ""},
		"it was made a moment ago":        {pause.Pushing, time.Second, 0, ""},
		"it cannot be read":               {"", time.Hour, 0, "pause not seen"},
		"it has no subscription":          {pause.Missing, time.Hour, 0, ""},
		"its time to take effect is over": {pause.Pushing, time.Minute, 1, "pause undone"},
	}, func(t *testing.T, test row) {
		r := newRig(t)
		r.service.Catalog = &catalog.Catalog{Queues: []catalog.Queue{{ID: "orders", Enabled: true}}}
		r.service.Subscriptions = subscription(test.state)
		record := pause.Pause{Queue: "orders", Who: "ada", Why: "w", At: start.Add(-test.since)}
		storetest.Put(t, r.db, store.Create(store.Key{Collection: pause.Collection, ID: "orders"},
			store.Encode(&record)))
		code, body := r.call(t, "count-backlogs")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, body, fmt.Sprintf(`"pauses_undone":%d`, test.undone))
		if test.line == "" {
			require.NotContains(t, r.log.String(), `"msg":"pause`)
			return
		}
		require.Contains(t, r.log.String(), `"msg":"`+test.line+`","queue":"orders"`)
	})
}

// booked posts an entry that was made a minute before the clock, with the record of its event.
func (r *rig) booked(t *testing.T, event string) store.Key {
	t.Helper()
	write := r.entry(t, event)
	storetest.Put(t, r.db, write, sealtest.Record(t, "books", write))
	return write.Key
}

func (r *rig) entry(t *testing.T, event string) store.Write {
	t.Helper()
	return filetest.Must(ledger.Post(ledgertest.Sale("acme", event, "2026-03", 7,
		r.now.Add(-time.Minute))))(t)[0]
}

func TestJournalIsSealedAndTheRestIsCounted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.booked(t, "a")
	sealed := r.booked(t, "b")
	r.done(t, "seal-journal",
		`{"entries":2,"seals":1,"raced":0,"unreadable":0,"unfounded":0,"more":false,"oldest_seconds":0}`)
	r.measured(t, `billhook_sealed_entries_total 2`)
	r.measured(t, `billhook_unsealed_oldest_seconds 0`)

	key := r.booked(t, "c")
	doc := storetest.Get(t, r.db, key)
	// somebody has changed an entry, and added one without the record of an event
	doc.Fields["period"] = "2026-04"
	storetest.Put(t, r.db, store.Set(key, doc.Fields), r.entry(t, "invented"))
	r.done(t, "seal-journal",
		`{"entries":0,"seals":0,"raced":0,"unreadable":1,"unfounded":1,"more":false,"oldest_seconds":60}`)
	r.measured(t, `billhook_unsealed_oldest_seconds 60`)
	r.measured(t, `billhook_unsealed_unreadable 1`)
	r.measured(t, `billhook_unsealed_unfounded 1`)

	// The change is found within a day, and is reported.
	verified := func(begun time.Time, found int) {
		t.Helper()
		r.done(t, "verify-books", fmt.Sprintf(`{"begun_at":%[1]q,"finished_at":%[1]q,"seals":1,"entries":2,`+
			`"unsealed":1,"accounts":0,"found":%[2]d,"running":false}`,
			begun.Format(time.RFC3339), found))
		r.measured(t, fmt.Sprintf("billhook_books_findings %d", found))
	}
	doc = storetest.Get(t, r.db, sealed)
	was, begun := maps.Clone(doc.Fields), r.now
	doc.Fields["rule"] = "another"
	storetest.Put(t, r.db, store.Set(sealed, doc.Fields))
	verified(begun, 3) // with the two that are not sealed
	require.Contains(t, r.log.String(), `"level":"ERROR","msg":"books do not verify","tenant":"acme",`+
		`"kind":"changed","document":"`+sealed.String()+`"`)
	r.now = r.now.Add(23 * time.Hour)
	storetest.Put(t, r.db, store.Set(sealed, was))
	verified(begun, 3)
	r.now = r.now.Add(time.Hour)
	verified(r.now, 2)
}
