package dedupe_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

var (
	balance = store.Key{Collection: "accounts", ID: "a"}
	eventAt = dedupe.Key("q", dedupe.DefaultTenant, "e1")
)

const remember = 30 * 24 * time.Hour

// bench is a state machine on a store in memory, with a clock that stands.
type bench struct {
	*memory
	once  *dedupe.Once
	now   atomic.Int64
	names atomic.Int64
}

func newBench() *bench {
	b := &bench{memory: newMemory()}
	b.now.Store(time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC).UnixNano())
	b.once = &dedupe.Once{
		Store: b.memory, Now: func() time.Time { return time.Unix(0, b.now.Load()).UTC() },
		NewToken: func() string { return fmt.Sprint("token-", b.names.Add(1)) },
	}
	return b
}

// begin starts a delivery of the event e1 with a payload.
func (b *bench) begin(payload string) *dedupe.Run {
	return b.once.Begin(eventAt, dedupe.Record{
		Queue: "q", Tenant: dedupe.DefaultTenant, EventID: "e1", EventType: "order.paid", PayloadHash: "sha256:" + payload,
	}, remember)
}

// record is what the store holds of e1.
func (b *bench) record(t require.TestingT) dedupe.Record {
	doc, err := b.Get(context.Background(), eventAt)
	require.NoError(t, err)
	record, err := dedupe.FromDocument(doc)
	require.NoError(t, err)
	return record
}

func event() handler.Event { return handler.Event{Queue: "q", ID: "e1", Type: "order.paid"} }

// credit adds one to the balance, without a precondition of its own: only the record
// keeps it from being added twice.
func credit(context.Context, handler.Event) (handler.Effect, error) {
	return handler.Effect{Result: "credited", Writes: []store.Write{store.Increment(balance, map[string]int64{"n": 1}, nil)}}, nil
}

func TestAnEffectThatMeetsAConflictIsDecidedAgain(t *testing.T) {
	t.Parallel()
	other := store.Key{Collection: "entries", ID: "x"}
	t.Run("with a higher try", func(t *testing.T) {
		t.Parallel()
		b := newBench()
		_, err := b.Commit(t.Context(), []store.Write{store.Create(other, nil)})
		require.NoError(t, err)
		var tries []int
		run := b.begin("A")
		seen, err := dedupetest.Effect(t.Context(), run, event(), false, func(_ context.Context, e handler.Event) (handler.Effect, error) {
			require.Equal(t, 1, e.Attempt)
			if tries = append(tries, e.Try); e.Try > 0 {
				return handler.Effect{Result: "already_credited"}, nil
			}
			return handler.Effect{Writes: []store.Write{store.Create(other, nil)}, Result: "credited"}, nil
		})
		require.NoError(t, err)
		require.Equal(t, dedupe.Own, seen)
		require.Equal(t, []int{0, 1}, tries)
		require.Equal(t, "already_credited", run.Result())
	})
	t.Run("three times in all, and then it is left to a redelivery", func(t *testing.T) {
		t.Parallel()
		for _, redelivered := range []bool{false, true} {
			b := newBench()
			_, err := b.Commit(t.Context(), []store.Write{store.Create(other, nil)})
			require.NoError(t, err)
			var tries []int
			_, err = dedupetest.Effect(t.Context(), b.begin("A"), event(), redelivered, func(_ context.Context, e handler.Event) (handler.Effect, error) {
				tries = append(tries, e.Try)
				return handler.Effect{Writes: []store.Write{store.Create(other, nil)}}, nil
			})
			require.Equal(t, retry.Verdict{Class: retry.Unavailable, Reason: "contention"}, retry.Decide(err), "no attempt is counted")
			require.Equal(t, []int{0, 1, 2}, tries)
			_, err = b.Get(t.Context(), eventAt)
			require.ErrorIs(t, err, store.ErrNotFound)
		}
	})
	t.Run("also where the record is one that failed", func(t *testing.T) {
		t.Parallel()
		b := newBench()
		_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "order_not_seen", Next: b.once.Now()})
		require.NoError(t, err)
		_, err = b.Commit(t.Context(), []store.Write{store.Create(other, nil)})
		require.NoError(t, err)
		var tries []int
		_, err = dedupetest.Effect(t.Context(), b.begin("A"), event(), false, func(_ context.Context, e handler.Event) (handler.Effect, error) {
			tries = append(tries, e.Try)
			return handler.Effect{Writes: []store.Write{store.Create(other, nil)}}, nil
		})
		require.Equal(t, "contention", retry.Decide(err).Reason)
		require.Equal(t, []int{0, 0, 1, 2}, tries, "finding the record is no conflict of the effect")
		require.EqualValues(t, 1, b.record(t).Attempts)
	})
}

