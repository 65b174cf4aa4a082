package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/store"
)

// shelf has a page of two documents, and one behind it, or is down.
type shelf struct{ down bool }

func (s shelf) Query(_ context.Context, q store.Query) (store.Page, error) {
	switch {
	case s.down:
		return store.Page{}, errors.New("down")
	case q.After.IsZero():
		return store.Page{Documents: []store.Document{{Key: key("a")}, {Key: key("b")}}, Next: store.Cursor{ID: "b"}}, nil
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
	list, next, err := store.List(t.Context(), shelf{}, store.Query{}, id)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, list)
	require.Equal(t, store.Cursor{ID: "b"}, next)
	_, _, err = store.List(t.Context(), shelf{}, store.Query{After: next}, id)
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
