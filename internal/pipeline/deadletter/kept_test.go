package deadletter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/deadletter"
	"billhook/internal/retry"
)

func TestADeadLetterSaysInASentenceWhatHappenedAndWhatToDo(t *testing.T) {
	t.Parallel()
	died := time.Date(2026, 11, 23, 14, 5, 6, 0, time.UTC)
	for want, kept := range map[string]deadletter.Kept{
		"The subscription service answered 503 five times; Billhook gave up on 2026-11-23 at 14:05 UTC.": {
			Target: "subscription-service", Item: deadletter.Item{Reason: "callee_failed_503", Attempts: 5},
		},
		"The ledger service could not be reached 12 times; Billhook gave up on 2026-11-23 at 14:05 UTC.": {
			Target: "ledger", Item: deadletter.Item{Reason: "callee_unreachable", Attempts: 12},
		},
		"The product hat is not known here; Billhook gave up on 2026-11-23 at 14:05 UTC.": {
			Item: deadletter.Item{Reason: "unknown_product", Detail: "hat", Attempts: 1},
		},
		"It could not be handled: odd; Billhook gave up on 2026-11-23 at 14:05 UTC.": {Item: deadletter.Item{Reason: "odd", Attempts: 3}},
	} {
		kept.DeadLettered, kept.State = died, deadletter.Open
		require.Equal(t, want, kept.Happened())
		require.Contains(t, kept.ToDo(), "eplay it")
		kept.State = deadletter.Discarded
		require.Empty(t, kept.ToDo(), "nothing is to be done")
	}
}

func TestSummariesNameWhatThereIs(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 23, 14, 5, 6, 0, time.UTC)
	for want, got := range map[string]fmt.Stringer{
		"orders": orders,
		"orders, reason r, type t, event e, key k, kept since 2026-11-23T14:05:06Z, kept before 2026-11-23T15:05:06Z, 2 chosen": deadletter.Filter{
			Queue: "orders", Reason: "r", EventType: "t", EventID: "e", OrderingKey: "k", Since: at, Until: at.Add(time.Hour), Items: []string{"1", "2"},
		},
		"3 processed": deadletter.Outcomes{Processed: 3}, "0 processed, 1 dead again, 2 still waiting": deadletter.Outcomes{DeadAgain: 1, Waiting: 2},
		"b 3, none 1, a 1": deadletter.Counts{"a": 1, "b": 3, "": 1}, "1 done, 0 dead-lettered, 2 waiting, and more": deadletter.Later{Done: 1, Waiting: 2, More: true},
	} {
		require.Equal(t, want, got.String())
	}
	for want, item := range map[string]deadletter.Item{
		"dead again": {State: deadletter.Open, ReplayCount: 1}, "still open": {State: deadletter.Open}, "still waiting": {State: deadletter.Replayed},
		"completed by hand": {State: deadletter.Completed}, "duplicate": {State: deadletter.Processed, Outcome: retry.Duplicate}, "discarded": {State: deadletter.Discarded},
	} {
		require.Equal(t, want, item.Became())
	}
	require.Equal(t, []string{"There are more than 9 of r."}, deadletter.Reason{Reason: "r", Count: 9, More: true}.Notes())
	require.Equal(t, []string{"3 of orders have other reasons."}, deadletter.Reason{Queue: "orders", Others: true, Count: 3}.Notes())
}

func TestAnOperationIsFollowedUntilNothingOfItIsOpen(t *testing.T) {
	t.Parallel()
	waits, dead, done := &deadletter.Outcomes{Waiting: 1}, &deadletter.Outcomes{DeadAgain: 1}, &deadletter.Outcomes{Processed: 1}
	for name, test := range map[string]struct {
		kind          deadletter.Kind
		progress      deadletter.Progress
		outcomes      *deadletter.Outcomes
		goesOn, fails bool
		notes         int
	}{
		"a discard that runs":            {deadletter.Discard, deadletter.Running, nil, true, false, 0},
		"a discard that has ended":       {deadletter.Discard, deadletter.Finished, nil, false, false, 0},
		"a replay that nobody approved":  {deadletter.Replay, deadletter.Waiting, nil, false, true, 1},
		"one with an event on its way":   {deadletter.Replay, deadletter.Finished, waits, true, true, 0},
		"one with a dead letter again":   {deadletter.Replay, deadletter.Finished, dead, false, true, 0},
		"one that was cancelled":         {deadletter.Replay, deadletter.Cancelled, done, false, true, 0},
		"one whose events are processed": {deadletter.Replay, deadletter.Finished, done, false, false, 0},
	} {
		op := deadletter.Operation{Kind: test.kind, Progress: test.progress, Outcomes: test.outcomes}
		_, goesOn := op.Stands()
		require.Equal(t, []any{test.goesOn, test.fails, test.notes}, []any{goesOn, op.Missed() != "", len(op.Notes())}, name)
	}
}
