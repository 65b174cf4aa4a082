package dedupe_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

func (b *bench) pass(d time.Duration) { b.now.Add(int64(d)) }

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

func failing(err error) handler.Tx {
	return func(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, err }
}

func TestANewEventIsOneCommitAndNoRead(t *testing.T) {
	t.Parallel()
	b := newBench()
	run := b.begin("A")
	seen, err := dedupetest.Effect(t.Context(), run, event(), false, credit)
	require.NoError(t, err)
	require.Equal(t, dedupe.Own, seen)
	require.Equal(t, "credited", run.Result())
	require.Equal(t, 1, run.Attempt())
	reads, commits := b.trips()
	require.Equal(t, []int{0, 1}, []int{reads, commits})

	record := b.record(t)
	require.Equal(t, dedupe.Completed, record.Status)
	require.EqualValues(t, 1, record.Attempts)
	require.Equal(t, "credited", record.Result)
	require.Equal(t, b.once.Now(), record.CreatedAt)
	require.Equal(t, b.once.Now(), record.ProcessedAt)
	require.Equal(t, b.once.Now().Add(remember), record.ExpireAt)
	require.EqualValues(t, 1, b.balance())
}

func TestADuplicateIsSeenAndChangesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		redelivered    bool
		reads, commits int
	}{
		"by a refused commit and a read":             {false, 1, 1},
		"by a read alone where the broker counts it": {true, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			_, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, credit)
			require.NoError(t, err)
			before := b.record(t)
			b.trips()

			run := b.begin("A")
			seen, err := dedupetest.Effect(t.Context(), run, event(), test.redelivered, credit)
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, seen)
			require.Equal(t, "credited", run.Result())
			reads, commits := b.trips()
			require.Equal(t, []int{test.reads, test.commits}, []int{reads, commits})
			require.Equal(t, before, b.record(t))
			require.EqualValues(t, 1, b.balance())
		})
	}
}

func TestARetryKeepsTheRecordAndCountsOn(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		redelivered    bool
		reads, commits int
	}{
		"one read and one commit where the broker counts it": {true, 1, 1},
		"one commit more where it does not":                  {false, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			created := b.once.Now()
			run := b.begin("A")
			_, err := dedupetest.Effect(t.Context(), run, event(), false, failing(errors.New("down")))
			require.Error(t, err)
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: created.Add(time.Minute)})
			require.NoError(t, err)
			require.Equal(t, dedupe.Counted, seen)
			record := b.record(t)
			require.Equal(t, dedupe.Failed, record.Status)
			require.Equal(t, "handler_error", record.LastError)
			require.EqualValues(t, 1, record.Attempts)
			require.Equal(t, created.Add(time.Minute), record.NextRetryAt)
			b.trips()
			b.pass(time.Minute)

			var attempts []int
			again := b.begin("A")
			seen, err = dedupetest.Effect(t.Context(), again, event(), test.redelivered, func(ctx context.Context, e handler.Event) (handler.Effect, error) {
				require.Zero(t, e.Try, "the record alone was in the way")
				attempts = append(attempts, e.Attempt)
				return credit(ctx, e)
			})
			require.NoError(t, err)
			require.Equal(t, dedupe.Own, seen)
			require.Equal(t, 2, attempts[len(attempts)-1])
			reads, commits := b.trips()
			require.Equal(t, []int{test.reads, test.commits}, []int{reads, commits})
			record = b.record(t)
			require.Equal(t, dedupe.Completed, record.Status)
			require.EqualValues(t, 2, record.Attempts)
			require.Equal(t, created, record.CreatedAt)
			require.Empty(t, record.LastError)
			require.Zero(t, record.NextRetryAt)
			require.EqualValues(t, 1, b.balance())
		})
	}
}

func TestTheLostAnswerOfAnOwnCommitIsRecognized(t *testing.T) {
	t.Parallel()
	t.Run("an effect whose commit was sent twice", func(t *testing.T) {
		t.Parallel()
		b := newBench()
		b.faults = []fault{repeat}
		run := b.begin("A")
		seen, err := dedupetest.Effect(t.Context(), run, event(), false, credit)
		require.NoError(t, err)
		require.Equal(t, dedupe.Own, seen)
		require.Equal(t, 1, run.Attempt())
		require.Equal(t, "credited", run.Result())
		require.EqualValues(t, 1, b.balance())
	})
	t.Run("an effect whose answer never came is found by what follows", func(t *testing.T) {
		t.Parallel()
		b := newBench()
		b.faults = []fault{lose}
		run := b.begin("A")
		_, err := dedupetest.Effect(t.Context(), run, event(), false, credit)
		require.Equal(t, retry.Decide(retry.Outage("store_unavailable", nil)), retry.Decide(err))
		seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "store_unavailable", Next: b.once.Now()})
		require.NoError(t, err)
		require.Equal(t, dedupe.Own, seen, "the effect stands, and the failure does not")
		require.Equal(t, dedupe.Completed, b.record(t).Status)
		require.EqualValues(t, 1, b.balance())
	})
	t.Run("a failure that was sent twice counts once", func(t *testing.T) {
		t.Parallel()
		b := newBench()
		b.faults = []fault{repeat}
		seen, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
		require.NoError(t, err)
		require.Equal(t, dedupe.Counted, seen)
		require.EqualValues(t, 1, b.record(t).Attempts)
	})
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

