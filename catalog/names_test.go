package catalog_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
)

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
	for name, want := range map[string]string{ // a message must not be put on a queue by the name of its dead letters
		"orders-process": "orders-process", "orders.process": "orders-process", "orders.process.dlq": "", "orders-process-dlq": "", "fis-events": "", "": "",
	} {
		q, ok := c.Queue(name)
		require.Equal(t, want != "", ok, name)
		require.Equal(t, want, q.ID, name)
	}
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
