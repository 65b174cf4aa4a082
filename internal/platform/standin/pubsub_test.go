package standin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/platform/gcp/auth"
	gcp "billhook/internal/platform/gcp/pubsub"
	"billhook/internal/platform/standin"
	"billhook/internal/retry"
)

const (
	audience = "https://worker.example.test"
	account  = "push@demo-project.iam.gserviceaccount.test"
)

func queues() []catalog.Queue {
	return []catalog.Queue{{
		ID: "invoices", OrderingKey: []string{"uid"}, MaxAttempts: 5,
		Backoff:     retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: 600 * time.Second},
		AckDeadline: 30 * time.Second, MessageRetention: 7 * 24 * time.Hour,
		DeadLetter: catalog.DeadLetter{Topic: "invoices-dlq", Retention: 14 * 24 * time.Hour},
	}, {
		ID: "views", MaxAttempts: 1, AckDeadline: 10 * time.Second, MessageRetention: time.Hour,
		Bindings: []routing.Pattern{"view.*"}, DeadLetter: catalog.DeadLetter{Drop: true},
	}}
}

// verifying returns what checks an issuer's tokens as the worker does.
func verifying(t *testing.T, now func() time.Time) (*standin.Issuer, *auth.Verifier) {
	t.Helper()
	issuer, err := standin.NewIssuer(now)
	require.NoError(t, err)
	keys := httptest.NewServer(issuer)
	t.Cleanup(keys.Close)
	verifier, err := auth.New(auth.Config{
		Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account, KeysURL: keys.URL, Client: keys.Client(), Now: now,
	})
	require.NoError(t, err)
	return issuer, verifier
}

// The whole way on the wire: Google's client publishes over gRPC, the simulator pushes over
// HTTP, and the worker's verification checks the token.
func TestARealClientsMessageArrivesWithAGenuineToken(t *testing.T) {
	t.Parallel()
	issuer, verifier := verifying(t, nil)
	var mu sync.Mutex
	var refused []error
	paths := map[string]int{}
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := verifier.Verify(r.Context(), r.Header.Get("Authorization"))
		mu.Lock()
		defer mu.Unlock()
		paths[r.Method+" "+r.URL.Path]++
		if err != nil {
			refused = append(refused, err)
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(endpoint.Close)

	broker, err := standin.NewBroker(standin.SimulatorConfig{
		ProjectID: "demo-project", Subscriptions: standin.Topology(queues()), Topics: []string{"outbound"}, PushBaseURL: endpoint.URL,
		Token: func() (string, error) { return issuer.Token(audience, account) },
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	client, err := pubsub.NewClient(t.Context(), "demo-project", gcp.EmulatorOptions(broker.Addr())...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })

	publisher := client.Publisher("invoices")
	publisher.EnableMessageOrdering = true
	publisher.PublishSettings.CountThreshold = 1
	t.Cleanup(publisher.Stop)
	ids := map[string]bool{}
	var results []*pubsub.PublishResult
	for i := range 200 {
		results = append(results, publisher.Publish(t.Context(), &pubsub.Message{
			Data: fmt.Append(nil, i), OrderingKey: fmt.Sprint("c-", i%7), Attributes: map[string]string{"event_id": fmt.Sprint(i)},
		}))
	}
	for _, result := range results {
		id, err := result.Get(t.Context())
		require.NoError(t, err)
		require.Regexp(t, `^\d+$`, id)
		ids[id] = true
	}
	require.Len(t, ids, 200, "no id twice")
	_, err = broker.Publish(t.Context(), "views", contract.Message{Data: []byte("x"), Attributes: map[string]string{"tenant": "t-1"}})
	require.NoError(t, err)

	require.NoError(t, broker.Idle(t.Context()))
	mu.Lock()
	defer mu.Unlock()
	require.Empty(t, refused)
	require.Equal(t, map[string]int{"POST /push/invoices": 200, "POST /push/views": 1}, paths)

	const topics = "projects/demo-project/topics/"
	for _, topic := range []string{"invoices", "invoices-dlq", "views", "outbound"} {
		_, err := client.TopicAdminClient.GetTopic(t.Context(), &pubsubpb.GetTopicRequest{Topic: topics + topic})
		require.NoError(t, err)
	}
	for topic, test := range map[string]struct {
		attribute int
		want      codes.Code
	}{
		topics + "none": {1, codes.NotFound}, "projects/other/topics/invoices": {1, codes.NotFound}, topics + "invoices": {1025, codes.InvalidArgument},
	} {
		_, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
			Topic: topic, Messages: []*pubsubpb.PubsubMessage{{Data: []byte("x"), Attributes: map[string]string{"k": strings.Repeat("v", test.attribute)}}},
		})
		require.Equal(t, test.want, status.Code(err), topic)
	}
}

func TestMessagesWaitForTheWorkersURLAndForTheWorker(t *testing.T) {
	t.Parallel()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	broker, err := standin.NewBroker(standin.SimulatorConfig{ProjectID: "demo-project", Subscriptions: standin.Topology([]catalog.Queue{{
		ID: "quick", AckDeadline: time.Minute, DeadLetter: catalog.DeadLetter{Drop: true},
	}})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	_, err = broker.Publish(t.Context(), "quick", contract.Message{Data: []byte("x")})
	require.NoError(t, err)
	require.NoError(t, broker.Settled(t.Context()))
	require.Equal(t, standin.Stats{Backlog: 1, Window: 5}, broker.Stats("quick-push"), "nothing is tried")
	broker.PushTo(gone.URL)
	require.NoError(t, broker.Settled(t.Context()))
	require.NotZero(t, broker.Stats("quick-push").PushBackoff)

	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(endpoint.Close)
	broker.PushTo(endpoint.URL)
	require.NoError(t, broker.Idle(t.Context()))
}

func TestATokenIsUsedAgainAndRenewedInTime(t *testing.T) {
	t.Parallel()
	now := start
	issuer, verifier := verifying(t, func() time.Time { return now })
	first, err := issuer.Token(audience, account)
	require.NoError(t, err)
	again, err := issuer.Token(audience, account)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.NoError(t, verifier.Verify(t.Context(), "Bearer "+first))

	now = now.Add(31 * time.Minute)
	renewed, err := issuer.Token(audience, account)
	require.NoError(t, err)
	require.NotEqual(t, first, renewed)
	require.NoError(t, verifier.Verify(t.Context(), "Bearer "+renewed))
	require.NotContains(t, string(issuer.Keys()), `"d"`, "the private half stays here")
}
