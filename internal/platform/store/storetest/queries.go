package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
	"billhook/internal/platform/store"
)

// RunQueries compares a store's queries with a model. It writes, changes and removes documents at random,
// with queries of every kind in between. open returns an empty store.
func RunQueries(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	s, collection := open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		collection++ // each round has its own
		m := &model{store: s, collection: fmt.Sprint("model-", collection), documents: map[string]map[string]any{}}
		t.Repeat(map[string]func(*rapid.T){"write": m.write, "query": m.query})
	})
}

type model struct {
	store      store.Store
	collection string
	documents  map[string]map[string]any
}

var (
	modelIDs = []string{"a", "a-1", "a-1-1", "a-2", "b", "b-1", "bé"}
	// Few values, so that queries find documents. Some values have the same text or bits.
	modelValues = []any{
		"x", "xx", "", "1", int64(1), int64(-1), true, false, time.UnixMicro(1).UTC(), time.UnixMicro(-1).UTC(),
		nil,
		[]any{"x"},
		map[string]any{"x": "x"},
	}
	modelLists = []any{[]any{}, []any{"x"}, []any{"x", "y", "x"}, []any{"yx", int64(1)}, "x", nil}
	modelTimes = []any{time.UnixMicro(-5).UTC(), time.UnixMicro(0).UTC(), time.UnixMicro(7).UTC(), "x", nil}
)

func (m *model) write(t *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(t, "id")
	key := store.Key{Collection: m.collection, ID: id}
	fields, values := map[string]any{},
		map[string][]any{"a": modelValues, "b": modelValues, "list": modelLists, "due": modelTimes}
	for _, name := range slices.Sorted(maps.Keys(values)) { // sorted, so that a failure can be reproduced
		if rapid.Bool().Draw(t, "has "+name) {
			fields[name] = rapid.SampledFrom(values[name]).Draw(t, name)
		}
	}
	write := store.Set(key, fields)
	switch rapid.IntRange(0, 3).Draw(t, "what") {
	case 0:
		write = store.Delete(key, 0)
		delete(m.documents, id)
	case 1: // an increment keeps the other fields
		write = store.Increment(key, map[string]int64{"n": 1}, fields)
		have := maps.Clone(m.documents[id])
		if have == nil {
			have = map[string]any{}
		}
		n, _ := have["n"].(int64)
		maps.Copy(have, fields)
		have["n"] = n + 1
		m.documents[id] = have
	default:
		m.documents[id] = fields
	}
	_, err := m.store.Commit(t.Context(), []store.Write{write})
	require.NoError(t, err)
}

func (m *model) query(t *rapid.T) {
	q := store.Query{
		Collection: m.collection, Limit: rapid.IntRange(1, 8).Draw(t, "limit"),
		Count: rapid.Bool().Draw(t, "count"),
	}
	compared := slices.DeleteFunc(slices.Clone(modelValues), func(value any) bool {
		switch value.(type) {
		case nil, []any, map[string]any:
			return true
		}
		return false
	})
	for _, name := range []string{"a", "b"} {
		if rapid.Bool().Draw(t, "compares "+name) {
			if q.Equal == nil {
				q.Equal = map[string]any{}
			}
			q.Equal[name] = rapid.SampledFrom(compared).Draw(t, "equal "+name)
		}
	}
	moment := func(label string) time.Time {
		return time.UnixMicro(rapid.Int64Range(-6, 8).Draw(t, label)).UTC()
	}
	switch rapid.IntRange(0, 2).Draw(t, "kind") {
	case 0:
		q.Due = &store.Due{Field: "due", Until: moment("until")}
		if rapid.Bool().Draw(t, "behind a position") {
			q.After = store.Cursor{At: moment("after"), ID: rapid.SampledFrom(modelIDs).Draw(t, "after id")}
		}
	case 1:
		q.Newest = &store.Newest{Field: "due"}
		if rapid.Bool().Draw(t, "since a time") {
			q.Newest.Since = moment("since")
		}
		if rapid.Bool().Draw(t, "until a time") {
			q.Newest.Until = moment("until")
		}
		if rapid.Bool().Draw(t, "behind a position") {
			q.After = store.Cursor{At: moment("after"), ID: rapid.SampledFrom(modelIDs).Draw(t, "after id")}
		}
	default:
		if rapid.Bool().Draw(t, "looks into a list") {
			q.Contains = map[string]string{"list": rapid.SampledFrom([]string{"x", "y", "yx", ""}).Draw(t, "text")}
		}
		q.IDPrefix = rapid.SampledFrom([]string{"", "", "a", "a-", "b", "c"}).Draw(t, "prefix")
		q.After.ID = rapid.SampledFrom(append([]string{"", ""}, modelIDs...)).Draw(t, "after")
	}
	m.finds(t, m.store, q)
	if _, named := q.Equal["a"]; named && q.Newest != nil { // Few passes other queries on
		m.finds(t, store.Few{Querier: m.store, Field: "a"}, q)
	}
}

