package operations_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/ledger/ledgertest"
	"billhook/internal/apps/ledger/seal/sealtest"
	"billhook/internal/compose/operations"
	"billhook/internal/compose/operations/operationstest"
	"billhook/internal/compose/system"
	"billhook/internal/console/access"
	"billhook/internal/console/api"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/serve"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var at = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

const (
	token = "0123456789abcdef01234567"
	next  = "76543210fedcba9876543210"
)

var declared = &catalog.Catalog{Queues: []catalog.Queue{
	{
		ID: "orders", Alias: "q:orders", Enabled: true, Handlers: map[string]catalog.Handler{
			"order.paid": {Name: "points.credit", Calls: []string{"c", "ledger", "a", "d", "b"}},
		}, DeadLetter: catalog.DeadLetter{
			Topic: "orders-dlq", Aliases: []string{"orders.exchange"},
			Retention: time.Hour,
		},
	},
	{
		ID:         "refunds",
		DeadLetter: catalog.DeadLetter{AlertAbove: 2, OldestAlert: 4 * time.Hour, Retention: time.Hour},
	},
}, Products: map[string]catalog.Product{"hat": {Points: 250}}}

// rig is the API on a real store, at 10:15 on 2 March.
type rig struct {
	store      *storetest.Faults
	router     chi.Router
	access     access.Access
	log        bytes.Buffer
	deployment *system.Deployment
	operator   *bulk.Operator
}

// keepsJournal enables a journal.
func (r *rig) keepsJournal() {
	c := *declared
	c.Queues = append(slices.Clone(c.Queues), catalog.Queue{
		ID: "books", Enabled: true, Handlers: map[string]catalog.Handler{"*": {Name: catalog.JournalPost}},
	})
	r.over(r.store, func(reads *events.Reads) { reads.Catalog = &c })
}

// fourEyes has replays need a second person.
func (r *rig) fourEyes() {
	c := *declared
	c.Queues = slices.Clone(declared.Queues)
	for i := range c.Queues {
		c.Queues[i].FourEyes = true
	}
	r.operator.Catalog = &c
}

func newRig(t testing.TB, access access.Access) *rig {
	t.Helper()
	db := storetest.Open(t)
	r := &rig{store: &storetest.Faults{Store: db}, access: access}
	r.over(r.store)
	return r
}

func open(t *testing.T) *rig { t.Helper(); return newRig(t, access.Access{OpenOnLoopback: true}) }

func (r *rig) over(s store.Store, changes ...func(*events.Reads)) *api.Server {
	log, moment := slog.New(slog.NewJSONHandler(&r.log, nil)), at
	apps := operationstest.Over(s, declared, func() time.Time { return at }, uuid.NewString)
	for _, change := range changes {
		change(&apps.Reads)
	}
	apps.Deployment, apps.Log, r.operator = r.deployment, log, apps.DeadLetters
	apps.Endpoints.Now = func() time.Time { moment = moment.Add(time.Second); return moment }
	server := &api.Server{
		Catalog: operations.All(apps), Log: log, Author: access.Author, Now: apps.Reads.Now, Store: s,
	}
	r.router = chi.NewRouter()
	r.router.Use(r.access.Guard)
	server.Routes(r.router)
	server.Scripts(r.router, operations.Scripts(apps))
	return server
}

