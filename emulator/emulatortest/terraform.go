package emulatortest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Terraform returns the topology of a catalog's folder (empty: the repository's) for a project
// of an emulator. Without Terraform the test is skipped with a message, or fails
// with REQUIRE_EMULATORS=1. Without Google's provider it is always skipped: not every machine
// can download it.
func Terraform(tb testing.TB, project, catalogDir string) Topology {
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
	t := Topology{root: filepath.Join(root, "terraform", "emulator"), folder: tb.TempDir(), project: project, catalog: catalogDir}
	err = t.terraform(tb.Context(), "init", "-input=false", "-no-color", "-reconfigure", "-backend-config=path="+filepath.Join(t.folder, "terraform.tfstate"))
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

// Topology is the queues of a catalog as terraform/emulator makes them for one project of an emulator.
type Topology struct {
	// root is a copy of the folder terraform/emulator, folder is for state and provider, and catalog is the
	// folder of another catalog; empty: the repository's.
	root, folder, catalog, project string
}

// Apply creates the topology on the emulator at broker (host:port), with pushes to workerURL. The error quotes Terraform's output.
func (t Topology) Apply(ctx context.Context, broker, workerURL string) error {
	return t.Run(ctx, broker, workerURL, "apply", "-auto-approve")
}

// Run runs one command of Terraform that takes variables.
func (t Topology) Run(ctx context.Context, broker, workerURL, verb, flag string) error {
	arguments := []string{verb, "-input=false", "-no-color", flag, "-var=emulator_host=" + broker, "-var=project_id=" + t.project, "-var=push_base_url=" + workerURL}
	if t.catalog != "" {
		folder, err := filepath.Abs(t.catalog)
		if err != nil {
			return fmt.Errorf("terraform: %w", err)
		}
		arguments = append(arguments, "-var=catalog_dir="+folder)
	}
	return t.terraform(ctx, arguments...)
}

func (t Topology) terraform(ctx context.Context, arguments ...string) error {
	command := exec.CommandContext(ctx, "terraform", arguments...)
	command.Dir = t.root
	command.Env = append(os.Environ(), "TF_DATA_DIR="+filepath.Join(t.folder, "data"), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		return fmt.Errorf("terraform %s: %w\n%s", arguments[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
