package pubsub_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/api/option"

	"billhook/internal/contract"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/gcp/pubsub"
)

func TestANameThatCannotStandBeforeAnIDIsRefused(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "", "shop": "", "shop-2": "", "abcdefghijkl": "",
		"ab": "3 to 12", "abcdefghijklm": "3 to 12", "2shop": "begin with a letter", "Shop": "a-z", "shop-": "not end with -", "sh op": "a-z", "sh/p": "a-z",
		"googleshop": "must not begin with goog",
	} {
		err := pubsub.Names{ProjectID: "p", Installation: name}.Check()
		if want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, "INSTALLATION: ", name)
		require.ErrorContains(t, err, want, name)
		_, err = pubsub.Provision(t.Context(), ordersCatalog(), pubsub.Target{ProjectID: "p", Installation: name, PushBaseURL: "http://127.0.0.1:1"})
		require.ErrorContains(t, err, want, name)
	}
}

// Two installations of one catalog, and one without a name, are made side by side: none finds the
// other's queues, and a finding names what stands at Pub/Sub.
func TestInstallationsOfOneProjectHaveTopicsAndSubscriptionsOfTheirOwn(t *testing.T) {
	t.Parallel()
	have, target, options := applied(t)
	unnamed := len(have.subscriptions)
	of := map[string]pubsub.Target{"": target}
	for name, worker := range map[string]string{"shop": "https://one.example", "store": "https://two.example"} {
		target.Installation, target.PushBaseURL, target.Pools = name, worker, nil
		of[name] = target
		have.policies["projects/p/topics/"+name+"-orders-test-dlq"] = granting("roles/pubsub.publisher", pubsubAgent)
		have.policies["projects/p/subscriptions/"+name+"-orders-test-push"] = granting("roles/pubsub.subscriber", pubsubAgent)
		changes, err := pubsub.Provision(t.Context(), ordersCatalog(), target, options...)
		require.NoError(t, err)
		require.NotEmpty(t, changes)
		for _, change := range changes {
			require.Equal(t, pubsub.Created, change.Action, change)
			require.True(t, strings.HasPrefix(change.ID, name+"-"), change)
		}
	}
	require.Len(t, have.subscriptions, 3*unnamed)
	for name, s := range have.subscriptions {
		_, id, _ := strings.Cut(name, "/subscriptions/")
		_, topic, _ := strings.Cut(s.Topic, "/topics/")
		_, letters, _ := strings.Cut(s.GetDeadLetterPolicy().GetDeadLetterTopic(), "/topics/")
		for _, prefix := range []string{"shop-", "store-"} {
			require.Equal(t, strings.HasPrefix(id, prefix), strings.HasPrefix(topic, prefix), "%s reads %s", id, topic)
			require.True(t, letters == "" || strings.HasPrefix(id, prefix) == strings.HasPrefix(letters, prefix), "%s gives up to %s", id, letters)
		}
		require.NotContains(t, s.GetPushConfig().GetPushEndpoint(), "shop", "the worker knows the catalog's ids alone")
	}

	delete(have.subscriptions, "projects/p/subscriptions/shop-orders-test-push")
	delete(have.topics, "projects/p/topics/shop-orders-test")
	for name, want := range map[string][]string{"": {}, "store": {}, "shop": {"topic shop-orders-test topic_missing", "subscription shop-orders-test-push subscription_missing"}} {
		examined, err := pubsub.Examine(t.Context(), ordersCatalog(), of[name], pubsub.Look{}, options...)
		require.NoError(t, err)
		found := []string{}
		for _, f := range examined.Findings {
			found = append(found, f.Kind+" "+f.ID+" "+f.Code.String())
		}
		slices.Sort(found)
		slices.Sort(want)
		require.Equal(t, want, found, "of installation %q", name)
	}
}

func TestAPublisherPublishesToItsInstallation(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	publisher, err := pubsub.NewPublisher(t.Context(), pubsub.Names{ProjectID: "p", Installation: "shop"}, options...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	_, err = publisher.Publish(t.Context(), "orders", contract.Message{Data: []byte("{}")})
	require.ErrorIs(t, err, contract.ErrTopicMissing)
	require.ErrorContains(t, err, "publish to shop-orders: ", "who looks for the topic looks for this name")
}

func TestBacklogsAreThoseOfTheInstallation(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Query().Get("filter"), ` AND resource.labels.subscription_id = starts_with("shop-")`) {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"timeSeries":[
			{"resource":{"labels":{"subscription_id":"orders-push"}},"points":[{"interval":{"endTime":"2026-11-22T12:03:00Z"},"value":{"int64Value":"180"}}]},
			{"resource":{"labels":{"subscription_id":"shop-orders-push"}},"points":[{"interval":{"endTime":"2026-11-22T12:04:00Z"},"value":{"int64Value":"0"}}]}]}`)
	}))
	t.Cleanup(server.Close)
	now := time.Date(2026, 11, 22, 12, 4, 0, 0, time.UTC)
	b, err := pubsub.NewBacklogs(t.Context(), pubsub.Names{ProjectID: "p", Installation: "shop"}, func() time.Time { return now }, option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
	require.NoError(t, err)
	held, at, err := b.Backlogs(t.Context())
	require.NoError(t, err)
	require.Equal(t, map[string]backlog.Held{"orders-push": {}}, held, "by the catalog's ids, without another installation's numbers")
	require.Equal(t, now, at)
}
