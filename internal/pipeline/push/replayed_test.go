package push_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// item is the only dead letter in the store.
func (r *rig) item(t *testing.T) deadletter.Item {
	t.Helper()
	docs := r.items(t)
	require.Len(t, docs, 1)
	item, err := deadletter.ItemOf(docs[0])
	require.NoError(t, err)
	return item
}

// mendable is a handler of order.paid that refuses the event until it is mended, and then has the
// effect that it is given.
func mendable(mended *bool, effect handler.Effect) func(context.Context, handler.Event) (handler.Effect, error) {
	return func(context.Context, handler.Event) (handler.Effect, error) {
		if !*mended {
			return handler.Effect{}, retry.Permanent("unknown_product", nil)
		}
		return effect, nil
	}
}

func TestADeadLetterLearnsHowItsReplayHasEnded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		effect  handler.Effect
		leased  bool
		forgets bool
		// before runs before the replayed message comes.
		before  func(t *testing.T, r *rig)
		outcome string
		want    deadletter.State
		ended   retry.Outcome
	}{
		"with an effect in the store":            {effect: handler.Effect{Result: "done"}, outcome: "processed", want: deadletter.Processed, ended: retry.Processed},
		"with an effect outside":                 {leased: true, outcome: "processed", want: deadletter.Processed, ended: retry.Processed},
		"in a queue that keeps no records":       {leased: true, forgets: true, outcome: "processed", want: deadletter.Processed, ended: retry.Processed},
		"too late":                               {effect: handler.Effect{Superseded: true}, outcome: "superseded", want: deadletter.Processed, ended: retry.Superseded},
		"after another copy had the effect":      {before: another, outcome: "duplicate", want: deadletter.Processed, ended: retry.Duplicate},
		"in a queue that it is not bound to":     {before: unbound, outcome: "dropped", want: deadletter.Processed, ended: retry.Dropped},
		"where the letter was removed meanwhile": {before: removed, outcome: "processed", want: deadletter.Processed, ended: retry.Processed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mended bool
			do := mendable(&mended, test.effect)
			with := setup{queue: func(q *catalog.Queue) {
				if test.forgets {
					q.RememberFor = 0
				}
			}}
			if test.leased {
				with.leased = &handler.Leased{Do: do, SafeToRepeat: true}
			} else {
				with.credit = func(*rig, handler.Tx) handler.Tx { return do }
			}
			r := newRig(t, with)
			require.Equal(t, "dead_lettered", r.deliver(paid("e1", unknown, 1)).Outcome)
			id := r.keep(t, 0)
			m := r.replay(t, id)
			require.Equal(t, deadletter.Replayed, r.item(t).State)
			mended = true
			if test.before != nil {
				test.before(t, r)
			}
			r.pass(time.Minute)
			got := r.deliver(m)
			require.Less(t, got.code, 300, got.text)
			require.Equal(t, test.outcome, r.lastOutcome(t))
			item := r.item(t)
			require.Equal(t, []any{id, test.want, test.ended}, []any{item.ID, item.State, item.Outcome})
			require.False(t, item.Closed.IsZero())

			if test.forgets {
				return
			}
			writes := r.counter.Commits.Load()
			require.Less(t, r.deliver(m).code, 300)
			require.Equal(t, writes, r.counter.Commits.Load(), "a redelivery finds it told")
		})
	}
}

// revived is the replay of an event that is dead.
func (r *rig) revived(t *testing.T) message {
	t.Helper()
	require.Equal(t, "dead_lettered", r.deliver(paid("e1", unknown, 1)).Outcome)
	return r.replay(t, r.keep(t, 0))
}

// lastOutcome is that of the delivery answered last.
func (r *rig) lastOutcome(t *testing.T) string {
	t.Helper()
	lines := r.log.lines(t, "delivery")
	outcome, _ := lines[len(lines)-1]["outcome"].(string)
	return outcome
}

// another is a replay of the same dead letter whose message came first, while the letter was told
// nothing.
func another(t *testing.T, r *rig) {
	t.Helper()
	first := paid("e1", unknown, 1).with(func(m *message) { m.attributes[deadletter.AttrReplayCount] = "1" })
	require.Equal(t, "processed", r.deliver(first).Outcome)
}

