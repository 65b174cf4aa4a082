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

// Terraform returns the topology of a catalog's folder (empty: the repository's) for a project
// of an emulator, after Init. Without Terraform the test is skipped with a message, or fails
// with REQUIRE_EMULATORS=1. Without Google's provider it is always skipped: not every machine
// can download it.
func Terraform(tb testing.TB, project, catalogDir string) topology.Terraform {
	tb.Helper()
	_, err := exec.LookPath("terraform")
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		tb.Skip("left out: terraform is not installed")
	}
	require.NoError(tb, err, "CI leaves nothing out that can be had")
	repository := repository(tb)
	// Terraform writes a lock file beside the configuration, so it gets a copy.
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

// repository returns the nearest folder above the test that holds go.mod.
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
