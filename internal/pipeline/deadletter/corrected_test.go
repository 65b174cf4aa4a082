package deadletter_test

import (
	"testing"
	"time"

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

func TestACorrectedItemStaysClosed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// before has happened to the item when it is corrected, and after happens then.
		before, after func(t *testing.T, d *desk)
	}{
		"open before":      {before: func(*testing.T, *desk) {}},
		"replayed before":  {before: func(t *testing.T, d *desk) { d.run(t, deadletter.Replay) }},
		"discarded before": {before: func(t *testing.T, d *desk) { d.run(t, deadletter.Discard) }},
		"its replay dies later": {
			before: func(t *testing.T, d *desk) { d.run(t, deadletter.Replay) },
			after: func(t *testing.T, d *desk) {
				again := d.broker.messages[0]
				again.Attributes["dead_letter_reason"] = "unknown_product"
				fresh, err := deadletter.Keep(t.Context(), d.store, d.queue, again, "9999", d.now)
				require.NoError(t, err)
				require.False(t, fresh)
			},
		},
		"its letter comes again": {
			before: func(*testing.T, *desk) {},
			after:  func(t *testing.T, d *desk) { d.bury(t, 1, "u1", "unknown_product", nil) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t)
			d.bury(t, 1, "u1", "unknown_product", nil)
			test.before(t, d)
			d.now = dead.Add(time.Hour)
			d.correct(t, d.only(t).ID)
			if test.after != nil {
				test.after(t, d)
			}
			item := d.only(t)
			require.Equal(t, deadletter.Corrected, item.State)
			require.Equal(t, "77", item.CorrectedBy)
			require.Equal(t, dead.Add(time.Hour).Truncate(time.Microsecond), item.Closed)
			require.Equal(t, dead.Truncate(time.Microsecond), item.Kept)
			require.JSONEq(t, `{"eventId":"e1"}`, string(item.Data))
		})
	}
}

// run has the operator deal with everything that is open.
func (d *desk) run(t *testing.T, kind deadletter.Kind) deadletter.Operation {
	t.Helper()
	op, err := d.Run(t.Context(), d.begin(t, kind, orders, nil).ID)
	require.NoError(t, err)
	return op
}

func TestAnOperationPassesByWhatIsCorrectedMeanwhile(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	for n := range 3 {
		d.bury(t, n, "u1", "unknown_product", nil)
	}
	op := d.begin(t, deadletter.Replay, orders, nil)
	all, _, err := d.List(t.Context(), orders, deadletter.Open, store.Cursor{}, 10)
	require.NoError(t, err)
	d.correct(t, all[1].ID)
	op, err = d.Run(t.Context(), op.ID)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 2, 1}, []int64{op.Total, op.Done, op.Skipped})
	require.Len(t, d.broker.messages, 2)
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
