package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/customers"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/ledger"
	"billhook/internal/apps/orders"
	"billhook/internal/apps/products"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var at = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

const (
	token = "0123456789abcdef01234567"
	next  = "76543210fedcba9876543210"
)

var queues = &catalog.Catalog{Queues: []catalog.Queue{
	{ID: "orders", Alias: "q:orders", Handlers: map[string]catalog.Handler{"order.paid": {Name: "points.credit"}}, DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Aliases: []string{"orders.exchange"}, Retention: time.Hour}},
	{ID: "refunds", DeadLetter: catalog.DeadLetter{AlertAbove: 2, OldestAlert: 4 * time.Hour}},
}, Products: map[string]catalog.Product{"hat": {Points: 250}}}

// rig is the API on a real store.
type rig struct {
	store  *storetest.Faults
	router chi.Router
	access ops.Access
	log    bytes.Buffer
	links  ops.Links
	// fourEyes: replays wait for a second person.
	fourEyes bool
}

func newRig(t testing.TB, access ops.Access) *rig {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	r := &rig{store: &storetest.Faults{Store: db}}
	r.access = access
	r.over(r.store)
	return r
}

// oracle is a worker that would process everything.
type oracle struct{ *catalog.Catalog }

func (o oracle) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	trial := dryrun.Trial{Queue: m.Queue, Tenant: "default", EventID: m.Attributes["event_id"], Outcome: dryrun.Calls}
	if body := jsontext.Value(m.Data); body.IsValid() {
		trial.Calls = []dryrun.Call{{Target: "gateway", Method: http.MethodPost, Path: "/v1/refunds", Body: body}}
	}
	return trial, nil
}

func operatorOf(s store.Store) *deadletter.Operator {
	return &deadletter.Operator{
		Store: s, Queue: queues.Queue, Now: func() time.Time { return at }, NewID: uuid.NewString,
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }, Relay: func(context.Context, string) error { return nil },
	}
}

// over puts the API on another store.
func (r *rig) over(s store.Store) {
	r.router = chi.NewRouter()
	operator := r.operator()
	operator.Store = s
	keeper := &products.Keeper{Store: s, Start: queues.Products, Now: func() time.Time { return at }, NewID: uuid.NewString}
	(&ops.API{
		Operator: operator, Customers: &customers.Operator{Store: s, Now: func() time.Time { return at }, NewID: uuid.NewString}, Products: keeper, Endpoints: endpointsOf(s), Access: r.access,
		Stock:    &orders.Keeper{Store: s, Now: func() time.Time { return at }, NewID: uuid.NewString},
		Pauses:   &pause.Keeper{Store: s, Now: func() time.Time { return at }, NewID: uuid.NewString},
		Periods:  &journal.Periods{Store: s, Now: func() time.Time { return at }, NewID: uuid.NewString},
		Reverter: &journal.Reverter{Store: s, Catalog: queues, Now: func() time.Time { return at }, NewID: uuid.NewString},
		Timer:    waiting(time.Hour),
		Tries:    &dryrun.Desk{Store: s, Now: func() time.Time { return at }, Worker: func(map[string]string) (dryrun.Worker, error) { return oracle{queues}, nil }},
		Reads:    ops.Reads{Store: s, Catalog: queues, Now: func() time.Time { return at }, Links: r.links}, Log: slog.New(slog.NewJSONHandler(&r.log, nil)), NewID: uuid.NewString,
	}).Routes(r.router)
}

func open(t *testing.T) *rig { t.Helper(); return newRig(t, ops.Access{OpenOnLoopback: true}) }

func (r *rig) ask(t require.TestingT, path string, change func(*http.Request), into any) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(context.Background(), http.MethodGet, path, nil)
	request.RemoteAddr, request.Host = "127.0.0.1:4711", "127.0.0.1:8081"
	if change != nil {
		change(request)
	}
	recorder := httptest.NewRecorder()
	r.router.ServeHTTP(recorder, request)
	if into != nil {
		require.NoError(t, json.Unmarshal(recorder.Body.Bytes(), into), recorder.Body.String())
	}
	return recorder
}

