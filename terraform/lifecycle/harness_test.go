// Package lifecycle_test does to an installation what people do to it: whole applies, changes,
// faults and destroys of the root module, by Terraform and Google's own provider, on a strict
// imitation of Google's control planes. Each scenario begins with a copy of one installed project.
package lifecycle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/emulator/cloud"
)

const region = "europe-west3"

// image is a made-up image of a service, by digest; each letter is another one.
func image(service string, letter byte) string {
	return "europe-docker.pkg.dev/" + cloud.Project + "/billhook/" + service + "@sha256:" + strings.Repeat(string(letter), 64)
}

// images are the two of a release.
func images(letter byte) variables {
	return variables{"webhook": image("webhook", letter), "worker": image("worker", letter)}
}

// variables are a tfvars file.
type variables = map[string]any

// installation is one folder of Terraform's with its state, and the project that it is applied to.
type installation struct {
	t      *testing.T
	folder string // the root module's copy
	cloud  *cloud.Cloud
	set    variables
}

// root is the repository's folder.
var root = filepath.Join("..", "..")

// sources copies the configuration and the catalog, without what Terraform has kept there.
func sources(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(to, "catalog"), os.DirFS(filepath.Join(root, "catalog"))))
	from := filepath.Join(root, "terraform")
	require.NoError(t, filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".terraform") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".tf" {
			return nil
		}
		name, err := filepath.Rel(from, path)
		require.NoError(t, err)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Join(to, "terraform", filepath.Dir(name)), 0o700))
		return os.WriteFile(filepath.Join(to, "terraform", name), text, 0o600)
	}))
	return filepath.Join(to, "terraform")
}

// prepared is the provider, once for the process: what terraform init leaves, and whether it could.
var prepared struct {
	once   sync.Once
	folder string
	lock   []byte
	said   string
	err    error
}

// empty is an empty project, and a folder that was never applied.
func empty(t *testing.T, set variables) *installation {
	t.Helper()
	_, err := exec.LookPath("terraform")
	if err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("left out: terraform is not installed")
	}
	require.NoError(t, err, "CI leaves nothing out that can be had")
	project := cloud.Start()
	t.Cleanup(project.Close)
	i := &installation{t: t, folder: sources(t), cloud: project, set: set}
	i.point()
	said, err := i.terraform("init", "-input=false", "-no-color")
	if err != nil && strings.Contains(said, "Failed to query available provider packages") {
		t.Skip("left out: the provider hashicorp/google cannot be had here")
	}
	require.NoError(t, err, said)
	return i
}

// point writes the provider's block, which sends all calls to this installation's project.
func (i *installation) point() {
	i.t.Helper()
	require.NoError(i.t, os.WriteFile(filepath.Join(i.folder, "provider.tf"), []byte(i.cloud.Provider(region)), 0o600))
}

func (i *installation) terraform(arguments ...string) (string, error) {
	i.t.Helper()
	command := exec.CommandContext(i.t.Context(), "terraform", arguments...)
	command.Dir = i.folder
	command.Env = append(os.Environ(), "TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1")
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	err := command.Run()
	return said.String(), err
}

// with writes the variables.
func (i *installation) with(changes variables) *installation {
	i.t.Helper()
	for name, value := range changes {
		if value == nil {
			delete(i.set, name)
			continue
		}
		i.set[name] = value
	}
	text, err := json.MarshalIndent(i.set, "", "  ")
	require.NoError(i.t, err)
	require.NoError(i.t, os.WriteFile(filepath.Join(i.folder, "terraform.tfvars.json"), text, 0o600))
	return i
}

// tryApply applies, and returns what Terraform said.
func (i *installation) tryApply(arguments ...string) (string, error) {
	i.t.Helper()
	i.with(nil)
	return i.terraform(append([]string{"apply", "-auto-approve", "-input=false", "-no-color", "-parallelism=30"}, arguments...)...)
}

func (i *installation) apply(arguments ...string) string {
	i.t.Helper()
	said, err := i.tryApply(arguments...)
	if err != nil {
		require.FailNow(i.t, "the apply failed", "%s\n%s", problems(said), strings.Join(i.refused(), "\n"))
	}
	return said
}

// refused are the lines of the project's log that tell of a failure.
func (i *installation) refused() []string {
	var found []string
	for _, line := range i.cloud.Log() {
		if strings.HasPrefix(line, "REFUSED") || strings.HasPrefix(line, "RUN FAILED") || strings.HasPrefix(line, "LOST") {
			found = append(found, line)
		}
	}
	return found
}

// problems are the errors of what Terraform said.
func problems(said string) string {
	if at := strings.Index(said, "\nError: "); at >= 0 {
		return said[at:]
	}
	return said
}

// settled requires that a plan finds nothing to do.
func (i *installation) settled() {
	i.t.Helper()
	said, err := i.terraform("plan", "-detailed-exitcode", "-input=false", "-no-color", "-parallelism=30")
	require.NoError(i.t, err, "the plan is not empty: %s", said)
}

// fill gives each secret its first version.
func (i *installation) fill() {
	i.t.Helper()
	for _, key := range i.cloud.Keys("secretmanager/projects/" + cloud.Project + "/secrets/") {
		if rest := strings.TrimPrefix(key, "secretmanager/projects/"+cloud.Project+"/secrets/"); !strings.Contains(rest, "/") {
			i.cloud.AddVersion(rest, fmt.Sprintf("value of %s", rest))
		}
	}
}
