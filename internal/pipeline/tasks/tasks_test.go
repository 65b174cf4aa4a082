package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/tasks"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var start = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

type broker struct {
	mu    sync.Mutex
	down  bool
	taken []string // topic and ordering key
	last  contract.Message
}

func (b *broker) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.down {
		return "", errors.New("no answer from ilse@example.org")
	}
	b.taken, b.last = append(b.taken, topic+"/"+m.OrderingKey), m
	return fmt.Sprint(len(b.taken)), nil
}

type rig struct {
	db      store.Store
	faults  *storetest.Faults
	broker  *broker
	metrics *telemetry.Metrics
	service *tasks.Service
	router  chi.Router
	log     bytes.Buffer
	now     time.Time
}

func newRig(t *testing.T) *rig {
	t.Helper()
	return rigOn(storetest.Open(t))
}

func rigOn(db store.Store) *rig {
	r := &rig{
		db: db, faults: &storetest.Faults{Store: db}, broker: &broker{}, metrics: telemetry.NewMetrics(),
		router: chi.NewRouter(), now: start,
	}
	clock := func() time.Time { return r.now }
	queue := func(id string, enabled bool) catalog.Queue {
		return catalog.Queue{
			ID: id, Enabled: enabled, AckDeadline: time.Minute,
			Backoff: retry.Policy{Base: time.Second, Multiplier: 2, Max: 8 * time.Minute},
		}
	}
	books := catalog.Queue{
		ID: "books", Handlers: map[string]catalog.Handler{"*.*.*": {Name: catalog.JournalPost}},
		DeadLetter: catalog.DeadLetter{Drop: true},
	}
	r.service = &tasks.Service{
		Catalog:  &catalog.Catalog{Queues: []catalog.Queue{queue("again", true), queue("asleep", false), books}},
		Backlogs: meter{held: map[string]backlog.Held{"again-push": {Messages: 1}}, at: start},
		Store:    r.faults, Outbox: &lane.Relay{Of: lane.Outbox, Store: r.faults, Publisher: r.broker, Now: clock},
		Delayed: &lane.Relay{Of: lane.Delayed, Store: r.faults, Publisher: r.broker, Now: clock},
		Operations: func(ctx context.Context, _ int, _ *slog.Logger) (any, error) {
			_, err := r.faults.Query(ctx, store.Query{Collection: "audit", Limit: 1})
			return nil, err
		},
		Log: slog.New(slog.NewJSONHandler(&r.log, nil)), Metrics: r.metrics, Now: clock,
	}
	r.service.Routes(r.router)
	return r
}

func request(t *testing.T, to http.Handler, method, path string) (int, string) {
	t.Helper()
	answer := httptest.NewRecorder()
	to.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return answer.Code, answer.Body.String()
}

func (r *rig) call(t *testing.T, task string) (int, string) {
	t.Helper()
	return request(t, r.router, http.MethodPost, path.Join(tasks.Path, task))
}

func (r *rig) done(t *testing.T, task, want string) {
	t.Helper()
	code, body := r.call(t, task)
	require.Equal(t, http.StatusOK, code, body)
	require.JSONEq(t, want, body)
}

func (r *rig) measured(t *testing.T, line string) {
	t.Helper()
	_, page := request(t, r.metrics.Handler(), http.MethodGet, "/metrics")
	require.Contains(t, page, line+"\n")
}

func (r *rig) emit(t *testing.T, event string, keys ...string) {
	t.Helper()
	var effect handler.Effect
	for _, key := range keys {
		effect.Emit = append(effect.Emit,
			handler.Emission{To: "again", OrderingKey: key, Body: contract.Of(&contract.Envelope{Action: "renewal"})})
	}
	_, err := lane.Emit(declared, handler.Event{Queue: "q", Tenant: "default", ID: event}, &effect, r.now)
	require.NoError(t, err)
	storetest.Put(t, r.db, effect.Writes...)
}

// claim has a worker claim an event of a queue and die.
func (r *rig) claim(t *testing.T, queue, id string, keep bool) {
	t.Helper()
	once := dedupe.Once{
		Store: r.db, Now: func() time.Time { return r.now }, NewToken: func() string { return "token" },
	}
	run := once.Begin(dedupe.Key(queue, "default", id), dedupe.Record{Identity: dedupe.Identity{
		Queue: queue, Tenant: "default", EventID: id, PayloadHash: "h",
	}}, time.Hour)
	var message *contract.Message
	if keep {
		message = &contract.Message{
			Data: []byte("ilse@example.org"), Attributes: map[string]string{"event_id": id}, OrderingKey: id,
		}
	}
	require.NoError(t, filetest.ErrorOf(run.Claim(t.Context(), 2*time.Minute, message, false)))
}

