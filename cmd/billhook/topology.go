package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// terraformTopology makes the queues of a catalog on an emulator by terraform/emulator,
// as provisioning does from Go. Terraform must be installed and have hashicorp/google.
type terraformTopology struct {
	// Root is the configuration, terraform/emulator of the repository.
	Root string
	// Folder is where state and provider go: the emulator forgets with its process, so
	// nothing is worth keeping.
	Folder string
	// CatalogDir is the folder of another catalog; empty is the repository's own.
	CatalogDir string
	ProjectID  string
}

// apply makes the topology on the emulator at host:port broker, with pushes to workerURL.
func (t terraformTopology) apply(ctx context.Context, broker, workerURL string) error {
	if err := t.init(ctx); err != nil {
		return err
	}
	return t.run(ctx, broker, workerURL, "apply", "-auto-approve")
}

func (t terraformTopology) init(ctx context.Context) error {
	return t.terraform(ctx, "init", "-input=false", "-no-color", "-reconfigure", "-backend-config=path="+filepath.Join(t.Folder, "terraform.tfstate"))
}

// run does one of terraform's commands that take variables.
func (t terraformTopology) run(ctx context.Context, broker, workerURL, verb string, flags ...string) error {
	arguments := append([]string{verb, "-input=false", "-no-color"}, flags...)
	arguments = append(arguments, "-var=emulator_host="+broker, "-var=project="+t.ProjectID, "-var=push_base_url="+workerURL)
	if t.CatalogDir != "" {
		folder, err := filepath.Abs(t.CatalogDir)
		if err != nil {
			return fmt.Errorf("terraform: %w", err)
		}
		arguments = append(arguments, "-var=catalog_dir="+folder)
	}
	return t.terraform(ctx, arguments...)
}

func (t terraformTopology) terraform(ctx context.Context, arguments ...string) error {
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
