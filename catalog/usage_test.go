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
	c := from(t, "")
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

func TestACatalogOfFewFilesHasTheProgramsLimitsNoQuotaNoRuleAndTellsNobody(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	c := from(t, small)
	require.Empty(t, c.Usage.Meters)
	c.Usage.Meters = shipped.Usage.Meters
	require.Equal(t, shipped.Usage, c.Usage)
	require.Empty(t, c.Notifications)
	require.Equal(t, catalog.DeadLetterUnmapped, c.Journal.Unmapped, "what cannot be posted is kept")
	_, ok := c.Journal.Rule("billing.invoice.paid")
	require.False(t, ok)
}
