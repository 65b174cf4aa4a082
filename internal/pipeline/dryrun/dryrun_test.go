package dryrun_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var now = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

// trier is a worker whose trials end as the body of a message says: an outcome and a reason.
type trier struct{ tried []string }

var orders = catalog.Queue{ID: "orders", Alias: "q:orders", Enabled: true, DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: time.Hour * 24 * 14}}

func (w *trier) Queue(name string) (catalog.Queue, bool) {
	if name == orders.ID || name == orders.Alias {
		return orders, true
	}
	return catalog.Queue{ID: "asleep"}, name == "asleep"
}

func (w *trier) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	id := m.Attributes["event_id"]
	w.tried = append(w.tried, id)
	outcome, reason, _ := strings.Cut(string(m.Data), " ")
	if outcome == "error" {
		return dryrun.Trial{}, errors.New("no answer")
	}
	return dryrun.Trial{Queue: m.Queue, Tenant: dedupe.DefaultTenant, EventID: id, From: m.From, Outcome: retry.Outcome(outcome), Reason: reason}, nil
}

// desk is a desk over a store of its own.
func desk(t *testing.T) (*dryrun.Desk, *trier, *storetest.Faults) {
	t.Helper()
	db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	faults, w := &storetest.Faults{Store: db}, &trier{}
	return &dryrun.Desk{Store: faults, Now: func() time.Time { return now }, Worker: func(files map[string]string) (dryrun.Worker, error) {
		if files["products.yaml"] == "wrong" {
			return nil, fmt.Errorf("%w: products.yaml: wrong", dryrun.ErrCatalog)
		}
		return w, nil
	}}, w, faults
}

func message(id, would string) contract.Message {
	return contract.Message{Data: []byte(would), Attributes: map[string]string{"event_id": id, "event_type": "order.paid"}}
}

// dead keeps a dead letter of an event; would is what a trial of it says.
func dead(t *testing.T, s store.Store, id, would, reason, detail string, at time.Time) {
	t.Helper()
	m := message(id, would)
	m.Attributes[deadletter.AttrReason], m.Attributes[deadletter.AttrDetail], m.Attributes[deadletter.AttrSourceMessageID] = reason, detail, "m-"+id
	_, err := deadletter.Keep(t.Context(), s, orders, m, "m-"+id, at)
	require.NoError(t, err)
}

// delayed keeps a message that waits; after a failure of a reason it has a record of it.
func delayed(t *testing.T, s store.Store, id, would, reason string) {
	t.Helper()
	place, err := lane.Open(t.Context(), s, lane.Name{Queue: "orders", Message: id})
	require.NoError(t, err)
	_, writes, err := place.Put(lane.Waiting{Topic: "orders", Message: message(id, would), Tenant: "default", EventID: id, Due: now.Add(time.Minute)}, now)
	require.NoError(t, err)
	if reason != "" {
		writes = append(writes, store.Create(dedupe.Key("orders", "default", id), dedupe.Record{
			Queue: "orders", Tenant: "default", EventID: id, Status: dedupe.Failed, PayloadHash: "sha256:00", LeaseToken: "t", LastError: reason, Attempts: 1,
		}.Fields()))
	}
	_, err = s.Commit(t.Context(), writes)
	require.NoError(t, err)
}

func emitted(t *testing.T, s store.Store, id, would string) {
	t.Helper()
	batch := lane.NewBatch(now)
	batch.Add("orders", id, message(id, would), lane.Source{Queue: "other", Tenant: "default", EventID: "source-" + id})
	_, err := s.Commit(t.Context(), batch.Writes())
	require.NoError(t, err)
}

