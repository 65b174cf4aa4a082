package alerting_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// installation calls the modules as the root does; neither needs a provider.
const installation = `
variable "tasks" { type = set(string) }
variable "queues" { type = list(string) }
variable "kept" { type = list(string) }
module "catalog" {
  source    = "../terraform/modules/catalog"
  directory = "../catalog"
  queues    = var.queues
}
module "alerts" {
  source       = "../terraform/modules/alerts"
  name         = "billhook"
  database     = "billhook"
  door         = "billhook-webhook"
  tasks_worker = "billhook-worker-${module.catalog.tasks_pool}"
  tasks        = var.tasks
  sources      = keys(module.catalog.sources)
  queues       = { for id, q in module.catalog.queues : id => q if q.enabled && !contains(var.kept, id) }
  kept         = { for id, q in module.catalog.queues : id => q if contains(var.kept, id) }
  slo          = "projects/1/services/billhook-webhook/serviceLevelObjectives/billhook-webhooks-taken"
  scaling = merge(
    { "billhook-webhook" = { min = 1, max = 10 } },
    { for pool, p in module.catalog.pools : "billhook-worker-${pool}" => { min = 0, max = p.max_instances } },
  )
}
output "policies" { value = module.alerts.policies }
output "log_metrics" { value = module.alerts.log_metrics }
`

// installed is the folder of an installation, with the modules and the catalog beside it.
func installed(root string) (folder string, err error) {
	for from, to := range map[string]string{
		filepath.Join("..", "modules"):       filepath.Join(root, "terraform", "modules"),
		filepath.Join("..", "..", "catalog"): filepath.Join(root, "catalog"),
	} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			return "", err
		}
	}
	folder = filepath.Join(root, "installation")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return "", err
	}
	return folder, os.WriteFile(filepath.Join(folder, "main.tf"), []byte(installation), 0o600)
}

// read applies the modules, which makes nothing, and returns the policies.
func read(queues, kept []string) (map[string]policy, error) {
	root, err := os.MkdirTemp("", "billhook-alerting-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(root) }()
	folder, err := installed(root)
	if err != nil {
		return nil, err
	}
	variables, err := json.Marshal(map[string]any{"tasks": called(), "queues": queues, "kept": kept})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "terraform.tfvars.json"), variables, 0o600); err != nil {
		return nil, err
	}
	var output []byte
	for _, arguments := range [][]string{{"init", "-input=false", "-no-color"}, {"apply", "-auto-approve", "-input=false", "-no-color"}, {"output", "-json", "policies"}} {
		command := exec.CommandContext(context.Background(), "terraform", arguments...) // shared by tests, so of none's context
		command.Dir = folder
		command.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
		if output, err = command.Output(); err != nil {
			return nil, fmt.Errorf("terraform %s: %w: %s", arguments[0], err, output)
		}
	}
	policies := map[string]policy{}
	return policies, json.Unmarshal(output, &policies)
}

// shipped are the policies of the shipped catalog with the defaults, read once.
var shipped = sync.OnceValues(func() (map[string]policy, error) { return read([]string{}, []string{}) })

// policies are those of the module where these queues run, or all; without terraform the test is left
// out, but not in CI.
func policies(t *testing.T, queues ...string) map[string]policy {
	t.Helper()
	needTerraform(t)
	found, err := shipped()
	if len(queues) > 0 {
		found, err = read(queues, []string{})
	}
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

// policiesWithout are those where a queue is off and kept.
func policiesWithout(t *testing.T, kept string) map[string]policy {
	t.Helper()
	needTerraform(t)
	found, err := read([]string{}, []string{kept})
	require.NoError(t, err)
	return found
}

func needTerraform(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: it starts Terraform")
	}
	if _, err := exec.LookPath("terraform"); err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("left out: terraform is not installed")
	}
}

// pages are those of all policies, the first first.
func pages(t *testing.T, w *world, policies map[string]policy) (all []page) {
	t.Helper()
	for name, p := range policies {
		all = append(all, evaluate(t, w, name, p)...)
	}
	slices.SortFunc(all, func(a, b page) int { return a.minute - b.minute })
	return all
}

// A policy for each cause and not for each queue: Cloud Monitoring charges for each condition.
func TestConditionsDoNotGrowWithTheQueues(t *testing.T) {
	t.Parallel()
	conditions := 0
	for name, p := range policies(t) {
		require.LessOrEqual(t, len(p.Conditions), 6, name)
		conditions += len(p.Conditions)
	}
	c, err := catalog.Load("")
	require.NoError(t, err)
	require.Less(t, conditions, 3*len(c.Queues))
}