func unbound(_ *testing.T, r *rig) {
	q := r.queue
	q.SharedTopic, q.Bindings = "shop", []routing.Pattern{"order.refunded"}
	r.config.Queues = []catalog.Queue{q}
	r.http = r.another()
}

func removed(t *testing.T, r *rig) {
	t.Helper()
	_, err := r.db.Commit(t.Context(), []store.Write{store.Delete(r.items(t)[0].Key, 0)})
	require.NoError(t, err)
}

func TestTheLetterIsToldInTheCommitOfTheEffectOrNotAtAll(t *testing.T) {
	t.Parallel()
	var mended bool
	r := newRig(t, setup{credit: func(*rig, handler.Tx) handler.Tx {
		return mendable(&mended, handler.Effect{Writes: []store.Write{store.Increment(store.Key{Collection: "effects", ID: "one"}, map[string]int64{"n": 1}, nil)}})
	}})
	m := r.revived(t)
	mended = true
	commits := r.counter.Commits.Load()
	r.faults.FailBefore(1)
	require.GreaterOrEqual(t, r.deliver(m).code, 500)
	require.Equal(t, deadletter.Replayed, r.item(t).State)
	require.Equal(t, http.StatusOK, r.deliver(m).code)
	require.Equal(t, deadletter.Processed, r.item(t).State)
	require.Equal(t, commits+1, r.counter.Commits.Load(), "one commit tells all")
}

func TestAReplayThatEndsWithoutACommitIsNackedUntilItsLetterIsTold(t *testing.T) {
	t.Parallel()
	var mended bool
	r := newRig(t, setup{credit: func(*rig, handler.Tx) handler.Tx { return mendable(&mended, handler.Effect{Result: "done"}) }})
	m := r.revived(t)
	mended = true
	another(t, r)
	r.faults.FailBefore(1)
	got := r.deliver(m)
	require.Equal(t, []any{http.StatusServiceUnavailable, "store_unavailable"}, []any{got.code, got.Reason}, got.text)
	require.Equal(t, http.StatusNoContent, r.deliver(m).code)
	require.Equal(t, deadletter.Processed, r.item(t).State)
}

func TestAReplayThatDiesAgainIsOpenAndNotProcessed(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	m := r.revived(t)
	require.Equal(t, "dead_lettered", r.deliver(m).Outcome)
	require.Equal(t, http.StatusNoContent, r.deliver(m).code, "dead-lettered before")
	require.Equal(t, deadletter.Replayed, r.item(t).State, "its dead letter is on its way")
	r.keep(t, 1)
	require.Equal(t, deadletter.Open, r.item(t).State)
}

func TestAReplayOfASecondLetterOfADeadEventIsOpenAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	require.Equal(t, "dead_lettered", r.deliver(paid("e1", unknown, 1)).Outcome)
	first := r.keep(t, 0)
	// The broker's own policy has forwarded another copy.
	forwarded := paid("e1", unknown, 1).with(func(m *message) { m.id = "forwarded" })
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", forwarded.envelope()).code)
	var second string
	for id := range r.states(t) {
		if id != first {
			second = id
		}
	}
	require.Equal(t, "dead_lettered", r.deliver(r.replay(t, first)).Outcome)
	r.keep(t, 1)
	require.Equal(t, http.StatusNoContent, r.deliver(r.replay(t, second)).code)
	require.Equal(t, map[string]deadletter.State{first: deadletter.Open, second: deadletter.Open}, r.states(t), "nothing waits for it")
}

func TestAMessageThatNamesADeadLetterOfNobodyTellsNobody(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	for _, made := range []string{"nothing", "x-mails~1", ".."} {
		m := paid("e"+made[:1], known, 1).with(func(m *message) {
			m.attributes[deadletter.AttrReplayOf], m.attributes[deadletter.AttrReplayCount] = made, "1"
		})
		require.Equal(t, "processed", r.deliver(m).Outcome)
	}
	require.Empty(t, r.items(t))
}
