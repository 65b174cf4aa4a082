package push_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/retry"
)

func parking(q *catalog.Queue) { q.OrderingKey, q.OnPoison = []string{"uid"}, catalog.Park }

// poisoned is a service whose queue parks, and which refuses e1 until it is mended; it
// notes the order in which events had their effect.
func poisoned(t *testing.T) (r *rig, mend func(), done func() []string) {
	t.Helper()
	refuse, order := true, []string{}
	r = newRig(t, setup{queue: parking, credit: func(_ *rig, own handler.Tx) handler.Tx {
		return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			if refuse && event.ID == "e1" {
				return handler.Effect{}, retry.Permanent("unknown_product", nil)
			}
			order = append(order, event.ID)
			return own(ctx, event)
		}
	}})
	return r, func() { refuse = false }, func() []string { return order }
}

// replayOf is the letter as its replay delivers it.
func replayOf(letter contract.Message, count string) message {
	m := message{id: "replay-" + count, body: string(letter.Data), attributes: map[string]string{}, published: start}
	for name, value := range letter.Attributes {
		m.attributes[name] = value
	}
	m.attributes[deadletter.AttrReplayOf], m.attributes[deadletter.AttrReplayCount] = "item", count
	return m
}

func TestBehindADeadLetterItsKeyIsParkedUntilTheReplay(t *testing.T) {
	t.Parallel()
	r, mend, done := poisoned(t)
	require.Equal(t, "dead_lettered", r.deliver(paid("e1", known, 1)).Outcome)
	for _, id := range []string{"e2", "e3", "e2"} { // the broker delivers one of them twice
		got := r.deliver(paid(id, known, 1))
		require.Equal(t, http.StatusOK, got.code, "kept, and acknowledged")
		require.Equal(t, "behind_delayed", got.Reason)
	}
	other := paid("f1", known, 1).with(func(m *message) { m.attributes["ordering_key"] = "somebody-else" })
	require.Equal(t, "processed", r.deliver(other).Outcome, "another key flows")
	acme := paid("f2", known, 1).with(func(m *message) { m.attributes["tenant"] = "acme" })
	require.Equal(t, "processed", r.deliver(acme).Outcome, "another tenant's key of the same name flows")
	r.pass(24 * time.Hour)
	require.Empty(t, r.release(t), "no time releases what waits for a person")
	require.Equal(t, http.StatusNoContent, r.deliver(paid("e1", known, 1)).code, "the dead letter's own redelivery")

	refused := r.deliver(replayOf(r.letters()[0], "1"))
	require.Equal(t, "dead_lettered", refused.Outcome, "not mended yet")
	require.Empty(t, r.release(t))
	mend()
	require.Equal(t, "processed", r.deliver(replayOf(r.letters()[1], "2")).Outcome)
	require.Equal(t, "behind_delayed", r.deliver(paid("e4", known, 1)).Reason, "what comes meanwhile stays behind")
	for _, m := range r.release(t) {
		r.deliver(m)
	}
	for _, m := range r.release(t) {
		r.deliver(m)
	}
	require.Equal(t, []string{"f1", "f2", "e1", "e2", "e3", "e4"}, done())
	require.Equal(t, "processed", r.deliver(paid("e5", known, 1)).Outcome, "and the key flows again")
	require.Zero(t, r.keptMessages(t))
}

func TestWhoeverDiscardsOrCompletesADeadLetterReleasesWhatIsParked(t *testing.T) {
	t.Parallel()
	for _, kind := range []deadletter.Kind{deadletter.Discard, deadletter.Complete} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			releases(t, kind)
		})
	}
}

func releases(t *testing.T, kind deadletter.Kind) {
	t.Helper()
	r, _, done := poisoned(t)
	r.deliver(paid("e1", known, 1))
	r.deliver(paid("e2", known, 1))
	_, err := deadletter.Keep(t.Context(), r.faults, r.queue, r.letters()[0], "900", start)
	require.NoError(t, err)
	ids := 0
	desk := &deadletter.Operator{
		Store: r.faults, Queue: func(string) (catalog.Queue, bool) { return r.queue, true }, Now: func() time.Time { return time.Unix(0, r.now.Load()).UTC() },
		NewID: func() string { ids++; return string(rune('a' + ids)) },
		Wait:  func(context.Context, time.Duration) error { return nil }, Relay: func(context.Context, string) error { return nil },
	}
	op, err := desk.Begin(t.Context(), deadletter.Operation{Kind: kind, Filter: deadletter.Filter{Queue: "orders"}, Why: "a test order"}, audit.Author{Proof: audit.Identity, Name: "ilse"}, 1)
	require.NoError(t, err)
	op, err = desk.Run(t.Context(), op.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, op.Done)
	for _, m := range r.release(t) {
		require.Equal(t, "processed", r.deliver(m).Outcome)
	}
	require.Equal(t, []string{"e2"}, done())
	require.Equal(t, "processed", r.deliver(paid("e3", known, 1)).Outcome)
}

func TestWhereNothingIsParkedADeadLetterHoldsUpNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{queue: inOrder})
	require.Equal(t, "dead_lettered", r.deliver(paid("e1", unknown, 1)).Outcome)
	require.Equal(t, "processed", r.deliver(paid("e2", known, 1)).Outcome)
}

func TestAKeyThatCannotBeParkedNowIsDeadLetteredAgain(t *testing.T) {
	t.Parallel()
	r, _, _ := poisoned(t)
	r.broker.before = func() { r.faults.FailReads(1) } // between the confirmed letter and the lane
	require.Equal(t, http.StatusServiceUnavailable, r.deliver(paid("e1", known, 1)).code)
	r.broker.before = nil
	record, ok := r.record(t, "e1")
	require.False(t, ok && record.Status == dedupe.DeadLettered, "not marked before its key is parked")
	require.Equal(t, "dead_lettered", r.deliver(paid("e1", known, 1)).Outcome)
	require.Equal(t, "behind_delayed", r.deliver(paid("e2", known, 1)).Reason)
}
