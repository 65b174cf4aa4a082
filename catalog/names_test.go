package catalog_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
)

func TestTheHandlerOfATypeIsItsOwnElseThatOfTheNarrowestPattern(t *testing.T) {
	t.Parallel()
	q := catalog.Queue{Handlers: map[string]catalog.Handler{}}
	for _, name := range []string{"mail.sent", "mail.*", "mail.#", "*.sent", "*.*.*"} {
		q.Handlers[name] = catalog.Handler{Name: name}
	}
	for eventType, want := range map[string]string{
		"mail.sent": "mail.sent", "mail.read": "mail.*", "mail": "mail.#", "mail.a.b": "mail.#", "sms.sent": "*.sent", "a.b.c": "*.*.*", "sms.read": "", "": "",
	} {
		for range 20 { // maps are read in any order
			h, ok := q.Handler(eventType)
			require.Equal(t, want != "", ok, eventType)
			require.Equal(t, want, h.Name, eventType)
		}
	}
}

func TestTheHandlerOfATypeCostsNoMemory(t *testing.T) { //nolint:paralleltest // it counts allocations
	q := catalog.Queue{Handlers: map[string]catalog.Handler{"mail.*": {Name: "mail"}, "*.*.*": {Name: "all"}}}
	require.Zero(t, testing.AllocsPerRun(100, func() { q.Handler("mail.sent") }))
}

func TestOldNamesLeadToWhatTheyNamed(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load("")
	require.NoError(t, err)
	for name, want := range map[string]string{
		"orders.process": "orders-process", "orders-process": "orders-process", "orders.process.dlq": "orders-process", "orders-process-dlq": "orders-process",
		"fis.dlx.exchange": "fis-ingestion", "fis.ingestion.dlq": "fis-ingestion", "fis.ingestion.dlq.queue": "fis-ingestion",
		"q:sub:usage_sync:failed": "sub-usage-sync", "analytics.track": "analytics-track", "analytics-track-dlq": "", "fis.events.exchange": "", "": "",
	} {
		q, ok := c.DeadLetters(name)
		require.Equal(t, want != "", ok, name)
		require.Equal(t, want, q.ID, name)
	}
	// A message must not be put on a queue by the name of its dead letters.
	_, ok := c.Queue("orders.process.dlq")
	require.False(t, ok)
	for name, want := range map[string]string{
		"fis.events.exchange": "fis-events", "fis-events": "fis-events", "orders": "orders", "fis.domain.exchange": "fis-domain-events", "orders-process": "", "": "",
	} {
		topic, ok := c.Topic(name)
		require.Equal(t, want != "", ok, name)
		require.Equal(t, want, topic.ID, name)
	}
}

func TestASharedTopicExistsWhereOneOfItsQueuesIsEnabled(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(filepath.Join("testdata", "crooked"))
	require.NoError(t, err)
	require.Equal(t, []string{"seat-news", "unheard", "halls"}, c.OtherTopics())
	shared, _ := c.Queue("ordered")
	require.Equal(t, "halls", shared.Topic())
	own, _ := c.Queue("by-key")
	require.Equal(t, "by-key", own.Topic())
}

func TestAMessageForOneQueueOfATopicNamesIt(t *testing.T) {
	t.Parallel()
	bound := catalog.Queue{ID: "q", SharedTopic: "t", Bindings: []routing.Pattern{"a"}}
	given := map[string]string{"event_id": "e1"}
	require.Equal(t, map[string]string{"event_id": "e1", "queue": "q"}, bound.Addressed(given))
	require.Equal(t, map[string]string{"event_id": "e1"}, given, "what was given stays")
	require.Equal(t, map[string]string{"queue": "q"}, bound.Addressed(nil))
	require.Equal(t, given, catalog.Queue{ID: "q"}.Addressed(given), "on a topic of its own all is the queue's")
	require.True(t, bound.Takes(bound.Addressed(nil)))
	require.True(t, bound.Filter().Match(bound.Addressed(nil)))
}

func TestAQueuesScheduleLeavesThatOfTheDefaults(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(filepath.Join("testdata", "crooked"))
	require.NoError(t, err)
	own, _ := c.Queue("single")
	require.Equal(t, []time.Duration{3 * time.Second}, own.Backoff.Schedule)
	after, _ := c.Queue("by-key")
	require.Equal(t, []time.Duration{500 * time.Millisecond, 1250 * time.Millisecond, 700 * time.Second}, after.Backoff.Schedule)
}

// A handler that is a post has what a handler of its own would have.
func TestAPostStandsInThePlaceOfAHandlersName(t *testing.T) {
	t.Parallel()
	c, err := catalog.Load(filepath.Join("testdata", "crooked"))
	require.NoError(t, err)
	q, _ := c.Queue("reminders")
	h, ok := q.Handler("reminder.late")
	require.True(t, ok)
	require.Equal(t, catalog.Post{Target: "post-office", Path: "/letters", Reconcile: "/letters/{id}"}, h.Post)
	require.Equal(t, []any{"post:post-office/letters", 1, q.Backoff, q.HandlerTimeout}, []any{h.Name, h.MaxAttempts, h.Backoff, h.Timeout})
}
