package twophase_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/twophase"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

var (
	event    = handler.Event{Queue: "refunds", Tenant: "default", ID: "evt-1", Attempt: 1}
	phaseKey = twophase.Key(event.Queue, event.Tenant, event.ID)
)

// bench is one kind of work over a store in memory, with what it was asked to do.
type bench struct {
	*memory
	twophase.Work
	now   time.Time
	steps []string
	// down: nothing can be read.
	down bool
}

func (b *bench) Get(ctx context.Context, key store.Key) (store.Document, error) {
	b.steps = append(b.steps, "read")
	if b.down {
		return store.Document{}, errLost
	}
	return b.memory.Get(ctx, key)
}

func (b *bench) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	b.steps = append(b.steps, "commit")
	return b.memory.Commit(ctx, writes)
}

// newBench returns work that goes well, and finds nothing done before.
func newBench() *bench {
	b := &bench{memory: newMemory(), now: start}
	b.Work = reserving(b, func() time.Time { return b.now })
	b.CommitThere = b.answer("refunded", nil)
	b.Find = func(context.Context, handler.Event) (string, bool, error) {
		b.steps = append(b.steps, "find")
		return "", false, nil
	}
	return b
}

func (b *bench) answer(result string, err error) func(context.Context, handler.Event) (string, error) {
	return func(context.Context, handler.Event) (string, error) {
		b.steps = append(b.steps, "request")
		return result, err
	}
}

func (b *bench) do(t *testing.T) (string, error) {
	t.Helper()
	b.steps = nil
	effect, err := b.Leased().Do(t.Context(), event)
	return effect.Result, err
}

func (b *bench) phase() map[string]any {
	return b.docs[phaseKey].Fields
}

func (b *bench) amount(name string) int64 {
	value, _ := b.docs[wallet].Fields[name].(int64)
	return value
}

func writes(n int) []store.Write {
	list := make([]store.Write, n)
	for i := range list {
		list[i] = store.Set(store.Key{Collection: "items", ID: fmt.Sprint(i)}, nil)
	}
	return list
}

func TestWorkIsPreparedThenDoneThereThenCommitted(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.CommitThere = func(context.Context, handler.Event) (string, error) {
		require.Equal(t, map[string]any{
			"queue": "refunds", "tenant": "default", "event_id": "evt-1", "state": "prepared", "result": "", "reason": "",
			"created_at": start, "updated_at": start,
		}, b.phase(), "what is reserved does not expire")
		b.now = b.now.Add(time.Second)
		return "refunded", nil
	}
	result, err := b.do(t)
	require.NoError(t, err)
	require.Equal(t, "refunded", result)
	require.Equal(t, map[string]any{
		"queue": "refunds", "tenant": "default", "event_id": "evt-1", "state": "committed", "result": "refunded", "reason": "",
		"created_at": start, "updated_at": b.now, "expire_at": b.now.Add(time.Hour),
	}, b.phase())

	result, err = b.do(t)
	require.NoError(t, err)
	require.Equal(t, "refunded", result)
	require.Equal(t, []string{"read"}, b.steps)
	effect, done, err := b.Leased().Reconcile(t.Context(), event)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, "refunded", effect.Result)
}

func TestAnUnknownOutcomeKeepsTheReservationAndAsksFirst(t *testing.T) {
	t.Parallel()
	for _, unknown := range []error{
		errors.New("connection reset"), retry.Down("gateway_down", nil), retry.Conflicting("key_reused", nil), retry.Unreadable("bad_answer", nil),
		retry.Transient("again", retry.Permanent("declined", nil)),
	} {
		b := newBench()
		b.CommitThere = b.answer("", unknown)
		_, err := b.do(t)
		require.Equal(t, unknown, err)
		require.Equal(t, "prepared", b.phase()["state"])
		require.EqualValues(t, amount, b.amount("reserved"))

		b.now = b.now.Add(1000 * time.Hour)
		b.CommitThere = b.answer("refunded", nil)
		result, err := b.do(t)
		require.NoError(t, err)
		require.Equal(t, "refunded", result)
		require.Equal(t, []string{"read", "find", "request", "commit"}, b.steps)
		require.EqualValues(t, amount, b.amount("spent"))
	}
}

func TestWorkThatCannotBePreparedReservesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		writes []store.Write
		err    error
		class  retry.Class
		reason string
	}{
		"Prepare refuses":                {nil, retry.Permanent("no_balance", nil), retry.Rejected, "no_balance"},
		"Prepare fails":                  {nil, errLost, retry.Failed, "handler_error"},
		"one write too many":             {writes(store.MaxWrites), nil, retry.Rejected, "effect_invalid"},
		"a write to the phase document":  {[]store.Write{store.Set(phaseKey, nil)}, nil, retry.Rejected, "effect_invalid"},
		"as many writes as there may be": {writes(store.MaxWrites - 1), nil, 0, ""},
	} {
		b := newBench()
		b.Prepare = func(context.Context, handler.Event) ([]store.Write, error) { return test.writes, test.err }
		_, err := b.do(t)
		if test.reason == "" {
			require.NoError(t, err, name)
			continue
		}
		require.Equal(t, retry.Verdict{Class: test.class, Reason: test.reason, Counts: true}, retry.Decide(err), name)
		require.Empty(t, b.docs, name)
		require.NotContains(t, b.steps, "request", name)
	}
}

// Each of the three steps meets somebody else's change to the document that it read.
func TestAStepWhosePreconditionFailsIsDecidedAgain(t *testing.T) {
	t.Parallel()
	item := store.Key{Collection: "items", ID: "x"}
	for _, test := range []struct {
		step, code string
		refused    error
		state      any
	}{{"Prepare", "", nil, nil}, {"Confirm", "refunded", nil, "prepared"}, {"RollBack", "declined", retry.Permanent("declined", nil), "prepared"}} {
		for _, meddling := range []int{1, 2, 3} {
			b := newBench()
			b.CommitThere = b.answer("refunded", test.refused)
			var seen []int
			step := func(_ context.Context, event handler.Event, code string) ([]store.Write, error) {
				require.Equal(t, test.code, code)
				seen = append(seen, event.Try)
				read := b.docs[item].Version
				if event.Try < meddling {
					_, err := b.memory.Commit(t.Context(), []store.Write{store.Set(item, nil)})
					require.NoError(t, err)
				}
				return []store.Write{store.Replace(item, read, nil)}, nil
			}
			switch test.step {
			case "Prepare":
				b.Prepare = func(ctx context.Context, event handler.Event) ([]store.Write, error) { return step(ctx, event, "") }
			case "Confirm":
				b.Confirm = step
			default:
				b.RollBack = step
			}
			_, err := b.do(t)
			require.Equal(t, []int{0, 1, 2}[:min(meddling+1, 3)], seen, test.step)
			if meddling < 3 {
				require.Equal(t, test.refused, err, test.step)
				continue
			}
			require.Equal(t, retry.Busy("contention", nil), err, test.step)
			require.Equal(t, test.state, b.phase()["state"], test.step)
		}
	}
}

func TestSettledWorkIsRememberedForItsTime(t *testing.T) {
	t.Parallel()
	b := newBench()
	_, err := b.do(t)
	require.NoError(t, err)
	b.now = b.now.Add(time.Hour - 1)
	_, err = b.do(t)
	require.NoError(t, err)
	require.EqualValues(t, amount, b.amount("spent"))
	b.now = b.now.Add(1)
	_, done, err := b.Leased().Reconcile(t.Context(), event)
	require.NoError(t, err)
	require.False(t, done)
	_, err = b.do(t)
	require.NoError(t, err)
	require.Equal(t, []string{"read", "commit", "request", "commit"}, b.steps)
	require.EqualValues(t, 2*amount, b.amount("spent"))
	require.Equal(t, b.now, b.phase()["created_at"])
}

