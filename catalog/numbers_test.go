package catalog_test

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/retry"
	"billhook/internal/routing"
)

const day = 24 * time.Hour

func growing(base, most, jitter time.Duration) retry.Policy {
	return retry.Policy{Base: base, Max: most, Multiplier: 2, Jitter: jitter}
}

// Every number that the requirements and the design give, written down a second
// time: an edit of the file that changes one has to change it here, on purpose.
func TestTheShippedNumbersAreThoseOfTheRequirements(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)

	keptAbove := func(alertAbove int, aliases ...string) catalog.DeadLetter {
		return catalog.DeadLetter{Aliases: aliases, Retention: 14 * day, AlertAbove: alertAbove, OldestAlert: 4 * time.Hour, OldestWarn: time.Hour}
	}
	schedule := func(waits ...time.Duration) retry.Policy { return retry.Policy{Schedule: waits} }
	billing := growing(time.Minute, time.Hour, 30*time.Second)
	perType := func(attempts int, base time.Duration) catalog.Handler {
		return catalog.Handler{MaxAttempts: attempts, Backoff: growing(base, 10*time.Minute, 0), Timeout: 30 * time.Second}
	}
	// A handler without numbers of its own has those of its queue.
	types := func(types ...string) map[string]catalog.Handler {
		handlers := map[string]catalog.Handler{}
		for _, eventType := range types {
			handlers[eventType] = catalog.Handler{}
		}
		return handlers
	}
	subscription := []string{"subscription_id", "correlation_id"}

	want := []catalog.Queue{{
		ID: "paynow-events", Contract: "paynow.v1", OrderingKey: []string{"uid", "paynow_customer_id"},
		Priority: "high", Pool: "payments", MaxAttempts: 5, Backoff: growing(10*time.Second, 600*time.Second, 0),
		Concurrency: 20, MinInstances: 1, MaxInstances: 10, DeadLetter: keptAbove(0), OnTerminal: catalog.Reject,
		Handlers: types("order.paid", "order.refunded", "order.chargeback", "order.chargeback_closed", "subscription.activated", "subscription.renewed", "subscription.canceled", "trial.activated", "trial.completed", "trial.canceled"),
	}, {
		ID: "sub-payment-initiation", Alias: "q:sub:payment_initiation", Contract: "envelope.v1", OrderingKey: subscription,
		Priority: "high", Pool: "payments", MaxAttempts: 5, Backoff: billing, Concurrency: 10, MaxInstances: 10, DeadLetter: keptAbove(0, "q:sub:payment_initiation:failed"),
		Handlers: types("initial", "renewal", "upgrade", "downgrade"),
	}, {
		ID: "sub-trial-payment", Alias: "q:sub:trial_payment", Contract: "envelope.v1", OrderingKey: subscription,
		Priority: "high", Pool: "payments", MaxAttempts: 5, Backoff: billing, Concurrency: 10, MaxInstances: 10, DeadLetter: keptAbove(0, "q:sub:trial_payment:failed"),
		Handlers: types("trial"),
	}, {
		ID: "sub-plan-change", Alias: "q:sub:plan_change", Contract: "envelope.v1", OrderingKey: subscription,
		Priority: "normal", Pool: "payments", MaxAttempts: 5, Backoff: billing, Concurrency: 10, MaxInstances: 10, DeadLetter: keptAbove(0, "q:sub:plan_change:failed"),
		Handlers: types("upgrade", "downgrade"),
	}, {
		ID: "sub-usage-sync", Alias: "q:sub:usage_sync", Contract: "envelope.v1", OrderingKey: subscription,
		Priority: "low", Pool: "bulk", MaxAttempts: 5, Backoff: billing, Concurrency: 20, MaxInstances: 10, DeadLetter: keptAbove(5, "q:sub:usage_sync:failed"),
		Handlers: types("usage_sync"),
	}, {
		ID: "pay-subscription-update", Alias: "q:pay:subscription_update", Contract: "envelope.v1", OrderingKey: subscription,
		Priority: "high", Pool: "payments", MaxAttempts: 5, Backoff: billing, Concurrency: 10, MaxInstances: 10, DeadLetter: keptAbove(0, "q:pay:subscription_update:failed"),
		Handlers: types("initial", "renewal", "upgrade", "downgrade", "payment_declined", "cancellation", "trial", "trial_completed", "trial_canceled"),
	}, {
		ID: "pay-refund-initiation", Alias: "q:pay:refund_initiation", Contract: "envelope.v1", OrderingKey: []string{"payment_id"},
		Priority: "high", Pool: "payments", MaxAttempts: 5, Backoff: billing, Concurrency: 5, MaxInstances: 10, DeadLetter: keptAbove(0, "q:pay:refund_initiation:failed"),
		Handlers: types("refund"),
	}, {
		ID: "events-high", Alias: "event_queue:high", Contract: "message.v1", OrderingKey: []string{"subject"},
		Priority: "high", Pool: "events-high", MaxAttempts: 5, Backoff: growing(time.Second, 600*time.Second, 0),
		Concurrency: 10, MaxInstances: 10, DeadLetter: keptAbove(0),
		Handlers: map[string]catalog.Handler{
			"usage_tracking":       perType(5, 2*time.Second),
			"subscription_created": perType(3, 3*time.Second),
			"payment_processing":   perType(5, 5*time.Second),
			"api_sync":             perType(5, 3*time.Second),
		},
	}, {
		ID: "events-normal", Alias: "event_queue:normal", Contract: "message.v1", OrderingKey: []string{"subject"},
		Priority: "normal", Pool: "events-normal", MaxAttempts: 5, Backoff: growing(time.Second, 600*time.Second, 0),
		Concurrency: 10, MaxInstances: 10, DeadLetter: keptAbove(0),
		Handlers: map[string]catalog.Handler{
			"invoice_generation": perType(3, 2*time.Second),
			"quota_warning":      perType(3, time.Second),
		},
	}, {
		ID: "events-low", Alias: "event_queue:low", Contract: "message.v1", OrderingKey: []string{"subject"},
		Priority: "low", Pool: "events-low", MaxAttempts: 5, Backoff: growing(time.Second, 600*time.Second, 0),
		Concurrency: 10, MaxInstances: 10, DeadLetter: keptAbove(0),
		Handlers: map[string]catalog.Handler{"webhook_delivery": perType(5, 5*time.Second)},
	}, {
		ID: "orders-process", Alias: "orders.process", Contract: "message.v1", OrderingKey: []string{"order_id"},
		Priority: "high", Pool: "orders", MaxAttempts: 5,
		Backoff:     schedule(0, 5*time.Second, 30*time.Second, 2*time.Minute, 10*time.Minute),
		SharedTopic: "orders", Bindings: []routing.Pattern{"order.created", "order.payment_confirmed", "order.shipped"},
		Concurrency: 1, MinInstances: 3, MaxInstances: 10, BacklogAlertAbove: 1_000, OldestAlert: 15 * time.Minute, DeadLetter: keptAbove(5, "orders.process.dlq"),
		Handlers: types("order.created", "order.payment_confirmed", "order.shipped"),
	}, {
		ID: "notifications-fanout", Contract: "message.v1",
		Priority: "normal", Pool: "notifications", MaxAttempts: 3, Backoff: schedule(0, 5*time.Second, 30*time.Second), MessageTTL: 24 * time.Hour,
		SharedTopic: "notifications", Bindings: []routing.Pattern{"order.confirmed", "order.shipped", "payment.failed", "seller.order_created", "review.received", "flash_sale.starting"},
		Concurrency: 10, MinInstances: 2, MaxInstances: 5, BacklogAlertAbove: 5_000, DeadLetter: keptAbove(50),
		Handlers: types("order.confirmed", "order.shipped", "payment.failed", "seller.order_created", "review.received", "flash_sale.starting"),
	}, {
		ID: "notifications-send", Alias: "notifications.send", Contract: "message.v1",
		Priority: "normal", Pool: "notifications", MaxAttempts: 3, Backoff: schedule(0, 5*time.Second, 30*time.Second), MessageTTL: 24 * time.Hour,
		SharedTopic: "notifications", Bindings: []routing.Pattern{"notification.email.*", "notification.sms.*", "notification.push.*"},
		Concurrency: 10, MinInstances: 2, MaxInstances: 5, BacklogAlertAbove: 5_000, DeadLetter: keptAbove(50, "notifications.send.dlq"),
		Handlers: types("notification.email.*", "notification.sms.*", "notification.push.*"),
	}, {
		ID: "search-index", Alias: "search.index", Contract: "message.v1", OrderingKey: []string{"document_id"},
		SharedTopic: "search", Bindings: []routing.Pattern{"product.#"}, Priority: "low", Pool: "search", MaxAttempts: 3, Backoff: schedule(0, 5*time.Second, 30*time.Second), MessageTTL: time.Hour,
		Concurrency: 50, MinInstances: 1, MaxInstances: 3, BacklogAlertAbove: 10_000, DeadLetter: keptAbove(20, "search.index.dlq"),
		Handlers: types("product.#"),
	}, {
		ID: "analytics-track", Alias: "analytics.track", Contract: "message.v1",
		SharedTopic: "analytics", Bindings: []routing.Pattern{"#"}, Priority: "low", Pool: "analytics", MaxAttempts: 1, Backoff: growing(10*time.Second, 600*time.Second, 0), MessageTTL: 6 * time.Hour,
		Concurrency: 100, MinInstances: 1, MaxInstances: 2, BacklogAlertAbove: 50_000, DeadLetter: catalog.DeadLetter{Drop: true},
		Handlers: types("#"),
	}, {
		ID: "fis-ingestion", Alias: "fis.ingestion.queue", Contract: "message.v1", OrderingKey: []string{"invoice_id", "order_id", "payment_run_id", "reverts"},
		SharedTopic: "fis-events", Bindings: []routing.Pattern{"*.*.*"},
		Priority: "high", Pool: "ledger", MaxAttempts: 3, Backoff: growing(time.Second, 600*time.Second, 0),
		Concurrency: 250, MinInstances: 1, MaxInstances: 10, BacklogAlertAbove: 10_000, DeadLetter: keptAbove(0, "fis.dlx.exchange", "fis.ingestion.dlq", "fis.ingestion.dlq.queue"),
		Handlers: types("billing.invoice.paid", "ecommerce.order.completed", "payroll.salary.disbursed", "*.*.reverted"),
	}}
	for i := range want {
		q := &want[i]
		q.AckDeadline, q.Lease, q.HandlerTimeout = 60*time.Second, 120*time.Second, 30*time.Second
		q.MessageRetention, q.RememberFor = 31*day, 48*day
		if q.DeadLetter.Drop { // losing some is accepted
			q.RememberFor = 0
		}
		q.OnOrphan, q.OnPoison, q.FourEyes = catalog.Republish, catalog.Skip, q.ID == "pay-refund-initiation"
		q.OnCorrected, q.DedupeBy = catalog.Refuse, catalog.ByEventID
		if q.ID == "fis-ingestion" {
			q.OnCorrected = catalog.Accept
		}
		q.OldestAlert = cmp.Or(q.OldestAlert, 25*time.Minute)
		// The depth that alerts is the one that adds workers; the other queues have that of the orders.
		q.BacklogAlertAbove = cmp.Or(q.BacklogAlertAbove, 1_000)
		q.BacklogWarnAbove = q.BacklogAlertAbove / 2
		q.MaxBacklog = map[string]catalog.MaxBacklog{
			"orders-process": {Messages: 100_000, OnFull: catalog.RefuseMore}, "notifications-send": {Messages: 100_000, OnFull: catalog.AlertAlone},
			"search-index": {Messages: 100_000, OnFull: catalog.AlertAlone}, "analytics-track": {Messages: 100_000, OnFull: catalog.AlertAlone},
		}[q.ID]
		if q.ID == "orders-process" {
			q.Rate = catalog.Rate{PerSecond: 500, PerUser: 5, User: []string{"user_id"}}
		}
		// Normal is below 10, and below 5.
		q.DeadLetter.WarnAbove = map[string]int{"notifications-send": 9, "search-index": 4}[q.ID]
		q.SlotWait, q.NackBudget = 2*time.Second, 10*time.Second
		q.Batch = map[string]catalog.Batch{
			"search-index": {Size: 50, Wait: 20 * time.Millisecond}, "analytics-track": {Size: 100, Wait: 50 * time.Millisecond},
		}[q.ID]
		if q.OnTerminal == "" {
			q.OnTerminal = catalog.Ack
		}
		if !q.DeadLetter.Drop {
			q.DeadLetter.Topic = q.ID + "-dlq"
		}
		for eventType, h := range q.Handlers {
			if h.MaxAttempts == 0 {
				h.MaxAttempts, h.Backoff, h.Timeout = q.MaxAttempts, q.Backoff, q.HandlerTimeout
			}
			q.Handlers[eventType] = h
		}
	}
	require.Len(t, c.Queues, len(want))
	for i, got := range c.Queues {
		require.NotEmpty(t, got.Description)
		got.Description = ""
		// What runs, and what it does, is no number.
		got.Enabled = false
		for eventType, h := range got.Handlers {
			h.Name, h.Post, h.Emits, h.Calls = "", catalog.Post{}, nil, nil
			got.Handlers[eventType] = h
		}
		require.Equal(t, want[i], got)
	}
	names := map[string]string{}
	for _, topic := range c.Topics {
		require.NotEmpty(t, topic.Description)
		names[topic.ID] = topic.Alias
	}
	require.Equal(t, map[string]string{"orders": "", "notifications": "", "search": "", "analytics": "", "fis-events": "fis.events.exchange"}, names)
	require.Equal(t, catalog.Endpoints{
		Timeouts: catalog.Timeouts{Connect: 5 * time.Second, Total: 15 * time.Second}, Concurrency: 2, RatePerSecond: 20, Burst: 40,
		Breaker: catalog.Breaker{Failures: 5, Rest: time.Minute}, Remembered: 1000, DisableAfter: 5 * day, OldSecretFor: day,
	}, c.Endpoints)
	require.Len(t, c.OutboundTopics, 2)
	require.Equal(t, "endpoint-events", c.OutboundTopics[1].ID)
	require.Equal(t, "fis-domain-events", c.OutboundTopics[0].ID)
	require.Equal(t, "fis.domain.exchange", c.OutboundTopics[0].Alias)

	require.Equal(t, map[string]catalog.Product{"411486491630370501": {Points: 1000}, "411486491630370502": {Points: 250}}, c.Products)
	require.Equal(t, map[string]catalog.Source{
		"paynow": {
			Name: "paynow", Scheme: catalog.SchemePayNow, SecretVariable: "WEBHOOK_SECRET_PAYNOW",
			MaxBodyBytes: 1 << 20, RatePerSecond: 500, Burst: 1000, UIDMetadataKey: "checkout.metadata.uid",
			Events: map[string]string{
				"ON_ORDER_COMPLETED": "paynow-events", "ON_REFUND": "paynow-events",
				"ON_CHARGEBACK": "paynow-events", "ON_CHARGEBACK_CLOSED": "paynow-events",
				"ON_SUBSCRIPTION_ACTIVATED": "paynow-events", "ON_SUBSCRIPTION_RENEWED": "paynow-events", "ON_SUBSCRIPTION_CANCELED": "paynow-events",
				"ON_TRIAL_ACTIVATED": "paynow-events", "ON_TRIAL_COMPLETED": "paynow-events", "ON_TRIAL_CANCELED": "paynow-events",
			},
		},
		"generic": {
			Name: "generic", Scheme: catalog.SchemeGeneric, SecretVariable: "WEBHOOK_SIGNING_SECRET",
			MaxBodyBytes: 1 << 20, RatePerSecond: 500, Burst: 1000,
			Events: map[string]string{
				"order.paid": "paynow-events", "order.refunded": "paynow-events",
				"order.chargeback": "paynow-events", "order.chargeback_closed": "paynow-events",
				"subscription.activated": "paynow-events", "subscription.renewed": "paynow-events", "subscription.canceled": "paynow-events",
				"trial.activated": "paynow-events", "trial.completed": "paynow-events", "trial.canceled": "paynow-events",
			},
		},
	}, c.Sources)
}

