package emulatortest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/topology"
)

// Terraform returns the topology of a catalog's folder, empty for the repository's own, for
// a project of an emulator; Init is done. Where Terraform, or its provider, cannot be had
// the test is skipped, saying so; without Terraform itself it fails with
// REQUIRE_EMULATORS=1. The provider is left out there, too: it cannot be had everywhere.
func Terraform(tb testing.TB, project, catalogDir string) topology.Terraform {
	tb.Helper()
	_, err := exec.LookPath("terraform")
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		tb.Skip("left out: terraform is not installed")
	}
	require.NoError(tb, err, "CI leaves nothing out that can be had")
	repository := repository(tb)
	// A copy: terraform notes beside the configuration which provider it took.
	root := tb.TempDir()
	require.NoError(tb, os.CopyFS(filepath.Join(root, "catalog"), os.DirFS(filepath.Join(repository, "catalog"))))
	for _, folder := range []string{"emulator", filepath.Join("modules", "queue"), filepath.Join("modules", "catalog")} {
		files, err := filepath.Glob(filepath.Join(repository, "terraform", folder, "*.tf"))
		require.NoError(tb, err)
		require.NotEmpty(tb, files)
		require.NoError(tb, os.MkdirAll(filepath.Join(root, "terraform", folder), 0o700))
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(tb, err)
			require.NoError(tb, os.WriteFile(filepath.Join(root, "terraform", folder, filepath.Base(file)), text, 0o600))
		}
	}
	t := topology.Terraform{Root: filepath.Join(root, "terraform", "emulator"), Folder: tb.TempDir(), ProjectID: project, CatalogDir: catalogDir}
	err = t.Init(tb.Context())
	if err != nil && strings.Contains(err.Error(), "Failed to query available provider packages") {
		tb.Skip("left out: the provider hashicorp/google cannot be had here")
	}
	require.NoError(tb, err)
	return t
}

// repository is the folder above the test's that holds the module.
func repository(tb testing.TB) string {
	tb.Helper()
	folder, err := os.Getwd()
	require.NoError(tb, err)
	for {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder
		}
		require.NotEqual(tb, filepath.Dir(folder), folder, "the test runs in the repository")
		folder = filepath.Dir(folder)
	}
}
