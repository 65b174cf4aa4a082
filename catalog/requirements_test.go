// This file is long because it repeats the figures of five documents, a line each.
package catalog_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
)

// figure is one figure of the requirements: the words of the document, the figure in them, and
// what of which queues it is.
type figure struct {
	section, words, figure string
	key                    string // of keys; with " of <event type>" that of the type's handler
	queues                 []string
}

// keys are the numbers of a queue that the documents speak of, in seconds where they are times.
// One that a queue has no such number for is not ok.
var keys = map[string]func(catalog.Queue) (n float64, ok bool){
	"attempts": func(q catalog.Queue) (float64, bool) { return float64(q.MaxAttempts), true },
	// By the pseudocode of the billing queues the first try is no retry: attempts++, and again while attempts <= max.
	"retries":      func(q catalog.Queue) (float64, bool) { return float64(q.MaxAttempts - 1), q.Contract == "envelope.v1" },
	"first wait":   func(q catalog.Queue) (float64, bool) { return q.Backoff.Base.Seconds(), len(q.Backoff.Schedule) == 0 },
	"multiplier":   func(q catalog.Queue) (float64, bool) { return q.Backoff.Multiplier, len(q.Backoff.Schedule) == 0 },
	"longest wait": func(q catalog.Queue) (float64, bool) { return q.Backoff.Max.Seconds(), len(q.Backoff.Schedule) == 0 },
	"jitter":       func(q catalog.Queue) (float64, bool) { return q.Backoff.Jitter.Seconds(), len(q.Backoff.Schedule) == 0 },
	"wait 1":       scheduled(1),
	"wait 2":       scheduled(2),
	"wait 3":       scheduled(3),
	"wait 4":       scheduled(4),
	"wait 5":       scheduled(5),
	"lease":        func(q catalog.Queue) (float64, bool) { return q.Lease.Seconds(), true },
	"timeout":      func(q catalog.Queue) (float64, bool) { return q.HandlerTimeout.Seconds(), true },
	"TTL":          func(q catalog.Queue) (float64, bool) { return q.MessageTTL.Seconds(), true },
	"prefetch":     func(q catalog.Queue) (float64, bool) { return float64(q.Concurrency), true },
	// A broker delivers the messages of an ordering key one after the other, over all instances.
	"prefetch of a key": func(q catalog.Queue) (float64, bool) { return 1, slices.Equal(q.OrderingKey, []string{"order_id"}) },
	"batch":             func(q catalog.Queue) (float64, bool) { return float64(q.Batch.Size), q.Batch.Size > 0 },
	"workers":           func(q catalog.Queue) (float64, bool) { return float64(q.MinInstances), true },
	"most workers":      func(q catalog.Queue) (float64, bool) { return float64(q.MaxInstances), true },
	"depth":             func(q catalog.Queue) (float64, bool) { return float64(q.BacklogAlertAbove), true },
	"most messages": func(q catalog.Queue) (float64, bool) {
		return float64(q.MaxBacklog.Messages), q.MaxBacklog.Messages > 0
	},
	"rate":            func(q catalog.Queue) (float64, bool) { return float64(q.Rate.PerSecond), q.Rate.PerSecond > 0 },
	"rate of a user":  func(q catalog.Queue) (float64, bool) { return float64(q.Rate.PerUser), q.Rate.PerUser > 0 },
	"dead letters":    func(q catalog.Queue) (float64, bool) { return float64(q.DeadLetter.AlertAbove), !q.DeadLetter.Drop },
	"normal letters":  func(q catalog.Queue) (float64, bool) { return float64(q.DeadLetter.WarnAbove), !q.DeadLetter.Drop },
	"oldest letter":   func(q catalog.Queue) (float64, bool) { return q.DeadLetter.OldestAlert.Seconds(), !q.DeadLetter.Drop },
	"normal age":      func(q catalog.Queue) (float64, bool) { return q.DeadLetter.OldestWarn.Seconds(), !q.DeadLetter.Drop },
	"letters kept":    func(q catalog.Queue) (float64, bool) { return q.DeadLetter.Retention.Seconds(), !q.DeadLetter.Drop },
	"no dead letters": func(q catalog.Queue) (float64, bool) { return 0, q.DeadLetter.Drop },
	"oldest message":  func(q catalog.Queue) (float64, bool) { return q.OldestAlert.Seconds(), q.OldestAlert != 25*time.Minute },
	"remembered":      func(q catalog.Queue) (float64, bool) { return (3 * day).Seconds(), q.RememberFor >= 3*day },
}

