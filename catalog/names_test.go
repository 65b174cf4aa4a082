package catalog_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/retry"
)

func TestAnAliasNamesItsQueueTopicOrDeadLetters(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	for of, names := range filetest.YAML[map[string]map[string]string](t, "testdata", "names.yaml") {
		for name, want := range names {
			q, ok := c.Queue(name)
			got := q.ID
			switch of {
			case "dead_letters":
				q, ok = c.DeadLetters(name)
				got = q.ID
			case "topics":
				var topic catalog.Topic
				topic, ok = c.TopicNamed(name)
				got = topic.ID
			}
			require.Equal(t, []any{want, want != ""}, []any{got, ok}, "%s: %s", of, name)
		}
	}
}

func TestAMessageForOneQueueOfASharedTopicNamesTheQueue(t *testing.T) {
	t.Parallel()
	bound := catalog.Queue{ID: "q", SharedTopic: "t", Bindings: []routing.Pattern{"a"}}
	given := map[string]string{"event_id": "e1"}
	require.Equal(t, map[string]string{"event_id": "e1", "queue": "q"}, bound.Addressed(given))
	require.Equal(t, map[string]string{"event_id": "e1"}, given, "the given attributes are not changed")
	require.Equal(t, map[string]string{"queue": "q"}, bound.Addressed(nil))
	require.Equal(t, given, catalog.Queue{ID: "q"}.Addressed(given),
		"on a topic of its own every message is the queue's")
	require.True(t, bound.Takes(bound.Addressed(nil)))
	require.True(t, bound.Filter().Match(bound.Addressed(nil)))
}

const day = 24 * time.Hour

// A provider may send again within the floor of the requirements. A dead letter may be replayed
// on its last day. Both may then wait on the topic for as long as it keeps messages.
func TestARecordOutlivesEveryRedeliveryAndReplay(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	for _, q := range c.Queues {
		if !q.Remembers() {
			require.Equal(t, "analytics-track", q.ID, "the only queue where loss and duplicates are acceptable")
			continue
		}
		require.GreaterOrEqual(t, q.RememberFor, q.MessageRetention+q.DeadLetter.Retention+3*day, q.ID)
	}
}

// The worker keeps waits that the broker cannot.
func TestTheBrokersWaitsFollowFromTheQueuesAndLastThroughAnOutage(t *testing.T) {
	t.Parallel()
	for _, test := range filetest.YAML[[]struct {
		What     string
		Policies []retry.Policy
		Minimum  time.Duration
		Kept     bool
	}](t, "testdata", "waits.yaml") {
		q := catalog.Queue{Backoff: test.Policies[0], Handlers: map[string]catalog.Handler{}}
		for i, p := range test.Policies {
			q.Handlers[string(rune('a'+i))] = catalog.Handler{MaxAttempts: 5, Backoff: p}
		}
		minimum, maximum := q.BrokerBackoff()
		require.Equal(t, []time.Duration{test.Minimum, catalog.BrokerMaxBackoff},
			[]time.Duration{minimum, maximum}, test.What)
		require.Equal(t, test.Kept, q.BrokerKeepsTime(), test.What)
		deliveries := 0
		for waited, wait := time.Duration(0), max(minimum, time.Second); waited <
			12*time.Hour; wait = min(2*wait, maximum) {
			waited += wait
			deliveries++
		}
		require.Less(t, deliveries, catalog.BrokerMaxDeliveryAttempts,
			"%s: deliveries in an outage of 12 hours", test.What)
	}
}

// The printed form of two catalogs is compared whole, for Terraform and people read it: what their queues
// leave open comes from the defaults, and derived names stand beside each queue.
func TestACatalogIsLoadedAndPrintedAsRecorded(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{small, crooked} {
		var printed string
		for range 3 {
			again := filetest.Must(from(t, folder).JSON())(t)
			require.True(t, printed == "" || printed == string(again), "the same catalog gives the same bytes")
			printed = string(again)
		}
		filetest.Recorded(t, printed+"\n", folder, "expanded.json")
	}
}

