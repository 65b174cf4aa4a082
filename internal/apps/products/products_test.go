package products_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/apps/products"
	"billhook/internal/console"
	"billhook/internal/filetest"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var noon = time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)

var start = map[string]catalog.Product{"cap": {Points: 10}, "hat": {Points: 250}, "wig": {Points: 7}}

const tenant = "acme"

var ada = audit.Change{Who: audit.Author{Proof: audit.ThisMachine, Name: "ada"}, Why: "new in the store"}

type shop struct {
	*products.Editor
	reader *products.Reader
	faults *storetest.Faults
	now    atomic.Int64
}

func open(t *testing.T) *shop {
	t.Helper()
	s := &shop{faults: &storetest.Faults{Store: storetest.Open(t)}}
	s.now.Store(noon.UnixNano())
	clock := func() time.Time { return time.Unix(0, s.now.Load()).UTC() }
	var ids atomic.Int64
	s.Editor = &products.Editor{
		Store: s.faults, Start: start, Now: clock, NewID: func() string { return fmt.Sprint("id-", ids.Add(1)) },
	}
	s.reader = products.NewReader(s.faults, start, clock)
	return s
}

func (s *shop) wait(d time.Duration) { s.now.Add(int64(d)) }

const retired = math.MinInt64

var edit = console.Edit{Change: console.Change{Why: ada.Why}}

func product(id string) products.ProductOf {
	return products.ProductOf{Owned: console.Owned{Tenant: tenant}, ID: id}
}

func (s *shop) change(id string, points int64) (products.Product, error) {
	if points == retired {
		return s.Retire(context.Background(), ada.Who, products.RetireProduct{ProductOf: product(id), Edit: edit})
	}
	return s.Set(context.Background(), ada.Who,
		products.SetProduct{ProductOf: product(id), Points: points, Edit: edit})
}

func (s *shop) set(t *testing.T, id string, points int64) {
	t.Helper()
	require.NoError(t, filetest.ErrorOf(s.change(id, points)))
}

func (s *shop) changes(t *testing.T, id string) []audit.Entry {
	t.Helper()
	return filetest.Must(audit.Subject{Kind: products.Kind, Tenant: tenant, ID: id}.All(t.Context(),
		s.faults))(t)
}

func TestAProductIsTheCatalogsUntilItIsSetAndChangesAreAudited(t *testing.T) {
	t.Parallel()
	s := open(t)
	side := func(p products.Product) map[string]any {
		return map[string]any{"points": p.Points, "state": string(p.State), "origin": p.Origin}
	}
	want := products.Product{
		Tenant: tenant, ID: "hat", Points: 250, State: products.Active, Origin: products.FromCatalog,
	}
	for _, step := range []struct {
		set, points int64
		state       products.State
	}{
		{0, 250, products.Active},
		{300, 300, products.Active},
		{retired, 300, products.Retired},
		{250, 250, products.Active},
	} {
		if before := want; step.set != 0 {
			s.wait(time.Minute)
			s.set(t, "hat", step.set)
			want.Points, want.State, want.Origin, want.Since = step.points, step.state,
				products.FromStore, s.Now()
			change := s.changes(t, "hat")[0]
			require.Equal(t, []map[string]any{side(before), side(want)},
				[]map[string]any{change.Before, change.After})
		}
		got := filetest.Must(s.Get(t.Context(), tenant, "hat"))(t)
		want.Version = got.Version
		require.Equal(t, want, got)
	}
	require.Len(t, s.changes(t, "hat"), 3)
	s.set(t, "new", 1)
	require.Nil(t, s.changes(t, "new")[0].Before)
	for _, id := range []string{"odd", "no/id"} {
		_, err := s.Get(t.Context(), tenant, id)
		require.ErrorIs(t, err, products.ErrUnknown)
		require.Equal(t, "unknown", s.worth(t, id))
	}
}

func TestAnUnreadableProductCanBeSet(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]map[string]any{
		"0 points":         {"points": int64(0), "state": "active", "since": noon},
		"a text as points": {"points": "10", "state": "active", "since": noon},
		"no state":         {"points": int64(1), "since": noon},
		"another state":    {"points": int64(1), "state": "halted", "since": noon},
		"no time":          {"points": int64(1), "state": "active"},
	} {
		s := open(t)
		fields["tenant"], fields["product_id"] = tenant, "hat"
		storetest.Put(t, s.faults, store.Create(products.Key(tenant, "hat"), fields))
		_, err := s.Get(t.Context(), tenant, "hat")
		require.ErrorIs(t, err, products.ErrBroken, name)
		_, known, err := s.reader.Points(t.Context(), tenant, "hat")
		require.ErrorIs(t, err, products.ErrBroken, "the catalog's product does not replace it")
		require.False(t, known, name)
		_, _, err = s.List(t.Context(), tenant, store.Cursor{}, 10)
		require.ErrorIs(t, err, products.ErrBroken, name)
		s.set(t, "hat", 300)
		require.Equal(t, "300", s.worth(t, "hat"))
	}
}