func scheduled(attempt int) func(catalog.Queue) (float64, bool) {
	return func(q catalog.Queue) (float64, bool) {
		if len(q.Backoff.Schedule) < attempt {
			return 0, false
		}
		return q.Backoff.Schedule[attempt-1].Seconds(), true
	}
}

// of returns the number that the key names.
func of(q catalog.Queue, key string) (n float64, ok bool) {
	key, eventType, byType := strings.Cut(key, " of type ")
	if !byType {
		return keys[key](q)
	}
	h, handled := q.Handlers[eventType]
	switch key {
	case "attempts":
		return float64(h.MaxAttempts), handled
	case "wait for what follows":
		return h.WaitsFor.Seconds(), handled
	default:
		return h.Backoff.Base.Seconds(), handled
	}
}

var (
	billing = []string{
		"sub-payment-initiation", "sub-trial-payment", "sub-plan-change", "sub-usage-sync", "pay-subscription-update", "pay-refund-initiation",
	}
	platform = []string{"events-high", "events-normal", "events-low"}
	design   = []string{"orders-process", "notifications-send", "search-index", "analytics-track"}
	kept     = []string{"orders-process", "notifications-send", "search-index"} // those with dead letters
)

const (
	policies  = "billing-queues.md 5: Queue Policies"
	core      = "event-retry.md 1: Event Queue Core"
	handlers  = "event-retry.md 3: Event Handlers"
	polling   = "event-retry.md, Polling Efficiency"
	orders    = "queue-design.md, Queue 1: orders.process"
	notify    = "queue-design.md, Queue 2: notifications.send"
	search    = "queue-design.md, Queue 3: search.index"
	analytics = "queue-design.md, Queue 4: analytics.track"
	schedule  = "queue-design.md, Retry with Exponential Backoff"
	letters   = "queue-design.md, DLQ Monitoring"
	pressure  = "queue-design.md, Backpressure Strategy"
	scaling   = "queue-design.md, Worker Scaling"
	paynow    = "paynow-contract.md, Automatic Retry (Pub/Sub)"
	consumer  = "ingestion-topology.md 5: Consumer Configuration"
)

func only(id string) []string { return []string{id} }

