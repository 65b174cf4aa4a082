package alerting_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog/catalogtest"
	"billhook/emulator/emulatortest"
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
		{"PayNow's alone", read(t, asked{"queues": paynowAlone(t)})},
		{"PayNow's alone, all alerts", read(t, asked{"queues": paynowAlone(t), "on": []string{"all"}})},
		{"all of the catalog", read(t, asked{})},
		{"all of the catalog, all alerts", policies(t)},
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

// asked is what an installation asks for, as the variables of testdata/main.tf.
type asked = map[string]any

// read applies the modules, of a copy, which makes nothing, and returns the policies.
func read(t *testing.T, of asked) (found map[string]policy) {
	t.Helper()
	folder := filepath.Join("alerting", "testdata")
	module := emulatortest.Terraform(t, filepath.Join("..", ".."), folder, "modules/alerts/*.tf", "modules/catalog/*.tf")
	of["tasks"] = called()
	said, err := json.Marshal(of)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(module.Folder, "terraform.tfvars.json"), said, 0o600))
	module.Environment = []string{"TF_CLI_CONFIG_FILE=" + os.DevNull} // what it warns of is not said
	text := ""
	for _, command := range []string{"init -input=false -no-color", "apply -auto-approve -input=false -no-color", "output -json policies"} {
		text, err = module.Run(t.Context(), strings.Fields(command)...)
		require.NoError(t, err, text)
	}
	require.NoError(t, json.Unmarshal([]byte(text), &found))
	require.NotEmpty(t, found)
	return found
}

// shipped are all policies of the shipped catalog, read once.
var shipped struct {
	sync.Once
	policies map[string]policy
}

func policies(t *testing.T) map[string]policy {
	t.Helper()
	emulatortest.NeedsTerraform(t)
	shipped.Do(func() { shipped.policies = read(t, asked{"on": []string{"all"}}) })
	require.NotEmpty(t, shipped.policies, "the first test that read them has failed")
	return shipped.policies
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