func TestProductsAreListedPageByPage(t *testing.T) {
	t.Parallel()
	s := open(t)
	s.set(t, "ant", 1)
	s.set(t, "hat", retired)
	s.set(t, "bee", 2)
	s.set(t, "zoo", 3)
	want := []string{
		"ant 1 active store", "bee 2 active store", "cap 10 active catalog", "hat 250 retired store",
		"wig 7 active catalog", "zoo 3 active store",
	}
	for limit := 1; limit <= len(want)+1; limit++ {
		var got []string
		for after := (store.Cursor{}); ; {
			page, next := filetest.Both(s.List(t.Context(), tenant, after, limit))(t)
			require.LessOrEqual(t, len(page), limit)
			for _, p := range page {
				got = append(got, fmt.Sprint(p.ID, " ", p.Points, " ", p.State, " ", p.Origin))
			}
			if next.IsZero() {
				break
			}
			require.Greater(t, next.ID, after.ID, "each page begins after the one before")
			after = next
		}
		require.Equal(t, want, got, "%d a page", limit)
	}
}

func (s *shop) worth(t require.TestingT, id string) string {
	points, known := filetest.Both(s.reader.Points(context.Background(), tenant, id))(t)
	if !known {
		return "unknown"
	}
	return fmt.Sprint(points)
}

// The points that a reader returns were current within the time for which it caches them, and a product that
// it reports as unknown is unknown now.
func TestAReaderReturnsNoExpiredPoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := open(t)
		s.Changed = s.reader.Forget
		elsewhere := products.NewReader(s.faults, start, s.Now)
		type was struct {
			worth string
			until time.Time
		}
		ids := []string{"hat", "cap", "new"}
		now := map[string]string{"hat": "250", "cap": "10", "new": "unknown"}
		past := map[string][]was{}
		becomes := func(id, worth string) {
			past[id] = append(past[id], was{now[id], s.Now()})
			now[id] = worth
		}
		down := false
		id := rapid.SampledFrom(ids)
		read := func(r *rapid.T, reader *products.Reader, at string, allowed []string) {
			points, known, err := reader.Points(context.Background(), tenant, at)
			switch {
			case err != nil:
				require.True(r, down, "it fails only while the store is down")
			case !known:
				require.Equal(r, "unknown", now[at])
			default:
				require.Contains(r, allowed, fmt.Sprint(points))
			}
		}
		r.Repeat(map[string]func(*rapid.T){
			"set": func(r *rapid.T) {
				at, points := id.Draw(r, "id"), rapid.Int64Range(1, 5).Draw(r, "points")
				_, err := s.change(at, points)
				require.Equal(r, down, err != nil)
				if err == nil {
					becomes(at, fmt.Sprint(points))
				}
			},
			"retire": func(r *rapid.T) {
				at := id.Draw(r, "id")
				before := len(storetest.All(r, s.faults.Store, audit.Collection))
				switch _, err := s.change(at, retired); {
				case err == nil:
					becomes(at, "unknown")
				case !down:
					require.ErrorIs(r, err, products.ErrUnknown)
					require.Equal(r, "new", at, "the catalog has the others")
					require.Len(r, storetest.All(r, s.faults.Store, audit.Collection), before)
				}
			},
			"wait": func(r *rapid.T) {
				s.wait(rapid.SampledFrom([]time.Duration{1, time.Second, 29 * time.Second, 30 * time.Second}).
					Draw(r, "for"))
			},
			"the store goes down or up": func(*rapid.T) {
				down = !down
				s.faults.Down(down)
			},
			"read here": func(r *rapid.T) {
				at := id.Draw(r, "id")
				read(r, s.reader, at, []string{now[at]})
			},
			"read by another process": func(r *rapid.T) {
				at := id.Draw(r, "id")
				allowed := []string{now[at]}
				for _, before := range past[at] {
					if s.Now().Sub(before.until) < products.RememberedFor {
						allowed = append(allowed, before.worth)
					}
				}
				read(r, elsewhere, at, slices.Compact(allowed))
			},
		})
	})
}