// figures are those of the documents, in their order.
var figures = []figure{
	{policies, "`max_retries`: default cap (e.g., 5)", "5", "retries", billing},
	{policies, "`base_delay_seconds`: initial backoff (e.g., 60s)", "60s", "first wait", billing},
	{policies, "`backoff_multiplier`: e.g., 2.0", "2.0", "multiplier", billing},
	{policies, "`max_delay_seconds`: cap (e.g., 3600s)", "3600s", "longest wait", billing},
	{policies, "`lock_ttl_seconds`: lock lifetime (e.g., 120s)", "120s", "lease", billing},

	{core, "Max retries: 5 attempts", "5", "attempts", platform},
	{core, "Base retry delay: 1000ms", "1000ms", "first wait", platform},
	{core, "Exponential backoff: delay × 2^(attempt-1)", "2", "multiplier", platform},
	{core, "Timeout: 30000ms (30 seconds)", "30000ms", "timeout", platform},
	{handlers, "usage_tracking (High Priority): Processes usage events with 5 max attempts", "5", "attempts of type usage_tracking", only("events-high")},
	{handlers, "usage_tracking (High Priority): 2 second base retry delay", "2 second", "first wait of type usage_tracking", only("events-high")},
	{handlers, "subscription_created (High Priority): 3 max attempts", "3", "attempts of type subscription_created", only("events-high")},
	{handlers, "subscription_created (High Priority): 3 second base retry delay", "3 second", "first wait of type subscription_created", only("events-high")},
	{handlers, "payment_processing (High Priority): 5 max attempts", "5", "attempts of type payment_processing", only("events-high")},
	{handlers, "payment_processing (High Priority): 5 second base retry delay", "5 second", "first wait of type payment_processing", only("events-high")},
	{handlers, "invoice_generation (Normal Priority): 3 max attempts", "3", "attempts of type invoice_generation", only("events-normal")},
	{handlers, "invoice_generation (Normal Priority): 2 second base retry delay", "2 second", "first wait of type invoice_generation", only("events-normal")},
	{handlers, "quota_warning (Normal Priority): 3 max attempts", "3", "attempts of type quota_warning", only("events-normal")},
	{handlers, "quota_warning (Normal Priority): 1 second base retry delay", "1 second", "first wait of type quota_warning", only("events-normal")},
	{handlers, "api_sync (High Priority): 5 max attempts", "5", "attempts of type api_sync", only("events-high")},
	{handlers, "api_sync (High Priority): 3 second base retry delay", "3 second", "first wait of type api_sync", only("events-high")},
	{handlers, "webhook_delivery (Low Priority): 5 max attempts", "5", "attempts of type webhook_delivery", only("events-low")},
	{handlers, "webhook_delivery (Low Priority): 5 second base retry delay", "5 second", "first wait of type webhook_delivery", only("events-low")},
	{polling, "Batch processing: 10 events per poll cycle", "10", "prefetch", platform},

	{orders, "Consumers:  3 workers", "3", "workers", only("orders-process")},
	{orders, "Prefetch:   1 (one message at a time — order processing must be sequential per order)", "1", "prefetch of a key", only("orders-process")},
	{orders, "TTL:        None (orders must be processed)", "None", "TTL", only("orders-process")},
	{orders, "Max retry:  5", "5", "attempts", only("orders-process")},
	{orders, "PaymentInitiated --> PaymentTimeout: No webhook in 15min", "15min", "wait for what follows of type order.created", only("orders-process")},
	{notify, "Consumers:  2 workers", "2", "workers", only("notifications-send")},
	{notify, "Prefetch:   10 (notifications are independent, can batch)", "10", "prefetch", only("notifications-send")},
	{notify, "TTL:        24 hours (stale notifications are useless)", "24 hours", "TTL", only("notifications-send")},
	{notify, "Max retry:  3", "3", "attempts", only("notifications-send")},
	{search, "Consumers:  1 worker (batch mode)", "1", "workers", only("search-index")},
	{search, "Prefetch:   50 (bulk index into ES)", "50", "prefetch", only("search-index")},
	{search, "Prefetch:   50 (bulk index into ES)", "50", "batch", only("search-index")},
	{search, "TTL:        1 hour", "1 hour", "TTL", only("search-index")},
	{search, "Max retry:  3", "3", "attempts", only("search-index")},
	{analytics, "Consumers:  1 worker", "1", "workers", only("analytics-track")},
	{analytics, "Prefetch:   100 (batch write to analytics store)", "100", "prefetch", only("analytics-track")},
	{analytics, "Prefetch:   100 (batch write to analytics store)", "100", "batch", only("analytics-track")},
	{analytics, "TTL:        6 hours", "6 hours", "TTL", only("analytics-track")},
	{analytics, "Max retry:  1 (analytics loss is acceptable)", "1", "attempts", only("analytics-track")},
	{analytics, "DLQ:        None (drop if failed)", "None", "no dead letters", only("analytics-track")},

	{schedule, "Attempt 1: immediate", "immediate", "wait 1", kept},
	{schedule, "Attempt 2: wait 5 seconds", "5 seconds", "wait 2", kept},
	{schedule, "Attempt 3: wait 30 seconds", "30 seconds", "wait 3", kept},
	{schedule, "Attempt 4: wait 2 minutes", "2 minutes", "wait 4", only("orders-process")},
	{schedule, "Attempt 5: wait 10 minutes", "10 minutes", "wait 5", only("orders-process")},

	{letters, "| DLQ depth (orders) | 0 | > 5 |", "> 5", "dead letters", only("orders-process")},
	{letters, "| DLQ depth (orders) | 0 | > 5 |", "0", "normal letters", only("orders-process")},
	{letters, "| DLQ depth (notifications) | < 10 | > 50 |", "> 50", "dead letters", only("notifications-send")},
	{letters, "| DLQ depth (notifications) | < 10 | > 50 |", "< 10", "normal letters", only("notifications-send")},
	{letters, "| DLQ depth (search) | < 5 | > 20 |", "> 20", "dead letters", only("search-index")},
	{letters, "| DLQ depth (search) | < 5 | > 20 |", "< 5", "normal letters", only("search-index")},
	{letters, "| DLQ oldest message age | < 1h | > 4h |", "> 4h", "oldest letter", kept},
	{letters, "| DLQ oldest message age | < 1h | > 4h |", "1h", "normal age", kept},

	{pressure, "| **API** | Rate limit order creation | 500/sec global, 5/sec per user |", "500", "rate", only("orders-process")},
	{pressure, "| **API** | Rate limit order creation | 500/sec global, 5/sec per user |", "5", "rate of a user", only("orders-process")},
	{pressure, "| **Queue** | Max queue length | 100,000 messages |", "100,000", "most messages", design},

	{scaling, "| orders.process | 3 | 10 | Queue depth > 1,000 |", "10", "most workers", only("orders-process")},
	{scaling, "| orders.process | 3 | 10 | Queue depth > 1,000 |", "> 1,000", "depth", only("orders-process")},
	{scaling, "| notifications.send | 2 | 5 | Queue depth > 5,000 |", "5", "most workers", only("notifications-send")},
	{scaling, "| notifications.send | 2 | 5 | Queue depth > 5,000 |", "> 5,000", "depth", only("notifications-send")},
	{scaling, "| search.index | 1 | 3 | Queue depth > 10,000 |", "3", "most workers", only("search-index")},
	{scaling, "| search.index | 1 | 3 | Queue depth > 10,000 |", "> 10,000", "depth", only("search-index")},
	{scaling, "| analytics.track | 1 | 2 | Queue depth > 50,000 |", "2", "most workers", only("analytics-track")},
	{scaling, "| analytics.track | 1 | 2 | Queue depth > 50,000 |", "> 50,000", "depth", only("analytics-track")},

	{paynow, "minimum_backoff: 10s", "10s", "first wait", only("paynow-events")},
	{paynow, "maximum_backoff: 600s", "600s", "longest wait", only("paynow-events")},
	{paynow, "maximum_delivery_attempts: 5", "5", "attempts", only("paynow-events")},
	{"paynow-contract.md, Dead Letter Queue", "**Retention**: 14 days", "14 days", "letters kept", only("paynow-events")},
	{"paynow-contract.md, Dead Letter Queue", "**Alert**: Any messages in DLQ require immediate attention", "Any", "dead letters", only("paynow-events")},

	{consumer, "prefetch: 250", "250", "prefetch", only("fis-ingestion")},
	{"ingestion-topology.md 2: Core Intake Queues", "**Message TTL:** None (messages wait indefinitely until consumed or dead-lettered)", "None", "TTL", only("fis-ingestion")},
	{"ingestion-topology.md 6.4: TTL & Eviction", "**TTL:** 72 hours (3 days). Covers worst-case weekend retry windows.", "72 hours", "remembered", only("fis-ingestion")},
}

