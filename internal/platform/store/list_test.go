package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/filetest"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

type shelf struct{ down bool }

func (s shelf) Query(_ context.Context, q store.Query) (store.Page, error) {
	switch {
	case s.down:
		return store.Page{}, errors.New("down")
	case q.After.IsZero():
		return store.Page{
			Documents: []store.Document{{Key: key("a")}, {Key: key("b")}}, Next: store.Cursor{ID: "b"},
		}, nil
	default:
		return store.Page{Documents: []store.Document{{Key: key("c")}}}, nil
	}
}

func TestAListIsAPageOfWhatCanBeRead(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	id := func(doc store.Document) (string, error) {
		if doc.Key.ID == "c" {
			return "", broken
		}
		return doc.Key.ID, nil
	}
	list, next := filetest.Both(store.List(t.Context(), shelf{}, store.Query{}, id))(t)
	require.Equal(t, []string{"a", "b"}, list)
	require.Equal(t, store.Cursor{ID: "b"}, next)
	_, _, err := store.List(t.Context(), shelf{}, store.Query{After: next}, id)
	require.ErrorIs(t, err, broken)
	_, _, err = store.List(t.Context(), shelf{down: true}, store.Query{}, id)
	require.ErrorContains(t, err, "down")
}

func TestEachDocumentOfAllPagesIsYielded(t *testing.T) {
	t.Parallel()
	var seen string
	for doc, err := range store.Each(t.Context(), shelf{}, store.Query{}) {
		require.NoError(t, err)
		seen += doc.Key.ID
	}
	require.Equal(t, "abc", seen)
	for doc, err := range store.Each(t.Context(), shelf{}, store.Query{}) {
		require.NoError(t, err)
		require.Equal(t, "a", doc.Key.ID)
		break
	}
	for _, err := range store.Each(t.Context(), shelf{down: true}, store.Query{}) {
		require.ErrorContains(t, err, "down")
	}
}

func TestPagesLeaveOutWhatCannotBeReadAndNothingElse(t *testing.T) {
	t.Parallel()
	db, round := storetest.Open(t), 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		collection := fmt.Sprint("list-", round)
		var good, damaged []string
		for n := range rapid.IntRange(0, 12).Draw(t, "documents") {
			// in the order of their ids, two at a time
			fields := map[string]any{"at": noon.Add(-time.Duration(n/2) * time.Second)}
			id := fmt.Sprintf("%02d", n)
			if rapid.Bool().Draw(t, "damaged") {
				fields["damaged"], damaged = true, append(damaged, id)
			} else {
				good = append(good, id)
			}
			storetest.Put(t, db, store.Create(store.Key{Collection: collection, ID: id}, fields))
		}
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		for _, newest := range []*store.Newest{nil, {Field: "at"}} {
			var seen, skipped []string
			lists := store.Readable{
				Store: db, Skipped: func(_ context.Context, key store.Key) { skipped = append(skipped, key.ID) },
				Check: map[string]func(store.Document) error{collection: func(doc store.Document) error {
					if doc.Fields["damaged"] != nil {
						return errors.New("damaged")
					}
					return nil
				}},
			}
			query := store.Query{Collection: collection, Limit: limit, Newest: newest}
			for last := false; !last; {
				page := filetest.Must(lists.Query(context.Background(), query))(t)
				require.LessOrEqual(t, len(page.Documents), limit)
				for _, doc := range page.Documents {
					seen = append(seen, doc.Key.ID)
					at, _ := doc.Fields["at"].(time.Time)
					query.After = store.Cursor{At: at, ID: doc.Key.ID}
				}
				last = len(page.Documents) < limit // as lists by time show that there is no next page
				if newest == nil {
					query.After = page.Next
					last = last || page.Next.IsZero()
				}
			}
			require.ElementsMatch(t, good, seen)
			require.Subset(t, skipped, damaged, "it is reported")
			require.Subset(t, damaged, skipped)
		}
	})
}

type scripted struct {
	read    error
	answers []error
	reads   int
	commits [][]store.Write
}

func (s *scripted) Get(_ context.Context, key store.Key) (store.Document, error) {
	s.reads++
	return store.Document{Key: key, Version: store.Version(s.reads)}, s.read
}

