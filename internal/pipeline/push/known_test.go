package push_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// byKey is a queue of envelopes whose events are known by their idempotency keys.
func byKey(q *catalog.Queue) {
	q.Contract, q.OrderingKey, q.DedupeBy = contract.EnvelopeV1, []string{"subscription_id"}, catalog.ByIdempotencyKey
	q.Handlers = map[string]catalog.Handler{"renewal": q.Handlers["order.paid"]}
}

// naming is an envelope that names a key.
func naming(id, key string) message {
	return told(id).with(func(m *message) {
		envelope, _ := m.body.(contract.Envelope)
		envelope.IdempotencyKey = key
		m.body = envelope
	})
}

func TestAnEventIsKnownByTheKeyThatItsMessageNames(t *testing.T) {
	t.Parallel()
	var seen []handler.Event
	r := takingAll(t, &seen, nil, byKey)
	require.Equal(t, http.StatusOK, r.deliver(naming("e1", "k1")).code)
	got := r.deliver(naming("e2", "k1"))
	require.Equal(t, http.StatusNoContent, got.code, "the same event under another id")
	id, _ := seen[0].Body.Identity()
	require.Equal(t, []string{"k1", "k1"}, []string{seen[0].ID, id}, "what is sent to a service names the key too")
	record, ok := r.record(t, "k1")
	require.True(t, ok)
	require.Equal(t, "k1", record.EventID)
	_, ok = r.record(t, "e1")
	require.False(t, ok)

	other := naming("e3", "k1").with(func(m *message) {
		envelope, _ := m.body.(contract.Envelope)
		envelope.Payload.Amount = "1.99"
		m.body = envelope
	})
	got = r.deliver(other)
	require.Equal(t, []any{http.StatusConflict, "payload_conflict", "k1"}, []any{got.code, got.Reason, got.EventID})
	require.Equal(t, http.StatusNoContent, r.deliver(other.again(2)).code)

	require.Equal(t, http.StatusOK, r.deliver(told("e4")).code, "one that names none")
	_, ok = r.record(t, "e4")
	require.True(t, ok)
	require.Equal(t, http.StatusUnprocessableEntity, r.deliver(naming("e5", "k5").with(func(m *message) { m.attributes["idempotency_key"] = "k6" })).code)
}

// exhaust delivers a message until it is dead, from the broker or from its wait.
func (r *rig) exhaust(t *testing.T, m message) reply {
	t.Helper()
	for delivery := 1; ; delivery++ {
		got := r.deliver(m.again(delivery))
		if got.Outcome != "retry" {
			return got
		}
		require.Less(t, delivery, 10)
		r.pass(time.Hour)
		if back := r.release(t); len(back) > 0 {
			m, delivery = back[0], 0
		}
	}
}

// The queue gives three attempts.
func TestAMessageGoesOnFromTheAttemptsThatItHadBefore(t *testing.T) {
	t.Parallel()
	for before, left := range map[int64]int{0: 3, 1: 2, 2: 1, 3: 1, 1000: 1} {
		for _, kind := range []string{"tx", "leased"} {
			t.Run(fmt.Sprint(before, " before, ", kind), func(t *testing.T) {
				t.Parallel()
				calls := 0
				failing := func(context.Context, handler.Event) (string, error) {
					calls++
					return "", retry.Transient("away", nil)
				}
				with := setup{queue: func(q *catalog.Queue) {
					byKey(q)
					q.DedupeBy = catalog.ByEventID
				}}
				if kind == "leased" {
					with.leased = repeats(failing)
				} else {
					with.credit = func(*rig, handler.Tx) handler.Tx {
						return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
							_, err := failing(ctx, event)
							return handler.Effect{}, err
						}
					}
				}
				r := newRig(t, with)
				m := told("e1").with(func(m *message) {
					envelope, _ := m.body.(contract.Envelope)
					envelope.Attempts = before
					m.body = envelope
				})
				got := r.exhaust(t, m)
				require.Equal(t, "away", got.Reason, got.text)
				require.Equal(t, 3, got.Attempt, "of all that it ever had")
				require.Equal(t, left, calls)
				record, ok := r.record(t, "e1")
				require.True(t, ok)
				require.Equal(t, int64(3), record.Attempts)

				calls = 0
				got = r.exhaust(t, r.replay(t, r.keep(t, 0)))
				require.Equal(t, "away", got.Reason, "a replay has all its attempts")
				require.Equal(t, 3, calls)
			})
		}
	}
}

// TestAttemptsBeforeExplainNoDelivery: they were elsewhere, so that four deliveries here without a trace are four.
func TestAttemptsBeforeExplainNoDelivery(t *testing.T) {
	t.Parallel()
	for delivery, counted := range map[int]bool{3: false, 4: true} {
		var found bool
		r := newRig(t, setup{queue: func(q *catalog.Queue) {
			byKey(q)
			q.DedupeBy = catalog.ByEventID
		}, credit: func(r *rig, _ handler.Tx) handler.Tx {
			return func(context.Context, handler.Event) (handler.Effect, error) {
				_, found = r.record(t, "e1")
				return handler.Effect{}, nil
			}
		}})
		m := told("e1").with(func(m *message) {
			envelope, _ := m.body.(contract.Envelope)
			envelope.Attempts = 1
			m.body = envelope
		})
		require.Equal(t, "processed", r.deliverNow(m.again(delivery)).Outcome)
		require.Equal(t, counted, found, "delivery %d, before the attempt", delivery)
	}
}