func (m *model) finds(t *rapid.T, from store.Querier, q store.Query) {
	page := filetest.Must(from.Query(t.Context(), q))(t)
	want := m.matching(q)
	if q.Count {
		require.Equal(t, store.Page{Count: int64(min(len(want), q.Limit))}, page)
		return
	}
	var got []string
	for _, doc := range page.Documents {
		require.Equal(t, m.documents[doc.Key.ID], doc.Fields)
		got = append(got, doc.Key.ID)
	}
	next := ""
	if len(want) > q.Limit {
		want = want[:q.Limit]
		if q.Due == nil && q.Newest == nil {
			next = want[q.Limit-1]
		}
	}
	require.Equal(t, want, got)
	require.Equal(t, next, page.Next.ID)
}

// matching returns the ids of the model's documents that a query selects, in the query's order.
func (m *model) matching(q store.Query) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(m.documents)) {
		if m.matches(id, q) {
			ids = append(ids, id)
		}
	}
	at := func(id string) time.Time { return m.documents[id]["due"].(time.Time) }
	oldestFirst := func(a, b string) int { return cmp.Or(at(a).Compare(at(b)), cmp.Compare(a, b)) }
	switch {
	case q.Due != nil:
		slices.SortFunc(ids, oldestFirst)
	case q.Newest != nil:
		slices.SortFunc(ids, func(a, b string) int { return oldestFirst(b, a) })
	}
	return ids
}

func (m *model) matches(id string, q store.Query) bool {
	fields := m.documents[id]
	if (q.Newest == nil && q.Due == nil && id <= q.After.ID) || len(id) < len(q.IDPrefix) ||
		id[:len(q.IDPrefix)] != q.IDPrefix {
		return false
	}
	for name, want := range q.Equal {
		switch got := fields[name].(type) {
		case []any, map[string]any:
			return false
		default:
			if got != want {
				return false
			}
		}
	}
	for name, want := range q.Contains {
		if list, _ := fields[name].([]any); !slices.Contains(list, any(want)) {
			return false
		}
	}
	if q.Due != nil {
		at, ok := fields[q.Due.Field].(time.Time)
		behind := q.After.IsZero() || at.After(q.After.At) || (at.Equal(q.After.At) && id > q.After.ID)
		return ok && !at.After(q.Due.Until) && behind
	}
	if n := q.Newest; n != nil {
		at, ok := fields[n.Field].(time.Time)
		behind := q.After.IsZero() || at.Before(q.After.At) || (at.Equal(q.After.At) && id < q.After.ID)
		return ok && !at.Before(n.Since) && (n.Until.IsZero() || at.Before(n.Until)) && behind
	}
	return true
}

