package alerting_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

var update = flag.Bool("update", false, "write the table of what alerts cost anew")

// The prices, in US dollars. docs/deploying.md names their source.
const (
	referenceMonth = 0.35
	millionPoints  = 0.50
	// A condition is evaluated every 30 seconds of a month of 30 days.
	evaluations = 30 * 24 * 3600 / 30
)

// paynowAlone are the queues of a shop that has PayNow and nothing else.
func paynowAlone(t *testing.T) (queues []string) {
	t.Helper()
	c, err := catalog.Load("")
	require.NoError(t, err)
	q, found := c.HandledBy("points.credit")
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
		{"PayNow's alone", policiesOf(t, func() (map[string]policy, error) { return read(paynowAlone(t), []string{}) })},
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
	path := filepath.Join("..", "..", "docs", "deploying.md")
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	before, rest, found := strings.Cut(string(text), begin)
	require.True(t, found)
	have, after, found := strings.Cut(rest, end)
	require.True(t, found)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(before+begin+table+end+after), 0o600))
		return
	}
	require.Equal(t, table, have, "go test ./terraform/alerting -update writes it anew")
}
