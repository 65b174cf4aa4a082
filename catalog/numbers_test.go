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

// What the broker's waits are not, the worker keeps.
func TestTheBrokersWaitsFollowFromTheQueuesAndLastThroughAnOutage(t *testing.T) {
	t.Parallel()
	for _, test := range yamlOf[[]struct {
		What     string
		Policies []retry.Policy
		Minimum  time.Duration
		Kept     bool
	}](t, "waits.yaml") {
		q := catalog.Queue{Backoff: test.Policies[0], Handlers: map[string]catalog.Handler{}}
		for i, p := range test.Policies {
			q.Handlers[string(rune('a'+i))] = catalog.Handler{MaxAttempts: 5, Backoff: p}
		}
		minimum, maximum := q.BrokerBackoff()
		require.Equal(t, []time.Duration{test.Minimum, catalog.BrokerMaxBackoff}, []time.Duration{minimum, maximum}, test.What)
		require.Equal(t, test.Kept, q.BrokerKeepsTime(), test.What)
		deliveries := 0
		for waited, wait := time.Duration(0), max(minimum, time.Second); waited < 12*time.Hour; wait = min(2*wait, maximum) {
			waited += wait
			deliveries++
		}
		require.Less(t, deliveries, catalog.BrokerMaxDeliveryAttempts, "%s: deliveries in an outage of 12 hours", test.What)
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