// ownNumber is a number that no document gives: of the queues listed, or of every queue that has
// no figure for the key.
type ownNumber struct {
	key, number, reason string
	queues              []string
}

// own are ours to choose, and say why.
var own = []ownNumber{
	{"attempts of type *.*.reverted", "16", "They last 67 minutes. What is undone has another ordering key than its original, which may come later.", only("fis-ingestion")},
	{"first wait of type *.*.reverted", "1s", "That of the queue, so that the waits stay those of the broker.", only("fis-ingestion")},
	{"attempts", "3", "The fanout has the attempts of what it fans out to.", only("notifications-fanout")},
	{"attempts", "6", "Five retries, and the first try.", billing},
	{"attempts", "5", "Those of the event queue. The topology's template.retry is that of who publishes; of the consumer it says no number.", only("fis-ingestion")},
	{"first wait", "1s", "That of the event queue, for the same reason.", only("fis-ingestion")},
	{"first wait", "10s", "It is tried once. This is Pub/Sub's wait before a delivery that is no attempt.", only("analytics-track")},
	{"multiplier", "2", "Pub/Sub's own.", []string{"paynow-events", "analytics-track", "fis-ingestion"}},
	{"longest wait", "600s", "Pub/Sub's cap, which five attempts never reach.", append(slices.Clone(platform), "analytics-track", "fis-ingestion")},
	{"jitter", "30s", "How much there was is not recorded; half the first wait spreads a herd.", billing},
	{"jitter", "0s", "No document speaks of any.", append(slices.Clone(platform), "paynow-events", "analytics-track", "fis-ingestion")},
	{"lease", "60s", "The ack deadline, the least. What a worker that dies has in hand waits for its end, and a user for the news.", only("notifications-send")},
	{"lease", "120s", "That of the billing queues.", nil},
	{"timeout", "30s", "That of the event queue.", nil},
	{"TTL", "0s", "Money is never too late.", append(slices.Concat(billing, platform), "paynow-events")},
	{"TTL", "24 hours", "That of the notifications that it makes.", only("notifications-fanout")},
	{"wait 1", "0s", "The fanout waits as what it fans out to does.", only("notifications-fanout")},
	{"wait 2", "5s", "The fanout waits as what it fans out to does.", only("notifications-fanout")},
	{"wait 3", "30s", "The fanout waits as what it fans out to does.", only("notifications-fanout")},
	{"workers", "2", "Those of its pool.", only("notifications-fanout")},
	{"most workers", "5", "Those of its pool.", only("notifications-fanout")},
	{"depth", "5,000", "That of the notifications that it makes.", only("notifications-fanout")},
	{"dead letters", "> 50", "Those of the notifications that it makes.", only("notifications-fanout")},
	{"normal letters", "< 10", "Those of the notifications that it makes.", only("notifications-fanout")},
	{"prefetch", "20", "Buyers wait for points, and usage comes in crowds.", []string{"paynow-events", "sub-usage-sync"}},
	{"prefetch", "5", "Refunds are few, and each moves money.", only("pay-refund-initiation")},
	{"prefetch", "10", "One at a time is of an order, and its key holds that. A sale of 3,000 would wait minutes for 1 of an instance; each 503 slows all.", only("orders-process")},
	{"prefetch", "10", "The batch of the event queue.", nil},
	{"workers", "1", "A buyer waits: no cold start; and the ledger's threads are those of one instance.", []string{"paynow-events", "fis-ingestion"}},
	{"workers", "0", "What nobody waits for need not be paid for while it is idle.", nil},
	{"most workers", "10", "That of the orders.", nil},
	{"depth", "10,000", "Four times what the ledger's instances have in hand.", only("fis-ingestion")},
	{"depth", "1,000", "That of the orders.", nil},
	{"dead letters", "> 5", "Usage is counted again by the next sync.", only("sub-usage-sync")},
	{"dead letters", "> 0", "Each is looked at, as PayNow's are.", nil},
	{"normal letters", "0", "None is normal.", nil},
	{"oldest letter", "4h", "That of the queue design.", nil},
	{"oldest message", "15min", "A payment that is older has waited longer than its order does.", only("orders-process")},
	{"normal age", "1h", "That of the queue design.", nil},
	{"letters kept", "14 days", "As PayNow's are.", nil},
	{"remembered", "72 hours", "The floor of the ingestion topology, for all.", nil},
}

