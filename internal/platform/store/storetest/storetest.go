// This file has the one suite that every store must pass.

// Package storetest holds the conformance suite of the store's implementations, and two wrappers for tests:
// Counter counts, and Faults fails on demand. The suite does not depend on an implementation.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/platform/store"
)

// Run runs the suite. open returns an empty store for one test.
func Run(t *testing.T, open func(t testing.TB) store.Store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, store.Store){
		"every kind of value comes back as it was":              values,
		"a document has any name and any valid size":            namesAndSizes,
		"a create refuses a document that exists":               createExists,
		"an update needs its version, and replaces all of it":   updates,
		"a delete works at a version, or whatever it is":        deletes,
		"an increment creates, adds and keeps the other fields": increments,
		"a commit writes all or nothing":                        allOrNothing,
		"an update that changes nothing keeps the version":      unchanged,
		"a stamp is the commit's time, and never goes back":     stamps,
		"queries compare times as they are kept":                queryTimes,
		"queries follow the bytes of ids, short and long":       queryIDs,
		"queries count beyond a page":                           queryCountBeyondAPage,
		"invalid requests are refused before they are sent":     invalid,
		"a context that has ended writes nothing":               canceled,
		"of fifty that create one wins":                         raceCreate,
		"of fifty that update at a version one wins":            raceUpdate,
		"fifty increments add up":                               raceIncrement,
		"a move stays above its floor, and is made once":        moves,
		"of fifty moves as many succeed as there are pieces":    raceMoves,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func key(id string) store.Key { return store.Key{Collection: "things", ID: id} }

var named = []error{store.ErrExists, store.ErrStale, store.ErrNotFound, store.ErrInvalid}

// refuses requires that a commit fails with this named error and no other.
func refuses(t *testing.T, s store.Store, with error, writes ...store.Write) {
	t.Helper()
	_, err := s.Commit(t.Context(), writes)
	for _, name := range named {
		require.Equal(t, errors.Is(with, name), errors.Is(err, name), "%v: %v", writes, err)
	}
}

// absent requires that there is no document with the id.
func absent(t *testing.T, s store.Store, id string) {
	t.Helper()
	_, err := s.Get(t.Context(), key(id))
	require.ErrorIs(t, err, store.ErrNotFound)
}

func values(t *testing.T, s store.Store) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 789_123_000, time.UTC)
	fields := map[string]any{
		"string": "žluťoučký kůň \u2603 ", "empty": "", "true": true, "false": false,
		"int": int64(9007199254740993), "max": int64(math.MaxInt64), "min": int64(math.MinInt64), "zero": int64(0),
		"time": at, "null": nil,
		"map":   map[string]any{"inner": int64(1), "deep": map[string]any{"a.b": "c"}, "empty": map[string]any{}},
		"array": []any{int64(1), "two", map[string]any{"three": true}},
		"none":  []any{},
	}
	versions := Put(t, s, store.Create(key("v"), fields))
	doc := Get(t, s, key("v"))
	require.Equal(t, fields, doc.Fields)
	require.Equal(t, versions[0], doc.Version)
	require.Equal(t, key("v"), doc.Key)
	absent(t, s, "absent")
}

func stamps(t *testing.T, s store.Store) {
	plus := store.Increment(key("plus"), map[string]int64{"n": 1}, nil).Stamped("at")
	var last time.Time
	for range 3 {
		Put(t, s, store.Set(key("a"), map[string]any{"n": int64(1)}).Stamped("at"), plus,
			store.Set(key("none"), nil))
		at, ok := Get(t, s, key("a")).Fields["at"].(time.Time)
		require.True(t, ok && !at.Before(last), "%v after %v", at, last)
		require.Equal(t, map[string]any{"n": int64(1), "at": at}, Get(t, s, key("a")).Fields)
		require.Equal(t, at, Get(t, s, key("plus")).Fields["at"], "all of a commit have one time")
		last = at
	}
	require.EqualValues(t, 3, Get(t, s, key("plus")).Fields["n"])
	for _, w := range []store.Write{
		store.Set(key("b"), map[string]any{"at": last}).Stamped("at"),
		store.Increment(key("b"), map[string]int64{"at": 1}, nil).Stamped("at"),
		store.Delete(key("a"), 0).Stamped("at"), store.Set(key("b"), nil).Stamped("__x__"),
	} {
		refuses(t, s, store.ErrInvalid, w)
	}
}

