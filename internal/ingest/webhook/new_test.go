package webhook_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
)

func TestNewNamesEachMistakeOfItsConfiguration(t *testing.T) {
	t.Parallel()
	const paynowType, genericType = "ON_TRIAL_ACTIVATED", "trial.activated"
	const paynowSecrets, genericSecrets = "WEBHOOK_SECRET_PAYNOW", "WEBHOOK_SIGNING_SECRET"
	routed := func(change func(*catalog.Queue)) func(*webhook.Config) {
		return func(c *webhook.Config) {
			source("paynow", func(s *catalog.Source) { s.Events = map[string]string{paynowType: queue} })(c)
			source("generic", func(s *catalog.Source) { s.Events = map[string]string{genericType: queue} })(c)
			queueOf(queue, change)(c)
		}
	}
	secrets := func(paynow, generic []string) func(*webhook.Config) {
		return func(c *webhook.Config) { c.Secrets = map[string][]string{"paynow": paynow, "generic": generic} }
	}
	const short = "too-short-a-secret"
	type row struct {
		change func(*webhook.Config)
		named  []string
		not    string
	}
	each(t, map[string]row{
		"no deadline, and an event that has no mapping": {func(c *webhook.Config) {
			c.PublishTimeout = 0
			source("paynow", func(s *catalog.Source) { s.Events = map[string]string{"ON_NOTHING": queue} })(c)
		}, []string{"no publish timeout", "event type ON_NOTHING has no mapping"}, paynowSecrets},
		"a route to a queue of another format": {routed(func(q *catalog.Queue) { q.Contract = contract.EnvelopeV1 }), []string{paynowType}, genericType},
		"a route to a queue of no format":      {routed(func(q *catalog.Queue) { q.Contract = "message.v2" }), []string{paynowType, genericType}, ""},
		"a route to a queue that is off":       {routed(func(q *catalog.Queue) { q.Enabled = false }), []string{paynowType, genericType}, ""},
		"a route to a queue without a handler": {routed(func(q *catalog.Queue) { q.Handlers = nil }), []string{paynowType, genericType}, ""},
		"a budget below one body":              {func(c *webhook.Config) { c.BodyBudget = 1 << 20 }, []string{"a body budget of 1048576 bytes is too small"}, ""},
		"no secrets":                           {secrets(nil, nil), []string{paynowSecrets, genericSecrets}, ""},
		"empty and short secrets":              {secrets([]string{""}, []string{short}), []string{paynowSecrets, genericSecrets}, ""},
		"a short one beside a good one":        {secrets([]string{paynowSecret, short}, []string{genericSecret}), []string{paynowSecrets}, genericSecrets},
		"an empty one beside a good one":       {secrets([]string{paynowSecret}, []string{genericSecret, ""}), []string{genericSecrets}, paynowSecrets},
		"an account that nobody declared": {func(c *webhook.Config) {
			c.Accounts = webhook.Accounts{Tokens: issued{}, Emails: map[string]string{"nobody": "jobs@shop.example"}}
		}, []string{`the catalog has no account "nobody"`, "accounts without an audience"}, ""},
	}, func(t *testing.T, test row) {
		c, _, _ := config(t)
		test.change(&c)
		service, err := webhook.New(c)
		require.Nil(t, service)
		for _, name := range test.named {
			require.ErrorContains(t, err, name)
		}
		if test.not != "" {
			require.NotContains(t, err.Error(), test.not)
		}
		require.NotContains(t, err.Error(), short)
		require.NotContains(t, err.Error(), paynowSecret)
	})
}

func TestConcurrentWebhooksDoNotShareABuffer(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	const n = 64
	var group sync.WaitGroup
	for i := range n {
		id := strconv.Itoa(800_000 + i)
		r := payNow(t, samples.Read(samples.OrderCompleted, samples.Event{EventID: id, OrderID: "o" + id, UID: "u" + id}))
		group.Go(func() { d.send(r) })
	}
	group.Wait()
	require.Len(t, d.broker.all(), n)
	seen := map[string]bool{}
	for _, got := range d.broker.all() {
		m := paid(t, got.message)
		require.Equal(t, "o"+m.EventID, m.Data.Order.ID)
		require.Equal(t, "u"+m.EventID, got.message.OrderingKey)
		seen[m.EventID] = true
	}
	require.Len(t, seen, n)
}

func TestAServiceThatDrainsIsNotReadyButStillAnswers(t *testing.T) {
	t.Parallel()
	d := open(t, nil)
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		require.Equal(t, want, d.send(httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/health/ready", http.NoBody)).Code)
		d.Drain()
	}
	taken(t, d, payNow(t, samples.Read(samples.OrderCompleted, samples.Event{})))
}
