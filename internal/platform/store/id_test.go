package store_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/platform/store"
)

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