func createExists(t *testing.T, s store.Store) {
	Put(t, s, store.Create(key("a"), map[string]any{"n": int64(1)}))
	refuses(t, s, store.ErrExists, store.Create(key("a"), map[string]any{"n": int64(2)}))
	require.Equal(t, int64(1), Get(t, s, key("a")).Fields["n"])
}

func updates(t *testing.T, s store.Store) {
	first := Put(t, s, store.Create(key("a"), map[string]any{"n": int64(1), "old": "x"}))[0]
	second := Put(t, s, store.Replace(key("a"), first, map[string]any{"n": int64(2)}))[0]
	require.NotEqual(t, first, second)
	refuses(t, s, store.ErrStale, store.Replace(key("a"), first, map[string]any{"n": int64(3)}))
	refuses(t, s, store.ErrStale, store.Replace(key("absent"), first, map[string]any{"n": int64(3)}))
	require.Equal(t, store.Document{Key: key("a"), Fields: map[string]any{"n": int64(2)}, Version: second},
		Get(t, s, key("a")))
}

func deletes(t *testing.T, s store.Store) {
	first := Put(t, s, store.Create(key("a"), map[string]any{"n": int64(1)}))[0]
	second := Put(t, s, store.Set(key("a"), map[string]any{"n": int64(2)}))[0]
	refuses(t, s, store.ErrStale, store.Delete(key("a"), first))
	Put(t, s, store.Delete(key("a"), second))
	absent(t, s, "a")
	Put(t, s, store.Delete(key("a"), 0))
	third := Put(t, s, store.Create(key("a"), map[string]any{"n": int64(1)}))[0]
	require.NotEqual(t, first, third, "a document made anew is not the one that was deleted")
}

func increments(t *testing.T, s store.Store) {
	Put(t, s, store.Increment(key("a"), map[string]int64{"n": 5}, map[string]any{"currency": "points"}))
	versions := Put(t, s, store.Increment(key("a"), map[string]int64{"n": -7, "m": 1}, nil))
	require.Equal(t, map[string]any{"n": int64(-2), "m": int64(1), "currency": "points"},
		Get(t, s, key("a")).Fields)
	require.Equal(t, versions[0], Get(t, s, key("a")).Version)
	Put(t, s, store.Increment(key("a"), map[string]int64{"currency": 4},
		map[string]any{"m": map[string]any{"x": int64(1), "y": int64(2)}}))
	Put(t, s, store.Increment(key("a"), map[string]int64{"currency": 1},
		map[string]any{"m": map[string]any{"x": int64(3)}}))
	require.Equal(t, map[string]any{"n": int64(-2), "m": map[string]any{"x": int64(3)}, "currency": int64(5)},
		Get(t, s, key("a")).Fields,
		"a map is replaced whole, and what is no number counts as 0")
}

func moves(t *testing.T, s store.Store) {
	stock, once := key("stock"), 0
	take := func(n int64) []store.Write {
		once++
		return []store.Write{
			store.Create(key(fmt.Sprint("order-", once)), nil),
			store.Move(stock, map[string]int64{"left": -n, "taken": n}, "left"),
		}
	}
	refuses(t, s, store.ErrStale, take(1)...)
	Put(t, s, store.Create(stock, map[string]any{"left": int64(3), "of": "hats"}))
	versions := Put(t, s, take(2)...)
	require.Equal(t, store.Document{
		Key: stock, Fields: map[string]any{"left": int64(1), "taken": int64(2), "of": "hats"}, Version: versions[1],
	}, Get(t, s, key("stock")))
	short := take(2)
	refuses(t, s, store.ErrStale, short...)
	absent(t, s, short[0].Key.ID)
	require.Equal(t, versions[1], Get(t, s, key("stock")).Version, "what is refused has changed nothing")
	Put(t, s, store.Create(key("back"), nil), store.Move(stock, map[string]int64{"left": 2, "taken": -2}, ""))
	refuses(t, s, store.ErrExists, store.Create(key("back"), nil),
		store.Move(stock, map[string]int64{"left": 2}, ""))
	Put(t, s, take(3)...)
	require.Equal(t, map[string]any{"left": int64(0), "taken": int64(3), "of": "hats"},
		Get(t, s, key("stock")).Fields)
	refuses(t, s, store.ErrStale, store.Create(key("odd"), nil),
		store.Move(stock, map[string]int64{"taken": 1}, "nothing"))
	Put(t, s, store.Create(key("first"), nil), store.Move(key("new"), map[string]int64{"n": 1}, ""))
	require.Equal(t, map[string]any{"n": int64(1)}, Get(t, s, key("new")).Fields)
}

