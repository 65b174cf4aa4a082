package products_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"billhook/catalog"
	"billhook/internal/apps/products"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

var start = map[string]catalog.Product{"cap": {Points: 10}, "hat": {Points: 250}, "wig": {Points: 7}}

// tenant is whose products these are.
const tenant = "acme"

var ada = products.Change{Who: "local:ada", Why: "new in the store"}

// shop is products over a real store.
type shop struct {
	*products.Keeper
	reader  *products.Reader
	counter *storetest.Counter
	faults  *storetest.Faults
	now     atomic.Int64
}

func open(t *testing.T) *shop {
	t.Helper()
	db := storetest.Open(t)
	s := &shop{counter: &storetest.Counter{Store: db}}
	s.faults = &storetest.Faults{Store: s.counter}
	s.now.Store(noon.UnixNano())
	clock := func() time.Time { return time.Unix(0, s.now.Load()).UTC() }
	var ids atomic.Int64
	s.Keeper = &products.Keeper{Store: s.faults, Start: start, Now: clock, NewID: func() string { return fmt.Sprint("id-", ids.Add(1)) }}
	s.reader = products.NewReader(s.faults, start, clock)
	return s
}

func (s *shop) wait(d time.Duration) { s.now.Add(int64(d)) }

func (s *shop) set(t *testing.T, id string, points int64) products.Product {
	t.Helper()
	p, err := s.Set(t.Context(), tenant, id, points, ada)
	require.NoError(t, err)
	return p
}

func (s *shop) retire(t *testing.T, id string) {
	t.Helper()
	_, err := s.Retire(t.Context(), tenant, id, ada)
	require.NoError(t, err)
}

func TestAProductHasThePointsOfTheCatalogUntilItIsSet(t *testing.T) {
	t.Parallel()
	s := open(t)
	p, err := s.Get(t.Context(), tenant, "hat")
	require.NoError(t, err)
	require.Equal(t, products.Product{Tenant: tenant, ID: "hat", Points: 250, State: products.Active, Origin: products.FromCatalog}, p)

	s.wait(time.Hour)
	set := s.set(t, "hat", 300)
	since := noon.Add(time.Hour)
	require.Equal(t, products.Product{Tenant: tenant, ID: "hat", Points: 300, State: products.Active, Origin: products.FromStore, Since: since}, set)
	got, err := s.Get(t.Context(), tenant, "hat")
	require.NoError(t, err)
	require.Equal(t, set, got)

	s.wait(time.Hour)
	s.retire(t, "hat")
	got, err = s.Get(t.Context(), tenant, "hat")
	require.NoError(t, err)
	require.Equal(t, products.Retired, got.State)
	require.Equal(t, noon.Add(2*time.Hour), got.Since)
	_, err = s.Get(t.Context(), tenant, "odd")
	require.ErrorIs(t, err, products.ErrUnknown)
	_, err = s.Get(t.Context(), tenant, "no/id")
	require.ErrorIs(t, err, products.ErrUnknown)
}

func TestEveryChangeOfAProductIsAuditedInItsOwnCommit(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.set(t, "hat", 300)
	s.wait(time.Minute)
	s.retire(t, "hat")
	s.wait(time.Minute)
	s.set(t, "hat", 250)
	s.set(t, "new", 1)
	require.EqualValues(t, 4, s.counter.Commits.Load())
	require.EqualValues(t, 8, s.counter.Written.Load())
	changes, next, err := audit.Subject{Kind: products.Kind, Tenant: tenant, ID: "hat"}.List(t.Context(), s.faults, store.Cursor{}, 10)
	require.NoError(t, err)
	require.Empty(t, next)
	side := func(points int64, state, origin string) map[string]any {
		return map[string]any{"points": points, "state": state, "origin": origin}
	}
	entry := func(action string, after time.Duration, before, now map[string]any) audit.Entry {
		return audit.Entry{Kind: "product", Tenant: tenant, Subject: "hat", Action: action, Who: ada.Who, Why: ada.Why, At: noon.Add(after), Before: before, After: now}
	}
	require.Equal(t, []audit.Entry{
		entry("set", 2*time.Minute, side(300, "retired", "store"), side(250, "active", "store")),
		entry("retire", time.Minute, side(300, "active", "store"), side(300, "retired", "store")),
		entry("set", 0, side(250, "active", "catalog"), side(300, "active", "store")),
	}, changes)
	changes, err = audit.Subject{Kind: products.Kind, Tenant: tenant, ID: "new"}.All(t.Context(), s.faults)
	require.NoError(t, err)
	require.Len(t, changes, 1)
	require.Nil(t, changes[0].Before)
}