func TestOutboxIsRelayed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.done(t, "relay-outbox", `{"lanes":0,"failed":0,"published":0,"more":false,"oldest_seconds":0}`)
	r.emit(t, "e1", "sub-1", "sub-1", "sub-2")
	r.done(t, "relay-outbox", `{"lanes":0,"failed":0,"published":0,"more":false,"oldest_seconds":0}`)
	r.now = start.Add(90 * time.Second)
	r.broker.down = true
	r.done(t, "relay-outbox", `{"lanes":2,"failed":2,"published":0,"more":false,"oldest_seconds":90}`)
	r.measured(t, "billhook_outbox_failures_total 2")
	r.measured(t, "billhook_outbox_oldest_seconds 90")
	r.broker.down = false
	r.done(t, "relay-outbox", `{"lanes":0,"failed":0,"published":0,"more":false,"oldest_seconds":90}`)
	r.now = start.Add(135 * time.Second)
	r.done(t, "relay-outbox", `{"lanes":2,"failed":0,"published":3,"more":false,"oldest_seconds":0}`)
	r.measured(t, "billhook_outbox_relayed_total 3")
	r.measured(t, "billhook_outbox_oldest_seconds 0")
	require.NotContains(t, r.log.String(), "sub-1", "a lane is named by its hash")
}

// TestOrphanIsPublishedAgainIfItsMessageIsKept: no redelivery can come more than ten minutes after the end of
// the lease: eight of backoff, one of the ack deadline, and one of margin.
func TestOrphanIsPublishedAgainIfItsMessageIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	shares := catalog.Queue{ID: "shares", Enabled: true, SharedTopic: "sales", Bindings: []routing.Pattern{"#"}}
	r.service.Catalog.Queues = append(r.service.Catalog.Queues, shares)
	r.claim(t, "again", "e1", true)
	r.claim(t, "again", "e2", false)
	r.claim(t, "asleep", "e4", true)
	r.claim(t, "nobody", "e5", true)
	r.now = start.Add(14*time.Minute - time.Microsecond)
	r.done(t, "sweep-leases", `{"republished":0,"reported":0,"failed":0,"more":false}`)
	require.Empty(t, r.broker.taken)
	r.now = start.Add(14 * time.Minute)
	r.broker.down = true
	r.done(t, "sweep-leases", `{"republished":0,"reported":3,"failed":1,"more":false}`)
	r.broker.down = false
	r.done(t, "sweep-leases", `{"republished":1,"reported":0,"failed":0,"more":false}`)
	require.Equal(t, []string{"again/e1"}, r.broker.taken)
	require.Equal(t, contract.Message{
		Data: []byte("ilse@example.org"), Attributes: map[string]string{"event_id": "e1"}, OrderingKey: "e1",
	}, r.broker.last, "as it was")
	r.done(t, "sweep-leases", `{"republished":0,"reported":0,"failed":0,"more":false}`)
	r.measured(t, `billhook_orphans_total{action="republished",queue="again"} 1`)
	r.measured(t, `billhook_orphans_total{action="reported",queue="again"} 1`)
	require.Equal(t, 4+1, bytes.Count(r.log.Bytes(), []byte(`"msg":"orphan"`)))
	require.NotContains(t, r.log.String(), "ilse")
	r.claim(t, "shares", "e6", true)
	r.now = r.now.Add(14 * time.Minute)
	r.done(t, "sweep-leases", `{"republished":1,"reported":0,"failed":0,"more":false}`)
	require.Equal(t, []string{"again/e1", "sales/e6"}, r.broker.taken)
	require.Equal(t, "shares", r.broker.last.Attributes["queue"], "no other queue of the topic gets it again")
}

func TestOrphansWaitForTheSlowestQueue(t *testing.T) {
	t.Parallel()
	slow := catalog.Queue{
		AckDeadline: 10 * time.Minute, Backoff: retry.Policy{Base: time.Second, Multiplier: 2, Max: time.Hour},
	}
	quick := catalog.Queue{
		AckDeadline: time.Minute, Backoff: retry.Policy{Base: time.Second, Multiplier: 2, Max: time.Minute},
	}
	require.Equal(t, 21*time.Minute, tasks.OrphanAfter(&catalog.Catalog{Queues: []catalog.Queue{quick, slow}}),
		"Pub/Sub waits ten minutes at most")
	require.Equal(t, 12*time.Minute, tasks.OrphanAfter(&catalog.Catalog{Queues: []catalog.Queue{quick}}),
		"for every queue, after an outage")
}