// raceMoves: each piece is moved once. In the first race two callers create each order, and one succeeds.
func raceMoves(t *testing.T, s store.Store) {
	Put(t, s, store.Create(key("stock"), map[string]any{"left": int64(racers)}))
	race(t, s, racers/2, store.ErrExists, func(i int) []store.Write {
		return []store.Write{
			store.Create(key(fmt.Sprint("order-", i/2)), nil),
			store.Move(key("stock"), map[string]int64{"left": -1, "taken": 1}, "left"),
		}
	})
	require.Equal(t, map[string]any{"left": int64(racers / 2), "taken": int64(racers / 2)},
		Get(t, s, key("stock")).Fields)
	race(t, s, racers/2, store.ErrStale, func(i int) []store.Write {
		return []store.Write{
			store.Create(key(fmt.Sprint("late-", i)), nil),
			store.Move(key("stock"), map[string]int64{"left": -1, "taken": 1}, "left"),
		}
	})
	require.Equal(t, map[string]any{"left": int64(0), "taken": int64(racers)}, Get(t, s, key("stock")).Fields)
}

func namesAndSizes(t *testing.T, s store.Store) {
	odd := map[string]any{
		"a.b": "dots", "a`b\\c": "quotes", "1": "digit", "ž ů": "letters", "x": map[string]any{"c.d": nil},
	}
	Put(t, s, store.Set(key("odd"), odd))
	require.Equal(t, odd, Get(t, s, key("odd")).Fields)
	Put(t, s, store.Increment(key("odd"), map[string]int64{"n.m`\\": 2}, map[string]any{"a.b": "changed"}))
	fields := Get(t, s, key("odd")).Fields
	require.Equal(t, int64(2), fields["n.m`\\"])
	require.Equal(t, "changed", fields["a.b"])
	require.Len(t, fields, len(odd)+1)

	Put(t, s, store.Set(key("empty"), nil))
	require.Equal(t, map[string]any{}, Get(t, s, key("empty")).Fields)

	half := strings.Repeat("x", 1<<19)
	Put(t, s, store.Set(key("large"), map[string]any{"a": half, "b": half[:1<<19-200]}))
	require.Equal(t, half, Get(t, s, key("large")).Fields["a"])
	refuses(t, s, store.ErrInvalid, store.Set(key("beside"), nil),
		store.Set(key("large"), map[string]any{"a": half, "b": half + "x"}))
	absent(t, s, "beside")
}

func allOrNothing(t *testing.T, s store.Store) {
	Put(t, s, store.Create(key("there"), map[string]any{"n": int64(1)}))
	refuses(t, s, store.ErrExists,
		store.Create(key("new"), map[string]any{"n": int64(1)}),
		store.Increment(key("counter"), map[string]int64{"n": 1}, nil),
		store.Create(key("there"), map[string]any{"n": int64(2)}),
	)
	absent(t, s, "new")
	absent(t, s, "counter")
}

func unchanged(t *testing.T, s store.Store) {
	first := Put(t, s, store.Create(key("a"), map[string]any{"n": int64(1)}))[0]
	second := Put(t, s, store.Replace(key("a"), first, map[string]any{"n": int64(1)}))[0]
	require.Equal(t, first, second)
	require.Equal(t, first, Get(t, s, key("a")).Version)
}

// finds requires that a query for things finds exactly these ids, in order, and returns the page.
func finds(t *testing.T, s store.Store, query store.Query, want ...string) store.Page {
	t.Helper()
	query.Collection = "things"
	page := filetest.Must(s.Query(t.Context(), query))(t)
	var ids []string
	for _, doc := range page.Documents {
		ids = append(ids, doc.Key.ID)
	}
	require.Equal(t, want, ids)
	return page
}

// queryTimes: times are stored and compared in microseconds. RunQueries covers all other kinds of queries.
func queryTimes(t *testing.T, s store.Store) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_999, time.UTC)
	Put(t, s, store.Create(key("timed"), map[string]any{"at": at}))
	finds(t, s, store.Query{Equal: map[string]any{"at": at}, Limit: 9}, "timed")
}

func queryIDs(t *testing.T, s store.Store) {
	// Sorted by UTF-16 units, the third would come before the second.
	unicode := []string{"u~\u017e", "u~\uffee", "u~\U0001f600"}
	long := strings.Repeat("l", store.MaxIDBytes-1)
	for _, id := range slices.Concat(unicode, []string{long, long + "a", long + "b", long[1:] + "m"}) {
		Put(t, s, store.Create(key(id), nil))
	}
	finds(t, s, store.Query{IDPrefix: "u~", Limit: 9}, unicode...)
	query := store.Query{IDPrefix: long, Limit: 2}
	page := finds(t, s, query, long, long+"a")
	query.After = page.Next
	page = finds(t, s, query, long+"b")
	require.Empty(t, page.Next)
	finds(t, s, store.Query{IDPrefix: "a", After: store.Cursor{ID: "u~"}, Limit: 9})
}

