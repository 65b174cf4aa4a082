// Package lifecycle_test does to an installation what people do to it: whole applies, changes,
// faults and destroys of the root module, by Terraform and Google's own provider, on a strict
// imitation of Google's control planes. Each scenario begins with a copy of one installed project.
//
// The provider itself sleeps for ten seconds after a new account and for three after a grant, so
// the scenarios are small and run beside each other.
package lifecycle_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/emulator/cloudtest"
	"billhook/emulator/emulatortest"
	"billhook/internal/filetest"
)

const region = "europe-west3"

type variables = map[string]any

// image is a made-up image of a service, by digest; each letter is another one.
func image(service string, letter byte) string {
	return "europe-docker.pkg.dev/" + cloudtest.Project + "/billhook/" + service + "@sha256:" +
		strings.Repeat(string(letter), 64)
}

func images(letter byte) variables {
	return variables{"webhook": image("webhook", letter), "worker": image("worker", letter)}
}

// installation is one folder of Terraform's with its state, and the project that it is applied to.
type installation struct {
	t      *testing.T
	module emulatortest.Module
	folder string // the module's
	cloud  *cloudtest.Cloud
	set    variables
	// unanswered is what has gone wrong meanwhile for a webhook or a push of PayNow's.
	unanswered []string
}

var repository = filepath.Join("..", "..")

// The queues of a shop that takes PayNow's webhooks and nothing else, and one of another pool, which sorts
// before theirs and needs no other queue.
var (
	shipped    = catalogtest.Shipped()
	events, _  = shipped.HandledBy("points.credit")
	updates, _ = shipped.EmitsTo("subscriptions.record")
	another, _ = shipped.HandledBy("usage.track")
)

// prepared is what all scenarios share: what terraform init leaves, and a project in which a small
// shop is installed.
var prepared struct {
	once      sync.Once
	data      string // TF_DATA_DIR
	lock      []byte
	err       error
	installed sync.Once
	state     []byte
	snapshot  cloudtest.State
	set       variables
}

func TestMain(m *testing.M) {
	if err := os.Setenv("WAIT_FOR_GRANTS", "touch settled"); err != nil { // in the installation's folder
		panic(err)
	}
	code := m.Run()
	if prepared.data != "" {
		_ = os.RemoveAll(prepared.data)
	}
	os.Exit(code)
}

// prepare is a copy of the root module with what Terraform has fetched once, or leaves the test out.
func prepare(t *testing.T) emulatortest.Module {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: whole applies take minutes")
	}
	module, p := emulatortest.Terraform(t, repository, "", "modules/*/*.tf", "examples/*/*.tf"), &prepared
	p.once.Do(func() {
		p.err = errors.New("terraform init could not be tried")
		var err error
		p.data, err = os.MkdirTemp("", "lifecycle") //nolint:usetesting // it outlives this test
		require.NoError(t, err)
		said, err := emulatortest.Module{Folder: module.Folder, Data: p.data}.Run(t.Context(), "init",
			"-input=false", "-no-color")
		if p.err = err; err != nil {
			t.Log(said)
			return
		}
		p.lock, p.err = os.ReadFile(filepath.Join(module.Folder, ".terraform.lock.hcl"))
	})
	if errors.Is(p.err, emulatortest.ErrNoProvider) {
		t.Skip(p.err)
	}
	require.NoError(t, p.err)
	module.Data = p.data
	return module
}

func empty(t *testing.T, set variables) *installation {
	t.Helper()
	module := prepare(t)
	i := &installation{t: t, module: module, folder: module.Folder, cloud: cloudtest.Start(), set: set}
	t.Cleanup(i.cloud.Close)
	require.NoError(t, os.WriteFile(filepath.Join(i.folder, ".terraform.lock.hcl"), prepared.lock, 0o600))
	i.point()
	return i
}

// small is an empty project, and a folder with few indexes.
func small(t *testing.T, set variables) *installation {
	t.Helper()
	i := empty(t, set)
	require.NoError(t, os.WriteFile(filepath.Join(i.folder, "few_override.tf"), []byte(fewIndexes), 0o600))
	return i
}

// installed is a project in which a small shop is installed, with PayNow's queues alone. Each
// scenario has a copy of its own.
func installed(t *testing.T) *installation {
	t.Helper()
	prepare(t)
	p := &prepared
	p.installed.Do(func() {
		i := small(t, shop(t))
		i.bootstrap()
		i.with(variables{"images": images('a')}).applied()
		p.snapshot, p.set, p.state = i.cloud.Snapshot(), i.set,
			[]byte(filetest.Read(t, i.folder, "terraform.tfstate"))
	})
	require.NotEmpty(t, p.state, "the first installation has failed")
	i := small(t, maps.Clone(p.set))
	i.cloud.Restore(p.snapshot)
	require.NoError(t, os.WriteFile(filepath.Join(i.folder, "terraform.tfstate"), p.state, 0o600))
	i.cloud.Watch(i.look)
	t.Cleanup(func() {
		i.cloud.Watch(nil)
		require.Empty(t, i.unanswered, "what was answered meanwhile")
	})
	return i.with(nil)
}