func TestWritesThatNoStoreTakesArePermanent(t *testing.T) {
	t.Parallel()
	b := newBench()
	_, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, func(context.Context, handler.Event) (handler.Effect, error) {
		return handler.Effect{Writes: []store.Write{store.Set(balance, map[string]any{"n": 1.5})}}, nil
	})
	require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "effect_invalid", Counts: true}, retry.Decide(err))
}

func TestAStoreThatIsDownIsNeverTakenForAnAbsentRecord(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(b *bench){
		"it does not answer": func(b *bench) { b.down = true },
		"it holds what cannot be read": func(b *bench) {
			b.docs[eventAt] = store.Document{Key: eventAt, Fields: map[string]any{"status": "COMPLETED"}, Version: 1}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, redelivered := range []bool{false, true} {
				b := newBench()
				prepare(b)
				_, err := b.begin("A").Look(t.Context())
				require.Error(t, err)
				seen, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), redelivered, credit)
				require.Equal(t, dedupe.Fresh, seen)
				require.False(t, retry.Decide(err).Class.Terminal())
				_, err = b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
				require.Error(t, err)
				require.Zero(t, b.balance())
			}
		})
	}
}

func TestAnotherPayloadUnderAUsedIDDiffers(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(t *testing.T, b *bench){
		"of an event that was completed": func(t *testing.T, b *bench) {
			t.Helper()
			_, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, credit)
			require.NoError(t, err)
		},
		"of an event that failed so far": func(t *testing.T, b *bench) {
			t.Helper()
			_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
			require.NoError(t, err)
		},
		"of an event that was dead-lettered": func(t *testing.T, b *bench) {
			t.Helper()
			_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "unknown_product"})
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			prepare(t, b)
			before := b.record(t)
			for _, redelivered := range []bool{false, true} {
				seen, err := dedupetest.Effect(t.Context(), b.begin("B"), event(), redelivered, credit)
				require.NoError(t, err)
				require.Equal(t, dedupe.Differs, seen)
			}
			require.Equal(t, before, b.record(t))

			conflict := b.begin("B").Conflict()
			seen, err := conflict.Look(t.Context())
			require.NoError(t, err)
			require.Equal(t, dedupe.Fresh, seen)
			seen, err = conflict.Conclude(t.Context(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "payload_conflict"})
			require.NoError(t, err)
			require.Equal(t, dedupe.Gone, seen)
			seen, err = b.begin("B").Conflict().Look(t.Context())
			require.NoError(t, err)
			require.Equal(t, dedupe.Gone, seen)
			require.Equal(t, before, b.record(t), "the conflict stands beside the record")
		})
	}
}

func TestALeaseIsHeldUntilItEnds(t *testing.T) {
	t.Parallel()
	b := newBench()
	held := dedupe.Record{
		Queue: "q", Tenant: dedupe.DefaultTenant, EventID: "e1", Status: dedupe.Processing, PayloadHash: "sha256:A",
		LeaseToken: "another's", LeaseUntil: b.once.Now().Add(time.Minute), ExpireAt: b.once.Now().Add(remember), Attempts: 1,
	}
	_, err := b.Commit(t.Context(), []store.Write{store.Create(eventAt, held.Fields())})
	require.NoError(t, err)
	seen, err := b.begin("A").Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, dedupe.Held, seen)
	b.pass(time.Minute)
	run := b.begin("A")
	seen, err = run.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, dedupe.Fresh, seen)
	require.Equal(t, 2, run.Attempt())
}

func (b *bench) pass(d time.Duration) { b.now.Add(int64(d)) }
