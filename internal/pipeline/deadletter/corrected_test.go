package deadletter_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/platform/store"
)

// correct closes items as corrected, as the commit of an effect does.
func (d *desk) correct(t *testing.T, ids ...string) {
	t.Helper()
	_, err := d.store.Commit(t.Context(), deadletter.Correct(d.queue, ids, deadletter.Correction{EventID: "e1", MessageID: "77", At: d.now}))
	require.NoError(t, err)
}

// only is the one item of the desk.
func (d *desk) only(t *testing.T) deadletter.Item {
	t.Helper()
	all, _, err := d.List(t.Context(), orders, "", store.Cursor{}, 10)
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0]
}

// run has the operator deal with everything that is open.
func (d *desk) run(t *testing.T, kind deadletter.Kind) deadletter.Operation {
	t.Helper()
	op, err := d.Run(t.Context(), d.begin(t, kind, orders, nil).ID)
	require.NoError(t, err)
	return op
}

func TestWhatIsCorrectedBeforeItArrivesIsShownAndFilled(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	m := contract.Message{Data: []byte(`{"eventId":"e1"}`), Attributes: map[string]string{"source_message_id": "1001"}}
	id := deadletter.ItemID(d.queue, "1001", m)
	d.correct(t, id)
	awaited, err := d.Show(t.Context(), id)
	require.NoError(t, err)
	_, err = d.Preview(t.Context(), deadletter.Filter{Queue: d.queue.ID, EventID: "e1"})
	require.ErrorIs(t, err, deadletter.ErrRefused)
	require.Equal(t, deadletter.Corrected, awaited.State)
	require.Equal(t, "e1", awaited.EventID)
	require.Empty(t, awaited.Data)
	d.bury(t, 1, "u1", "attempts_exhausted", func(m *contract.Message) { // of a replay whose item was removed before
		m.Attributes[deadletter.AttrReplayOf], m.Attributes[deadletter.AttrReplayCount] = id, "1"
	})
	awaited, err = d.Show(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, deadletter.Corrected, awaited.State)
	d.bury(t, 1, "u1", "unknown_product", nil)
	item := d.only(t)
	require.Equal(t, awaited.ID, item.ID)
	require.Equal(t, deadletter.Corrected, item.State)
	require.Equal(t, "unknown_product", item.Reason)
	require.NotEmpty(t, item.Data)
}

func TestAnItemIsThatOfTheReplayedOneOrOfTheMessage(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	m := contract.Message{Data: []byte("x")}
	own := deadletter.ItemID(d.queue, "101", m)
	for attribute, want := range map[string]string{
		"": own, "0123456789abcdef-orders~7": "0123456789abcdef-orders~7", "0123456789abcdef-refunds~7": own,
		"a/b-orders~7": own, "anything": own,
	} {
		m.Attributes = map[string]string{"replay_of": attribute}
		require.Equal(t, want, deadletter.ItemID(d.queue, "101", m), attribute)
	}
}
