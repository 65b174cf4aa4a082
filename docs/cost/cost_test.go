package cost_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/rates"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

var update = flag.Bool("update", false, "write the tables in docs/deploying.md and terraform/README.md anew")

// nowhere is a publisher that nothing should be published to.
type nowhere struct{}

func (nowhere) Publish(context.Context, string, contract.Message) (string, error) {
	return "", errors.New("nothing was to be published")
}

// TestAnIdleTaskCostsItsDeclaredReadsAndLines counts the store's operations and the log lines of
// each task.
func TestAnIdleTaskCostsItsDeclaredReadsAndLines(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	counter := &storetest.Counter{Store: db}
	var log bytes.Buffer
	service := &tasks.Service{
		Catalog: c, Store: counter, Outbox: &lane.Relay{Of: lane.Outbox, Store: counter, Publisher: nowhere{}, Now: time.Now},
		Delayed:  &lane.Relay{Of: lane.Delayed, Store: counter, Publisher: nowhere{}, Now: time.Now},
		Operator: &deadletter.Operator{Store: counter, Queue: c.Queue, Now: time.Now, NewID: uuid.NewString},
		Log:      slog.New(slog.NewJSONHandler(&log, nil)), Metrics: telemetry.NewMetrics(), Now: time.Now, Backlogs: meter{c},
	}
	router := chi.NewRouter()
	service.Routes(router)
	configuration, err := os.ReadFile(filepath.Join("..", "..", "terraform", "main.tf"))
	require.NoError(t, err)
	called, err := runsPerMonth(string(configuration))
	require.NoError(t, err)
	require.NotContains(t, called, "cleanup", "that is TTL's")
	require.Len(t, called, len(tasks.Names)-1)
	for task := range called {
		// A day's first run of verify-books verifies; the idle ones look whether the day is over.
		router.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tasks/"+task, nil))
		log.Reset()
		reads, writes := counter.Gets.Load()+counter.Queries.Load(), counter.Written.Load()
		answer := httptest.NewRecorder()
		router.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tasks/"+task, nil))
		require.Equal(t, http.StatusOK, answer.Code)
		want := idleRun(task, letterQueues(c))
		require.Equal(t, want.reads, int(counter.Gets.Load()+counter.Queries.Load()-reads), task)
		require.Equal(t, want.writes, int(counter.Written.Load()-writes), task)
		require.Equal(t, want.lines, bytes.Count(log.Bytes(), []byte("\n")), task)
	}
}

func TestAddingWhatWasCountedCostsItsDeclaredReadsAndWrites(t *testing.T) {
	t.Parallel()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	counter := &storetest.Counter{Store: db}
	r := rates.NewRecorder(rates.Config{Store: counter, Self: rates.Service{Instance: "i1"}, Now: time.Now})
	for range 1000 {
		r.Arrived("orders")
	}
	require.NoError(t, r.Flush(t.Context()))
	require.EqualValues(t, flushReads, counter.Reads.Load())
	require.EqualValues(t, flushWrites, counter.Written.Load())
	require.Equal(t, 4*rates.FlushEvery, rates.SeenEvery, "a quarter, where there is nothing to count")
}

// meter counts nothing on every queue.
type meter struct{ catalog *catalog.Catalog }

func (m meter) Backlogs(context.Context) (map[string]backlog.Held, time.Time, error) {
	messages := map[string]backlog.Held{}
	for _, q := range m.catalog.Queues {
		messages[q.PushSubscription()] = backlog.Held{}
	}
	return messages, time.Now(), nil
}

func TestAnInstanceCostsATenthWithoutRequestsAndAsMuchMemory(t *testing.T) {
	t.Parallel()
	// By hand: 2,592,000 seconds of one vCPU and half a GiB, at 2.5 and at 24 millionths.
	require.InDelta(t, 9.72, idleMonth, 0.001)
	require.InDelta(t, 65.448, busyMonth, 0.001)
	c := &catalog.Catalog{Queues: []catalog.Queue{
		{ID: "orders", Pool: "orders", Enabled: true, Concurrency: 1, Priority: "high", MinInstances: 3, MaxInstances: 10},
		{ID: "refunds", Pool: "orders", Concurrency: 5, Priority: "high", MaxInstances: 2}, {ID: "search", Pool: "search", Enabled: true, Concurrency: 5, Priority: "low", MinInstances: 1, MaxInstances: 2},
		{ID: "books", Pool: "ledger", Concurrency: 250, Priority: "high", MinInstances: 1, MaxInstances: 10},
	}}
	table := poolTable(c, instances{1, 10})
	require.Contains(t, table, "| orders | orders, refunds | 6 | 1 to 10 | $9.72 | $654.48 |\n", "one, whatever the catalog says")
	require.Contains(t, table, "| search | search | 5 | 0 to 2 | $0.00 | $130.90 |\n", "nobody waits for it")
	require.Contains(t, table, "| ledger, not enabled | books | 250 | 1 to 10 | $9.72 | $654.48 |\n")
	require.Contains(t, table, "cost **$19.44** a month without requests, $48.60 with", "two instances, or five: what is not enabled costs nothing")
}