func TestOnlyWhatDiffersFromWhatWasDoneIsListed(t *testing.T) {
	t.Parallel()
	d, w, s := desk(t)
	dead(t, s, "same", "dead_lettered unknown_product", "unknown_product", "", now)
	dead(t, s, "mended", "processed", "unknown_product", "", now.Add(-time.Hour))
	dead(t, s, "otherwise", "dead_lettered bad_amount", "unknown_product", "", now.Add(-3*time.Hour))
	dead(t, s, "exhausted", "retry order_not_seen", "order_not_seen", "attempts_exhausted", now)
	dead(t, s, "exhausted-otherwise", "retry handler_error", "order_not_seen", "attempts_exhausted", now)
	dead(t, s, "asks", "calls", "callee_refused_422", "", now)
	dead(t, s, "asks-now", "calls", "event_type_unknown", "", now)
	dead(t, s, "before-that", "processed", "unknown_product", "", now.Add(-25*time.Hour))
	dead(t, s, "too-large", strings.Repeat(" ", 800<<10), "unknown_product", "", now)
	delayed(t, s, "waits-still", "retry order_not_seen", "order_not_seen")
	delayed(t, s, "waits-no-more", "processed", "order_not_seen")
	delayed(t, s, "will-fail", "dead_lettered unknown_product", "")
	delayed(t, s, "will-do", "processed", "")
	emitted(t, s, "out-well", "processed")
	emitted(t, s, "out-badly", "dead_lettered unknown_product")

	want := []string{"asks-now", "exhausted-otherwise", "mended", "otherwise", "out-badly", "waits-no-more", "will-fail"}
	for _, limit := range []int{100, 1, 3} {
		w.tried = nil
		var differ []string
		var total dryrun.Compared
		for page := ""; ; {
			got, err := d.Compare(t.Context(), dryrun.Question{Queue: "q:orders", Since: now.Add(-24 * time.Hour), Limit: limit, Page: page, Until: now.Add(time.Second)})
			require.NoError(t, err)
			require.LessOrEqual(t, got.Tried+got.Unkept, limit)
			for _, item := range got.Items {
				differ = append(differ, item.Would.EventID)
			}
			total.Tried, total.Same, total.Undecided, total.Unkept = total.Tried+got.Tried, total.Same+got.Same, total.Undecided+got.Undecided, total.Unkept+got.Unkept
			if page = got.Next; page == "" {
				break
			}
		}
		require.ElementsMatch(t, want, differ, "pages of %d", limit)
		require.Equal(t, dryrun.Compared{Tried: 13, Same: 5, Undecided: 1, Unkept: 1}, total)
		require.Len(t, w.tried, 13, "each once")
	}
}

func TestAPageEndsWhenItsTimeIsOverAndLosesNothing(t *testing.T) {
	t.Parallel()
	d, w, s := desk(t)
	for i := range 5 {
		dead(t, s, fmt.Sprint("e", i), "processed", "unknown_product", "", now)
	}
	page, pages := "", 0
	for ; pages < 100; pages++ {
		got, err := d.Compare(t.Context(), dryrun.Question{Queue: "orders", Since: now.Add(-2 * time.Hour), Limit: 100, Page: page, Until: now})
		require.NoError(t, err)
		if page = got.Next; page == "" {
			break
		}
	}
	require.Len(t, w.tried, 5)
	require.Less(t, pages, 20)
}

func TestWhatCannotBeComparedIsRefused(t *testing.T) {
	t.Parallel()
	d, _, s := desk(t)
	for name, test := range map[string]struct {
		question dryrun.Question
		want     error
	}{
		"no queue":                    {dryrun.Question{Queue: "nobody"}, dryrun.ErrNoQueue},
		"a queue that does not run":   {dryrun.Question{Queue: "asleep"}, dryrun.ErrNoQueue},
		"a wrong catalog":             {dryrun.Question{Queue: "orders", Files: map[string]string{"products.yaml": "wrong"}}, dryrun.ErrCatalog},
		"a page of nothing":           {dryrun.Question{Queue: "orders", Page: "x"}, dryrun.ErrPlace},
		"a page of another kind":      {dryrun.Question{Queue: "orders", Page: "claimed~~x"}, dryrun.ErrPlace},
		"a page of no hour":           {dryrun.Question{Queue: "orders", Page: "dead_letter~now~x"}, dryrun.ErrPlace},
		"a page of another year":      {dryrun.Question{Queue: "orders", Page: "dead_letter~2025-03-02T10~x"}, dryrun.ErrPlace},
		"a page with no id of a page": {dryrun.Question{Queue: "orders", Page: "delayed~~a/b"}, dryrun.ErrPlace},
	} {
		test.question.Limit, test.question.Until = 10, now.Add(time.Second)
		_, err := d.Compare(t.Context(), test.question)
		require.ErrorIs(t, err, test.want, name)
	}
	dead(t, s, "e1", "error", "unknown_product", "", now)
	_, err := d.Compare(t.Context(), dryrun.Question{Queue: "orders", Since: now.Add(-time.Hour), Limit: 10, Until: now.Add(time.Second)})
	require.ErrorContains(t, err, "no answer", "what is not known is not said")
}

