package dedupe_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

const remember = 30 * 24 * time.Hour

var (
	morning = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)
	account = store.Key{Collection: "accounts", ID: "a"}
)

// With -short rapid would make a fifth of its steps, and leave states untested that no other test reaches.
func TestMain(m *testing.M) { storetest.Stepping(m, "150") }

func TestAnEventIsCompletedOnceOnTheEmbeddedStore(t *testing.T) {
	t.Parallel()
	dedupetest.Run(t, storetest.Open)
}

func TestTheReadsOfAJobLogPageDoNotGrowWithTheRecords(t *testing.T) {
	t.Parallel()
	records := 100_000
	if testing.Short() {
		records = 2_000
	}
	dedupetest.RunList(t, records, storetest.Open)
}

type bench struct {
	*storetest.Faults
	calls *storetest.Counter
	once  *dedupe.Once
	now   time.Time
}

func newBench(t *testing.T) *bench {
	t.Helper()
	calls, tokens := &storetest.Counter{Store: storetest.Open(t)}, 0
	b := &bench{Faults: &storetest.Faults{Store: calls}, calls: calls, now: morning}
	b.once = &dedupe.Once{Store: b.Faults, Now: func() time.Time { return b.now }, NewToken: func() string {
		tokens++
		return fmt.Sprint("token-", tokens)
	}}
	return b
}

func keyOf(id string) store.Key { return dedupe.Key("q", dedupe.DefaultTenant, id) }

func (b *bench) begin(id, payload string) *dedupe.Run {
	return b.once.Begin(keyOf(id), dedupe.Record{Identity: dedupe.Identity{
		Queue: "q", Tenant: dedupe.DefaultTenant, EventID: id, EventType: "order.paid",
		PayloadHash: "sha256:" + payload,
	}}, remember)
}

func (b *bench) claim(t *testing.T, id string, keep bool) *dedupe.Run {
	t.Helper()
	var message *contract.Message
	if keep {
		message = &contract.Message{
			Data: []byte(id), Attributes: map[string]string{"event_id": id}, OrderingKey: "k",
		}
	}
	run := b.begin(id, "A")
	require.Equal(t, dedupe.Claimed, filetest.Must(run.Claim(t.Context(), 2*time.Minute, message, false))(t))
	return run
}

func (b *bench) record(t *testing.T, id string) dedupe.Record {
	t.Helper()
	return filetest.Must(dedupe.FromDocument(storetest.Get(t, b.calls, keyOf(id))))(t)
}

// ends reads the record, and concludes a run that is Fresh.
func ends(t *testing.T, run *dedupe.Run, end dedupe.Ending) dedupe.Seen {
	t.Helper()
	seen := filetest.Must(run.Look(t.Context()))(t)
	if seen == dedupe.Fresh {
		seen = filetest.Must(run.Conclude(t.Context(), end))(t)
	}
	return seen
}

var failed = dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: morning}

func TestAnEffectIsDecidedThreeTimesAfterConflicts(t *testing.T) {
	t.Parallel()
	taken := store.Create(store.Key{Collection: "entries", ID: "x"}, nil)
	type row struct {
		redelivered, failedBefore, yields bool
		tries                             []int
	}
	filetest.Each(t, map[string]row{
		"the second finds the effect made": {yields: true, tries: []int{0, 1}},
		"all three conflict":               {tries: []int{0, 1, 2}},
		"the record was read first":        {redelivered: true, tries: []int{0, 1, 2}},
		"the record of an earlier attempt is no conflict": {
			failedBefore: true, tries: []int{0, 0, 1, 2},
		},
	}, func(t *testing.T, test row) {
		b := newBench(t)
		storetest.Put(t, b.calls, taken)
		if test.failedBefore {
			ends(t, b.begin("e1", "A"), failed)
		}
		var tries []int
		run := b.begin("e1", "A")
		_, err := dedupetest.Effect(t.Context(), run, handler.Event{}, test.redelivered,
			func(_ context.Context, e handler.Event) (handler.Effect, error) {
				if tries = append(tries, e.Try); test.yields && e.Try > 0 {
					return handler.Effect{Result: "already_credited"}, nil
				}
				return handler.Effect{Writes: []store.Write{taken}}, nil
			})
		require.Equal(t, test.tries, tries)
		if test.yields {
			require.NoError(t, err)
			require.Equal(t, "already_credited", run.Record.Result)
			return
		}
		require.Equal(t, retry.Verdict{Class: retry.Unavailable, Reason: "contention"}, retry.Decide(err),
			"no attempt is counted")
		_, err = b.Get(t.Context(), keyOf("e1"))
		require.Equal(t, test.failedBefore, err == nil)
	})
}

func TestInvalidWritesOfAnEffectAreRejected(t *testing.T) {
	t.Parallel()
	_, err := newBench(t).begin("e1", "A").Conclude(t.Context(), dedupe.Ending{
		Status: dedupe.Completed,
		Effect: handler.Effect{Writes: []store.Write{store.Set(account, map[string]any{"n": 1.5})}},
	})
	require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "effect_invalid", Counts: true},
		retry.Decide(err))
}

