package emulatortest

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
)

// ErrNoProvider means that Google's provider cannot be downloaded on this machine.
var ErrNoProvider = errors.New("left out: the provider hashicorp/google cannot be downloaded here")

// Module is a copy of one of the repository's Terraform modules, with the catalog at the path that it reads.
type Module struct {
	Folder string
	// Data is the folder in which Terraform keeps providers and modules.
	Data string
	// Environment has further variables for commands, as NAME=value.
	Environment []string
}

// NeedsTerraform skips a test with -short, or if Terraform is missing, unless REQUIRE_EMULATORS=1.
func NeedsTerraform(tb testing.TB) {
	tb.Helper()
	if testing.Short() {
		tb.Skip("left out: it starts Terraform")
	}
	Needs(tb, filetest.ErrorOf(exec.LookPath("terraform")))
}

// Terraform copies the module in a folder of terraform/, and the files of terraform/ that match the patterns.
func Terraform(tb testing.TB, repository, folder string, patterns ...string) Module {
	tb.Helper()
	NeedsTerraform(tb)
	root := tb.TempDir()
	declared := os.DirFS(filepath.Join(repository, "catalog"))
	require.NoError(tb, os.CopyFS(filepath.Join(root, "catalog"), declared))
	from := os.DirFS(filepath.Join(repository, "terraform"))
	for _, pattern := range append(patterns, filepath.Join(folder, "*.tf")) {
		files, err := fs.Glob(from, pattern)
		require.NoError(tb, err)
		require.NotEmpty(tb, files, pattern)
		for _, file := range files {
			text, err := fs.ReadFile(from, file)
			require.NoError(tb, err)
			to := filepath.Join(root, "terraform", file)
			require.NoError(tb, os.MkdirAll(filepath.Dir(to), 0o700))
			require.NoError(tb, os.WriteFile(to, text, 0o600))
		}
	}
	return Module{Folder: filepath.Join(root, "terraform", folder), Data: filepath.Join(root, "data")}
}

// Run runs one command, and returns its output.
func (m Module) Run(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "terraform", arguments...)
	own := []string{"TF_DATA_DIR=" + m.Data, "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1"}
	command.Dir, command.Env = m.Folder, slices.Concat(os.Environ(), own, m.Environment)
	said, err := command.CombinedOutput()
	if bytes.Contains(said, []byte("Failed to query available provider packages")) {
		err = ErrNoProvider
	}
	return string(said), err
}
