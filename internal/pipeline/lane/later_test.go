package lane_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// later is an emission of the ordering key k that is due in 15 minutes, under a name.
func later(name string) handler.Emission {
	e := emission("k", "later")
	e.Due, e.Name = start.Add(15*time.Minute), name
	return e
}

// emitter is the event that emits in these tests; withdrawer may take it back.
var (
	emitter    = handler.Event{Queue: "q", Tenant: "acme", ID: "e1"}
	withdrawer = handler.Event{Queue: "q", Tenant: "acme", ID: "e2"}
)

// commitEffect commits an event's effect as a worker does.
func (r *rig) commitEffect(t *testing.T, event handler.Event, effect handler.Effect) (lane.Emitted, error) {
	t.Helper()
	emitted, err := lane.Emit(declared(), event, &effect, r.now)
	require.NoError(t, err)
	_, err = r.db.Commit(t.Context(), effect.Writes)
	return emitted, err
}

// delaying is a rig whose relay publishes what is delayed.
func delaying(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.Of = lane.Delayed
	return r
}

func TestADelayedEmissionIsPublishedWhenItIsDueAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := delaying(t)
	emitted, err := r.commitEffect(t, emitter, handler.Effect{Emit: []handler.Emission{later("timeout o1"), emission("k", "now")}})
	require.NoError(t, err)
	require.Equal(t, []string{lane.ID(emitter, 0), lane.ID(emitter, 1)}, handler.EmittedIDs(emitted.Messages))
	require.Len(t, emitted.Lanes, 1, "that of the one which is published now")
	require.Equal(t, start.Add(15*time.Minute), emitted.Due)
	require.Equal(t, [2]int{1, 1}, r.left(t))
	r.now = start.Add(15*time.Minute - time.Microsecond)
	report, _ := r.due(t, 10)
	require.Zero(t, report.Published, "it is not due")
	r.now = start.Add(15 * time.Minute)
	report, _ = r.due(t, 10)
	require.Equal(t, lane.Report{Lanes: 1, Published: 1}, report)
	require.Equal(t, []string{"later"}, r.broker.of("k"))
	require.Equal(t, lane.ID(emitter, 0), r.broker.taken[0].Attributes[contract.AttrEventID])
	require.Empty(t, lane.Ticket(r.broker.taken[0]), "it has not been delivered before")
	require.Equal(t, [2]int{}, r.left(t))
}

func TestADelayedEmissionIsWithdrawnByItsNameAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		by   handler.Event
		name string
		left int
	}{
		"by another event of its queue and tenant": {withdrawer, "timeout o1", 0},
		"not by another name":                      {withdrawer, "timeout o2", 1},
		"not for another tenant":                   {handler.Event{Queue: "q", Tenant: "other", ID: "e2"}, "timeout o1", 1},
		"not from another queue":                   {handler.Event{Queue: "p", Tenant: "acme", ID: "e2"}, "timeout o1", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := delaying(t)
			_, err := r.commitEffect(t, emitter, handler.Effect{Emit: []handler.Emission{later("timeout o1")}})
			require.NoError(t, err)
			for range 2 { // what is not there is passed over
				_, err = r.commitEffect(t, test.by, handler.Effect{Withdraw: []string{test.name}})
				require.NoError(t, err)
				require.Equal(t, [2]int{test.left, test.left}, r.left(t))
			}
			r.now = start.Add(time.Hour)
			report, _ := r.due(t, 10)
			require.Equal(t, test.left, report.Published)
		})
	}
}

func TestANameThatWaitsIsNotGivenTwice(t *testing.T) {
	t.Parallel()
	r := delaying(t)
	_, err := r.commitEffect(t, emitter, handler.Effect{Emit: []handler.Emission{later("timeout o1")}})
	require.NoError(t, err)
	_, err = r.commitEffect(t, withdrawer, handler.Effect{Emit: []handler.Emission{later("timeout o1")}})
	require.ErrorIs(t, err, store.ErrExists)
	_, err = r.commitEffect(t, withdrawer, handler.Effect{Emit: []handler.Emission{later("")}})
	require.NoError(t, err, "without a name it has that of its id")
}

// TestADelayedEmissionHoldsNoMessageOfItsKeyUp: the lane of its ordering key is another one.
func TestADelayedEmissionHoldsNoMessageOfItsKeyUp(t *testing.T) {
	t.Parallel()
	r := delaying(t)
	_, err := r.commitEffect(t, emitter, handler.Effect{Emit: []handler.Emission{later("timeout o1")}})
	require.NoError(t, err)
	own, err := lane.Open(t.Context(), r.db, lane.Name{Queue: "q", OrderingKey: "k"})
	require.NoError(t, err)
	require.False(t, own.Exists())
	calm, err := lane.Calm(t.Context(), r.db, "q")
	require.NoError(t, err)
	require.True(t, calm)
}

// TestAnEmissionThatIsWithdrawnWhileItIsPublishedIsPublishedOnce: the relay finds its lane gone.
func TestAnEmissionThatIsWithdrawnWhileItIsPublishedIsPublishedOnce(t *testing.T) {
	t.Parallel()
	r := delaying(t)
	_, err := r.commitEffect(t, emitter, handler.Effect{Emit: []handler.Emission{later("timeout o1")}})
	require.NoError(t, err)
	r.now = start.Add(time.Hour)
	r.broker.after = func() {
		_, err := r.commitEffect(t, withdrawer, handler.Effect{Withdraw: []string{"timeout o1"}})
		require.NoError(t, err)
	}
	report, failed := r.due(t, 10)
	require.Equal(t, 1, report.Published)
	require.Empty(t, failed)
	require.Equal(t, [2]int{}, r.left(t))
	require.Len(t, r.broker.taken, 1)
}

func TestAnEmissionIsNotDelayedBeyondAMonth(t *testing.T) {
	t.Parallel()
	e := later("x")
	e.Due = start.Add(contract.MaxAhead)
	_, err := lane.Emit(declared(), emitter, &handler.Effect{Emit: []handler.Emission{e}}, start)
	require.NoError(t, err)
	e.Due = start.Add(contract.MaxAhead + time.Second)
	_, err = lane.Emit(declared(), emitter, &handler.Effect{Emit: []handler.Emission{e}}, start)
	require.Equal(t, "emission_invalid", retry.Decide(err).Reason)
}
