package dryrun_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var now = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

func TestWriteIsShownAsWhatItChanges(t *testing.T) {
	t.Parallel()
	s := &storetest.Faults{Store: storetest.Open(t)}
	key := store.Key{Collection: "accounts", ID: "a"}
	_, err := dryrun.ReadOnly(s).Commit(t.Context(), []store.Write{store.Create(key, nil)})
	require.Equal(t, dryrun.Commits, retry.Decide(err).Reason, "a store for trials refuses commits")
	five := map[string]any{"balance": int64(5)}
	before := map[string]any{"balance": int64(5), "secret": "s3cret", "at": now, "old": true}
	after := map[string]any{"balance": int64(5), "secret": "another", "at": now, "new": "x"}
	version := filetest.Must(s.Commit(t.Context(), []store.Write{store.Create(key, before)}))(t)[0]
	absent := store.Key{Collection: "accounts", ID: "b"}
	minus, too, overflow := map[string]int64{"balance": -2}, map[string]any{"by": "x"},
		map[string]int64{"balance": math.MaxInt64}
	for name, test := range map[string]struct {
		write   store.Write
		changed string // the fields that are added, changed or removed
		fails   error
	}{
		"a create":                     {store.Create(absent, five), "balance", nil},
		"a create of an existing one":  {store.Create(key, nil), "", store.ErrStale},
		"an update":                    {store.Replace(key, version, after), "new old", nil},
		"an update of another version": {store.Replace(key, version+1, nil), "", store.ErrStale},
		"an update of no document":     {store.Replace(absent, 1, nil), "", store.ErrStale},
		"an increment":                 {store.Increment(key, minus, too), "balance by", nil},
		"an increment of no document":  {store.Increment(absent, minus, nil), "balance", nil},
		"an increment that overflows":  {store.Increment(key, overflow, nil), "", store.ErrInvalid},
		"a set":                        {store.Set(key, five), "at old secret", nil},
		"a delete":                     {store.Delete(key, version), "at balance old secret", nil},
		"a delete of another version":  {store.Delete(key, version+1), "", store.ErrStale},
		"a delete of no document":      {store.Delete(absent, 0), "", nil},
		"no write at all":              {store.Write{Key: key}, "", store.ErrInvalid},
	} {
		var trial dryrun.Trial
		record := store.Create(dedupe.Key("orders", "default", "e1"), nil)
		_, err := trial.On(s).Commit(t.Context(), []store.Write{test.write, record})
		require.ErrorIs(t, err, test.fails, name)
		changed := ""
		for _, c := range trial.Writes {
			changed = strings.Join(c.Changed(), " ")
			require.NotContains(t, fmt.Sprintf("%s", c.Before)+fmt.Sprintf("%s", c.After), "s3cret", name)
		}
		require.Equal(t, test.changed, changed, name)
	}
	var trial dryrun.Trial
	_, err = trial.On(s).Commit(t.Context(), make([]store.Write, store.MaxWrites))
	require.ErrorIs(t, err, store.ErrInvalid, "the record is another write")
	s.FailReads(1)
	effects := trial.On(s)
	_, err = effects.Commit(t.Context(), []store.Write{store.Set(key, nil)})
	require.ErrorIs(t, err, storetest.ErrFault)
	require.ErrorIs(t, effects.Failed, storetest.ErrFault)
}

func TestTrialOfALeasedHandlerCallsItsPlanAlone(t *testing.T) {
	t.Parallel()
	own := []store.Write{store.Set(store.Key{Collection: "c", ID: "1"}, nil)}
	call := handler.Call{Target: "ledger", Method: "POST", Path: "/v1", ID: "k", Body: []byte("no JSON\xff")}
	for want, plan := range map[string]handler.Plan{
		"calls": {Writes: own, Calls: []handler.Call{call}},
		"done":  {Effect: handler.Effect{Result: "done", Writes: own}},
	} {
		var trial dryrun.Trial
		planned := func(context.Context, handler.Event) (handler.Plan, error) { return plan, nil }
		h := trial.Planning(handler.Handler{Leased: &handler.Leased{Plan: planned}})
		effect := filetest.Must(h.Tx(t.Context(), handler.Event{Try: 1}))(t)
		require.Equal(t, []any{2, own, plan.Effect.Result}, []any{trial.Tries, effect.Writes, effect.Result}, want)
		require.Len(t, trial.Calls, len(plan.Calls))
	}
	var trial dryrun.Trial
	_, err := trial.Planning(handler.Handler{Leased: &handler.Leased{}}).Tx(t.Context(), handler.Event{})
	require.EqualError(t, err, "handler_without_plan")
	h := trial.Planning(handler.Handler{Tx: func(context.Context, handler.Event) (handler.Effect, error) {
		return handler.Effect{Result: "done"}, nil
	}})
	require.Equal(t, "done", filetest.Must(h.Tx(t.Context(), handler.Event{}))(t).Result)
}

func TestTrialHasALineForEachEffect(t *testing.T) {
	t.Parallel()
	change := dryrun.Change{
		Op: "update", Key: "c/i",
		Before: map[string]jsontext.Value{"n": jsontext.Value("1"), "old": jsontext.Value("3")},
		After:  map[string]jsontext.Value{"n": jsontext.Value("2"), "new": jsontext.Value("4")},
	}
	trial := dryrun.Trial{
		End:   dryrun.End{Outcome: dryrun.Calls, Status: 422, Reason: "refused"},
		Emits: []dryrun.Emission{{DueAt: now}}, Calls: []handler.Call{{Target: "ledger"}},
		Writes: []dryrun.Change{change},
	}
	require.Len(t, trial.Effects(), 3)
	require.Equal(t, "update c/i, ~ n: 1 -> 2, + new: 4, - old: 3", trial.Effects()[0])
	require.Contains(t, trial.Notes()[0], "422 refused")
}
