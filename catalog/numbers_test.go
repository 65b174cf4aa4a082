package catalog_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/retry"
)

const day = 24 * time.Hour

var update = flag.Bool("update", false, "write the printed catalogs of testdata anew")

func growing(base, most, jitter time.Duration) retry.Policy {
	return retry.Policy{Base: base, Max: most, Multiplier: 2, Jitter: jitter}
}

// A provider may send again within the floor of the requirements. A dead letter may be replayed
// on its last day. Both may then wait on the topic for as long as it keeps messages.
func TestWhatIsRememberedOutlivesEveryWayBack(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	for _, q := range c.Queues {
		if !q.Remembers() {
			require.Equal(t, "analytics-track", q.ID, "only there is losing, or doubling, some accepted")
			continue
		}
		require.GreaterOrEqual(t, q.RememberFor, q.MessageRetention+q.DeadLetter.Retention+3*day, q.ID)
	}
}

func TestTheBrokersNumbersFollowFromTheQueues(t *testing.T) {
	t.Parallel()
	seconds := func(n ...int) (waits []time.Duration) {
		for _, s := range n {
			waits = append(waits, time.Duration(s)*time.Second)
		}
		return waits
	}
	for sentence, test := range map[string]struct {
		queue   catalog.Queue
		minimum time.Duration
	}{
		"the first wait is the queue's":                         {catalog.Queue{Backoff: growing(10*time.Second, 300*time.Second, 0)}, 10 * time.Second},
		"one longer than the broker's 600 s is cut":             {catalog.Queue{Backoff: growing(700*time.Second, time.Hour, 0)}, 600 * time.Second},
		"a schedule's is that before attempt 2":                 {catalog.Queue{Backoff: retry.Policy{Schedule: seconds(0, 5, 30, 120, 600)}}, 5 * time.Second},
		"a schedule of one wait repeats it":                     {catalog.Queue{Backoff: retry.Policy{Schedule: seconds(7)}}, 7 * time.Second},
		"a policy of short waits still lasts through an outage": {catalog.Queue{Backoff: growing(time.Second, 2*time.Second, 0)}, time.Second},
	} {
		minimum, maximum := test.queue.BrokerBackoff()
		require.Equal(t, []time.Duration{test.minimum, catalog.BrokerMaxBackoff}, []time.Duration{minimum, maximum}, sentence)
		var waited time.Duration
		for wait := minimum; waited < 12*time.Hour; wait = min(2*wait, maximum) {
			waited += wait
			test.queue.MaxAttempts++
		}
		require.Less(t, test.queue.MaxAttempts, catalog.BrokerMaxDeliveryAttempts, "%s: deliveries in an outage of 12 hours", sentence)
	}
}

// What the broker's waits are not, the worker keeps.
func TestTheBrokerKeepsTimeWhereItsWaitsAreThePolicyOfEveryType(t *testing.T) {
	t.Parallel()
	doubling := retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: 600 * time.Second}
	with := func(change func(*retry.Policy)) retry.Policy {
		p := doubling
		change(&p)
		return p
	}
	for sentence, test := range map[string]struct {
		policies []retry.Policy
		want     bool
	}{
		"doubling to 600 s":                        {[]retry.Policy{doubling}, true},
		"doubling to a cap that is never reached":  {[]retry.Policy{with(func(p *retry.Policy) { p.Max = 80 * time.Second })}, true},
		"a cap below the broker's":                 {[]retry.Policy{with(func(p *retry.Policy) { p.Max = 60 * time.Second })}, false},
		"a cap above the broker's that is reached": {[]retry.Policy{with(func(p *retry.Policy) { p.Base, p.Max = 500*time.Second, time.Hour })}, false},
		"jitter":     {[]retry.Policy{with(func(p *retry.Policy) { p.Jitter = time.Second })}, false},
		"tripling":   {[]retry.Policy{with(func(p *retry.Policy) { p.Multiplier = 3 })}, false},
		"a schedule": {[]retry.Policy{{Schedule: []time.Duration{0, 10 * time.Second, 20 * time.Second}}}, false},
		"no first wait, which the broker knows not": {[]retry.Policy{with(func(p *retry.Policy) { p.Base = 0 })}, false},
		"two types with waits of their own":         {[]retry.Policy{doubling, with(func(p *retry.Policy) { p.Base = 20 * time.Second })}, false},
	} {
		q := catalog.Queue{Backoff: test.policies[0], Handlers: map[string]catalog.Handler{}}
		for i, p := range test.policies {
			q.Handlers[string(rune('a'+i))] = catalog.Handler{MaxAttempts: 5, Backoff: p}
		}
		require.Equal(t, test.want, q.BrokerKeepsTime(), sentence)
	}
}

// The printed form of two catalogs is compared whole, for Terraform and people read it: what their queues leave open
// comes from the defaults, and what follows from a queue stands beside it.
func TestACatalogIsLoadedAndPrintedAsRecorded(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{small, crooked} {
		var printed string
		for range 20 {
			again, err := from(t, folder).JSON()
			require.NoError(t, err)
			require.True(t, printed == "" || printed == string(again), "the same catalog gives the same bytes")
			printed = string(again)
		}
		if *update {
			require.NoError(t, os.WriteFile(filepath.Join(folder, "expanded.json"), []byte(printed+"\n"), 0o644))
		}
		require.Equal(t, text(t, folder, "expanded.json"), printed+"\n", "run: go test ./catalog -update")
	}
}
