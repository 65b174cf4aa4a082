package standin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// TestADamagedStoreIsAnErrorThatNamesItsFile damages the file in many places, one at a time, and cuts it off.
func TestADamagedStoreIsAnErrorThatNamesItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := standin.OpenStore(path)
	require.NoError(t, err)
	for n := range 300 {
		_, err = db.Commit(t.Context(), []store.Write{store.Create(store.Key{Collection: "c", ID: fmt.Sprint(n)}, map[string]any{"text": fmt.Sprintf("%0200d", n)})})
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	sound, err := os.ReadFile(path)
	require.NoError(t, err)
	damages := map[string][]byte{"not a store": []byte("this is not a store"), "half of it": sound[:len(sound)/2], "its first pages": sound[:8192]}
	for page := range len(sound) / 4096 {
		spoiled := append([]byte{}, sound...)
		for i := range 64 {
			spoiled[page*4096+i] = 0xff
		}
		damages[fmt.Sprint("page ", page)] = spoiled
	}
	refused := 0
	for name, text := range damages {
		at := filepath.Join(t.TempDir(), "store.db")
		require.NoError(t, os.WriteFile(at, text, 0o600))
		opened, err := standin.OpenStore(at)
		if err != nil { // a page that nothing is on may be anything
			require.ErrorIs(t, err, standin.ErrDamaged, name)
			require.ErrorContains(t, err, at)
			refused++
			continue
		}
		require.NoError(t, opened.Close())
	}
	require.Greater(t, refused, 10)
}
