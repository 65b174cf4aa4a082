package lane_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// TestWhatWaitsNamesTheEventThatItWillBe: nobody else knows an event that is not yet published.
func TestWhatWaitsNamesTheEventThatItWillBe(t *testing.T) {
	t.Parallel()
	for name, emission := range map[string]handler.Emission{"in the outbox": emission("k", "now"), "delayed": later("x")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			_, err := r.commitEffect(t, emitter, handler.Effect{Emit: []handler.Emission{emission}})
			require.NoError(t, err)
			kind := lane.Outbox
			if !emission.Due.IsZero() {
				kind = lane.Delayed
			}
			page, err := r.db.Query(t.Context(), store.Query{Collection: kind.Entries(), Equal: map[string]any{"emits": lane.ID(emitter, 0)}, Limit: 2})
			require.NoError(t, err)
			require.Len(t, page.Documents, 1)
			kept, err := lane.KeptOf(page.Documents[0])
			require.NoError(t, err)
			require.Equal(t, kind == lane.Outbox, kept.Outbox())
			require.Equal(t, lane.Source{Queue: "q", Tenant: "acme", EventID: "e1", Emits: lane.ID(emitter, 0)}, kept.Source)
			line, err := lane.LineOf(t.Context(), r.db, kept)
			require.NoError(t, err)
			require.True(t, line.Exists())
			require.Equal(t, kept.Source, line.First)
		})
	}
}
