package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/store"
)

// scripted answers each commit with the next of its errors, and then with versions.
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
		"at the first try":                       {reads: 1, commits: 1, written: true},
		"a document that is not there":           {store: scripted{read: store.ErrNotFound}, reads: 1, commits: 1, written: true},
		"after others have changed it":           {store: scripted{answers: keepsChanging[:4]}, reads: 5, commits: 5, written: true},
		"others change it again and again":       {store: scripted{answers: keepsChanging}, want: store.ErrBusy, reads: 5, commits: 5},
		"nothing is to be done":                  {nothing: true, reads: 1},
		"the decision is to refuse":              {decided: refused, want: refused, reads: 1},
		"a document cannot be read":              {store: scripted{read: down}, want: down, reads: 1},
		"the outcome of the commit is unknown":   {store: scripted{answers: []error{down}}, want: down, reads: 1, commits: 1},
		"the writes are wrong":                   {store: scripted{answers: []error{store.ErrInvalid}}, want: store.ErrInvalid, reads: 1, commits: 1},
		"the store goes down between two tries":  {store: scripted{answers: []error{store.ErrStale, down}}, want: down, reads: 2, commits: 2},
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