func TestCleanupRemovesABoundedNumberOfExpiredDocuments(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, collection := range []string{dedupe.Collection, deadletter.Collection, "paymentEvents"} {
		for i := range 2 {
			storetest.Put(t, r.db, store.Set(store.Key{Collection: collection, ID: fmt.Sprint(i)},
				map[string]any{"expire_at": start.Add(time.Duration(i) * time.Hour)}))
		}
	}
	for i := range 200 {
		storetest.Put(t, r.db, store.Set(store.Key{Collection: dedupe.Collection, ID: fmt.Sprint("many-", i)},
			map[string]any{"expire_at": start}))
	}
	r.done(t, "cleanup", `{"removed":201,"more":true}`)
	r.done(t, "cleanup", `{"removed":1,"more":false}`)
	require.Len(t, storetest.All(t, r.db, "paymentEvents"), 2, "payment events are kept")
}

func TestEveryTaskHasItsRouteAndAnswers503AfterAFailure(t *testing.T) {
	t.Parallel()
	for _, name := range append([]string{""}, tasks.Names...) { // without a name, all scheduled ones
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.faults.Down(true)
			code, body := r.call(t, name)
			require.Equal(t, http.StatusServiceUnavailable, code)
			require.Contains(t, body, "task_failed")
			require.Contains(t, r.log.String(), `"level":"ERROR"`)
			r.faults.Down(false)
			code, body = r.call(t, name)
			require.Equal(t, http.StatusOK, code, body)
			code, _ = request(t, r.router, http.MethodGet, path.Join(tasks.Path, name))
			require.Equal(t, http.StatusMethodNotAllowed, code, "a GET does nothing")
			code, _ = r.call(t, name+"-of-nobody")
			require.Equal(t, http.StatusNotFound, code)
		})
	}
}

func TestScheduledTasksRunConcurrentlyAndFailAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.service.Operations = func(context.Context, int, *slog.Logger) (any, error) { panic("a payload") }
	code, _ := r.call(t, "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	for _, name := range tasks.Scheduled {
		what := map[bool]string{true: "cause", false: "done"}[name == "run-operations"]
		require.Contains(t, r.log.String(), `"task":"`+name+`","`+what+`":`)
	}
	require.NotContains(t, r.log.String(), "a payload")
}

var declared = catalogtest.Contracts()

// keep stores messages that are due in a second, each in its own lane.
func (r *rig) keep(t *testing.T, count int) {
	t.Helper()
	var writes []store.Write
	for i := range count {
		name := lane.Name{Queue: "again", Message: fmt.Sprint("m", i)}
		kept := filetest.Must(lane.Open(t.Context(), r.db, name))(t)
		_, one := filetest.Both(kept.Put(lane.Kept{
			Topic: "again", Content: lane.Content{Message: contract.Message{Data: []byte(`{}`)}},
			DueAt: start.Add(time.Second), Source: lane.Source{EventID: fmt.Sprint("e", i)},
		}, start, "", start))(t)
		writes = append(writes, one...)
	}
	for some := range slices.Chunk(writes, 200) {
		storetest.Put(t, r.db, some...)
	}
}

// Otherwise the messages over the bound would be released late, by the scheduler.
func TestOneCallReleasesAllDueMessagesUnlessTheBrokerIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.keep(t, 1040)
	r.now, r.broker.down = start.Add(time.Second), true
	r.done(t, "release-delayed", `{"lanes":500,"failed":500,"published":0,"more":true,"oldest_seconds":0}`)
	r.now, r.broker.down = start.Add(time.Hour), false
	r.done(t, "release-delayed", `{"lanes":1040,"failed":0,"published":1040,"more":false,"oldest_seconds":0}`)
	require.Len(t, r.broker.taken, 1040)
	r.log.Reset()
	r.service.ReleaseDelayed(t.Context()) // as an alarm does
	require.Contains(t, r.log.String(), `"msg":"task","task":"release-delayed","done"`)
	r.faults.FailReads(1)
	r.service.ReleaseDelayed(t.Context())
	require.Contains(t, r.log.String(),
		`"level":"ERROR","msg":"task","task":"release-delayed","cause":"store: list delayedKeys: `)
}