func (i *installation) bootstrap() {
	i.t.Helper()
	i.with(variables{"bootstrap": true}).apply()
	i.fill()
	i.with(variables{"bootstrap": nil})
}

// everything are the variables of an installation of the whole catalog.
func everything(t *testing.T) variables {
	t.Helper()
	return variables{
		"project_id": cloudtest.Project, "region": region, "firestore": variables{"location": "eur3"},
		"alerts":      variables{"runbooks": "https://example.com/runbooks"},
		"target_urls": urls(t),
	}
}

func shop(t *testing.T) variables {
	t.Helper()
	set := everything(t)
	set["queues"], set["target_urls"] = []string{events.ID, updates.ID}, urls(t, events.ID, updates.ID)
	return set
}

// urls are the addresses that the workers of some queues need; none: of all.
func urls(t *testing.T, queues ...string) variables {
	t.Helper()
	c, found := filetest.Must(shipped.Only(queues))(t), variables{}
	for _, pool := range c.Pools() {
		for _, target := range c.TargetsOf(pool) {
			found[target.URLVariable] = "https://" + target.Name + ".example"
		}
	}
	return found
}

// point writes the provider's block, which sends all calls to this installation's project.
func (i *installation) point() {
	i.t.Helper()
	require.NoError(i.t, os.WriteFile(filepath.Join(i.folder, "provider.tf"),
		[]byte(i.cloud.Provider(region)), 0o600))
}

// fewIndexes leaves out most of what only makes plans long, the fields of documents without an
// index: the installation of the whole catalog has them all.
const fewIndexes = `locals {
  ttl_collections = ["deadLetters"]
  composite = {
    one = { collection = "deadLetters", fields = ["queue", "kept_at"], order = "DESCENDING" }
  }
  unindexed       = { webhookEvents = ["*"] }
  indexed         = { webhookEvents = ["queue"] }
}
`

func (i *installation) terraform(arguments ...string) (string, error) {
	i.t.Helper()
	return i.module.Run(context.WithoutCancel(i.t.Context()), arguments...)
}

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

func (i *installation) edit(file, before, after string) *installation {
	i.t.Helper()
	filetest.Replace(i.t, before, after, i.folder, "..", "catalog", file)
	return i
}

// try runs a command that changes or plans, and returns the errors on one line, without Terraform's frame.
func (i *installation) try(verb string, arguments ...string) (string, error) {
	i.t.Helper()
	said, err := i.terraform(append([]string{verb, "-input=false", "-no-color", "-parallelism=30"},
		arguments...)...)
	return unframed(problems(said)), err
}

func (i *installation) destroy() (string, error) {
	i.t.Helper()
	return i.try("destroy", "-auto-approve")
}

// apply applies, and returns what has happened in the project, a line each.
func (i *installation) apply(arguments ...string) []string {
	i.t.Helper()
	i.cloud.Log()
	said, err := i.try("apply", append(arguments, "-auto-approve")...)
	happened := i.cloud.Log()
	require.NoError(i.t, err, "%s\n%s", said, strings.Join(failures(happened), "\n"))
	return happened
}

func (i *installation) refused() string {
	i.t.Helper()
	said, err := i.try("apply", "-auto-approve")
	require.Error(i.t, err, "this apply should have been refused: %s", said)
	return said
}

func (i *installation) plan() (string, bool) {
	i.t.Helper()
	said, err := i.try("plan", "-detailed-exitcode")
	var code *exec.ExitError
	changed := errors.As(err, &code) && code.ExitCode() == 2
	require.True(i.t, err == nil || changed, "the plan failed: %s", said)
	return said, changed
}

// applied applies, without a refusal, and settles.
func (i *installation) applied() []string {
	i.t.Helper()
	happened := i.apply()
	require.Empty(i.t, failures(happened))
	i.settled()
	return happened
}

// serves requires that all requests of a service go to one image.
func (i *installation) serves(service, image string) {
	i.t.Helper()
	require.Equal(i.t, map[string]int{image: 100}, i.cloud.Serving(region, service))
}

func (i *installation) settled() {
	i.t.Helper()
	said, changed := i.plan()
	require.False(i.t, changed, "the plan is not empty: %s", said)
}

func (i *installation) fill() {
	i.t.Helper()
	prefix := "secretmanager/projects/" + cloudtest.Project + "/secrets/"
	for _, key := range i.cloud.Keys(prefix) {
		if name := strings.TrimPrefix(key, prefix); !strings.Contains(name, "/") &&
			len(i.cloud.Keys(key+"/versions/")) == 0 {
			i.cloud.AddVersion(name)
		}
	}
}
