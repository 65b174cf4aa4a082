package dedupe_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/dedupe/dedupetest"
	"billhook/internal/platform/store"
)

// lettersOf is what a run knows where corrections are accepted.
type lettersOf string

func (l lettersOf) Own() string                                              { return string(l) }
func (l lettersOf) Replaceable(context.Context, dedupe.Record) (bool, error) { return true, nil }
func (l lettersOf) Close(ids []string) (writes []store.Write) {
	for _, id := range ids {
		writes = append(writes, store.Increment(store.Key{Collection: "letters", ID: id}, map[string]int64{"closed": 1}, nil))
	}
	return writes
}

// condemn has a payload fail for good, which is accepted as a correction, and reports
// whether it was.
func (b *bench) condemn(t *testing.T, payload string) bool {
	t.Helper()
	run := b.begin(payload)
	run.Letters(lettersOf("letter-" + payload))
	seen, err := run.Look(t.Context())
	require.NoError(t, err)
	if seen != dedupe.Fresh {
		return false
	}
	seen, err = run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "refused"})
	require.NoError(t, err)
	return seen == dedupe.Gone
}

func TestAnIDIsCorrectedSoManyTimesAndNoMore(t *testing.T) {
	t.Parallel()
	b := newBench()
	const most = 20
	for n := range most + 1 {
		require.True(t, b.condemn(t, fmt.Sprint(n)))
	}
	require.False(t, b.condemn(t, "one more"), "a conflict: what was corrected is not forgotten")
	record := b.record(t)
	require.Len(t, record.Corrected, most)
	require.Equal(t, []string{fmt.Sprint("letter-", most)}, record.DeadLetters, "one is open")
	for n := range most {
		run := b.begin(fmt.Sprint(n))
		seen, err := run.Look(t.Context())
		require.NoError(t, err)
		require.Equal(t, dedupe.Replaced, seen)
	}
}

func TestWhatBrokeTheContractIsInNobodysWay(t *testing.T) {
	t.Parallel()
	b := newBench()
	for _, letter := range []lettersOf{"one", "two", "two"} {
		run := b.begin("")
		run.Letters(letter)
		require.NoError(t, run.Broken(t.Context(), "contract_broken"))
	}
	require.Equal(t, []string{"one", "two"}, b.record(t).DeadLetters)
	seen, err := dedupetest.Effect(t.Context(), b.begin("A"), event(), false, credit)
	require.NoError(t, err)
	require.Equal(t, dedupe.Own, seen, "nor where corrections are refused since")
	run := b.begin("")
	run.Letters(lettersOf("three"))
	require.NoError(t, run.Broken(t.Context(), "contract_broken"))
	require.Equal(t, dedupe.Completed, b.record(t).Status)
	require.Empty(t, b.record(t).DeadLetters)
}

func TestABrokenMessageThatCannotBeRememberedComesAgain(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*bench){
		"where the store is down":        func(b *bench) { b.down = true },
		"where the commit is not heard":  func(b *bench) { b.faults = []fault{refuse} },
		"where the answer of it is lost": func(b *bench) { b.faults = []fault{lose} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench()
			prepare(b)
			run := b.begin("")
			run.Letters(lettersOf("one"))
			require.Error(t, run.Broken(t.Context(), "contract_broken"))
			b.down = false
			run = b.begin("")
			run.Letters(lettersOf("one"))
			require.NoError(t, run.Broken(t.Context(), "contract_broken"))
			require.Equal(t, []string{"one"}, b.record(t).DeadLetters)
		})
	}
}

// TestAPayloadIsSentAgainAnyNumberOfTimesAndSomeOfItsDeadLettersStayOpen: the sender is never told that it was done.
func TestAPayloadIsSentAgainAnyNumberOfTimesAndSomeOfItsDeadLettersStayOpen(t *testing.T) {
	t.Parallel()
	b := newBench()
	const sent, most = 25, 20
	for n := range sent {
		run := b.begin("A")
		run.Letters(lettersOf(fmt.Sprint("letter-", n)))
		seen, err := run.Look(t.Context())
		require.NoError(t, err)
		require.Equal(t, dedupe.Fresh, seen)
		_, err = run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.DeadLettered, Reason: "refused"})
		require.NoError(t, err)
	}
	open := b.record(t).DeadLetters
	require.Len(t, open, most)
	require.Equal(t, []string{"letter-5", "letter-24"}, []string{open[0], open[most-1]}, "the newest")
	for n := range sent {
		_, err := b.Get(t.Context(), store.Key{Collection: "letters", ID: fmt.Sprint("letter-", n)})
		require.Equal(t, n < sent-most, err == nil, "the others are closed")
	}
}