var settingOfDefaults = regexp.MustCompile(`^( {2,4})([a-z_]+): (.+)$`)

// Every queue has the defaults, and a mistake in them is reported where it stands, not at each queue.
func TestAMistakeInADefaultIsNotRepeatedForEveryQueue(t *testing.T) {
	t.Parallel()
	lines := strings.Split(filetest.Read(t, "queues.yaml"), "\n")
	c := from(t, "")
	inDefaults, mutated := false, 0
	for i, line := range lines {
		if line != "" && !strings.HasPrefix(line, " ") && !strings.HasPrefix(line, "#") {
			inDefaults = line == "defaults:"
		}
		found := settingOfDefaults.FindStringSubmatch(line)
		if !inDefaults || found == nil {
			continue
		}
		values := []string{"{ a: 1 }", "-1", `"99999999s"`, "maybe"}
		for _, value := range values[i%2*2:][:2] { // half of them, as each is a whole load
			lines[i] = found[1] + found[2] + ": " + value
			_, err := c.With(map[string]string{"queues.yaml": strings.Join(lines, "\n")})
			mistakes := catalog.Mistakes(err)
			if !slices.ContainsFunc(mistakes, func(m *catalog.Mistake) bool { return m.Line == i+1 }) {
				continue // alone it is as valid as the value that it replaces
			}
			// with the settings that then contradict it
			require.LessOrEqual(t, len(mistakes), 5, "%s\n%v", lines[i], err)
			mutated++
		}
		lines[i] = line
	}
	require.Greater(t, mutated, 50)
}

func TestAPoolNeedsTheTargetsThatItsEnabledQueuesPostToOrCall(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]struct {
		old, replacement, pool string
		want                   []string
	}{
		"of a queue that posts":          {"reminders", "reminders", "letters", []string{"post-office"}},
		"of a queue that is not enabled": {"enabled: true\n    batch", "batch", "", nil},
		"of a handler that says its calls": {
			"reminder: { post", "seat.taken: { name: letters.send, calls: [unheard] }\n      reminder: { post",
			"letters",
			[]string{"post-office", "unheard"},
		},
	} {
		c, err := catalog.Load(edited(t, posting(t), "queues.yaml", test.old, test.replacement))
		require.NoError(t, err, sentence)
		names := filetest.Map(c.TargetsOf(test.pool), func(of catalog.Target) string { return of.Name })
		require.Equal(t, test.want, names, sentence)
	}
}

func TestEmitsToFindsTheQueueOfAHandlersEmissions(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	queue, ok := c.EmitsTo("subscriptions.record")
	require.True(t, ok)
	require.Equal(t, "pay-subscription-update", queue.ID)
	_, ok = c.EmitsTo("points.reverse")
	require.False(t, ok, "it emits nothing")
	_, ok = c.EmitsTo("journal.post")
	require.False(t, ok, "it emits to a topic, and to no queue")
}

func TestTheShippedNumbersOfUsageAreThoseOfTheDocuments(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	require.Equal(t, 72*time.Hour, c.Usage.Grace,
		"ingestion-topology.md 6.4: covers worst-case weekend retry windows")
	require.Equal(t, 300*time.Second, c.Usage.Ahead, "the tolerance of a webhook's time")
	require.Equal(t, []int64{80, 100}, c.Usage.Thresholds, "near the quota, and at it")
	for name, meter := range c.Usage.Meters {
		require.NotEmpty(t, meter.Description, name)
		for plan := range meter.Plans {
			require.Contains(t, c.Products, plan, "a plan of the samples' store")
		}
	}
}

