package journal_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/journal"
	"billhook/internal/apps/journal/journaltest"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

const october = "2026-10"

var (
	ada, bob = person("ada"), person("bob")
	// token is a caller with the shared token, and almostToken a person whose name begins with token.
	token       = audit.Change{Who: audit.Author{Proof: audit.SharedToken, Name: "ada"}, Why: ada.Why}
	almostToken = person("token-desk@shop.example")
)

func person(name string) audit.Change {
	return audit.Change{Who: audit.Author{Proof: audit.Identity, Name: name}, Why: "an invoice was late"}
}

// periodStep is what a person does, the state that follows, and who has requested the reopening then.
type periodStep struct {
	do        func(*journal.Periods, context.Context, string, string, audit.Change) (journal.Period, error)
	by        audit.Change
	state     journal.State
	requested string
	want      error
}

var (
	shut, reopen = (*journal.Periods).Close, (*journal.Periods).Reopen

	adaCloses   = periodStep{shut, ada, journal.Closing, "", nil}
	adaRequests = periodStep{reopen, ada, journal.Closed, "ada", nil}
	bobRequests = periodStep{reopen, bob, journal.Closed, "bob", nil}
	bobReopens  = periodStep{reopen, bob, journal.Open, "", nil}
)

type periodHistory struct {
	steps []periodStep
	audit string
}

var periodHistories = map[string]periodHistory{
	"closing":       {[]periodStep{adaCloses}, "close"},
	"closing twice": {[]periodStep{adaCloses, {shut, bob, journal.Closed, "", nil}}, "close"},
	"two people reopen it": {
		[]periodStep{adaCloses, adaRequests, bobReopens}, "close ask_to_reopen reopen",
	},
	"one person does not reopen it alone": {
		[]periodStep{adaCloses, bobRequests, {reopen, bob, journal.Closed, "bob", audit.ErrSamePerson}},
		"close ask_to_reopen",
	},
	"a shared token is no person": {
		[]periodStep{
			adaCloses,
			{reopen, token, journal.Closed, "", audit.ErrNoIdentity},
			adaRequests,
			{reopen, token, journal.Closed, "ada", audit.ErrNoIdentity},
		},
		"close ask_to_reopen",
	},
	"a person whose name begins with token is one": {
		[]periodStep{
			{shut, token, journal.Closing, "", nil},
			{reopen, almostToken, journal.Closed, almostToken.Who.Name, nil},
			{reopen, ada, journal.Open, "", nil},
		},
		"close ask_to_reopen reopen",
	},
	"closing withdraws a request": {
		[]periodStep{adaCloses, bobRequests, {shut, ada, journal.Closed, "", nil}, adaRequests},
		"close ask_to_reopen keep_closed ask_to_reopen",
	},
	"an open period stays open": {[]periodStep{{reopen, ada, journal.Open, "", nil}}, ""},
	"closing again": {
		[]periodStep{adaCloses, adaRequests, bobReopens, {shut, bob, journal.Closing, "", nil}},
		"close ask_to_reopen reopen close",
	},
}

func TestAPeriodIsClosedByOnePersonAndReopenedByTwo(t *testing.T) {
	t.Parallel()
	filetest.Each(t, periodHistories, func(t *testing.T, test periodHistory) {
		d := open(t, "")
		for i, s := range test.steps {
			got, err := s.do(d.periods, t.Context(), "acme", october, s.by)
			require.ErrorIs(t, err, s.want, i)
			found := filetest.Must(d.periods.Get(t.Context(), "acme", october))(t)
			if s.want == nil {
				require.Equal(t, found, got, i)
			}
			requested := ""
			if found.Reopening != nil {
				requested = found.Reopening.Who
			}
			require.Equal(t, []string{string(s.state), s.requested}, []string{string(found.State), requested}, i)
			d.pass(journal.Notice)
		}
		actions, _ := d.audited(t)
		require.Equal(t, test.audit, strings.Join(actions, " "))
	})
}

func (d *office) audited(t *testing.T) (actions, who []string) {
	t.Helper()
	subject := audit.Subject{Kind: journal.Kind, Tenant: "acme", ID: october}
	for _, e := range slices.Backward(filetest.Must(subject.All(t.Context(), d.Store))(t)) {
		actions, who = append(actions, e.Action), append(who, e.Who)
	}
	return actions, who
}

