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
	for of, names := range yamlOf[map[string]map[string]string](t, "names.yaml") {
		for name, want := range names {
			q, ok := c.Queue(name)
			got := q.ID
			switch of {
			case "dead_letters":
				q, ok = c.DeadLetters(name)
				got = q.ID
			case "topics":
				var topic catalog.Topic
				topic, ok = c.Topic(name)
				got = topic.ID
			}
			require.Equal(t, []any{want, want != ""}, []any{got, ok}, "%s: %s", of, name)
		}
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
