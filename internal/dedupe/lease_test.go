package dedupe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// TestAnEndThatCannotBeWrittenIsTriedThreeTimes: then the lease stands, and the event
// is asked about.
func TestAnEndThatCannotBeWrittenIsTriedThreeTimes(t *testing.T) {
	t.Parallel()
	b := newBench()
	run := b.begin("A")
	_, err := run.Claim(t.Context(), time.Minute, nil, false)
	require.NoError(t, err)
	b.trips()
	b.faults = []fault{refuse, lose}
	seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "sent"}})
	require.NoError(t, err)
	require.Equal(t, dedupe.Own, seen, "the second one happened, and a look after the third says so")
	require.Equal(t, "sent", run.Result())

	b = newBench()
	run = b.begin("A")
	_, err = run.Claim(t.Context(), time.Minute, nil, false)
	require.NoError(t, err)
	b.trips()
	b.faults = []fault{refuse, refuse, refuse}
	_, err = run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Completed, Effect: handler.Effect{Result: "sent"}})
	require.Equal(t, "store_unavailable", retry.Decide(err).Reason)
	_, commits := b.trips()
	require.Equal(t, 3, commits)
	require.Equal(t, dedupe.Processing, b.record(t).Status)
}
