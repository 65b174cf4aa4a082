package alerting_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/internal/filetest"
)

// The prices, in US dollars. docs/reference/costs.md names their source.
const (
	referenceMonth = 0.35
	millionPoints  = 0.50
	// A condition is evaluated every 30 seconds of a month of 30 days.
	evaluations = 30 * 24 * 3600 / 30
)

func paynowAlone(t *testing.T) (queues []string) {
	t.Helper()
	q, found := catalogtest.Shipped().HandledBy("points.credit")
	require.True(t, found)
	queues = append(queues, q.ID)
	for eventType, h := range q.Handlers {
		if strings.HasPrefix(eventType, "subscription.") {
			queues = append(queues, h.Emits...)
		}
	}
	slices.Sort(queues)
	return slices.Compact(queues)
}

// returned is how many series a condition compares: one for each group.
func (c condition) returned() int {
	count := 1
	for _, label := range c.By {
		name := regexp.QuoteMeta(strings.Replace(label, ".label.", ".labels.", 1))
		if of := regexp.MustCompile(name + ` = one_of\(([^)]+)\)`).FindStringSubmatch(c.Filter); of != nil {
			count *= strings.Count(of[1], ",") + 1
		}
	}
	return count
}

// A policy for each cause and not for each queue: Cloud Monitoring charges for each condition.
func TestTheCostOfAlertsIsTheModules(t *testing.T) {
	t.Parallel()
	const begin, end = "<!-- alerts: go test ./terraform/alerting -update -->\n", "<!-- end of alerts -->\n"
	table := "| queues | policies | conditions | metrics that they name | series that they compare | a month |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
	for _, row := range []struct {
		name     string
		policies map[string]policy
	}{
		{"all of the catalog", policies(t)},
		{"PayNow's alone", policiesOf(t, func() (map[string]policy, error) { return read(paynowAlone(t), []string{}, map[string]any{}) })},
	} {
		conditions, references, series := 0, 0, 0
		for name, p := range row.policies {
			require.LessOrEqual(t, len(p.Conditions), 6, name)
			conditions += len(p.Conditions)
			for _, c := range p.Conditions {
				series += c.returned()
				if references++; c.ShareOf != nil { // a share is of two
					references++
				}
			}
		}
		table += fmt.Sprintf("| %s | %d | %d | %d | %d | $%.2f |\n", row.name, len(row.policies), conditions, references, series,
			float64(references)*referenceMonth+float64(series*evaluations)/1e6*millionPoints)
	}
	filetest.Part(t, table, begin, end, "..", "..", "docs", "reference", "costs.md")
}

// read applies the modules, of a copy, which makes nothing, and returns the policies.
func read(queues, kept []string, thresholds map[string]any) (map[string]policy, error) {
	root, err := os.MkdirTemp("", "billhook-alerting-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(root) }()
	folder := filepath.Join(root, "installation")
	for from, to := range map[string]string{
		filepath.Join("..", "modules"): filepath.Join(root, "terraform", "modules"), filepath.Join("..", "..", "catalog"): filepath.Join(root, "catalog"), "testdata": folder,
	} {
		if err := os.CopyFS(to, os.DirFS(from)); err != nil {
			return nil, err
		}
	}
	variables, err := json.Marshal(map[string]any{"tasks": called(), "queues": queues, "kept": kept, "thresholds": thresholds})
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
var shipped = sync.OnceValues(func() (map[string]policy, error) { return read([]string{}, []string{}, map[string]any{}) })

func policies(t *testing.T) map[string]policy {
	t.Helper()
	return policiesOf(t, shipped)
}

// needsTerraform leaves a test out that cannot start Terraform or is to take no time, but not in CI.
func needsTerraform(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out: it starts Terraform")
	}
	if _, err := exec.LookPath("terraform"); err != nil && os.Getenv("REQUIRE_EMULATORS") == "" {
		t.Skip("left out: terraform is not installed")
	}
}

func policiesOf(t *testing.T, read func() (map[string]policy, error)) map[string]policy {
	t.Helper()
	needsTerraform(t)
	found, err := read()
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