func from(peer string) func(*http.Request)   { return func(r *http.Request) { r.RemoteAddr = peer } }
func onHost(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// header sets a header, or removes it where the value is empty.
func header(name, value string) func(*http.Request) {
	return func(r *http.Request) {
		r.Header.Del(name)
		if value != "" {
			r.Header.Set(name, value)
		}
	}
}

const (
	far  = "192.0.2.7:1"
	here = "127.0.0.1:1"
)

func (r *rig) send(
	t require.TestingT, method, path, body string, changes ...func(*http.Request),
) *httptest.ResponseRecorder {
	request, err := http.NewRequestWithContext(context.Background(), method, path, strings.NewReader(body))
	require.NoError(t, err)
	request.RemoteAddr, request.Host = here, "127.0.0.1:8081"
	request.Header.Set("X-Operator", "ada")
	for _, change := range changes {
		change(request)
	}
	recorder := httptest.NewRecorder()
	r.router.ServeHTTP(recorder, request)
	return recorder
}

func (r *rig) does(
	t require.TestingT, method, path, body string, into any, changes ...func(*http.Request),
) string {
	got := r.send(t, method, path, body, changes...)
	require.Less(t, got.Code, 300, "%s: %s", path, got.Body)
	if into != nil {
		require.NoError(t, json.Unmarshal(got.Body.Bytes(), into), got.Body.String())
	}
	return got.Body.String()
}

func (r *rig) get(t require.TestingT, path string, into any) string {
	return r.does(t, http.MethodGet, "/v1/ops/"+path, "", into)
}

func look[T any](t require.TestingT, r *rig, path string) (shown T) {
	r.get(t, path, &shown)
	return shown
}

func (r *rig) refuses(
	t require.TestingT, method, path, body string, status int, code string, changes ...func(*http.Request),
) {
	got := r.send(t, method, path, body, changes...)
	require.Equal(t, status, got.Code, "%s %s %s: %s", method, path, body, got.Body)
	require.Equal(t, code, codeOf(got.Body.String()), "%s %s %s: %s", method, path, body, got.Body)
}

func codeOf(body string) string {
	_, after, _ := strings.Cut(body, `"code":"`)
	code, _, _ := strings.Cut(after, `"`)
	return code
}

func (r *rig) commit(t require.TestingT, writes ...store.Write) {
	storetest.Put(t, r.store, writes...)
}

// record is that of an event that was completed at 10:15.
func record(queue, tenant, id string) dedupe.Record {
	return dedupe.Record{
		Identity: dedupe.Identity{
			Queue: queue, Tenant: tenant, EventID: id, EventType: "order.paid", PayloadHash: "sha256:00",
			CorrelationID: "c1", IdempotencyKey: "p1", OrderingKey: "u1", MessageID: "17",
		},
		Status: dedupe.Completed, Tries: dedupe.Tries{Attempts: 2, LeaseToken: "t"}, Result: "credited",
		Times: dedupe.Times{
			CreatedAt: at, UpdatedAt: at.Add(time.Second), ProcessedAt: at.Add(time.Second),
			ExpireAt: at.Add(time.Hour),
		},
	}
}

func created(queue, id string, status dedupe.Status, ago time.Duration) dedupe.Record {
	r := record(queue, "default", id)
	r.Status, r.CreatedAt = status, at.Add(-ago)
	return r
}

func own(r dedupe.Record) store.Write {
	return store.Create(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields())
}

func dead(queue, id, reason string, ago time.Duration) deadletter.Item {
	kept := at.Add(-ago)
	return deadletter.Item{
		ID: id, Queue: queue, State: deadletter.Open, Death: deadletter.Death{Reason: reason},
		Expires: kept.Add(30 * 24 * time.Hour),
		Source:  deadletter.Source{EventType: "order.paid", EventID: "e-" + id, OrderingKey: "u1"},
		Times:   deadletter.Times{FirstPublished: kept, DeadLettered: kept, Kept: kept},
	}
}

func inStore(i deadletter.Item) store.Write { return store.Create(i.Key(), store.Encode(&i)) }

func (r *rig) bury(t require.TestingT, q catalog.Queue, event, messageID, data string) string {
	m := contract.Message{Data: []byte(data), Attributes: map[string]string{
		"event_id": event, "event_type": "order.paid", "ordering_key": "u1",
		"dead_letter_reason": "unknown_product", "dead_letter_status": "422",
		"source_message_id": messageID, "delivery_attempts": "5", "dead_lettered_at": at.Format(time.RFC3339),
	}}
	require.NoError(t, filetest.ErrorOf(deadletter.Keep(context.Background(), r.store, q, m, messageID, at)))
	return deadletter.ItemID(q, messageID, m)
}

// waits is the document of a waiting message, which an event emits or, where emits is empty, is its own.
func waits(in lane.Kind, id, event, emits string, change func(fields map[string]any)) store.Write {
	fields := map[string]any{
		"queue": "orders", "tenant": "default", "event_id": event, "topic": "orders",
		"message": store.Encode(&lane.Content{CreatedAt: at, Message: contract.Message{
			Data: []byte("{}"), OrderingKey: "u1",
			Attributes: map[string]string{"event_id": event, "event_type": "order.paid", "ordering_key": "u1"},
		}}),
	}
	if emits != "" {
		fields["emits"] = emits
	}
	if change != nil {
		change(fields)
	}
	return store.Create(store.Key{Collection: in.Entries(), ID: id}, fields)
}

func (r *rig) put(t *testing.T, queue, key, event string, due time.Time, timer bool) {
	t.Helper()
	l := filetest.Must(lane.Open(t.Context(), r.store,
		lane.Name{Queue: queue, Tenant: "default", OrderingKey: key, Message: event}))(t)
	_, writes := filetest.Both(l.Put(lane.Kept{
		Topic: queue, Content: lane.Content{Message: contract.Message{Data: []byte(`{}`)}},
		Source: lane.Source{Tenant: "default", EventID: event}, DueAt: due, Timer: timer,
	}, time.Time{}, "", at))(t)
	r.commit(t, writes...)
}

func (r *rig) emitted(t *testing.T, queue string, events ...string) {
	t.Helper()
	batch := lane.NewBatch(at)
	for _, event := range events {
		batch.Add("topic", event, contract.Message{Data: []byte(`{}`)},
			lane.Source{Queue: queue, Tenant: "default", EventID: event, Emits: "of-" + event})
	}
	r.commit(t, batch.Writes()...)
}

// credit credits an order's points to an account, by an event, after a time, and returns the entry's id.
func (r *rig) credit(
	t require.TestingT, tenant, event, order string, to ledger.Account, amount int64, later time.Duration,
) string {
	writes := ledgertest.Credited(t, ledger.Move{
		Tenant: tenant, Order: order, EventID: event, To: to, Amount: amount, CreatedAt: at.Add(later),
	})
	r.commit(t, writes...)
	return writes[0].Key.ID
}

func sale(tenant, event, period string, amount int64) ledger.Entry {
	return ledgertest.Sale(tenant, event, period, amount, at)
}

func (r *rig) enter(t *testing.T, entries ...ledger.Entry) {
	t.Helper()
	for _, e := range entries {
		r.commit(t, filetest.Must(ledger.Post(e))(t)...)
	}
}

func (r *rig) seal(t *testing.T) { sealtest.Seal(t, r.store, sealtest.Trusting{}, at) }

// identities trusts the name of a header.
type identities struct{}

func (identities) Identify(_ context.Context, header http.Header) (string, error) {
	if name := header.Get("X-Test-Identity"); name != "" {
		return name + "@example.org", nil
	}
	return "", serve.ErrNoToken
}