func TestAPlansQuotaReplacesThatOfTheMeter(t *testing.T) {
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

func TestMissingFilesMeanBuiltInLimitsAndNoQuotaRuleOrNotification(t *testing.T) {
	t.Parallel()
	shipped := from(t, "")
	c := from(t, small)
	require.Empty(t, c.Usage.Meters)
	c.Usage.Meters = shipped.Usage.Meters
	require.Equal(t, shipped.Usage, c.Usage)
	require.Empty(t, c.Notifications)
	require.Equal(t, catalog.DeadLetterUnmapped, c.Journal.Unmapped, "an event that cannot be posted is kept")
	_, ok := c.Journal.Rule("billing.invoice.paid")
	require.False(t, ok)
}

func TestAnEventHasTheNarrowestRule(t *testing.T) {
	t.Parallel()
	c := filetest.Must(catalog.Load(withJournal(t, `  "*.fee.charged":
    lines:
      - { debit: cash, amount: cents, currency: EUR }
      - { credit: revenue, amount: [cents], currency: EUR }
  card.fee.charged:
    lines:
      - { debit: cash, amount: fee, currency: currency }
      - { credit: tax, amount: fee, currency: currency }
`, `  "*.fee.charged":
    1: { cents: integer! }
  card.fee.charged:
    1: { fee: amount!, currency: currency! }
    2: { fee: amount!, currency: currency!, card: id }
`)))(t)
	for eventType, want := range map[string]string{
		"card.fee.charged": "tax", "bank.fee.charged": "revenue", "billing.invoice.paid": "revenue",
		"billing.invoice.sent": "",
	} {
		rule, ok := c.Journal.Rule(eventType)
		require.Equal(t, want != "", ok, eventType)
		if ok {
			require.Equal(t, want, rule.Lines[1].Account(), eventType)
		}
	}
	rule, _ := c.Journal.Rule("bank.fee.charged")
	require.Equal(t, catalog.Rule{Name: "*.fee.charged", Lines: []catalog.RuleLine{
		{Debit: "cash", Amount: catalog.Terms{"cents"}, Currency: "EUR"},
		{Credit: "revenue", Amount: catalog.Terms{"cents"}, Currency: "EUR"},
	}}, rule)
}

// The waits of a reversal last longer than an hour, and are the broker's own.
func TestAReversalWaitsAnHourForItsEvent(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	q, ok := c.Queue("fis-ingestion")
	require.True(t, ok)
	h, ok := q.Handler("billing.invoice.reverted")
	require.True(t, ok)
	require.Equal(t, catalog.JournalRevert, h.Name)
	var waits time.Duration
	for failed := 1; failed < h.MaxAttempts; failed++ {
		waits += h.Backoff.Wait(failed, 0)
	}
	require.Greater(t, waits, time.Hour)
	require.Less(t, waits, 75*time.Minute)
	require.True(t, q.BrokerKeepsTime())
}

func TestTheSentencesAboutAQueueHaveItsNumbers(t *testing.T) {
	t.Parallel()
	c := from(t, "")
	for id, numbers := range map[string][]string{
		"orders-process": {
			"order.created", "order_id", "5s, 30s, 2m, 10m", "up to 5 times", "orders-process-dlq", "14d",
			"above 5 open", "4h", "500 messages", "5 messages a second of one user", "100000",
		},
		"pay-refund-initiation":   {"1m, 2m, 4m", "30s more", "idempotency key", "48d", "two people"},
		"pay-subscription-update": {"subscription_id, else the correlation_id"},
		"analytics-track": {
			"tried once", "6h", "100 messages", "No event is remembered", "is dropped", "an alert fires",
		},
		"fis-ingestion": {"corrects it", "250 messages at once", "At least 1"},
	} {
		q, ok := c.Queue(id)
		require.True(t, ok)
		text := strings.Join(q.Words(), "\n")
		for _, number := range numbers {
			require.Contains(t, text, number, id)
		}
	}
	c.ShortenWaits(1500 * time.Millisecond)
	require.Contains(t, c.Queues[0].Words()[2], "1.5s")
	require.Contains(t, c.Queues[0].Words()[3], "shortened")
}
