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

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var now = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

var orders = catalog.Queue{ID: "orders", Alias: "q:orders", Enabled: true, DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: time.Hour * 24 * 14}}

// trier is a worker whose trials end as the body of a message says.
type trier struct{}

func (trier) Queue(name string) (catalog.Queue, bool) {
	return orders, name == orders.ID || name == orders.Alias
}

func (trier) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	return dryrun.Trial{
		Queue: m.Queue, Tenant: dedupe.DefaultTenant, EventID: m.Attributes["event_id"], From: m.From, Outcome: retry.Outcome(m.Data),
	}, nil
}

// emptyStore is a store of its own, whose reads can fail.
func emptyStore(t *testing.T) *storetest.Faults {
	t.Helper()
	db := storetest.Open(t)
	return &storetest.Faults{Store: db}
}

func message(id, would string) contract.Message {
	return contract.Message{Data: []byte(would), Attributes: map[string]string{"event_id": id, "event_type": "order.paid"}}
}

// record is of an event that has had an attempt.
func record(id string, status dedupe.Status, kept *contract.Message) store.Write {
	return store.Create(dedupe.Key("orders", "default", id), dedupe.Record{
		Queue: "orders", Tenant: "default", EventID: id, Status: status, PayloadHash: "sha256:00", LeaseToken: "t", Attempts: 1, Message: kept,
	}.Fields())
}

func keep(t *testing.T, s store.Store) {
	t.Helper()
	for _, m := range []contract.Message{message("dead", "processed"), message("of-two", "processed"), message("too-large", strings.Repeat(" ", 800<<10))} {
		_, err := deadletter.Keep(t.Context(), s, orders, m, "m-"+m.Attributes["event_id"], now)
		require.NoError(t, err)
	}
	claimed := message("claimed", "calls")
	writes := []store.Write{record("delayed", dedupe.Failed, nil), record("claimed", dedupe.Processing, &claimed)}
	for id, tenant := range map[string]string{"dead": "default", "delayed": "default", "of-two": "another"} {
		at, err := lane.Open(t.Context(), s, lane.Name{Queue: "orders", Message: id})
		require.NoError(t, err)
		_, put, err := at.Put(lane.Waiting{Topic: "orders", Message: message(id, "retry"), Tenant: tenant, EventID: id, Due: now.Add(time.Minute)}, now)
		require.NoError(t, err)
		writes = append(writes, put...)
	}
	batch := lane.NewBatch(now)
	batch.Add("orders", "out", message("out", "processed"), lane.Source{Queue: "other", Tenant: "default", EventID: "emits-out"})
	_, err := s.Commit(t.Context(), append(writes, batch.Writes()...))
	require.NoError(t, err)
}

func TestAnEventIsTriedByTheMessageThatIsKeptOfIt(t *testing.T) {
	t.Parallel()
	s := emptyStore(t)
	keep(t, s)
	d := &dryrun.Trials{Store: s, Now: func() time.Time { return now }, Worker: func(files map[string]string) (dryrun.Worker, error) {
		if len(files) > 0 {
			return nil, fmt.Errorf("%w: products.yaml: wrong", dryrun.ErrCatalog)
		}
		return trier{}, nil
	}}
	brought := dryrun.TriedMessage{Base64: []byte("processed"), Attributes: map[string]string{"event_id": "brought"}}
	for name, test := range map[string]struct {
		asked   dryrun.Try
		from    dryrun.Kind
		outcome retry.Outcome
	}{
		"a dead letter comes before what waits": {dryrun.Try{EventID: "dead", Queue: "q:orders"}, dryrun.DeadLetter, "processed"},
		"a message that waits":                  {dryrun.Try{EventID: "delayed"}, dryrun.Delayed, "retry"},
		"one that a worker has in hand":         {dryrun.Try{EventID: "claimed"}, dryrun.Claimed, "calls"},
		"that of the tenant who is named":       {dryrun.Try{EventID: "of-two", Tenant: "another"}, dryrun.Delayed, "retry"},
		"one that somebody brings":              {dryrun.Try{Message: &dryrun.GivenMessage{TriedMessage: brought}, Queue: "orders"}, "", "processed"},
	} {
		got, err := d.Try(t.Context(), audit.Author{}, test.asked)
		require.NoError(t, err, name)
		require.Equal(t, test.from, got.From.Kind, name)
		require.Equal(t, test.outcome, got.Outcome, name)
	}
	for want, refused := range map[error][]dryrun.Try{
		dryrun.ErrSeveral: {{EventID: "of-two"}},
		dryrun.ErrNoQueue: {{EventID: "delayed", Queue: "nobody"}},
		dryrun.ErrCatalog: {{EventID: "delayed", Catalog: map[string]string{"products.yaml": ""}}},
		dryrun.ErrNotKept: {
			{EventID: "nothing"}, {EventID: "emits-out"}, {EventID: "delayed", Tenant: "another"}, {EventID: "too-large"},
		},
	} {
		for _, asked := range refused {
			_, err := d.Try(t.Context(), audit.Author{}, asked)
			require.ErrorIs(t, err, want, asked)
		}
	}
	s.FailReads(1)
	_, err := d.Try(t.Context(), audit.Author{}, dryrun.Try{EventID: "delayed"})
	require.ErrorIs(t, err, storetest.ErrFault)
}

