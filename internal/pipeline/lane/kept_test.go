package lane_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
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
			require.True(t, kept.Emitted)
			require.Equal(t, lane.Source{Queue: "q", Tenant: "acme", EventID: "e1", Emits: lane.ID(emitter, 0)}, kept.Source)
			line, err := lane.LineOf(t.Context(), r.db, kept)
			require.NoError(t, err)
			require.True(t, line.Exists())
			require.Equal(t, kept.Source, line.First)
		})
	}
}

// TestAWaitingMessageKeepsWhenAndAsWhatItWasFirstDelivered: a message that waits again has attributes of the first time.
func TestAWaitingMessageKeepsWhenAndAsWhatItWasFirstDelivered(t *testing.T) {
	t.Parallel()
	l, err := lane.Open(t.Context(), empty{}, lane.Name{Queue: "q", Message: "e1"})
	require.NoError(t, err)
	at := start.Format(time.RFC3339Nano)
	for name, test := range map[string]struct {
		carried  map[string]string
		waiting  lane.Waiting
		at, asID string
	}{
		"the first time":              {nil, lane.Waiting{FirstPublished: start, MessageID: "m-1"}, at, "m-1"},
		"again":                       {map[string]string{contract.AttrFirstPublished: "then", contract.AttrFirstMessageID: "m-0"}, lane.Waiting{FirstPublished: start, MessageID: "m-1"}, "then", "m-0"},
		"where the broker says none":  {nil, lane.Waiting{}, "", ""},
		"where only the time is told": {nil, lane.Waiting{FirstPublished: start}, at, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := test.waiting
			w.Message = contract.Message{Data: []byte("{}"), Attributes: test.carried}
			_, writes, err := l.Put(w, start)
			require.NoError(t, err)
			kept, err := lane.KeptOf(store.Document{Key: writes[0].Key, Fields: writes[0].Fields})
			require.NoError(t, err)
			require.False(t, kept.Emitted, "it waits for an attempt")
			wanted := map[string]string{contract.AttrDelayTicket: kept.Message.Attributes[contract.AttrDelayTicket]}
			for attribute, value := range map[string]string{contract.AttrFirstPublished: test.at, contract.AttrFirstMessageID: test.asID} {
				if value != "" {
					wanted[attribute] = value
				}
			}
			require.Equal(t, wanted, kept.Message.Attributes)
		})
	}
}
