package push_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
)

// telling is the program's own handler that says so to updates: twice under one key,
// and once under another.
func telling(_ *rig, own handler.Tx) handler.Tx {
	return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		effect, err := own(ctx, event)
		for i, key := range []string{"sub-1", "sub-1", "sub-2"} {
			effect.Emit = append(effect.Emit, handler.Emission{
				To: updates, OrderingKey: key, Body: contract.Of(&contract.Envelope{Action: "renewal", CorrelationID: fmt.Sprint(event.ID, "-", i)}),
			})
		}
		return effect, err
	}
}

// told are the event ids of what was emitted, in order.
func (r *rig) told() []string {
	r.broker.mu.Lock()
	defer r.broker.mu.Unlock()
	var ids []string
	for _, m := range r.broker.emitted {
		ids = append(ids, m.Attributes[contract.AttrEventID])
	}
	return ids
}

// due has the relay run over what is due.
func (r *rig) due(t *testing.T) lane.Report {
	t.Helper()
	report, err := r.relay.Due(t.Context(), 10, func(string, error) {})
	require.NoError(t, err)
	return report
}

// waiting is how many documents the outbox holds.
func (r *rig) waiting(t require.TestingT) int {
	n := 0
	for _, collection := range []string{lane.Outbox.Entries(), lane.Outbox.Lanes()} {
		page, err := r.counter.Query(context.Background(), store.Query{Collection: collection, Limit: 100})
		require.NoError(t, err)
		n += len(page.Documents)
	}
	return n
}

// emitted are the ids of what telling emits for an event.
func emitted(event string) []string {
	e := handler.Event{Queue: "orders", Tenant: dedupe.DefaultTenant, ID: event}
	return []string{lane.ID(e, 0), lane.ID(e, 1), lane.ID(e, 2)}
}

func TestWhatIsEmittedIsPublishedAfterTheCommitAndBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{credit: telling})
	committed := true
	r.broker.before = func() {
		record, _ := r.record(t, "e1")
		committed = committed && record.Status == dedupe.Completed
	}
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	require.True(t, committed, "not before the commit")
	require.Equal(t, emitted("e1"), r.told())
	require.Zero(t, r.waiting(t))
	record, _ := r.record(t, "e1")
	require.Equal(t, emitted("e1"), handler.EmittedIDs(record.Emitted))
	for i, m := range r.broker.emitted {
		require.Equal(t, fmt.Sprint("e1-", i), m.Attributes[contract.AttrCorrelationID])
		require.Equal(t, dedupe.DefaultTenant, m.Attributes[contract.AttrTenant])
	}
	for _, attempt := range []int{0, 2} {
		require.Equal(t, http.StatusNoContent, r.deliver(paid("e1", known, 1).again(attempt)).code)
	}
	require.Len(t, r.told(), 3, "a duplicate says nothing")
	require.Empty(t, r.log.lines(t, "outbox left to the relay"))
}

func TestNothingIsEmittedThatIsNotCommitted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		deliver message
		prepare func(*rig)
		code    int
	}{
		"where the commit does not happen": {paid("e1", known, 1), func(r *rig) { r.faults.FailBefore(1) }, 503},
		"where the store is down":          {paid("e1", known, 1), func(r *rig) { r.faults.Down(true) }, 503},
		"where the handler refuses":        {paid("e1", unknown, 1), func(*rig) {}, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{credit: telling})
			test.prepare(r)
			require.Equal(t, test.code, r.deliver(test.deliver).code)
			r.faults.Down(false)
			r.pass(time.Hour)
			r.due(t)
			require.Empty(t, r.told())
			require.Zero(t, r.waiting(t))
		})
	}
}