func (r *rig) commit(t require.TestingT, writes ...store.Write) {
	_, err := r.store.Commit(context.Background(), writes)
	require.NoError(t, err)
}

func record(queue, tenant, id string) dedupe.Record {
	return dedupe.Record{
		Queue: queue, Tenant: tenant, EventID: id, EventType: "order.paid", Status: dedupe.Completed, PayloadHash: "sha256:00",
		Attempts: 2, LeaseToken: "t", Result: "credited", CorrelationID: "c1", IdempotencyKey: "p1", OrderingKey: "u1", MessageID: "17",
		CreatedAt: at, UpdatedAt: at.Add(time.Second), ProcessedAt: at.Add(time.Second), ExpireAt: at.Add(time.Hour),
	}
}

func own(r dedupe.Record) store.Write {
	return store.Create(dedupe.Key(r.Queue, r.Tenant, r.EventID), r.Fields())
}

func TestTheAPIAcceptsTheSendersThatItShould(t *testing.T) {
	t.Parallel()
	closed, rotating, local := ops.Access{Tokens: []string{token}}, ops.Access{Tokens: []string{token, next}}, ops.Access{Tokens: []string{token}, OpenOnLoopback: true}
	for name, test := range map[string]struct {
		access              ops.Access
		authorization, peer string
		header, value       string
		want                int
	}{
		"the token":                                 {access: closed, authorization: "Bearer " + token, peer: "192.0.2.7:1", want: 404},
		"the old token while it is replaced":        {access: rotating, authorization: "Bearer " + token, peer: "192.0.2.7:1", want: 404},
		"the new token while it replaces":           {access: rotating, authorization: "Bearer " + next, peer: "192.0.2.7:1", want: 404},
		"another token":                             {access: closed, authorization: "Bearer " + next, peer: "192.0.2.7:1", want: 403},
		"the beginning of the token":                {access: closed, authorization: "Bearer " + token[:23], peer: "192.0.2.7:1", want: 403},
		"an empty token":                            {access: closed, authorization: "Bearer ", peer: "192.0.2.7:1", want: 403},
		"an empty token where none is set":          {access: ops.Access{Tokens: []string{""}}, authorization: "Bearer ", peer: "192.0.2.7:1", want: 403},
		"the token under another scheme":            {access: closed, authorization: "Basic " + token, peer: "192.0.2.7:1", want: 403},
		"no token":                                  {access: closed, peer: "192.0.2.7:1", want: 401},
		"no token where none is set":                {access: ops.Access{}, peer: "192.0.2.7:1", want: 401},
		"no token from this machine":                {access: closed, peer: "127.0.0.1:1", want: 401},
		"no token from this machine, open there":    {access: local, peer: "127.0.0.1:1", want: 404},
		"the same over IPv6":                        {access: local, peer: "[::1]:1", want: 404},
		"the same, IPv4 in IPv6":                    {access: local, peer: "[::ffff:127.0.0.1]:1", want: 404},
		"no token from elsewhere, open here":        {access: local, peer: "192.0.2.7:1", want: 401},
		"no token from an address that is none":     {access: local, peer: "localhost", want: 401},
		"a wrong token from this machine":           {access: local, authorization: "Bearer x", peer: "127.0.0.1:1", want: 403},
		"a proxy here, forwarding for another":      {access: local, peer: "127.0.0.1:1", header: "X-Forwarded-For", value: "192.0.2.7", want: 401},
		"a proxy here that does not say for whom":   {access: local, peer: "127.0.0.1:1", header: "X-Forwarded-For", want: 401},
		"a proxy here that says so by the standard": {access: local, peer: "127.0.0.1:1", header: "Forwarded", value: "for=192.0.2.7", want: 401},
		"a proxy here that only names itself":       {access: local, peer: "127.0.0.1:1", header: "Via", value: "1.1 proxy", want: 401},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.access)
			for _, path := range []string{"/v1/ops/events/e1", "/v1/ops/accounts/points:user:u1"} {
				got := r.ask(t, path, func(request *http.Request) {
					request.RemoteAddr = test.peer
					if test.authorization != "" {
						request.Header.Set("Authorization", test.authorization)
					}
					if test.header != "" {
						request.Header.Set(test.header, test.value)
					}
				}, nil)
				require.Equal(t, test.want, got.Code)
				require.Equal(t, "application/problem+json", got.Header().Get("Content-Type"))
				require.NotContains(t, got.Body.String()+r.log.String(), token)
				if test.want == http.StatusUnauthorized {
					require.Equal(t, "Bearer", got.Header().Get("WWW-Authenticate"))
				}
			}
		})
	}
}

