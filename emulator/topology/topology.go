// Package topology creates the queues of a catalog on an emulator by Terraform, with the module
// that creates them on Google Cloud. It owns running terraform there and placing its state. It
// refuses to install terraform or its provider, and to touch anything but an emulator.
package topology

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Terraform runs terraform/emulator for one project of an emulator. It requires the program
// terraform and the provider hashicorp/google.
type Terraform struct {
	// Root is the folder terraform/emulator of the repository.
	Root string
	// Folder is for state and provider. The state is worth nothing after the emulator's end.
	Folder string
	// CatalogDir is the folder of another catalog; empty: the repository's.
	CatalogDir string
	ProjectID  string
	// Installation is one of several in the project; empty: the one without a name.
	Installation string
}

// Init fetches the provider. The error quotes Terraform's output.
func (t Terraform) Init(ctx context.Context) error {
	return t.terraform(ctx, "init", "-input=false", "-no-color", "-reconfigure", "-backend-config=path="+filepath.Join(t.Folder, "terraform.tfstate"))
}

// Apply creates the topology on the emulator at broker (host:port), with pushes to workerURL.
// It comes after Init.
func (t Terraform) Apply(ctx context.Context, broker, workerURL string) error {
	return t.Run(ctx, broker, workerURL, "apply", "-auto-approve")
}

// Run runs one command of Terraform that takes variables.
func (t Terraform) Run(ctx context.Context, broker, workerURL, verb, flag string) error {
	arguments := []string{verb, "-input=false", "-no-color", flag, "-var=emulator_host=" + broker, "-var=project_id=" + t.ProjectID, "-var=push_base_url=" + workerURL, "-var=installation=" + t.Installation}
	if t.CatalogDir != "" {
		folder, err := filepath.Abs(t.CatalogDir)
		if err != nil {
			return fmt.Errorf("terraform: %w", err)
		}
		arguments = append(arguments, "-var=catalog_dir="+folder)
	}
	return t.terraform(ctx, arguments...)
}

func (t Terraform) terraform(ctx context.Context, arguments ...string) error {
	command := exec.CommandContext(ctx, "terraform", arguments...) //nolint:gosec // G204: its own commands, with names of the catalog
	command.Dir = t.Root
	command.Env = append(os.Environ(), "TF_DATA_DIR="+filepath.Join(t.Folder, "data"), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	if err := command.Run(); err != nil {
		return fmt.Errorf("terraform %s: %w\n%s", arguments[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}