func TestAnEventIsTriedByWhatIsKeptOfIt(t *testing.T) {
	t.Parallel()
	d, _, s := desk(t)
	dead(t, s, "dead-and-delayed", "processed letter", "unknown_product", "", now)
	delayed(t, s, "dead-and-delayed", "processed delayed", "")
	delayed(t, s, "delayed", "processed delayed", "order_not_seen")
	_, err := s.Commit(t.Context(), []store.Write{store.Create(dedupe.Key("orders", "default", "claimed"), dedupe.Record{
		Queue: "orders", Tenant: "default", EventID: "claimed", Status: dedupe.Processing, PayloadHash: "sha256:00", LeaseToken: "t",
		Message: &contract.Message{Data: []byte("calls"), Attributes: map[string]string{"event_id": "claimed"}},
	}.Fields())})
	require.NoError(t, err)
	emitted(t, s, "out", "processed")
	for id, want := range map[string]dryrun.Kind{"dead-and-delayed": dryrun.DeadLetter, "delayed": dryrun.Delayed, "claimed": dryrun.Claimed} {
		got, err := d.Try(t.Context(), dryrun.Asked{EventID: id, Queue: "q:orders"})
		require.NoError(t, err, id)
		require.Equal(t, want, got.From.Kind)
		require.Equal(t, id, got.EventID)
		require.Equal(t, id != "dead-and-delayed", got.Recorded != nil, id)
	}
	for id, want := range map[string]error{"nothing": dryrun.ErrNotKept, "source-out": dryrun.ErrNotKept} {
		_, err := d.Try(t.Context(), dryrun.Asked{EventID: id})
		require.ErrorIs(t, err, want, id)
	}
	_, err = d.Try(t.Context(), dryrun.Asked{EventID: "delayed", Tenant: "another"})
	require.ErrorIs(t, err, dryrun.ErrNotKept)
	s.FailReads(1)
	_, err = d.Try(t.Context(), dryrun.Asked{EventID: "delayed"})
	require.ErrorIs(t, err, storetest.ErrFault)
}

func TestAStoreForTrialsTakesNoWrites(t *testing.T) {
	t.Parallel()
	_, _, s := desk(t)
	key := store.Key{Collection: "c", ID: "1"}
	_, err := dryrun.ReadOnly(s).Commit(t.Context(), []store.Write{store.Create(key, nil)})
	require.Equal(t, dryrun.Commits, retry.Decide(err).Reason)
	_, err = s.Get(t.Context(), key)
	require.ErrorIs(t, err, store.ErrNotFound)
}

func TestAWriteIsShownAsWhatItChanges(t *testing.T) {
	t.Parallel()
	_, _, s := desk(t)
	key := store.Key{Collection: "accounts", ID: "a"}
	versions, err := s.Commit(t.Context(), []store.Write{store.Create(key, map[string]any{"balance": int64(5), "secret": "s3cret", "at": now, "old": true})})
	require.NoError(t, err)
	absent := store.Key{Collection: "accounts", ID: "b"}
	for name, test := range map[string]struct {
		write   store.Write
		changed []string
		fails   error
	}{
		"a create":                        {store.Create(absent, map[string]any{"balance": int64(1)}), []string{"balance"}, nil},
		"a create of what is there":       {store.Create(key, nil), nil, dryrun.ErrRefused},
		"an update":                       {store.Replace(key, versions[0], map[string]any{"balance": int64(5), "secret": "another", "at": now, "new": "x"}), []string{"new", "old"}, nil},
		"an update of what has changed":   {store.Replace(key, versions[0]+1, nil), nil, dryrun.ErrRefused},
		"an update of nothing":            {store.Replace(absent, 1, nil), nil, dryrun.ErrRefused},
		"an increment":                    {store.Increment(key, map[string]int64{"balance": -2}, map[string]any{"by": "x"}), []string{"balance", "by"}, nil},
		"an increment of nothing":         {store.Increment(absent, map[string]int64{"balance": 2}, nil), []string{"balance"}, nil},
		"an increment beyond all numbers": {store.Increment(key, map[string]int64{"balance": math.MaxInt64}, nil), nil, store.ErrInvalid},
		"a set":                           {store.Set(key, map[string]any{"balance": int64(5)}), []string{"at", "old", "secret"}, nil},
		"a delete":                        {store.Delete(key, versions[0]), []string{"at", "balance", "old", "secret"}, nil},
		"a delete of another version":     {store.Delete(key, versions[0]+1), nil, dryrun.ErrRefused},
		"a delete of nothing":             {store.Delete(absent, 0), nil, nil},
		"no write at all":                 {store.Write{Key: key}, nil, store.ErrInvalid},
	} {
		var trial dryrun.Trial
		err := trial.Show(t.Context(), s, []store.Write{test.write})
		require.ErrorIs(t, err, test.fails, name)
		var changed []string
		for _, c := range trial.Writes {
			changed = c.Changed()
			require.NotContains(t, fmt.Sprintf("%s", c.Before)+fmt.Sprintf("%s", c.After), "s3cret", name)
		}
		require.Equal(t, test.changed, changed, name)
	}
	var trial dryrun.Trial
	require.ErrorIs(t, trial.Show(t.Context(), s, make([]store.Write, store.MaxWrites)), store.ErrInvalid, "the record needs its place")
	s.FailReads(1)
	require.ErrorIs(t, trial.Show(t.Context(), s, []store.Write{store.Set(key, nil)}), storetest.ErrFault)
}