func TestAConflictNeverConflictsItself(t *testing.T) {
	t.Parallel()
	b := newBench()
	wrong := dedupe.Record{Queue: "q", Tenant: dedupe.DefaultTenant, EventID: "e1", Status: dedupe.DeadLettered, PayloadHash: "sha256:C"}
	key := dedupe.ConflictKey("q", dedupe.DefaultTenant, "e1", "sha256:B")
	_, err := b.Commit(t.Context(), []store.Write{store.Create(key, wrong.Fields())})
	require.NoError(t, err)
	seen, err := b.begin("B").Conflict().Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, dedupe.Gone, seen, "else its dead letter would be looked for without end")
}

func TestAnExpiredRecordCountsAsAbsent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		payload     string
		redelivered bool
	}{
		"the same event again":          {"A", false},
		"the same event, read first":    {"A", true},
		"another payload under that id": {"B", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			_, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, credit)
			require.NoError(t, err)
			b.pass(remember - time.Nanosecond)
			seen, err := b.begin("A").Look(t.Context())
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, seen)

			b.pass(time.Nanosecond)
			seen, err = dedupetest.Effect(t.Context(), b.begin(test.payload), event(), test.redelivered, credit)
			require.NoError(t, err)
			require.Equal(t, dedupe.Own, seen)
			record := b.record(t)
			require.EqualValues(t, 1, record.Attempts)
			require.Equal(t, b.once.Now(), record.CreatedAt)
			require.EqualValues(t, 2, b.balance())
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

func TestAnErrorOfTheHandlerCommitsNothing(t *testing.T) {
	t.Parallel()
	b := newBench()
	cause := retry.Permanent("unknown_product", nil)
	_, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, failing(cause))
	require.ErrorIs(t, err, cause)
	reads, commits := b.trips()
	require.Equal(t, []int{0, 0}, []int{reads, commits})
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

func TestNeitherAFailureNorABurialIsWrittenOverASuccess(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]func(t *testing.T, run *dedupe.Run){
		"a failure": func(t *testing.T, run *dedupe.Run) {
			t.Helper()
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_timeout"})
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, seen)
		},
		"a burial": func(t *testing.T, run *dedupe.Run) {
			t.Helper()
			seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "attempts_exhausted"})
			require.NoError(t, err)
			require.Equal(t, dedupe.Done, seen)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			fresh := b.begin("A")
			_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
			require.NoError(t, err)
			retrying := b.begin("A")
			_, err = retrying.Look(t.Context())
			require.NoError(t, err)

			seen, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), true, credit)
			require.NoError(t, err)
			require.Equal(t, dedupe.Own, seen)
			success := b.record(t)
			late(t, fresh)
			late(t, retrying)
			require.Equal(t, success, b.record(t))
		})
	}
}

func TestAFailureThatMeetsAnotherFailureCountsAfterIt(t *testing.T) {
	t.Parallel()
	b := newBench()
	unaware := b.begin("A")
	_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
	require.NoError(t, err)
	seen, err := unaware.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
	require.NoError(t, err)
	require.Equal(t, dedupe.Fresh, seen, "decide again")
	require.Equal(t, 2, unaware.Attempt())
	seen, err = unaware.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
	require.NoError(t, err)
	require.Equal(t, dedupe.Counted, seen)
	require.EqualValues(t, 2, b.record(t).Attempts)
}

func TestTheEffectOfAWorkerThatComesLateIsNotCommitted(t *testing.T) {
	t.Parallel()
	b := newBench()
	_, err := b.begin("A").Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
	require.NoError(t, err)
	slow := b.begin("A")
	b.before = func() { // while the slow one commits, another delivery succeeds
		seen, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), true, credit)
		require.NoError(t, err)
		require.Equal(t, dedupe.Own, seen)
	}
	seen, err := dedupetest.Effect(t.Context(), slow, event(), true, credit)
	require.NoError(t, err)
	require.Equal(t, dedupe.Done, seen)
	require.EqualValues(t, 1, b.balance())
}

func TestOfFiftyDeliveriesOfOneEventOneOwnsTheEffect(t *testing.T) {
	t.Parallel()
	b := newBench()
	var own, done atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for range 50 {
		wg.Go(func() {
			<-start
			switch seen, err := dedupetest.Effect(context.Background(), b.begin("A"), event(), false, credit); {
			case err != nil:
			case seen == dedupe.Own:
				own.Add(1)
			case seen == dedupe.Done:
				done.Add(1)
			}
		})
	}
	close(start)
	wg.Wait()
	require.EqualValues(t, 1, own.Load())
	require.EqualValues(t, 49, done.Load())
	require.EqualValues(t, 1, b.balance())
}