func queryCountBeyondAPage(t *testing.T, s store.Store) {
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	const most = store.MaxPage + 1
	for first := 0; first < most; first += store.MaxWrites {
		var writes []store.Write
		for i := first; i < min(first+store.MaxWrites, most); i++ {
			writes = append(writes, store.Create(key(fmt.Sprintf("a-%04d", i)), map[string]any{"due": noon}))
		}
		Put(t, s, writes...)
	}
	for name, due := range map[string]*store.Due{"all": nil, "what is due": {Field: "due", Until: noon}} {
		for limit, want := range map[int]int64{most - 1: most - 1, most: most, 2 * most: most} {
			require.Equal(t, store.Page{Count: want}, finds(t, s, store.Query{Due: due, Count: true, Limit: limit}),
				"%s, up to %d", name, limit)
		}
	}
}

func invalid(t *testing.T, s store.Store) {
	// The tests of store.CheckWrites cover all other mistakes.
	refuses(t, s, store.ErrInvalid)
	refuses(t, s, store.ErrInvalid, store.Set(key("a"), nil), store.Delete(key("a"), 0))
	refuses(t, s, store.ErrInvalid, store.Move(key("a"), map[string]int64{"n": 1}, ""))
	_, err := s.Get(t.Context(), key("a/b"))
	require.ErrorIs(t, err, store.ErrInvalid)
	_, err = s.Query(t.Context(), store.Query{Collection: "things"})
	require.ErrorIs(t, err, store.ErrInvalid)
}

func canceled(t *testing.T, s store.Store) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Commit(gone, []store.Write{store.Create(key("a"), map[string]any{"n": int64(1)})})
	require.ErrorIs(t, err, context.Canceled)
	absent(t, s, "a")
	late, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	_, err = s.Get(late, key("a"))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Query(late, store.Query{Collection: "things", Limit: 1})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = s.Commit(late, []store.Write{store.Create(key("a"), map[string]any{"n": int64(1)})})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	absent(t, s, "a")
}

// RunLostAnswers runs cases in which a commit succeeds but its answer is lost. open returns an empty store
// and a function that makes the store lose the next commit's answer.
func RunLostAnswers(t *testing.T, open func(t *testing.T) (s store.Store, loseNext func())) {
	t.Helper()
	t.Run("a create that is repeated meets itself and counts once", func(t *testing.T) {
		t.Parallel()
		s, loseNext := open(t)
		writes := []store.Write{
			store.Create(key("record"), map[string]any{"by": "me"}),
			store.Increment(key("balance"), map[string]int64{"n": 7}, nil),
		}
		loseNext()
		_, err := s.Commit(t.Context(), writes)
		requireUnknown(t, err)
		refuses(t, s, store.ErrExists, writes...)
		require.Equal(t, "me", Get(t, s, key("record")).Fields["by"])
		require.Equal(t, int64(7), Get(t, s, key("balance")).Fields["n"])
	})
	t.Run("an update that is repeated meets itself", func(t *testing.T) {
		t.Parallel()
		s, loseNext := open(t)
		version := Put(t, s, store.Create(key("a"), map[string]any{"n": int64(1)}))[0]
		writes := []store.Write{store.Replace(key("a"), version, map[string]any{"n": int64(2)})}
		loseNext()
		_, err := s.Commit(t.Context(), writes)
		requireUnknown(t, err)
		refuses(t, s, store.ErrStale, writes...)
		require.Equal(t, int64(2), Get(t, s, key("a")).Fields["n"])
	})
	t.Run("a bare increment is never repeated behind its caller", func(t *testing.T) {
		t.Parallel()
		s, loseNext := open(t)
		loseNext()
		_, err := s.Commit(t.Context(), []store.Write{store.Increment(key("a"), map[string]int64{"n": 7}, nil)})
		requireUnknown(t, err)
		require.Equal(t, int64(7), Get(t, s, key("a")).Fields["n"])
	})
}

// requireUnknown requires an error after which the commit's outcome is unknown.
func requireUnknown(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	for _, name := range named {
		require.NotErrorIs(t, err, name)
	}
}