var number = regexp.MustCompile(`^[<>]? ?([0-9][0-9,]*(?:\.[0-9]+)?) ?(ms|s|seconds?|min|minutes?|h|hours?|days?)?$`)

// read is the number that a document's figure says, times in seconds. "< 10" is 9 of what is
// counted: the most that is normal.
func read(t *testing.T, text string) float64 {
	t.Helper()
	switch text {
	case "None", "immediate", "Any": // any is above 0
		return 0
	}
	parts := number.FindStringSubmatch(text)
	require.NotNil(t, parts, text)
	n, err := strconv.ParseFloat(strings.ReplaceAll(parts[1], ",", ""), 64)
	require.NoError(t, err)
	if strings.HasPrefix(text, "<") {
		n--
	}
	unit := map[string]float64{"": 1, "ms": 0.001, "s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86400}
	per, known := unit[strings.TrimSuffix(parts[2], "s")]
	if parts[2] == "ms" || parts[2] == "s" {
		per, known = unit[parts[2]], true
	}
	require.True(t, known, text)
	return n * per
}

// A figure that is changed in the catalog differs from its line here, and one that is changed
// here differs from its own words or from the catalog.
func TestTheShippedNumbersAreThoseOfTheRequirements(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for _, f := range figures {
		require.Contains(t, f.words, f.figure, "%s: the figure is not in the words", f.section)
		for _, id := range f.queues {
			q, ok := c.Queue(id)
			require.True(t, ok, id)
			got, has := of(q, f.key)
			require.True(t, has, "%s has no %s; %s says %q", id, f.key, f.section, f.words)
			require.InDelta(t, read(t, f.figure), got, 1e-9, "%s of %s; %s says %q", f.key, id, f.section, f.words)
		}
	}
}

// A number that is in the catalog has a figure, or is in the list of our own, and what it is
// there is what it is in the catalog.
func TestEveryShippedNumberIsADocumentsOrSaysWhyItIsOurs(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for _, q := range c.Queues {
		for key, value := range keys {
			got, has := value(q)
			if !has || slices.ContainsFunc(figures, func(f figure) bool { return f.key == key && slices.Contains(f.queues, q.ID) }) {
				continue
			}
			at := -1
			for i, o := range own { // one that names the queue goes first
				if o.key == key && (slices.Contains(o.queues, q.ID) || o.queues == nil && at < 0) {
					at = i
				}
			}
			require.GreaterOrEqual(t, at, 0, "%s of %s is %v: no document gives it, and nothing says why", key, q.ID, got)
			require.NotEmpty(t, own[at].reason)
			require.InDelta(t, read(t, own[at].number), got, 1e-9, "%s of %s", key, q.ID)
		}
		for eventType, h := range q.Handlers {
			if h.MaxAttempts == q.MaxAttempts && h.Backoff.Base == q.Backoff.Base {
				continue
			}
			for _, key := range []string{"attempts of type ", "first wait of type "} {
				at := slices.IndexFunc(own, func(o ownNumber) bool { return o.key == key+eventType && slices.Contains(o.queues, q.ID) })
				if at < 0 {
					require.True(t, slices.ContainsFunc(figures, func(f figure) bool { return f.key == key+eventType }), "%s%s of %s", key, eventType, q.ID)
					continue
				}
				got, _ := of(q, own[at].key)
				require.InDelta(t, read(t, own[at].number), got, 1e-9, "%s of %s", own[at].key, q.ID)
			}
		}
	}
}

// The names that queues, dead letters and exchanges had, with the routing keys of their bindings.
func TestTheShippedAliasesAreTheNamesInTheRequirements(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for id, names := range map[string]string{
		"sub-payment-initiation":  "q:sub:payment_initiation q:sub:payment_initiation:failed",
		"sub-trial-payment":       "q:sub:trial_payment q:sub:trial_payment:failed",
		"sub-plan-change":         "q:sub:plan_change q:sub:plan_change:failed",
		"sub-usage-sync":          "q:sub:usage_sync q:sub:usage_sync:failed",
		"pay-subscription-update": "q:pay:subscription_update q:pay:subscription_update:failed",
		"pay-refund-initiation":   "q:pay:refund_initiation q:pay:refund_initiation:failed",
		"orders-process":          "orders.process orders.process.dlq order.created order.payment_confirmed order.payment_failed order.payment_timeout order.shipped",
		"notifications-send":      "notifications.send notifications.send.dlq notification.email.* notification.sms.* notification.push.*",
		"search-index":            "search.index search.index.dlq product.#",
		"analytics-track":         "analytics.track #",
		"fis-ingestion":           "fis.ingestion.queue fis.dlx.exchange fis.ingestion.dlq fis.ingestion.dlq.queue *.*.*",
	} {
		q, ok := c.Queue(id)
		require.True(t, ok, id)
		got := append([]string{q.Alias}, q.DeadLetter.Aliases...)
		for _, p := range q.Bindings {
			got = append(got, string(p))
		}
		require.Equal(t, names, strings.Join(got, " "), id)
	}
	for alias, id := range map[string]string{"fis.events.exchange": "fis-events", "fis.domain.exchange": "fis-domain-events"} {
		topic, ok := c.Topic(alias)
		require.True(t, ok, alias)
		require.Equal(t, id, topic.ID)
	}
}