func TestAMonthThatIsNotOverOrInvalidIsNotClosed(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	for sentence, test := range map[string]struct {
		tenant, period string
		by             audit.Change
		want           error
	}{
		"the current month":    {"acme", "2026-11", ada, journal.ErrNotOver},
		"a future month":       {"acme", "2027-01", ada, journal.ErrNotOver},
		"an invalid month":     {"acme", "2026-13", ada, audit.ErrInvalid},
		"a tenant with a path": {"a/b", october, ada, audit.ErrInvalid},
	} {
		_, err := d.periods.Close(t.Context(), test.tenant, test.period, test.by)
		require.ErrorIs(t, err, test.want, sentence)
	}
	months := filetest.Must(d.periods.Months(t.Context(), "acme"))(t)
	require.Equal(t, []journal.Period{{Tenant: "acme", Month: "2026-11", State: journal.Open}}, months,
		"the current month alone")
	require.ErrorIs(t, filetest.ErrorOf(d.periods.Get(t.Context(), "a/b", october)), audit.ErrInvalid)
	require.ErrorIs(t, filetest.ErrorOf(d.periods.Months(t.Context(), "a/b")), audit.ErrInvalid)
}

func TestAnUnreadablePeriodIsAnErrorAndNotOpen(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	require.NoError(t, filetest.ErrorOf(d.periods.Close(t.Context(), "acme", october, ada)))
	query := store.Query{Collection: journal.PeriodsCollection, IDPrefix: store.ID("acme"), Limit: 1}
	page := filetest.Must(d.Store.Query(t.Context(), query))(t)
	storetest.Put(t, d.Store, store.Set(page.Documents[0].Key, map[string]any{"period": int64(10)}))
	require.ErrorIs(t, filetest.ErrorOf(d.periods.Get(t.Context(), "acme", october)), journal.ErrBroken)
	require.ErrorIs(t, filetest.ErrorOf(d.periods.Months(t.Context(), "acme")), journal.ErrBroken)
	require.ErrorIs(t, filetest.ErrorOf(d.periods.Close(t.Context(), "acme", october, ada)), journal.ErrBroken)
}

// Every later seal holds sums of each month that has entries, so the months have bounds.
func TestAnEventFarInThePastOrFutureIsADeadLetter(t *testing.T) {
	t.Parallel()
	d := open(t, more(t, "ignore"))
	bounds := d.Catalog.Journal
	for id, test := range []struct {
		happened time.Time
		reason   string
	}{
		{noon.Add(bounds.Ahead), ""},
		{noon.Add(bounds.Ahead + time.Second), "occurred_in_the_future"},
		{noon.Add(-bounds.Behind), ""},
		{noon.Add(-bounds.Behind - time.Second), "occurred_too_long_ago"},
		{time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC), "occurred_too_long_ago"},
		{time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), "occurred_in_the_future"},
	} {
		_, _, err := d.Deliver(t.Context(), "acme", journaltest.Message(t, d.Catalog, fmt.Sprint("e", id),
			"card.fee.charged", test.happened, `{"cents":30}`), false)
		if test.reason == "" {
			require.NoError(t, err, test.happened)
		} else {
			require.Equal(t, test.reason, retry.Decide(err).Reason, test.happened)
		}
	}
}