func TestAWriteIsShownAsWhatItChanges(t *testing.T) {
	t.Parallel()
	s := emptyStore(t)
	key := store.Key{Collection: "accounts", ID: "a"}
	_, err := dryrun.ReadOnly(s).Commit(t.Context(), []store.Write{store.Create(key, nil)})
	require.Equal(t, dryrun.Commits, retry.Decide(err).Reason, "a store for trials takes no writes")
	versions, err := s.Commit(t.Context(), []store.Write{store.Create(key, map[string]any{"balance": int64(5), "secret": "s3cret", "at": now, "old": true})})
	require.NoError(t, err)
	absent := store.Key{Collection: "accounts", ID: "b"}
	for name, test := range map[string]struct {
		write store.Write
		// changed are the fields that it makes, changes or removes; or it is refused with an error.
		changed string
		fails   error
	}{
		"a create":                        {store.Create(absent, map[string]any{"balance": int64(1)}), "balance", nil},
		"a create of what is there":       {store.Create(key, nil), "", store.ErrStale},
		"an update":                       {store.Replace(key, versions[0], map[string]any{"balance": int64(5), "secret": "another", "at": now, "new": "x"}), "new old", nil},
		"an update of what has changed":   {store.Replace(key, versions[0]+1, nil), "", store.ErrStale},
		"an update of nothing":            {store.Replace(absent, 1, nil), "", store.ErrStale},
		"an increment":                    {store.Increment(key, map[string]int64{"balance": -2}, map[string]any{"by": "x"}), "balance by", nil},
		"an increment of nothing":         {store.Increment(absent, map[string]int64{"balance": 2}, nil), "balance", nil},
		"an increment beyond all numbers": {store.Increment(key, map[string]int64{"balance": math.MaxInt64}, nil), "", store.ErrInvalid},
		"a set":                           {store.Set(key, map[string]any{"balance": int64(5)}), "at old secret", nil},
		"a delete":                        {store.Delete(key, versions[0]), "at balance old secret", nil},
		"a delete of another version":     {store.Delete(key, versions[0]+1), "", store.ErrStale},
		"a delete of nothing":             {store.Delete(absent, 0), "", nil},
		"no write at all":                 {store.Write{Key: key}, "", store.ErrInvalid},
	} {
		var trial dryrun.Trial
		_, err := trial.On(s).Commit(t.Context(), []store.Write{test.write, record("e1", dedupe.Completed, nil)})
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
	require.ErrorIs(t, err, store.ErrInvalid, "the record needs its place")
	s.FailReads(1)
	effects := trial.On(s)
	_, err = effects.Commit(t.Context(), []store.Write{store.Set(key, nil)})
	require.ErrorIs(t, err, storetest.ErrFault)
	require.ErrorIs(t, effects.Failed, storetest.ErrFault)
}

func TestLeasedHandlerIsAskedForItsPlanAlone(t *testing.T) {
	t.Parallel()
	own := []store.Write{store.Set(store.Key{Collection: "c", ID: "1"}, nil)}
	for want, plan := range map[string]handler.Plan{
		"calls": {Writes: own, Calls: []handler.Call{{Target: "ledger", Method: "POST", Path: "/v1", ID: "k", Body: []byte("no JSON\xff")}}},
		"done":  {Effect: handler.Effect{Result: "done", Writes: own}},
	} {
		var trial dryrun.Trial
		h := trial.Asking(handler.Handler{Leased: &handler.Leased{Plan: func(context.Context, handler.Event) (handler.Plan, error) { return plan, nil }}})
		effect, err := h.Tx(t.Context(), handler.Event{Try: 1})
		require.NoError(t, err)
		require.Equal(t, []any{2, own, plan.Effect.Result}, []any{trial.Tries, effect.Writes, effect.Result}, want)
		require.Len(t, trial.Calls, len(plan.Calls))
	}
	var trial dryrun.Trial
	_, err := trial.Asking(handler.Handler{Leased: &handler.Leased{}}).Tx(t.Context(), handler.Event{})
	require.EqualError(t, err, "handler_without_plan")
	h := trial.Asking(handler.Handler{Tx: func(context.Context, handler.Event) (handler.Effect, error) {
		return handler.Effect{Result: "done"}, nil
	}})
	effect, err := h.Tx(t.Context(), handler.Event{})
	require.NoError(t, err)
	require.Equal(t, "done", effect.Result)
}

func TestATrialHasALineForEachEffect(t *testing.T) {
	t.Parallel()
	trial := dryrun.Trial{
		Outcome: dryrun.Calls, Status: 422, Reason: "refused", Emits: []dryrun.Emission{{DueAt: now}}, Calls: []handler.Call{{Target: "ledger"}},
		Writes: []dryrun.Change{{
			Op: "update", Key: "c/i", Before: map[string]jsontext.Value{"n": jsontext.Value("1"), "old": jsontext.Value("3")},
			After: map[string]jsontext.Value{"n": jsontext.Value("2"), "new": jsontext.Value("4")},
		}},
	}
	require.Len(t, trial.Effects(), 3)
	require.Equal(t, "update c/i, ~ n: 1 -> 2, + new: 4, - old: 3", trial.Effects()[0])
	require.Contains(t, trial.Notes()[0], "422 refused")
}