func TestAPhaseThatCannotBeReadIsRetriedAndNotTakenForAbsent(t *testing.T) {
	t.Parallel()
	unreadable := retry.Verdict{Class: retry.Failed, Reason: "phase_unreadable", Counts: true}
	for name, test := range map[string]struct {
		change func(b *bench)
		want   retry.Verdict
	}{
		"no state":                              {func(b *bench) { delete(b.phase(), "state") }, unreadable},
		"a state of no kind":                    {func(b *bench) { b.phase()["state"] = "begun" }, unreadable},
		"a result of no text":                   {func(b *bench) { b.phase()["result"] = int64(1) }, unreadable},
		"a settled one that would never expire": {func(b *bench) { delete(b.phase(), "expire_at") }, unreadable},
		"no time of creation":                   {func(b *bench) { delete(b.phase(), "created_at") }, unreadable},
		"a store that is down":                  {func(b *bench) { b.down = true }, retry.Decide(retry.Outage("store_unavailable", nil))},
	} {
		b := newBench()
		_, err := b.do(t)
		require.NoError(t, err, name)
		test.change(b)
		_, err = b.do(t)
		require.Equal(t, test.want, retry.Decide(err), name)
		require.Equal(t, []string{"read"}, b.steps, name)
		_, _, err = b.Leased().Reconcile(t.Context(), event)
		require.Equal(t, test.want, retry.Decide(err), name)
	}
}

// Somebody removed the phase document under a running attempt.
func TestAPhaseThatIsGoneSettlesNothing(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.CommitThere = func(context.Context, handler.Event) (string, error) {
		delete(b.docs, phaseKey)
		return "refunded", nil
	}
	_, err := b.do(t)
	require.Equal(t, "phase_lost", retry.Decide(err).Reason)
	require.Zero(t, b.amount("spent"))
}

func TestIncompleteWorkIsAMistakeInAMain(t *testing.T) {
	t.Parallel()
	for _, remove := range []func(*twophase.Work){
		func(w *twophase.Work) { w.Store = nil }, func(w *twophase.Work) { w.Now = nil }, func(w *twophase.Work) { w.RememberFor = 0 },
		func(w *twophase.Work) { w.Prepare = nil }, func(w *twophase.Work) { w.CommitThere = nil }, func(w *twophase.Work) { w.Find = nil },
		func(w *twophase.Work) { w.Confirm = nil }, func(w *twophase.Work) { w.RollBack = nil },
	} {
		w := newBench().Work
		remove(&w)
		require.PanicsWithValue(t, "twophase: incomplete work", func() { w.Leased() })
	}
	require.NotPanics(t, func() { handler.NewRegistry().Leased("refund", newBench().Leased()) })
}

func TestAPlanSaysWhatWouldBeReservedAndRequested(t *testing.T) {
	t.Parallel()
	b := newBench()
	b.Request = func(event handler.Event) handler.Call { return handler.Call{ID: event.ID} }
	plan := func() handler.Plan {
		t.Helper()
		plan, err := b.Leased().Plan(t.Context(), event)
		require.NoError(t, err)
		return plan
	}
	prepare := b.Prepare
	b.Prepare = func(context.Context, handler.Event) ([]store.Write, error) { return nil, errLost }
	_, err := b.Leased().Plan(t.Context(), event)
	require.ErrorIs(t, err, errLost, "nothing could be reserved")
	b.Prepare = prepare
	fresh := plan()
	require.Len(t, fresh.Writes, 2, "the phase document, and what is reserved")
	require.Equal(t, []handler.Call{{ID: event.ID}}, fresh.Calls)
	require.Empty(t, b.docs, "a plan does nothing")

	b.CommitThere = b.answer("", errLost)
	_, err = b.do(t)
	require.ErrorIs(t, err, errLost)
	require.Equal(t, handler.Plan{Calls: fresh.Calls}, plan(), "it is reserved already")
	b.CommitThere = b.answer("refunded", nil)
	_, err = b.do(t)
	require.NoError(t, err)
	require.Equal(t, handler.Plan{Effect: handler.Effect{Result: "refunded"}}, plan(), "it is done already")
}