func TestAnEventIsToldAsFarAsItIsStored(t *testing.T) {
	t.Parallel()
	r := open(t)
	failed := record("orders", "default", "e1")
	failed.Status, failed.LastError, failed.Result, failed.NextRetryAt, failed.ProcessedAt = dedupe.Failed, "order_not_seen", "", at.Add(time.Minute), time.Time{}
	conflict := failed
	conflict.PayloadHash, conflict.Status, conflict.LastError, conflict.MessageID = "sha256:11", dedupe.DeadLettered, "payload_conflict", "18"
	r.commit(t, own(failed), own(record("orders", "default", "e2")),
		store.Create(dedupe.ConflictKey("orders", "default", "e1", "sha256:11"), conflict.Fields()))
	_, err := deadletter.Keep(t.Context(), r.store, queues.Queues[0], contract.Message{Data: []byte("ilse"), Attributes: map[string]string{
		"event_id": "e1", "dead_letter_reason": "payload_conflict", "dead_letter_status": "409", "source_message_id": "18",
		"delivery_attempts": "1", "dead_lettered_at": "2026-03-02T10:15:00Z",
	}}, "99", at)
	require.NoError(t, err)

	letter := deadletter.ItemID(queues.Queues[0], "18", contract.Message{Data: []byte("ilse")})
	for _, path := range []string{"/v1/ops/events/e1", "/v1/ops/events/e1?queue=orders", "/v1/ops/events/e1?queue=q:orders", "/v1/ops/events/e1?tenant=default", "/v1/ops/events/%651"} {
		got := r.ask(t, path, nil, nil)
		require.Equal(t, http.StatusOK, got.Code, path)
		require.JSONEq(t, `{
			"event_id": "e1", "event_type": "order.paid", "action": "order.paid", "queue": "orders", "tenant": "default", "status": "FAILED", "attempts": 2,
			"payload_hash": "sha256:00", "result": "", "reason": "order_not_seen", "correlation_id": "c1", "idempotency_key": "p1", "ordering_key": "u1",
			"places": [{"place": "broker", "queue": "orders", "since": "2026-03-02T10:15:01Z", "until": "2026-03-02T10:16:00Z"},
				{"place": "dead_letter", "queue": "orders", "since": "2026-03-02T10:15:00Z", "until": "2026-03-02T11:15:00Z", "dead_letters": ["`+letter+`"]}],
			"emissions": [], "history": [
				{"at": "2026-03-02T10:15:00Z", "what": "recorded", "attempt": 2},
				{"at": "2026-03-02T10:15:00Z", "what": "dead_lettered", "dead_letter": "`+letter+`", "message_id": "18", "reason": "payload_conflict"},
				{"at": "2026-03-02T10:15:01Z", "what": "conflict", "message_id": "18", "reason": "payload_conflict"}],
			"message_id": "17", "next_retry_at": "2026-03-02T10:16:00Z", "created_at": "2026-03-02T10:15:00Z",
			"updated_at": "2026-03-02T10:15:01Z", "emitted": [], "waiting": 0,
			"conflicts": [{"queue": "orders", "status": "DEAD_LETTERED", "reason": "payload_conflict", "payload_hash": "sha256:11", "message_id": "18"}],
			"dead_letters": [{"id": "`+letter+`", "queue": "orders", "event_id": "e1", "reason": "payload_conflict", "status": 409, "detail": "", "attempts": 1,
				"source_message_id": "18", "state": "open", "dead_lettered_at": "2026-03-02T10:15:00Z"}],
			"log": [], "more": false, "effect": []
		}`, got.Body.String())
	}
}

