package catalog_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract/routing"
)

func TestOldNamesLeadToWhatTheyNamed(t *testing.T) {
	t.Parallel()
	c := from(t, "")
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
	c := from(t, crooked)
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