func TestAClosedPeriodTakesNoEntry(t *testing.T) {
	t.Parallel()
	d := open(t, more(t, "ignore"))
	fee := func(id, tenant, charged string) string {
		at := filetest.Must(time.Parse(time.RFC3339, charged))(t)
		body := journaltest.Message(t, d.Catalog, id, "card.fee.charged", at, `{"cents":30}`)
		_, _, err := d.Deliver(t.Context(), tenant, body, false)
		if err == nil {
			return ""
		}
		require.True(t, retry.Decide(err).Class.Terminal())
		var refusal *retry.Error
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, []string{october}, refusal.Subjects, "the dead letter names the month")
		return refusal.Verdict.Reason
	}
	require.Empty(t, fee("e1", "acme", "2026-10-31T23:59:59Z"))
	require.NoError(t, filetest.ErrorOf(d.periods.Close(t.Context(), "acme", october, ada)))
	require.Empty(t, fee("e2", "acme", "2026-10-31T23:59:59Z"), "it takes entries until the notice is over")
	d.pass(journal.Notice)
	require.Equal(t, "period_closed", fee("e3", "acme", "2026-10-31T23:59:59Z"))
	require.Empty(t, fee("e4", "acme", "2026-11-01T00:00:00Z"), "the next month is open")
	require.Empty(t, fee("e5", "globex", "2026-10-31T23:59:59Z"), "and so is the same month of another tenant")

	// A reversal belongs to the month in which it happened itself.
	run, reason := d.deliver(t, "undo", "billing.invoice.reverted", `{"reverts":"e1"}`)
	require.Empty(t, reason)
	require.Equal(t, "2026-11", d.entry(t, run.Record.Ref).Period)
	_, _, err := d.Deliver(t.Context(), "acme", journaltest.Message(t, d.Catalog, "late",
		"billing.invoice.reverted", noon.AddDate(0, -1, 0), `{"reverts":"e2"}`), false)
	require.Equal(t, "period_closed", retry.Decide(err).Reason)

	for _, by := range []audit.Change{ada, bob} {
		require.NoError(t, filetest.ErrorOf(d.periods.Reopen(t.Context(), "acme", october, by)))
	}
	d.pass(time.Minute)
	require.Empty(t, fee("e3", "acme", "2026-10-31T23:59:59Z"), "a replay of the dead letter posts it")
}

// An instance that has read the periods just before a closing, and then takes the longest time that a handler
// has, still posts before the month is closed.
func TestTheNoticeOfAClosingIsLongerThanACachedCalendarAndAHandler(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	q, ok := d.Catalog.HandledBy(catalog.JournalPost)
	require.True(t, ok)
	require.Greater(t, journal.Notice, journal.BelievedFor+q.LongestTimeout()+journal.ReadTime)
}

func TestTheCalendarIsReadEveryFewSeconds(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		d := open(t, "")
		reads := func() int64 { return d.counter.Gets.Load() + d.counter.Queries.Load() }
		requireClosed := func(want bool) {
			t.Helper()
			require.Equal(t, want, filetest.Must(d.Calendar.Closed(t.Context(), "acme", october))(t))
			synctest.Wait()
		}
		requireClosed(false)
		requireClosed(false)
		require.EqualValues(t, 1, reads(), "one read shows that no month was ever closed")
		require.NoError(t, filetest.ErrorOf(d.periods.Close(t.Context(), "acme", october, ada)))
		d.pass(journal.Notice)
		requireClosed(true)
		before := reads()
		d.pass(6 * time.Second)
		requireClosed(true)
		require.Equal(t, before+1, reads(), "an unchanged list is not read again")

		d.faults.Down(true)
		requireClosed(true)
		d.pass(6 * time.Second)
		_, err := d.Calendar.Closed(t.Context(), "acme", october)
		require.Equal(t, retry.Verdict{
			Class: retry.Unavailable, Reason: "periods_unknown", Scope: retry.EveryMessage,
		}, retry.Decide(err), "the last read is too old")
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = d.Calendar.Closed(cancelled, "acme", october)
		require.Equal(t, context.Canceled, err)
		d.faults.Down(false)
		synctest.Wait()
		requireClosed(true)
	})
}

func TestOfManyConcurrentRequestsTwoReopenAPeriod(t *testing.T) {
	t.Parallel()
	d := open(t, "")
	require.NoError(t, filetest.ErrorOf(d.periods.Close(t.Context(), "acme", october, ada)))
	var wait sync.WaitGroup
	for i := range 8 {
		wait.Go(func() {
			_, err := d.periods.Reopen(t.Context(), "acme", october, person(fmt.Sprint("p", i)))
			require.True(t, err == nil || errors.Is(err, store.ErrBusy), err)
		})
	}
	wait.Wait()
	actions, who := d.audited(t)
	require.ElementsMatch(t, []string{"close", "ask_to_reopen", "reopen"}, actions)
	require.Len(t, slices.Compact(slices.Sorted(slices.Values(who))), 3)
}
