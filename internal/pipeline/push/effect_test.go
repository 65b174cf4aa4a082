package push_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
)

var balance = store.Key{Collection: "balances", ID: "b1"}

// tells is what a leased handler writes and emits beside what it does outside.
func tells(writes ...store.Write) handler.Effect {
	return handler.Effect{Result: "sent", Writes: writes, Emit: []handler.Emission{{
		To: updates, OrderingKey: "sub-1", RoutingKey: "billing.sub.renewed", Body: contract.Of(&contract.Envelope{Action: "renewal", CorrelationID: "c1"}),
	}}}
}

func TestWhatALeasedHandlerWritesAndEmitsIsCommittedWithItsCompletion(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{leased: &handler.Leased{SafeToRepeat: true, Do: func(context.Context, handler.Event) (handler.Effect, error) {
		return tells(store.Create(balance, map[string]any{"n": int64(1)})), nil
	}}})
	for range 2 {
		r.deliver(paid("e1", known, 1))
	}
	record, ok := r.record(t, "e1")
	require.True(t, ok)
	require.Equal(t, dedupe.Completed, record.Status)
	require.Len(t, record.Emitted, 1)
	_, err := r.faults.Get(t.Context(), balance)
	require.NoError(t, err)
	sent := r.broker.emitted
	require.Len(t, sent, 1)
	require.Equal(t, record.Emitted[0].EventID, sent[0].Attributes[contract.AttrEventID])
	require.Equal(t, "billing.sub.renewed", sent[0].Attributes[contract.AttrRoutingKey])
}

func TestALeasedEffectOfAWorkerThatHasLostItsLeaseDoesNotHappen(t *testing.T) {
	t.Parallel()
	var r *rig
	calls := 0
	r = newRig(t, setup{leased: &handler.Leased{SafeToRepeat: true, Do: func(context.Context, handler.Event) (handler.Effect, error) {
		if calls++; calls == 1 {
			r.pass(time.Hour) // its lease ends, and another worker takes the event over
			require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1).again(2)).code)
		}
		return tells(store.Increment(balance, map[string]int64{"n": 1}, nil)), nil
	}}})
	r.deliver(paid("e1", known, 1))
	require.Equal(t, 2, calls)
	doc, err := r.faults.Get(t.Context(), balance)
	require.NoError(t, err)
	require.EqualValues(t, 1, doc.Fields["n"], "the writes of the one that held the lease")
	require.Len(t, r.broker.emitted, 1)
}

// TestALeasedHandlerThatAssumedWhatIsNoLongerSoIsAskedAgain: what it did outside is not done
// twice.
func TestALeasedHandlerThatAssumedWhatIsNoLongerSoIsAskedAgain(t *testing.T) {
	t.Parallel()
	var r *rig
	var steps []string
	r = newRig(t, setup{leased: &handler.Leased{
		Do: func(ctx context.Context, _ handler.Event) (handler.Effect, error) {
			steps = append(steps, "do")
			_, err := r.faults.Commit(ctx, []store.Write{store.Create(balance, map[string]any{"n": int64(1)})})
			return tells(store.Create(balance, map[string]any{"n": int64(1)})), err
		},
		Reconcile: func(_ context.Context, event handler.Event) (handler.Effect, bool, error) {
			steps = append(steps, "ask")
			require.Equal(t, 1, event.Try)
			return tells(store.Increment(balance, map[string]int64{"n": 1}, nil)), true, nil
		},
	}})
	got := r.deliver(paid("e1", known, 1))
	require.Equal(t, http.StatusOK, got.code)
	require.Equal(t, []string{"do", "ask"}, steps)
	doc, err := r.faults.Get(t.Context(), balance)
	require.NoError(t, err)
	require.EqualValues(t, 2, doc.Fields["n"])
	record, _ := r.record(t, "e1")
	require.EqualValues(t, 1, record.Attempts, "it was one attempt")
}

func TestAnEffectThatCameTooLateIsSuperseded(t *testing.T) {
	t.Parallel()
	late := handler.Effect{Result: "newer_seen", Superseded: true}
	for name, with := range map[string]setup{
		"of a Tx": {credit: func(*rig, handler.Tx) handler.Tx {
			return func(context.Context, handler.Event) (handler.Effect, error) { return late, nil }
		}},
		"under a lease": {leased: &handler.Leased{SafeToRepeat: true, Do: func(context.Context, handler.Event) (handler.Effect, error) { return late, nil }}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, with)
			require.Equal(t, http.StatusNoContent, r.deliver(paid("e1", known, 1)).code)
			line := r.log.lines(t, "delivery")[0]
			require.Equal(t, "superseded", line["outcome"])
			require.Equal(t, "newer_seen", line["reason"])
			record, _ := r.record(t, "e1")
			require.Equal(t, dedupe.Completed, record.Status)
			require.Equal(t, http.StatusNoContent, r.deliver(paid("e1", known, 1).again(2)).code)
			require.Equal(t, "duplicate", r.log.lines(t, "delivery")[1]["outcome"])
		})
	}
}

// TestTheAnswerNamesWhatTheEventMade: also that of each duplicate, which then has a body to name
// it in.
func TestTheAnswerNamesWhatTheEventMade(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{leased: &handler.Leased{SafeToRepeat: true, Do: func(_ context.Context, e handler.Event) (handler.Effect, error) {
		if e.ID == "e2" {
			return handler.Effect{Result: "sent"}, nil
		}
		return handler.Effect{Result: "sent", Ref: "letter-" + e.ID}, nil
	}}})
	for i, want := range []struct {
		event, outcome, ref string
		code                int
	}{
		{"e1", "processed", "letter-e1", http.StatusOK},
		{"e1", "duplicate", "letter-e1", http.StatusOK},
		{"e2", "processed", "", http.StatusOK},
		{"e2", "", "", http.StatusNoContent}, // no body
	} {
		got := r.deliver(paid(want.event, known, 1))
		require.Equal(t, want.code, got.code, i)
		require.Equal(t, want.outcome, got.Outcome, i)
		require.Equal(t, want.ref, got.Ref, i)
	}
	record, ok := r.record(t, "e1")
	require.True(t, ok)
	require.Equal(t, "letter-e1", record.Ref)
}
