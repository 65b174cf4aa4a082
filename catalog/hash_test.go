package catalog_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

func TestTheHashIsOfTheFilesWhereverTheyAreAndWhateverRuns(t *testing.T) {
	t.Parallel()
	built := from(t, "")
	require.Regexp(t, `^[0-9a-f]{8}$`, built.Hash())
	folder := shipped(t, nil)
	copied := from(t, folder)
	require.Equal(t, built.Hash(), copied.Hash())
	require.Equal(t, built.Hash(), mustOnly(t, copied, "paynow-events", "pay-subscription-update").Hash(), "what runs is no part of it")
	same, err := copied.With(map[string]string{"products.yaml": "products: {}\n"})
	require.NoError(t, err)
	require.NotEqual(t, built.Hash(), same.Hash())
	require.NoError(t, os.WriteFile(filepath.Join(folder, "products.yaml"), []byte("products: {}\n"), 0o600))
	require.Equal(t, built.Hash(), copied.Hash(), "the hash is of what was loaded, not of what stands there since")
	changed := from(t, folder)
	require.Equal(t, same.Hash(), changed.Hash())
	require.Empty(t, (&catalog.Catalog{}).Hash())
	sums, err := exec.CommandContext(t.Context(), "sh", "-c", "LC_ALL=C sha256sum *.yaml").Output()
	require.NoError(t, err)
	sum := sha256.Sum256(sums)
	require.Equal(t, hex.EncodeToString(sum[:])[:8], built.Hash(), "anybody can compute it without Billhook")
}