// RunLooks requires that a query reads only what it returns, not the rest of a collection. open returns an
// empty store, and a function that returns how many index entries and documents its queries have read.
func RunLooks(t *testing.T, open func(t *testing.T) (s store.Store, looked func() int64)) {
	t.Helper()
	s, looked := open(t)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	// The queries select one document in a hundred, and not the first of all.
	const most = 5000
	for first := 0; first < most; first += store.MaxWrites {
		var writes []store.Write
		for i := first; i < first+store.MaxWrites; i++ {
			fields := map[string]any{
				"queue": "q", "state": "closed", "names": []any{"q"}, "at": noon.Add(time.Hour), "half": i%2 == 0,
			}
			if i%100 == 50 {
				fields = map[string]any{
					"queue": "q", "state": "open", "names": []any{"q", "n"}, "at": noon, "half": i%2 == 0,
				}
			}
			writes = append(writes, store.Create(key(fmt.Sprintf("%04d", i)), fields))
		}
		Put(t, s, writes...)
	}
	due := &store.Due{Field: "at", Until: noon}
	for name, query := range map[string]store.Query{
		"all":                 {},
		"a prefix":            {IDPrefix: "42"},
		"behind an id":        {After: store.Cursor{ID: "4200"}},
		"what equals":         {Equal: map[string]any{"state": "open"}},
		"what equals twice":   {Equal: map[string]any{"state": "open", "queue": "q"}},
		"what equals behind":  {Equal: map[string]any{"state": "open"}, After: store.Cursor{ID: "4200"}},
		"a text in a list":    {Contains: map[string]string{"names": "n"}},
		"a text, what equals": {Contains: map[string]string{"names": "q"}, Equal: map[string]any{"state": "open"}},
		"a text of a prefix":  {Contains: map[string]string{"names": "n"}, IDPrefix: "42"},
		"what is due":         {Due: due},
		"what is due of equals": {
			Due: due, Equal: map[string]any{"queue": "q", "half": true},
		},
		"what is due behind one": {
			Due: due, After: store.Cursor{At: noon, ID: "4250"},
		},
		"nothing":           {Equal: map[string]any{"state": "lost", "queue": "q"}},
		"nothing in a list": {Contains: map[string]string{"names": "x"}},
		"nothing due":       {Due: &store.Due{Field: "at", Until: noon.Add(-1)}},
		"the newest":        {Newest: &store.Newest{Field: "at"}},
		"the newest of equals": {
			Newest: &store.Newest{Field: "at"}, Equal: map[string]any{"queue": "q", "state": "open"},
		},
		"the newest of a time": {Newest: &store.Newest{Field: "at", Since: noon, Until: noon.Add(time.Minute)}},
		"the newest behind one": {
			Newest: &store.Newest{Field: "at"}, After: store.Cursor{At: noon.Add(time.Hour), ID: "0003"},
		},
		"nothing new": {Newest: &store.Newest{Field: "at", Since: noon.Add(2 * time.Hour)}},
	} {
		for _, count := range []bool{false, true} {
			query.Collection, query.Limit, query.Count = "things", 20, count
			// The first query of a kind may make an index for later ones.
			_, err := s.Query(t.Context(), query)
			require.NoError(t, err, name)
			before := looked()
			page, err := s.Query(t.Context(), query)
			require.NoError(t, err, name)
			// For each document, and one more: an entry of each index, the next id in it, and the document.
			require.LessOrEqual(t, looked()-before, 5*(int64(len(page.Documents))+page.Count+1), name)
			require.LessOrEqual(t, int64(len(page.Documents))+page.Count, int64(20), name)
		}
	}
}

// RunMade requires that queries of new kinds, for which a store may make an index, find the same as a scan of
// all documents, even while others write. open returns an empty store.
func RunMade(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	s, most := open(t), 300
	write := func(dice *rand.Rand) error {
		fields := map[string]any{}
		for kind := range 40 {
			fields[fmt.Sprint("kind-", kind)] = fmt.Sprint(dice.IntN(3))
		}
		key := key(fmt.Sprintf("%03d", dice.IntN(most)))
		one := []store.Write{
			store.Set(key, fields), store.Delete(key, 0), store.Increment(key, map[string]int64{"n": 1}, fields),
		}
		_, err := s.Commit(t.Context(), one[dice.IntN(len(one)):][:1])
		return err
	}
	seeded := rand.New(rand.NewPCG(7, 0))
	for range most { // so that no query comes before the first write
		require.NoError(t, write(seeded))
	}
	ended := make(chan struct{})
	var writers errgroup.Group
	for seed := range uint64(2) {
		writers.Go(func() (err error) {
			for dice := rand.New(rand.NewPCG(seed, 0)); err == nil; err = write(dice) {
				select {
				case <-ended:
					return nil
				default:
				}
			}
			return err
		})
	}
	equal := func(kind int) store.Query {
		return store.Query{Collection: "things", Equal: map[string]any{fmt.Sprint("kind-", kind): "1"}, Limit: most}
	}
	for kind := range 40 {
		_, err := s.Query(t.Context(), equal(kind))
		require.NoError(t, err)
	}
	close(ended)
	require.NoError(t, writers.Wait())
	all := All(t, s, "things")
	for kind := range 40 {
		page := filetest.Must(s.Query(t.Context(), equal(kind)))(t)
		require.Equal(t, slices.DeleteFunc(slices.Clone(all), func(doc store.Document) bool {
			return doc.Fields[fmt.Sprint("kind-", kind)] != "1"
		}), page.Documents)
	}
}