func TestAnUnreadRecordIsNotTreatedAsAbsent(t *testing.T) {
	t.Parallel()
	filetest.Each(t, map[string]func(*testing.T, *bench){
		"the store does not answer": func(_ *testing.T, b *bench) { b.Down(true) },
		"the record is not readable": func(t *testing.T, b *bench) {
			storetest.Put(t, b.calls, store.Create(keyOf("e1"), map[string]any{"status": "COMPLETED"}))
		},
	}, func(t *testing.T, prepare func(*testing.T, *bench)) {
		b := newBench(t)
		prepare(t, b)
		credit := dedupe.Ending{
			Status: dedupe.Completed, Effect: handler.Effect{Writes: []store.Write{store.Create(account, nil)}},
		}
		run := b.begin("e1", "A")
		run.DeadLetters = deadLetters("dead")
		for _, call := range []func() (dedupe.Seen, error){
			func() (dedupe.Seen, error) { return run.Look(t.Context()) },
			func() (dedupe.Seen, error) { return run.Claim(t.Context(), time.Minute, nil, false) },
			func() (dedupe.Seen, error) { return run.Claim(t.Context(), time.Minute, nil, true) },
			func() (dedupe.Seen, error) { return run.Conclude(t.Context(), credit) },
			func() (dedupe.Seen, error) { return run.Conclude(t.Context(), failed) },
			func() (dedupe.Seen, error) { return dedupe.Fresh, run.Broken(t.Context(), "contract_broken") },
		} {
			seen, err := call()
			require.Equal(t, dedupe.Fresh, seen)
			require.False(t, retry.Decide(err).Class.Terminal())
		}
		require.ErrorIs(t, filetest.ErrorOf(b.calls.Get(t.Context(), account)), store.ErrNotFound)
	})
}

func TestTheEndOfALeaseIsTriedThreeTimes(t *testing.T) {
	t.Parallel()
	sent := dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "sent"}}
	for refused, lost := range map[int]int{1: 1, 3: 0} {
		b := newBench(t)
		run := b.claim(t, "e1", false)
		b.FailBefore(refused)
		b.FailAfter(lost)
		seen, err := run.Conclude(t.Context(), sent)
		if refused == dedupe.MaxTry {
			require.Equal(t, "store_unavailable", retry.Decide(err).Reason)
			require.Equal(t, dedupe.Processing, b.record(t, "e1").Status, "its lease stays")
			seen, err = run.Conclude(t.Context(), sent) // no fourth try was made
		}
		require.NoError(t, err)
		require.Equal(t, dedupe.Own, seen)
		require.Equal(t, "sent", run.Record.Result)
	}
}

// deadLetters has the id of a message's dead letter, and accepts each correction.
type deadLetters string

func (l deadLetters) Own() string                    { return string(l) }
func (l deadLetters) Replaceable(dedupe.Record) bool { return true }
func (l deadLetters) Close(ids []string) (writes []store.Write) {
	for _, id := range ids {
		writes = append(writes, store.Create(store.Key{Collection: "closed", ID: id}, nil))
	}
	return writes
}

// The model draws too few attempts of one event to reach the bounds.
func TestARecordIsBounded(t *testing.T) {
	t.Parallel()
	refused := dedupe.Ending{Status: dedupe.DeadLettered, Reason: "refused"}
	const most = 20
	reject := func(t *testing.T, b *bench, id, payload string) dedupe.Seen {
		t.Helper()
		run := b.begin("e1", payload)
		run.DeadLetters = deadLetters(id)
		return ends(t, run, refused)
	}
	t.Run("it logs the newest attempts", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		for range dedupe.MaxLog + 5 {
			require.Equal(t, dedupe.Counted, ends(t, b.begin("e1", "A"), failed))
		}
		record := b.record(t, "e1")
		require.EqualValues(t, dedupe.MaxLog+5, record.Attempts)
		require.Len(t, record.Log, dedupe.MaxLog)
		for i, line := range record.Log {
			require.EqualValues(t, i+6, line.Number)
		}
	})
	t.Run("after twenty corrections another payload is a conflict", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		for n := range most + 1 {
			require.Equal(t, dedupe.Gone, reject(t, b, fmt.Sprint("dead-", n), fmt.Sprint(n)))
		}
		require.Equal(t, dedupe.Differs, reject(t, b, "one-more", "one more"))
		record := b.record(t, "e1")
		require.Len(t, record.Corrected, most)
		require.Equal(t, []string{"dead-20"}, record.DeadLetters, "one is open")
		for n := range most {
			require.Equal(t, dedupe.Replaced, ends(t, b.begin("e1", fmt.Sprint(n)), refused))
		}
	})
	t.Run("of a payload that is sent often the newest dead letters are open", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		const sent = most + 5
		for n := range sent {
			require.Equal(t, dedupe.Gone, reject(t, b, fmt.Sprint("dead-", n), "A"))
		}
		open := b.record(t, "e1").DeadLetters
		require.Len(t, open, most)
		require.Equal(t, []string{"dead-5", "dead-24"}, []string{open[0], open[most-1]})
		for n := range sent {
			_, err := b.Get(t.Context(), store.Key{Collection: "closed", ID: fmt.Sprint("dead-", n)})
			require.Equal(t, n < sent-most, err == nil, "the others are closed")
		}
	})
}
