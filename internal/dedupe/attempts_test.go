package dedupe_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
)

func TestTheLogHasTheNewestAttempts(t *testing.T) {
	t.Parallel()
	b := newBench()
	for range dedupe.MaxLog + 5 {
		run := b.begin("A")
		_, err := run.Look(t.Context())
		require.NoError(t, err)
		seen, err := run.Conclude(t.Context(), dedupe.Ending{Status: dedupe.Failed, Reason: "handler_error", Next: b.once.Now()})
		require.NoError(t, err)
		require.Equal(t, dedupe.Counted, seen)
	}
	record := b.record(t)
	require.EqualValues(t, dedupe.MaxLog+5, record.Attempts)
	require.Len(t, record.Log, dedupe.MaxLog)
	for i, line := range record.Log {
		require.EqualValues(t, i+6, line.Number)
	}
}