func TestAnInvalidChangeOfAProductWritesNothing(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*shop) error
		want   error
	}{
		"no points":            {func(s *shop) error { _, err := s.Set(context.Background(), tenant, "hat", 0, ada); return err }, products.ErrInvalid},
		"points below nothing": {func(s *shop) error { _, err := s.Set(context.Background(), tenant, "hat", -1, ada); return err }, products.ErrInvalid},
		"more points than there are": {func(s *shop) error {
			_, err := s.Set(context.Background(), tenant, "hat", catalog.MaxPoints+1, ada)
			return err
		}, products.ErrInvalid},
		"an id that no order can name": {func(s *shop) error { _, err := s.Set(context.Background(), tenant, "a hat", 1, ada); return err }, products.ErrInvalid},
		"no reason": {func(s *shop) error {
			_, err := s.Set(context.Background(), tenant, "hat", 1, products.Change{Who: "local", Why: " "})
			return err
		}, audit.ErrInvalid},
		"a reason without end": {func(s *shop) error {
			_, err := s.Retire(context.Background(), tenant, "hat", products.Change{Who: "local", Why: strings.Repeat("w", 1001)})
			return err
		}, audit.ErrInvalid},
		"the end of what is none": {func(s *shop) error { _, err := s.Retire(context.Background(), tenant, "odd", ada); return err }, products.ErrUnknown},
		"a store that is down": {func(s *shop) error {
			s.faults.Down(true)
			_, err := s.Set(context.Background(), tenant, "hat", 1, ada)
			return err
		}, storetest.ErrFault},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			err := test.change(s)
			require.ErrorIs(t, err, test.want)
			require.NotContains(t, err.Error(), "hat")
			if errors.Is(test.want, storetest.ErrFault) {
				_, _, err = s.List(t.Context(), tenant, store.Cursor{}, 1)
				require.ErrorIs(t, err, storetest.ErrFault)
			}
			s.faults.Down(false)
			for _, collection := range []string{products.Collection, audit.Collection} {
				page, err := s.faults.Query(t.Context(), store.Query{Collection: collection, Limit: 1})
				require.NoError(t, err)
				require.Empty(t, page.Documents)
			}
		})
	}
}

func TestAProductThatCannotBeReadCanBeSet(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]map[string]any{
		"nothing":              {},
		"points of nothing":    {"points": int64(0), "state": "active", "since": noon},
		"points that are text": {"points": "10", "state": "active", "since": noon},
		"no state":             {"points": int64(1), "since": noon},
		"no time":              {"points": int64(1), "state": "active"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			_, err := s.faults.Commit(t.Context(), []store.Write{store.Create(products.Key(tenant, "hat"), fields)})
			require.NoError(t, err)
			_, err = s.Get(t.Context(), tenant, "hat")
			require.ErrorIs(t, err, products.ErrBroken)
			_, known, err := s.reader.Points(t.Context(), tenant, "hat")
			require.ErrorIs(t, err, products.ErrBroken, "what the catalog says is not what was set")
			require.False(t, known)
			_, _, err = s.List(t.Context(), tenant, store.Cursor{}, 10)
			require.ErrorIs(t, err, products.ErrBroken)
			s.set(t, "hat", 300)
			points, _, err := s.reader.Points(t.Context(), tenant, "hat")
			require.NoError(t, err)
			require.EqualValues(t, 300, points)
		})
	}
}

func TestProductsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.set(t, "ant", 1)
	s.retire(t, "hat")
	s.set(t, "bee", 2)
	s.set(t, "zoo", 3)
	want := []string{"ant 1 active store", "bee 2 active store", "cap 10 active catalog", "hat 250 retired store", "wig 7 active catalog", "zoo 3 active store"}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for after := (store.Cursor{}); ; {
			page, next, err := s.List(t.Context(), tenant, after, limit)
			require.NoError(t, err)
			require.LessOrEqual(t, len(page), limit)
			for _, p := range page {
				got = append(got, fmt.Sprint(p.ID, " ", p.Points, " ", p.State, " ", p.Origin))
			}
			if next.IsZero() {
				break
			}
			require.Greater(t, next.ID, after.ID, "each page goes on behind the one before")
			after = next
		}
		require.Equal(t, want, got, "%d a page", limit)
	}
}

func TestAChangeOfAProductThatChangedMeanwhileIsRefused(t *testing.T) {
	t.Parallel()
	s := open(t)
	expect := func(points int64) products.Change {
		return products.Change{Who: ada.Who, Why: ada.Why, Expect: &points}
	}
	for _, step := range []struct {
		id     string
		points int64 // 0 retires it
		seen   int64
		want   error
	}{
		{"hat", 300, 0, products.ErrChanged},
		{"hat", 300, 250, nil},
		{"hat", 300, 250, nil}, // the same, sent again
		{"hat", 400, 250, products.ErrChanged},
		{"hat", 0, 250, products.ErrChanged},
		{"hat", 0, 300, nil},
		{"hat", 300, 300, products.ErrChanged},
		{"hat", 300, 0, nil},
		{"new", 1, 1, products.ErrChanged},
		{"new", 1, 0, nil},
	} {
		var err error
		if step.points == 0 {
			_, err = s.Retire(t.Context(), tenant, step.id, expect(step.seen))
		} else {
			_, err = s.Set(t.Context(), tenant, step.id, step.points, expect(step.seen))
		}
		require.ErrorIs(t, err, step.want, "%+v", step)
	}
}
