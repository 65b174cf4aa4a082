package subscriptions_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/subscriptions"
	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

const ten = "2026-03-02T10:00:00Z"

func keep(t testing.TB, db store.Store, events ...subscriptions.Event) {
	t.Helper()
	for _, e := range events {
		storetest.Put(t, db, e.Write())
	}
}

func TestTheHistoryOfASubscriptionHasItsNewestEventFirst(t *testing.T) {
	t.Parallel()
	db, paid := storetest.Open(t), int64(999)
	event := func(id, at string) subscriptions.Event {
		return subscriptions.Event{Tenant: "default", Subscription: "s1", EventID: id, OccurredAt: at}
	}
	priced, undated, another := event("c", "2026-03-02T11:30:00+02:00"), event("d", "soon"), event("e", ten)
	priced.Amount, priced.Currency = &paid, "USD"
	undated.RecordedAt = time.Date(2026, 3, 3, 0, 0, 0, 1500, time.UTC)
	another.Subscription = "s11"
	keep(t, db, event("a", ten), priced, event("b", ten), undated, another)
	events, more := filetest.Both(subscriptions.History(t.Context(), db, "default", "s1"))(t)
	require.False(t, more)
	require.Equal(t, []string{"d", "b", "a", "c"},
		filetest.Map(events, func(e subscriptions.Event) string { return e.EventID }))
	require.Equal(t, &paid, events[3].Amount)
	require.Equal(t, time.Date(2026, 3, 3, 0, 0, 0, 1000, time.UTC), events[0].RecordedAt)
	_, err := db.Commit(t.Context(), []store.Write{events[0].Write()})
	require.ErrorIs(t, err, store.ErrExists, "an event is stored once")
}

func TestEachSubscriptionIsListedOnceWithTheStateOfItsNewestEvent(t *testing.T) {
	t.Parallel()
	db, states := storetest.Open(t), []string{"trialing", "active", "canceled"}
	for i := range 30 {
		for n, state := range states[:1+i%3] {
			id := fmt.Sprint("s", i)
			keep(t, db, subscriptions.Event{
				Tenant: "default", Subscription: id, EventID: fmt.Sprint(9 - n), Status: state,
				OccurredAt: fmt.Sprintf("2026-03-0%dT00:00:00Z", 1+n),
			},
				subscriptions.Event{
					Tenant: "acme", Subscription: id, EventID: fmt.Sprint(n), Status: "of acme",
					OccurredAt: "2026-03-01T00:00:00Z",
				})
		}
	}
	for i := range 2 * store.MaxPage {
		keep(t, db, subscriptions.Event{
			Tenant: "long", Subscription: fmt.Sprint("s", i/1500), EventID: fmt.Sprint(i),
			OccurredAt: "2026-03-01T00:00:00Z",
		})
	}
	list := func(tenant string, limit int) map[string]string {
		found, after := map[string]string{}, store.Cursor{}
		for pages := 0; pages == 0 || !after.IsZero(); pages++ {
			require.Less(t, pages, 40)
			page, next := filetest.Both(subscriptions.List(t.Context(), db, tenant, after, limit))(t)
			require.LessOrEqual(t, len(page), limit)
			for _, s := range page {
				require.NotContains(t, found, s.ID)
				found[s.ID] = s.Status
			}
			after = next
		}
		return found
	}
	for _, limit := range []int{1, 7, 100} {
		found := list("default", limit)
		require.Len(t, found, 30)
		for i := range 30 {
			require.Equal(t, states[i%3], found[fmt.Sprint("s", i)])
		}
		require.Len(t, list("long", limit), 2, "a subscription with more events than a page is listed once")
	}
	events, more := filetest.Both(subscriptions.History(t.Context(), db, "long", "s0"))(t)
	require.Equal(t, []any{subscriptions.MaxListed, true}, []any{len(events), more})
}