func TestTheRelayPublishesWhatTheWorkerCouldNot(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*rig){
		"where the broker is down":              func(r *rig) { r.broker.down = true },
		"where the answer of a commit was lost": func(r *rig) { r.faults.FailAfter(1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{credit: telling})
			fault(r)
			require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
			r.broker.down = false
			require.EqualValues(t, 1000, r.balance(t))
			require.Empty(t, r.told())
			require.Equal(t, 5, r.waiting(t))
			r.pass(31 * time.Second)
			require.Equal(t, lane.Report{Lanes: 2, Published: 3}, r.due(t))
			require.ElementsMatch(t, emitted("e1"), r.told())
			require.Zero(t, r.waiting(t))
		})
	}
}

// TestARepetitionEmitsTheSameIDs: an event whose record was forgotten, or whose first
// attempt failed, emits the same ids again, so that a consumer recognizes them.
func TestARepetitionEmitsTheSameIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{credit: func(*rig, handler.Tx) handler.Tx {
		failed := false
		return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			if !failed {
				failed = true
				return handler.Effect{}, errHandler
			}
			return telling(nil, func(context.Context, handler.Event) (handler.Effect, error) {
				return handler.Effect{Result: "told"}, nil
			})(ctx, event)
		}
	}})
	require.Equal(t, http.StatusInternalServerError, r.deliver(paid("e1", known, 1)).code)
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1).again(2)).code)
	r.pass(31 * 24 * time.Hour)
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	require.Equal(t, append(emitted("e1"), emitted("e1")...), r.told())
}

// TestAnEmissionThatTheCatalogDoesNotListIsRefused: nothing of the effect is committed, and
// the message comes again, until its attempts are used up.
func TestAnEmissionThatTheCatalogDoesNotListIsRefused(t *testing.T) {
	t.Parallel()
	const elsewhere = "topic-of-ilse"
	r := newRig(t, setup{credit: func(_ *rig, own handler.Tx) handler.Tx {
		return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			effect, err := telling(nil, own)(ctx, event)
			effect.Emit[1].To = elsewhere
			return effect, err
		}
	}})
	for attempt := 1; attempt <= 2; attempt++ {
		got := r.deliver(paid("e1", known, 1).again(attempt))
		require.Equal(t, http.StatusInternalServerError, got.code)
		require.Equal(t, "emission_undeclared", got.Reason)
		require.Equal(t, attempt, got.Attempt)
		r.pass(time.Minute)
	}
	require.Equal(t, http.StatusUnprocessableEntity, r.deliver(paid("e1", known, 1).again(3)).code)
	require.Len(t, r.letters(), 1)
	require.Zero(t, r.balance(t))
	require.Zero(t, r.waiting(t))
	require.Empty(t, r.told())
	for _, text := range append([]string{r.log.String()}, slices.Collect(maps.Values(r.letters()[0].Attributes))...) {
		require.NotContains(t, text, elsewhere, "what a handler makes of a message may be the message's")
	}
}

// TestADelayedEmissionIsReleasedByAnAlarm: it is published neither before nor right after the answer.
func TestADelayedEmissionIsReleasedByAnAlarm(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{credit: func(_ *rig, own handler.Tx) handler.Tx {
		return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
			effect, err := telling(nil, own)(ctx, event)
			effect.Emit[1].Due, effect.Emit[1].Name = start.Add(15*time.Minute), "the second"
			return effect, err
		}
	}})
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	ids := emitted("e1")
	require.Equal(t, []string{ids[0], ids[2]}, r.told())
	require.Equal(t, []time.Time{start.Add(15 * time.Minute)}, r.alarms.at)
	record, _ := r.record(t, "e1")
	require.Equal(t, ids, handler.EmittedIDs(record.Emitted))
	require.Equal(t, http.StatusNoContent, r.deliver(paid("e1", known, 1)).code)
	require.Len(t, r.alarms.at, 1, "a duplicate emits nothing")
	r.pass(15 * time.Minute)
	delayed := *r.relay
	delayed.Of = lane.Delayed
	_, err := delayed.Due(t.Context(), 10, func(string, error) {})
	require.NoError(t, err)
	require.Equal(t, []string{ids[0], ids[2], ids[1]}, r.told())
}
