package deadletter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/deadletter"
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