// A provider may send again within the floor of the requirements. A dead letter may be replayed
// on its last day. Both may then wait on the topic for as long as it keeps messages.
func TestWhatIsRememberedOutlivesEveryWayBack(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
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
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			minimum, maximum := test.queue.BrokerBackoff()
			require.Equal(t, test.minimum, minimum)
			require.Equal(t, catalog.BrokerMaxBackoff, maximum)
			var waited time.Duration
			for wait := minimum; waited < 12*time.Hour; wait = min(2*wait, maximum) {
				waited += wait
				test.queue.MaxAttempts++
			}
			require.Less(t, test.queue.MaxAttempts, catalog.BrokerMaxDeliveryAttempts, "deliveries in an outage of 12 hours")
		})
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
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			q := catalog.Queue{Backoff: test.policies[0], Handlers: map[string]catalog.Handler{}}
			for i, p := range test.policies {
				q.Handlers[string(rune('a'+i))] = catalog.Handler{MaxAttempts: 5, Backoff: p}
			}
			require.Equal(t, test.want, q.BrokerKeepsTime())
		})
	}
}

func TestNamesFollowFromTheID(t *testing.T) {
	t.Parallel()
	q := catalog.Queue{ID: "bookings", OrderingKey: []string{"seat_id"}, DeadLetter: catalog.DeadLetter{Topic: "bookings-dlq"}}
	require.Equal(t, []string{
		"bookings", "bookings-push", "bookings-dlq-hold", "bookings-dlq-push", "/push/bookings", "/push/dead-letters/bookings",
	}, []string{q.Topic(), q.PushSubscription(), q.DeadLetterHold(), q.DeadLetterPush(), q.PushPath(), q.DeadLetterPushPath()})
	require.True(t, q.Ordered())
	require.False(t, catalog.Queue{}.Ordered())
}

// The printed form of the small catalog is compared whole: Terraform and people read it.
func TestThePrintedFormHoldsWhatWasLeftOpenAndWhatFollows(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(filepath.Join("testdata", "small"))
	require.NoError(t, err)
	printed, err := c.JSON()
	require.NoError(t, err)
	want, err := os.ReadFile(filepath.Join("testdata", "small", "expanded.json"))
	require.NoError(t, err)
	require.Equal(t, string(want), string(printed)+"\n")
	for range 20 {
		again, err := catalog.Load(filepath.Join("testdata", "small"))
		require.NoError(t, err)
		reprinted, err := again.JSON()
		require.NoError(t, err)
		require.Equal(t, string(printed), string(reprinted))
	}
	require.True(t, json.Valid(printed))
}
