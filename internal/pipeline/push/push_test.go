package push_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/push"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var errHandler = errors.New("ilse@example.org fell over")

// TestAnAnswerHoldsNothingOfItsMessage looks at the whole of an answer, and at the line of its delivery.
func TestAnAnswerHoldsNothingOfItsMessage(t *testing.T) {
	t.Parallel()
	panics := func(*rig, handler.Tx) handler.Tx {
		return func(context.Context, handler.Event) (handler.Effect, error) { panic("ilse@example.org") }
	}
	for name, test := range map[string]struct {
		setup setup
		bad   func(*message)
		code  int
		want  string
		line  map[string]any
	}{
		"processed": {
			code: 200, want: `{"outcome":"processed","status":200,"reason":"credited","event_id":"e1","attempt":1}`,
			line: map[string]any{"level": "INFO", "event_type": "order.paid", "ordering_key": buyer, "correlation_id": "corr-e1", "cause": ""},
		},
		"tried again": {
			setup: setup{credit: always(retry.Down("down", errHandler))}, code: 503,
			want: `{"outcome":"retry","status":503,"reason":"down","event_id":"e1","attempt":1}`,
			line: map[string]any{"level": "WARN", "cause": "*errors.errorString", "delivery_attempt": 1.0},
		},
		"after a panic": {
			setup: setup{credit: panics}, code: 500, want: `{"outcome":"retry","status":500,"reason":"handler_panic","event_id":"e1","attempt":1}`,
		},
		"dead-lettered": {
			bad: func(m *message) { m.body = `{"email":"ilse@example.org"}` }, code: 400,
			want: `{"outcome":"dead_lettered","status":400,"reason":"body_malformed","event_id":"e1","attempt":1}`,
			line: map[string]any{"level": "ERROR", "event_type": "", "ordering_key": "", "correlation_id": ""},
		},
		"of a full queue": {
			setup: setup{queue: func(q *catalog.Queue) { q.Concurrency = 0 }}, code: 503,
			want: `{"outcome":"retry","status":503,"reason":"queue_full","event_id":"e1","attempt":0}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.setup)
			m := paid("e1", known, 1).again(1)
			if test.bad != nil {
				m = m.with(test.bad)
			}
			got := r.deliver(m)
			require.Equal(t, test.code, got.code)
			require.Equal(t, "application/json", got.header.Get("Content-Type"))
			require.JSONEq(t, test.want, got.text)
			require.NotContains(t, got.text+r.log.String(), "ilse")
			line := r.log.lines(t, "delivery")[0]
			for field, want := range test.line {
				require.Equal(t, want, line[field], field)
			}
			require.ElementsMatch(t, []string{
				"time", "level", "msg", "queue", "event_id", "event_type", "message_id", "instance", "ordering_key", "correlation_id",
				"attempt", "delivery_attempt", "outcome", "reason", "result", "cause", "status", "delayed", "duration_ms",
			}, slices.Collect(maps.Keys(line)))
		})
	}
}

func TestPushesAreAcceptedByTheirTokens(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err  error
		code int
		want string
	}{
		"a token that is wrong":              {errors.New("ilse@example.org"), 401, "unauthorized"},
		"a token of somebody else":           {fmt.Errorf("%w: ilse@example.org", push.ErrForbidden), 403, "forbidden"},
		"a token that cannot be checked now": {fmt.Errorf("%w: ilse@example.org", push.ErrKeysUnavailable), 503, "keys_unavailable"},
	} {
		for _, path := range []string{"/push/orders", "/push/dead-letters/orders", "/push/nobody"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, setup{})
				r.bouncer.err = test.err
				got := r.post(path, paid("e1", known, 1).envelope())
				require.Equal(t, test.code, got.code)
				require.Equal(t, test.want, got.Code)
				require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
				require.NotContains(t, got.text+r.log.String(), "ilse")
				require.Zero(t, r.counter.Commits.Load()+r.counter.Gets.Load())
				require.Empty(t, r.letters())
			})
		}
	}
}

// Where Cloud Run finds this header it checks that one alone, and lets Authorization pass
// as it came: a caller of one's own token could write there what it likes. Of two
// of the same nobody says which it checks.
func TestAPushWhoseAuthorizationNobodyHasCheckedIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path         string
		given, other []string
	}{
		"beside another":          {"/push/orders", []string{"Bearer good"}, []string{"Bearer another"}},
		"beside an empty one":     {"/push/orders", []string{"Bearer good"}, []string{""}},
		"beside two":              {"/push/orders", []string{"Bearer good"}, []string{"", "Bearer another"}},
		"twice":                   {"/push/orders", []string{"Bearer good", "Bearer another"}, nil},
		"with dead letters":       {"/push/dead-letters/orders", []string{"Bearer good"}, []string{"Bearer another"}},
		"twice with dead letters": {"/push/dead-letters/orders", []string{"Bearer good", "Bearer another"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{})
			request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, bytes.NewReader(paid("e1", known, 1).envelope()))
			request.Header["Authorization"], request.Header["X-Serverless-Authorization"] = test.given, test.other
			got := r.serve(request)
			require.Equal(t, http.StatusForbidden, got.code)
			require.Equal(t, "forbidden", got.Code)
			require.Zero(t, r.counter.Commits.Load()+r.counter.Gets.Load())
			require.Empty(t, r.letters())
		})
	}
}

func TestAQueueThatIsNotServedIsNotFound(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for _, path := range []string{"/push/nobody", "/push/asleep", "/push/dead-letters/nobody", "/push/dead-letters/asleep"} {
		got := r.post(path, paid("e1", known, 1).envelope())
		require.Equal(t, http.StatusNotFound, got.code, path)
		require.Equal(t, "queue_unknown", got.Code)
	}
	require.Zero(t, r.counter.Commits.Load())
}

// TestOneDeadLetterWhateverIsRedelivered delivers each bad message four times, as a
// broker does that was answered 4xx, or did not hear the answer.
func TestOneDeadLetterWhateverIsRedelivered(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup  setup
		before []message
		bad    message
		code   int
		reason string
		points int64
	}{
		"a body that is not JSON":          {bad: paid("e1", known, 1).with(func(m *message) { m.body = "nonsense" }), code: 400, reason: "body_malformed"},
		"a body without attributes":        {bad: message{id: "7", body: "nonsense", published: start}, code: 400, reason: "contract_mismatch"},
		"no body and no attributes":        {bad: message{id: "7", body: "", published: start}, code: 400, reason: "contract_mismatch"},
		"a contract that is broken":        {bad: paid("e1", known, -1), code: 422, reason: "contract_broken"},
		"a body of another shape":          {bad: paid("e1", known, 1).with(func(m *message) { m.body = map[string]any{"eventId": 1} }), code: 400, reason: "body_malformed"},
		"attributes of another event":      {bad: paid("e1", known, 1).with(func(m *message) { m.attributes["event_id"] = "e2" }), code: 422, reason: "attributes_invalid"},
		"a tenant that is none":            {bad: paid("e1", known, 1).with(func(m *message) { m.attributes["tenant"] = "a/b" }), code: 422, reason: "attributes_invalid"},
		"an unknown product":               {bad: paid("e1", unknown, 1), code: 400, reason: "unknown_product"},
		"another payload under a used id":  {before: []message{paid("e1", known, 2)}, bad: paid("e1", known, 1), code: 409, reason: "payload_conflict", points: 2000},
		"the same with an unknown product": {before: []message{paid("e1", known, 2)}, bad: paid("e1", unknown, 1), code: 409, reason: "payload_conflict", points: 2000},
		"the same with a failing handler":  {setup: setup{credit: failsSmall}, before: []message{paid("e1", known, 2)}, bad: paid("e1", known, 1), code: 409, reason: "payload_conflict", points: 2000},
		"a broken body under a used id":    {before: []message{paid("e1", known, 2)}, bad: paid("e1", known, 0).with(func(m *message) { m.id = "m-9" }), code: 422, reason: "contract_broken", points: 2000},
		"a message with 95 attributes":     {bad: paid("e1", unknown, 1).with(crowd), code: 400, reason: "unknown_product"},
		"a contract nobody can decode": {
			setup: setup{queue: func(q *catalog.Queue) { q.Contract = contract.MessageV1 }},
			bad:   paid("e1", known, 1).with(func(m *message) { m.attributes["contract"] = contract.EnvelopeV1 }), code: 400, reason: "contract_mismatch",
		},
		"an attribute that is far too long": {bad: paid("e1", unknown, 1).with(func(m *message) { m.attributes["own"] = strings.Repeat("x", 5000) }), code: 400, reason: "unknown_product"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.setup)
			for _, m := range test.before {
				require.Equal(t, http.StatusOK, r.deliver(m).code)
			}
			untouched, _ := r.record(t, "e1")
			got := r.deliver(test.bad)
			require.Equal(t, test.code, got.code, got.text)
			require.Equal(t, test.reason, got.Reason)
			for _, attempt := range []int{0, 2, 3} {
				require.Equal(t, http.StatusNoContent, r.deliver(test.bad.again(attempt)).code, "the redelivery is acked")
			}
			letters := r.letters()
			require.Len(t, letters, 1)
			require.Equal(t, test.bad.data(), append([]byte{}, letters[0].Data...))
			require.Empty(t, letters[0].OrderingKey)
			for name, want := range map[string]string{
				"dead_letter_reason": test.reason, "dead_letter_status": fmt.Sprint(test.code), "source_queue": "orders",
				"source_subscription": "orders-push", "source_message_id": test.bad.id, "delivery_attempts": "1",
				"first_published_at": "2026-03-02T10:15:00Z", "dead_lettered_at": "2026-03-02T10:15:00Z", "replay_count": "0",
				"event_id": test.bad.attributes["event_id"],
			} {
				require.Equal(t, want, letters[0].Attributes[name], name)
			}
			require.Equal(t, test.points, r.balance(t))
			if len(test.before) > 0 {
				record, _ := r.record(t, "e1")
				require.Equal(t, untouched, record, "the event that was there first is not touched")
				require.Equal(t, http.StatusNoContent, r.deliver(test.before[0].again(2)).code)
			}
		})
	}
}

// failsSmall fails for orders of one piece.
func failsSmall(_ *rig, own handler.Tx) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		if body, err := contract.As[*contract.PayNow](event.Body); err == nil && body.Data.Order.Items[0].Quantity == 1 {
			return handler.Effect{}, errHandler
		}
		return own(ctx, event)
	}
}

func crowd(m *message) {
	for i := range 90 {
		m.attributes[fmt.Sprintf("own-%02d", i)] = "x"
	}
}

func TestAMalformedMessageDoesNotUseUpItsEventsID(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	broken := paid("e1", known, 1).with(func(m *message) { m.body = "nonsense"; m.id = "m-0" })
	require.Equal(t, http.StatusBadRequest, r.deliver(broken).code)
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	require.EqualValues(t, 1000, r.balance(t))
	record, ok := r.recordAt(t, dedupe.MessageKey("orders", "m-0", []byte("nonsense")))
	require.True(t, ok)
	require.Equal(t, "e1", record.EventID, "so that it is found under the id it came with")
}

func TestTenantsDoNotShareIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	other := paid("e1", known, 3).with(func(m *message) {
		m.attributes["tenant"] = "other"
	})
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 2)).code)
	require.Equal(t, http.StatusOK, r.deliver(other).code)
	require.Equal(t, http.StatusNoContent, r.deliver(other).code)
	require.Equal(t, []int64{2000, 3000}, []int64{r.balance(t), r.balanceOf(t, "other")}, "of one order, customer and event id")
	_, ok := r.recordAt(t, dedupe.Key("orders", "other", "e1"))
	require.True(t, ok)
}

func TestACallerThatLeavesTakesNoAttemptWithIt(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(context.Context) error{
		"a handler that says so":                      context.Cause,
		"a handler that takes it for a store failure": func(ctx context.Context) error { return retry.Outage("store_unavailable", ctx.Err()) },
		"a handler with a name for everything":        func(context.Context) error { return retry.Transient("order_not_seen", nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, leave := context.WithCancel(t.Context())
			r := newRig(t, setup{credit: func(*rig, handler.Tx) handler.Tx {
				return func(ctx context.Context, _ handler.Event) (handler.Effect, error) {
					leave()
					<-ctx.Done()
					return handler.Effect{}, answer(ctx)
				}
			}})
			got := r.serve(request(ctx, paid("e1", known, 1)))
			require.Equal(t, http.StatusServiceUnavailable, got.code)
			require.Equal(t, "canceled", got.Reason)
			_, ok := r.record(t, "e1")
			require.False(t, ok)
		})
	}
}

// meanwhile returns a store on which something happens during a commit with an effect.
func meanwhile(s store.Store, happens func(context.Context)) store.Store {
	return &storetest.Faults{Store: s, OnCommit: func(ctx context.Context, writes []store.Write, do func() error) error {
		if len(writes) > 1 {
			happens(ctx)
		}
		return do()
	}}
}

func TestACallerThatLeavesDuringTheCommitTakesNoAttemptWithIt(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	r := newRig(t, setup{})
	r.counter.Store = meanwhile(r.counter.Store, func(context.Context) { leave() })
	require.Equal(t, "canceled", r.serve(request(ctx, paid("e1", known, 1))).Reason)
	_, ok := r.record(t, "e1")
	require.False(t, ok)
	require.Zero(t, r.balance(t))
}

func TestACommitThatTakesTooLongIsATimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{})
		r.counter.Store = meanwhile(r.counter.Store, func(ctx context.Context) { <-ctx.Done() })
		got := r.deliver(paid("e1", known, 1))
		require.Equal(t, http.StatusGatewayTimeout, got.code)
		require.Equal(t, "handler_timeout", got.Reason)
		record, _ := r.record(t, "e1")
		require.EqualValues(t, 1, record.Attempts)
		require.Zero(t, r.balance(t))
	})
}

func TestADeadLetterIsMadeAlsoWhereTheCallerHasLeft(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	leave()
	r := newRig(t, setup{})
	bad := paid("e1", known, 1).with(func(m *message) { m.body = "x" })
	require.Equal(t, http.StatusBadRequest, r.serve(request(ctx, bad)).code)
	require.Len(t, r.letters(), 1)
	require.Equal(t, http.StatusNoContent, r.deliver(bad.again(2)).code)
}

func request(ctx context.Context, m message) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/push/orders", strings.NewReader(string(m.envelope())))
	r.Header.Set("Authorization", "Bearer good")
	return r
}

func TestAHandlerThatIgnoresItsDeadlineIsLeftBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		r := newRig(t, setup{credit: func(_ *rig, own handler.Tx) handler.Tx {
			return func(_ context.Context, event handler.Event) (handler.Effect, error) {
				<-release
				return own(context.Background(), event)
			}
		}})
		began := time.Now()
		got := r.deliver(paid("e1", known, 1))
		require.Equal(t, http.StatusGatewayTimeout, got.code)
		require.Equal(t, "handler_timeout", got.Reason)
		require.Equal(t, 30*time.Second, time.Since(began), "at the deadline of the catalog")
		record, _ := r.record(t, "e1")
		require.Equal(t, dedupe.Failed, record.Status)

		close(release)
		synctest.Wait()
		again, _ := r.record(t, "e1")
		require.Equal(t, record, again, "what it returns too late is not committed")
		require.Zero(t, r.balance(t))
		require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1).again(2)).code)
		require.EqualValues(t, 1000, r.balance(t))
	})
}

// What can never succeed does not become a timeout by being slow.
func TestARefusalThatComesAfterTheDeadlineIsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, setup{credit: func(*rig, handler.Tx) handler.Tx {
			return func(context.Context, handler.Event) (handler.Effect, error) {
				return handler.Effect{Writes: []store.Write{store.Set(store.Key{Collection: "c", ID: "i"}, map[string]any{"n": 1.5})}}, nil
			}
		}})
		r.counter.Store = meanwhile(r.counter.Store, func(ctx context.Context) { <-ctx.Done() })
		got := r.deliver(paid("e1", known, 1))
		require.Equal(t, http.StatusUnprocessableEntity, got.code)
		require.Equal(t, "effect_invalid", got.Reason)
		require.Len(t, r.letters(), 1)
	})
}

func TestADetailNamesPathsAndCodesAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup   setup
		deliver message
		want    string
	}{
		"where a contract is broken": {deliver: paid("e1", known, 0), want: "contract: data.order.items[0].quantity: min=1"},
		"where attempts are used up": {setup: setup{credit: always(retry.Down("gateway_unavailable", errHandler))}, deliver: paid("e1", known, 1).with(once), want: "attempts_exhausted"},
		"where a callee says why": {
			setup:   setup{credit: always(retry.Says(`code "limit"`, retry.Permanent("callee_refused_422", errHandler)))},
			deliver: paid("e1", known, 1), want: `code "limit"`,
		},
		"where one fails until the end and says why": {
			setup:   setup{credit: always(retry.Says(`code "limit"`, retry.Transient("callee_failed_503", errHandler)))},
			deliver: paid("e1", known, 1).with(once), want: `attempts_exhausted: code "limit"`,
		},
		"where a handler quotes others": {setup: setup{credit: always(retry.Permanent("bad_amount", errHandler))}, deliver: paid("e1", known, 1), want: ""},
		"where a body is unreadable":    {deliver: paid("e1", known, 1).with(func(m *message) { m.body = `{"ilse":` }), want: ""},
		"where a store takes no such write": {setup: setup{credit: func(*rig, handler.Tx) handler.Tx {
			return func(context.Context, handler.Event) (handler.Effect, error) {
				return handler.Effect{Writes: []store.Write{store.Set(store.Key{Collection: "ilse", ID: "ilse"}, map[string]any{"ilse": 1.5})}}, nil
			}
		}}, deliver: paid("e1", known, 1), want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, test.setup)
			got := r.deliver(test.deliver)
			require.Equal(t, "dead_lettered", got.Outcome)
			attributes := r.letters()[0].Attributes
			require.Equal(t, test.want, attributes["dead_letter_detail"])
			require.NotContains(t, fmt.Sprint(attributes)+r.log.String(), "ilse")
		})
	}
}

func once(m *message) { m.attributes["max_attempts"] = "1" }