func TestTheInstancesAtTheDoorAreTerraforms(t *testing.T) {
	t.Parallel()
	n, err := atTheDoor("\nvariable \"webhook_scaling\" {\n  type = x\n  default     = { min = 2, max = 7 }\n}\n")
	require.NoError(t, err)
	require.Equal(t, instances{2, 7}, n)
	_, err = atTheDoor("nothing")
	require.ErrorContains(t, err, "terraform/variables.tf")
}

func TestASchedulesRunsAreThoseOfAMonthOfThirtyDays(t *testing.T) {
	t.Parallel()
	called, err := runsPerMonth("  tasks = {\n    a-task = \"* * * * *\"\n    b = \"*/5 * * * *\"\n  }\n")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"a-task": 43_200, "b": 8_640}, called)
	for _, text := range []string{"no tasks", "  tasks = {\n    a = \"0 * * * *\"\n  }\n", "  tasks = {\n  }\n"} {
		_, err := runsPerMonth(text)
		require.ErrorContains(t, err, "terraform/main.tf")
	}
}

func TestTheDocumentHasTheTableThatTheCommandWrites(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	documents, err := generate(root)
	require.NoError(t, err)
	for _, d := range documents {
		if *update {
			require.NoError(t, os.WriteFile(d.path, []byte(d.want), 0o644))
			continue
		}
		require.Equal(t, d.want, d.have, "run: go test ./docs/cost -update")
	}
}

func TestTheFreePartOfAMonthCostsNothing(t *testing.T) {
	t.Parallel()
	credit := operations{writes: 3, deletes: 1}
	// By hand: three million writes and a million deletes.
	require.InDelta(t, 5.60, price(1_000_000, credit, upkeep{}, 900).firestore, 0.001)
	require.Zero(t, price(1_000_000, credit, upkeep{}, 900).pubsub, "2 GB of 10 GiB")
	require.InDelta(t, 20_000_000-180_000, price(100_000_000, credit, upkeep{}, 900).cpu/cpuSecond, 0.01)
	// A hundred thousand reads more, and ten thousand requests of a tenth of a second.
	require.InDelta(t, 5.66, price(1_000_000, credit, upkeep{runs: 10_000, reads: 100_000}, 900).firestore, 0.001)
	require.InDelta(t, 21_000, price(1_000_000, credit, upkeep{runs: 10_000}, 900).cpu/cpuSecond, 0.01)
	// A hundred thousand writes more.
	require.InDelta(t, 5.78, price(1_000_000, credit, upkeep{writes: 100_000}, 900).firestore, 0.001)
	// 200 GB less 10 GiB.
	require.InDelta(t, (200e9-10*1024*1024*1024)/1024/1024/1024/1024*40, price(100_000_000, credit, upkeep{}, 900).pubsub, 0.001)
}

func TestAnAlarmIsATaskARequestAndTwoReads(t *testing.T) {
	t.Parallel()
	// By hand, a million of each: $0.80, $0.40, $2.40 and $0.125, $1.20.
	require.InDelta(t, 4.925, millionAlarms(), 0.001)
}

func TestAQueueWithoutRecordsSavesTwoWritesAndARemoval(t *testing.T) {
	t.Parallel()
	document := "| " + leasedRow + " | 0 | 2 | 2 |\n| " + lossyRow + " | 0 | 0 | 0 |\n"
	dollars, written, err := millionRecords(document)
	require.NoError(t, err)
	// By hand: two million writes at $1.80, and a million deletes at $0.20.
	require.InDelta(t, 3.80, dollars, 0.001)
	require.InDelta(t, 2, written, 0.001)
	_, _, err = millionRecords("")
	require.ErrorContains(t, err, "exactly-once.md")
}

func TestAMissingRowIsAnError(t *testing.T) {
	t.Parallel()
	_, err := parseOperations("| duplicate | 1 | 1, refused | 0 |\n")
	require.ErrorContains(t, err, "exactly-once.md")
	_, err = ofPools.insert("no marks", "x")
	require.Error(t, err)
}