func (s *scripted) Commit(_ context.Context, writes []store.Write) ([]store.Version, error) {
	s.commits = append(s.commits, writes)
	if n := len(s.commits); n <= len(s.answers) && s.answers[n-1] != nil {
		return nil, fmt.Errorf("scripted: %w", s.answers[n-1])
	}
	return make([]store.Version, len(writes)), nil
}

func TestUpdateReadsDecidesAndCommits(t *testing.T) {
	t.Parallel()
	down, refused := errors.New("down"), errors.New("refused")
	keepsChanging := []error{store.ErrStale, store.ErrExists, store.ErrStale, store.ErrStale, store.ErrExists}
	for name, c := range map[string]struct {
		store          scripted
		decided        error
		nothing        bool
		want           error
		reads, commits int
		written        bool
	}{
		"at the first try": {reads: 1, commits: 1, written: true},
		"a document that is not there": {
			store: scripted{read: store.ErrNotFound}, reads: 1, commits: 1, written: true,
		},
		"after others have changed it": {
			store: scripted{answers: keepsChanging[:4]}, reads: 5, commits: 5, written: true,
		},
		"others change it again and again": {
			store: scripted{answers: keepsChanging}, want: store.ErrBusy, reads: 5, commits: 5,
		},
		"nothing is to be done":     {nothing: true, reads: 1},
		"the decision is to refuse": {decided: refused, want: refused, reads: 1},
		"a document cannot be read": {store: scripted{read: down}, want: down, reads: 1},
		"the outcome of the commit is unknown": {
			store: scripted{answers: []error{down}}, want: down, reads: 1, commits: 1,
		},
		"the writes are wrong": {
			store: scripted{answers: []error{store.ErrInvalid}}, want: store.ErrInvalid, reads: 1, commits: 1,
		},
		"the store goes down between two tries": {
			store: scripted{answers: []error{store.ErrStale, down}}, want: down, reads: 2, commits: 2,
		},
		"a refusal is not mistaken for a change": {decided: store.ErrStale, want: store.ErrStale, reads: 1},
	} {
		s := c.store
		versions, err := store.Update(t.Context(), &s, key("a"), func(doc store.Document) ([]store.Write, error) {
			require.Equal(t, key("a"), doc.Key)
			if c.nothing || c.decided != nil {
				return nil, c.decided
			}
			return []store.Write{store.Replace(doc.Key, doc.Version, nil), store.Create(key("audit"), nil)}, nil
		})
		require.ErrorIs(t, err, c.want, name)
		require.Equal(t, c.written, len(versions) == 2, name)
		require.Equal(t, []int{c.reads, c.commits}, []int{s.reads, len(s.commits)}, name)
		for i, writes := range s.commits {
			want := store.Replace(key("a"), store.Version(i+1), nil)
			if c.store.read != nil {
				want = store.Create(key("a"), nil)
			}
			require.Equal(t, want, writes[0], "each try writes at the version that it has read")
		}
	}
}

func TestIDsOfOtherNamesAreOthers(t *testing.T) {
	t.Parallel()
	require.Equal(t, "acme~a%2Fb~c%7Ed", store.Path("acme", "a/b", "c~d"))
	require.Regexp(t, "^[0-9a-f]{8}-acme~order-1$", store.ID("acme", "order-1"))
	names := rapid.SliceOfN(rapid.StringOfN(rapid.SampledFrom([]rune("a~-/%7E:é")), 0, 4, -1), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		a, b := names.Draw(t, "names"), names.Draw(t, "others")
		require.Equal(t, slices.Equal(a, b), store.ID(a...) == store.ID(b...))
		require.Equal(t, slices.Equal(a, b), store.Path(a...) == store.Path(b...))
		require.NoError(t, store.CheckKey(store.Key{Collection: "c", ID: store.ID(a...)}))
		// What begins like the id of names is of these names.
		within := len(b) > len(a) && slices.Equal(a, b[:len(a)])
		require.Equal(t, within, strings.HasPrefix(store.Path(b...), store.Path(a...)+"~"))
	})
}
