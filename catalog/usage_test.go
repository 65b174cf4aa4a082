package catalog_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// The numbers of usage, and where they come from.
func TestTheShippedNumbersOfUsageSayWhereTheyComeFrom(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	require.Equal(t, 72*time.Hour, c.Usage.Grace, "ingestion-topology.md 6.4: covers worst-case weekend retry windows")
	require.Equal(t, 300*time.Second, c.Usage.Ahead, "what a webhook's time may be off")
	require.Equal(t, []int64{80, 100}, c.Usage.Thresholds, "near the quota, and at it")
	for name, meter := range c.Usage.Meters {
		require.NotEmpty(t, meter.Description, name)
		for plan := range meter.Plans {
			require.Contains(t, c.Products, plan, "a plan of the samples' store")
		}
	}
}

func TestAQuotaIsThatOfThePlanElseThatOfTheMeter(t *testing.T) {
	t.Parallel()
	u := catalog.Usage{Meters: map[string]catalog.Meter{
		"calls": {Quota: 10, Plans: map[string]int64{"large": 100, "free": 0}},
		"seats": {Plans: map[string]int64{"large": 5}},
	}}
	for name, test := range map[string]struct {
		meter, plan string
		quota       int64
	}{
		"of the plan":                       {"calls", "large", 100},
		"of another plan":                   {"calls", "small", 10},
		"of no plan":                        {"calls", "", 10},
		"a plan without one":                {"calls", "free", 0},
		"a meter that has one by plan only": {"seats", "small", 0},
		"a meter that is not known":         {"rows", "large", 0},
	} {
		require.Equal(t, test.quota, u.QuotaOf(test.meter, test.plan), name)
	}
}

func TestEachMistakeOfUsageNamesFileMeterAndKey(t *testing.T) {
	t.Parallel()
	const good = `usage: { grace: "60s", ahead: "0s", thresholds: [80] }` + "\n"
	limits := func(text string) string { return "usage: { " + text + " }\n" }
	for sentence, test := range map[string]struct{ file, want string }{
		"no limits":                  {"meters: {}\n", "usage.yaml: usage: is missing"},
		"no grace":                   {limits(`ahead: "0s", thresholds: [80]`), `usage.yaml: usage.grace: must be above "0s", and at most "2678400s"`},
		"a grace of two months":      {limits(`grace: "5356800s", ahead: "0s", thresholds: [80]`), `usage.yaml: usage.grace: must be above "0s", and at most "2678400s"`},
		"a grace in minutes":         {limits(`grace: 60m, ahead: "0s", thresholds: [80]`), `usage.yaml: usage.grace: must be a duration in seconds, in quotes, such as "600s"`},
		"two hours ahead":            {limits(`grace: "60s", ahead: "7200s", thresholds: [80]`), `usage.yaml: usage.ahead: must be "0s" to "3600s"`},
		"no thresholds":              {limits(`grace: "60s", ahead: "0s"`), `usage.yaml: usage.thresholds: must list percents of 1 to 1000, each above the one before`},
		"thresholds that fall":       {limits(`grace: "60s", ahead: "0s", thresholds: [100, 80]`), `usage.yaml: usage.thresholds: must list percents of 1 to 1000, each above the one before`},
		"a threshold twice":          {limits(`grace: "60s", ahead: "0s", thresholds: [80, 80]`), `usage.yaml: usage.thresholds: must list percents of 1 to 1000, each above the one before`},
		"a threshold of nothing":     {limits(`grace: "60s", ahead: "0s", thresholds: [0]`), `usage.yaml: usage.thresholds: must list percents of 1 to 1000, each above the one before`},
		"a limit that is not known":  {limits(`grace: "60s", ahead: "0s", thresholds: [80], most: 1`), `usage.yaml: usage.most: unknown key`},
		"a part that is not known":   {good + "quotas: {}\n", "usage.yaml: quotas: unknown key"},
		"a meter without a word":     {good + "meters: { calls: { quota: 1 } }\n", "usage.yaml: meter calls: description: is missing"},
		"a meter of two words":       {good + "meters: { \"api calls\": { description: d } }\n", `usage.yaml: meter "api calls": name: must be at most 64 of letters, digits and . _ -, and begin with a letter`},
		"a quota below nothing":      {good + "meters: { calls: { description: d, quota: -1 } }\n", "usage.yaml: meter calls: quota: must be 0, which is none, to 9007199254740991"},
		"a plan's below nothing":     {good + "meters: { calls: { description: d, plans: { p: -1 } } }\n", "usage.yaml: meter calls: plans.p: must be 0, which is none, to 9007199254740991"},
		"a plan that is no product":  {good + "meters: { calls: { description: d, plans: { \"a b\": 1 } } }\n", `usage.yaml: meter calls: plans."a b": must be the id of a product`},
		"a meter's key is not known": {good + "meters: { calls: { description: d, limit: 1 } }\n", "usage.yaml: meter calls: limit: unknown key"},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			_, err := catalog.Load(like(t, small, map[string]string{"usage.yaml": test.file}))
			requireMistakes(t, err, test.want)
		})
	}
}

func TestACatalogOfFewFilesHasTheProgramsLimitsNoQuotaNoRuleAndTellsNobody(t *testing.T) {
	t.Parallel()
	shipped, err := catalog.Load("")
	require.NoError(t, err)
	c, err := catalog.Load(small)
	require.NoError(t, err)
	require.Empty(t, c.Usage.Meters)
	c.Usage.Meters = shipped.Usage.Meters
	require.Equal(t, shipped.Usage, c.Usage)
	require.Empty(t, c.Notifications)
	require.Equal(t, catalog.DeadLetterUnmapped, c.Journal.Unmapped, "what cannot be posted is kept")
	_, ok := c.Journal.Rule("billing.invoice.paid")
	require.False(t, ok)
}