func TestAnEventIsToldWithWhatItEmittedAndWhatWaits(t *testing.T) {
	t.Parallel()
	r := open(t)
	told := record("orders", "default", "e1")
	told.Emitted = []handler.Emitted{{EventID: "first"}, {EventID: "second"}}
	held := record("orders", "default", "e2")
	held.Status, held.LeaseUntil = dedupe.Processing, at.Add(time.Minute)
	r.commit(t, own(told), own(held),
		waits(lane.Outbox, "l-1", "e1", "second", nil),
		waits(lane.Outbox, "l-2", "e2", "third", nil))
	var event ops.Event
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/events/e1", nil, &event).Code)
	require.Equal(t, []string{"first", "second"}, event.Emitted)
	require.Equal(t, 1, event.Waiting)
	event = ops.Event{}
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/events/e2", nil, &event).Code)
	require.Equal(t, at.Add(time.Minute), event.LeaseUntil)
	require.Zero(t, event.Waiting)
}

func TestAnEventThatOnlyEverDied(t *testing.T) {
	t.Parallel()
	t.Run("is told by its broken message", func(t *testing.T) {
		t.Parallel()
		r := open(t)
		broken := record("orders", "default", "e1")
		broken.Status, broken.LastError, broken.PayloadHash = dedupe.DeadLettered, "body_malformed", ""
		r.commit(t, store.Create(dedupe.MessageKey("orders", "17", nil), broken.Fields()))
		var event ops.Event
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/events/e1", nil, &event).Code)
		require.Equal(t, dedupe.DeadLettered, event.Status)
		require.Equal(t, "body_malformed", event.Reason)
		require.Len(t, event.Conflicts, 1)
	})
	t.Run("is told by the broker's dead letter", func(t *testing.T) {
		t.Parallel()
		r := open(t)
		_, err := deadletter.Keep(t.Context(), r.store, queues.Queues[0], contract.Message{Attributes: map[string]string{
			"event_id": "e1", "CloudPubSubDeadLetterSourceDeliveryCount": "20",
		}}, "99", at)
		require.NoError(t, err)
		var event ops.Event
		require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/events/e1", nil, &event).Code)
		require.Equal(t, dedupe.DeadLettered, event.Status)
		require.Equal(t, "delivery_attempts_exhausted", event.Reason)
		require.EqualValues(t, 20, event.Attempts)
	})
}

func TestAnEventOfSeveralQueuesNeedsOneNamed(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")), own(record("refunds", "default", "e1")),
		own(record("orders", "default", "e2")), own(record("orders", "other", "e2")))
	for path, want := range map[string]int{
		"/v1/ops/events/e1": 409, "/v1/ops/events/e1?queue=orders": 200, "/v1/ops/events/e1?queue=refunds": 200,
		"/v1/ops/events/e2": 409, "/v1/ops/events/e2?queue=orders": 409, "/v1/ops/events/e2?tenant=other": 200,
	} {
		var got struct {
			Code string `json:"code"`
		}
		require.Equal(t, want, r.ask(t, path, nil, &got).Code, path)
		if want == http.StatusConflict {
			require.Equal(t, "queue_needed", got.Code)
		}
	}
}

