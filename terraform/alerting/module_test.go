package alerting_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// installation calls the modules as the root does; neither needs a provider.
const installation = `
variable "tasks" { type = set(string) }
module "catalog" {
  source    = "../terraform/modules/catalog"
  directory = "../catalog"
}
module "alerts" {
  source       = "../terraform/modules/alerts"
  name         = "billhook"
  database     = "billhook"
  door         = "billhook-webhook"
  tasks_worker = "billhook-worker-${module.catalog.tasks_pool}"
  tasks        = var.tasks
  sources      = keys(module.catalog.sources)
  queues       = { for id, q in module.catalog.queues : id => q if q.enabled }
  slo          = "projects/1/services/billhook-webhook/serviceLevelObjectives/billhook-webhooks-taken"
  scaling = merge(
    { "billhook-webhook" = { min = 1, max = 10 } },
    { for pool, p in module.catalog.pools : "billhook-worker-${pool}" => { min = 0, max = p.max_instances } },
  )
}
output "policies" { value = module.alerts.policies }
output "log_metrics" { value = module.alerts.log_metrics }
`

// shipped are the policies of the shipped catalog with the defaults, read once.
var shipped = sync.OnceValues(func() (map[string]policy, error) {
	root, err := os.MkdirTemp("", "billhook-alerting-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(root) }()
	for from, to := range map[string]string{filepath.Join("..", "modules"): filepath.Join(root, "terraform", "modules"), filepath.Join("..", "..", "catalog"): filepath.Join(root, "catalog")} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			return nil, err
		}
	}
	folder := filepath.Join(root, "installation")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "main.tf"), []byte(installation), 0o600); err != nil {
		return nil, err
	}
	var output []byte
	for _, arguments := range [][]string{
		{"init", "-input=false", "-no-color"},
		{"apply", "-auto-approve", "-input=false", "-no-color", `-var=tasks=["` + strings.Join(called(), `","`) + `"]`},
		{"output", "-json", "policies"},
	} {
		command := exec.Command("terraform", arguments...)
		command.Dir = folder
		command.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE="+os.DevNull)
		if output, err = command.Output(); err != nil {
			return nil, fmt.Errorf("terraform %s: %w: %s", arguments[0], err, output)
		}
	}
	policies := map[string]policy{}
	return policies, json.Unmarshal(output, &policies)
})

// policies are those of the module; without terraform the test is left out, but not in CI.
func policies(t *testing.T) map[string]policy {
	t.Helper()
	if _, err := exec.LookPath("terraform"); err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("left out: terraform is not installed")
	}
	found, err := shipped()
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
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