func TestWhatIsNotThereOrCannotBeAsked(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")))
	for path, want := range map[string]struct {
		status int
		code   string
	}{
		"/v1/ops/events/e9":                      {404, "event_unknown"},
		"/v1/ops/events/e1?queue=refunds":        {404, "event_unknown"},
		"/v1/ops/events/e1?queue=nobody":         {404, "queue_unknown"},
		"/v1/ops/events/e1?tenant=other":         {404, "event_unknown"},
		"/v1/ops/events/e1?tenant=a%2Fb":         {400, "tenant_invalid"},
		"/v1/ops/events/ilse@example.org":        {400, "event_id_invalid"},
		"/v1/ops/events/a%2Fb":                   {400, "event_id_invalid"},
		"/v1/ops/accounts/points:user:nobody":    {404, "account_unknown"},
		"/v1/ops/accounts/points%2Fuser%2Fother": {404, "account_unknown"},
	} {
		var got struct {
			Code string `json:"code"`
		}
		recorder := r.ask(t, path, nil, &got)
		require.Equal(t, want.status, recorder.Code, path)
		require.Equal(t, want.code, got.Code, path)
		require.NotContains(t, recorder.Body.String(), "ilse")
	}
}

func TestAnAccountIsItsBalanceAndItsEntries(t *testing.T) {
	t.Parallel()
	r := open(t)
	entry := ledger.Move{Tenant: "default", Order: "o1", EventID: "e1", From: ledger.IssuedPoints("o1"), To: ledger.UserPoints("u1"), Amount: 1000, Currency: ledger.Points, CreatedAt: at}
	writes, err := ledger.Credit(entry)
	require.NoError(t, err)
	r.commit(t, writes...)
	for _, path := range []string{"/v1/ops/accounts/points:user:u1", "/v1/ops/accounts/points%3Auser%3Au1"} {
		got := r.ask(t, path, nil, nil)
		require.Equal(t, http.StatusOK, got.Code)
		require.JSONEq(t, `{"tenant": "default", "account": "points:user:u1", "currency": "points", "balance": 1000, "more": false, "entries": [{
			"order": "o1", "seq": 0, "kind": "credit", "event_id": "e1", "from": "points:issued:o1", "to": "points:user:u1",
			"account": "points:user:u1", "amount": 1000, "currency": "points", "created_at": "2026-03-02T10:15:00Z"
		}]}`, got.Body.String())
	}
}

func TestAStoreThatDoesNotAnswerIsNever4xx(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.store.Down(true)
	for _, path := range []string{"/v1/ops/events/e1", "/v1/ops/accounts/points:user:u1"} {
		got := r.ask(t, path, nil, nil)
		require.Equal(t, http.StatusServiceUnavailable, got.Code)
		require.Equal(t, "5", got.Header().Get("Retry-After"))
	}
}

func TestARecordThatCannotBeReadIsNotPassedOver(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, store.Create(store.Key{Collection: dedupe.Collection, ID: "x"}, map[string]any{"event_id": "e1"}))
	require.Equal(t, http.StatusServiceUnavailable, r.ask(t, "/v1/ops/events/e1", nil, nil).Code)
}

// second fails every query but the first.
type second struct {
	store.Store
	queries atomic.Int64
}

func (s *second) Query(ctx context.Context, q store.Query) (store.Page, error) {
	if s.queries.Add(1) > 1 {
		return store.Page{}, errors.New("no answer")
	}
	return s.Store.Query(ctx, q)
}

func TestHalfAStoryIsNotTold(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, own(record("orders", "default", "e1")))
	router := chi.NewRouter()
	(&ops.API{Reads: ops.Reads{Store: &second{Store: r.store}, Catalog: queues}, Access: ops.Access{OpenOnLoopback: true}, Log: slog.New(slog.DiscardHandler)}).Routes(router)
	r.router = router
	require.Equal(t, http.StatusServiceUnavailable, r.ask(t, "/v1/ops/events/e1", nil, nil).Code)
}
