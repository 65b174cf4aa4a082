package standin_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/boltstore"
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

func verifying(t *testing.T, now func() time.Time) (*standin.Issuer, *auth.Verifier) {
	t.Helper()
	issuer := filetest.Must(standin.NewIssuer(now))(t)
	keys := httptest.NewServer(issuer)
	t.Cleanup(keys.Close)
	verifier := filetest.Must(auth.New(auth.Config{
		Mode: auth.ModeOIDC, Audience: audience, ServiceAccount: account, KeysURL: keys.URL,
		Client: keys.Client(), Now: now,
	}))(t)
	return issuer, verifier
}

// Google's client publishes over gRPC, and the simulator pushes over HTTP, once it knows where.
func TestAMessageOfGooglesClientArrivesWithAGenuineToken(t *testing.T) {
	t.Parallel()
	issuer, verifier := verifying(t, time.Now)
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

	broker := filetest.Must(standin.NewBroker(standin.SimulatorConfig{
		ProjectID: "demo-project", Subscriptions: standin.Topology(queues()), Topics: []string{"outbound"},
		Token: func() (string, error) { return issuer.Token(audience, account) },
	}))(t)
	t.Cleanup(func() { require.NoError(t, broker.Close()) })
	require.NoError(t, filetest.ErrorOf(broker.Publish(t.Context(), "views",
		contract.Message{Data: []byte("x"), Attributes: map[string]string{"tenant": "t-1"}})))
	require.NoError(t, broker.Settled(t.Context()))
	require.Equal(t, standin.Stats{Backlog: 1, Window: 5}, broker.Stats("views-push"), "nothing is pushed")
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	broker.PushTo(closed.URL)
	require.NoError(t, broker.Settled(t.Context()))
	require.NotZero(t, broker.Stats("views-push").PushBackoff)
	broker.PushTo(endpoint.URL)
	client := filetest.Must(pubsub.NewClient(t.Context(), "demo-project",
		gcp.EmulatorOptions(broker.Addr())...))(t)
	t.Cleanup(func() { require.NoError(t, client.Close()) })

	publisher := client.Publisher("invoices")
	publisher.EnableMessageOrdering = true
	publisher.PublishSettings.CountThreshold = 1
	t.Cleanup(publisher.Stop)
	ids := map[string]bool{}
	var results []*pubsub.PublishResult
	for i := range 200 {
		results = append(results, publisher.Publish(t.Context(), &pubsub.Message{
			Data: fmt.Append(nil, i), OrderingKey: fmt.Sprint("c-", i%7),
			Attributes: map[string]string{"event_id": fmt.Sprint(i)},
		}))
	}
	for _, result := range results {
		id := filetest.Must(result.Get(t.Context()))(t)
		require.Regexp(t, `^\d+$`, id)
		ids[id] = true
	}
	require.Len(t, ids, 200, "no id twice")
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
		topics + "none": {1, codes.NotFound}, "projects/other/topics/invoices": {1, codes.NotFound},
		topics + "invoices": {1025, codes.InvalidArgument},
	} {
		_, err := client.TopicAdminClient.Publish(t.Context(), &pubsubpb.PublishRequest{
			Topic: topic, Messages: []*pubsubpb.PubsubMessage{
				{Data: []byte("x"), Attributes: map[string]string{"k": strings.Repeat("v", test.attribute)}},
			},
		})
		require.Equal(t, test.want, status.Code(err), topic)
	}
}

func TestATokenIsUsedAgainAndRenewedInTime(t *testing.T) {
	t.Parallel()
	now := start
	issuer, verifier := verifying(t, func() time.Time { return now })
	first := filetest.Must(issuer.Token(audience, account))(t)
	require.Equal(t, first, filetest.Must(issuer.Token(audience, account))(t))
	require.NoError(t, verifier.Verify(t.Context(), "Bearer "+first))

	now = now.Add(31 * time.Minute)
	renewed := filetest.Must(issuer.Token(audience, account))(t)
	require.NotEqual(t, first, renewed)
	require.NoError(t, verifier.Verify(t.Context(), "Bearer "+renewed))
	keys := httptest.NewRecorder()
	issuer.ServeHTTP(keys, nil)
	require.NotContains(t, keys.Body.String(), `"d"`, "the private key is not published")
}

// A queue's subscription is <id>-push.
var (
	paused  = catalog.Queue{ID: "paused"}
	missing = catalog.Queue{ID: "missing"}
)

func waiting() standin.SimulatorConfig {
	sub := func(topic string) standin.Subscription {
		return standin.Subscription{
			ID: topic + "-push", Topic: topic, Path: "/push", Ordered: true, AckDeadline: time.Minute,
			MinimumBackoff: time.Second, MaximumBackoff: time.Minute, DeadLetterTopic: "dead", MaxDeliveryAttempts: 20,
		}
	}
	return standin.SimulatorConfig{
		Subscriptions: []standin.Subscription{
			sub("orders"), sub("loose"), sub("paused"), {ID: "hold", Topic: "dead"},
		},
	}
}

func TestWaitingMessagesSurviveAnEndOrAKill(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "broker.json")
		// process runs a simulator on the file; the clock of each begins at the same time.
		process := func(want standin.Loaded, status int, acked string, does func(t *testing.T, s *bench)) {
			var left string // by a kill, which cuts a line off
			filetest.Bubble(t, func(t *testing.T) {
				s := newBench(t, func(r received) int {
					if r.text() == acked {
						return http.StatusNoContent
					}
					return status
				}, waiting())
				require.Equal(t, want, filetest.Must(s.Load(path))(t))
				does(t, s)
				left = filetest.Read(t, path) + `{"subscription":"orders-push","got":{"ID":"9`
			})
			require.Equal(t, os.FileMode(0o600), filetest.Must(os.Stat(path))(t).Mode().Perm())
			if killed {
				require.NoError(t, os.WriteFile(path, []byte(left), 0o600))
			}
		}
		attempts, kept := map[string]int{}, []standin.Message(nil)
		process(standin.Loaded{}, http.StatusInternalServerError, "t01", func(t *testing.T, s *bench) {
			require.NoError(t, s.Pause(t.Context(), paused, time.Time{}))
			for i := range 12 {
				s.publish(fmt.Sprint("k", i%2), fmt.Sprintf("t%02d", i))
			}
			for topic, text := range map[string]string{"loose": "loose", "dead": "held", "paused": "kept"} {
				s.publishTo(topic, "", text)
			}
			s.advance(10 * time.Second)
			for _, push := range s.worker.pushes() {
				attempts[push.text()]++
			}
			kept = s.Held("hold")
		})
		// What was acknowledged is not delivered again.
		process(standin.Loaded{Waiting: 13}, http.StatusNoContent, "", func(t *testing.T, s *bench) {
			s.publish("k0", "t99")
			s.advance(time.Hour)
			require.Equal(t, kept, s.Held("hold"))
			got, ids := map[string][]string{}, map[string]bool{kept[0].ID: true}
			for _, push := range s.worker.pushes() {
				got[push.Message.OrderingKey] = append(got[push.Message.OrderingKey], push.text())
				require.False(t, ids[push.Message.MessageID], "each message has an id of its own")
				ids[push.Message.MessageID] = true
				if !killed {
					require.Equal(t, attempts[push.text()]+1, push.DeliveryAttempt, "attempts of earlier processes count")
				}
			}
			require.Equal(t, map[string][]string{
				"k0": {"t00", "t02", "t04", "t06", "t08", "t10", "t99"}, "k1": {"t03", "t05", "t07", "t09", "t11"},
				"": {"loose"},
			}, got, "each once, in order per key, new ones last, and none of the paused queue")
			require.NoError(t, s.Resume(t.Context(), paused))
			synctest.Wait()
			require.Equal(t, "kept", s.worker.texts()[13])
		})
		process(standin.Loaded{}, http.StatusNoContent, "", func(t *testing.T, s *bench) {
			require.Equal(t, pause.Pushing, filetest.Must(s.Standing(t.Context(), paused))(t))
		})
	}
}

func TestAKillWhileADeadLetterIsForwardedLosesNothing(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "broker.json")
		config := plain(deadLetterAfter(1))
		s := newBench(t, always(http.StatusInternalServerError), config)
		require.NoError(t, filetest.ErrorOf(s.Load(path)))
		s.publish("", "bad")
		s.advance(time.Second)
		require.Len(t, s.Held("orders-dlq-hold"), 1)
		lines := strings.SplitAfter(strings.TrimSpace(filetest.Read(t, path)), "\n")
		for n := 1; n < len(lines); n++ {
			require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines[:n], "")), 0o600))
			next := newBench(t, always(http.StatusNoContent), config)
			loaded := filetest.Must(next.Load(path))(t)
			require.Positive(t, loaded.Waiting+len(next.Held("orders-dlq-hold")), "killed after %s", lines[n-1])
		}
	})
}

func TestAnUnreadableFileIsAnErrorAndMessagesOfRemovedSubscriptionsAreCounted(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "broker.json")
		s := newBench(t, always(http.StatusNoContent), plain())
		require.NoError(t, os.WriteFile(path, []byte(`{"subscription":"hold","got":{"ID":"1"}}`+"\n"), 0o600))
		loaded := filetest.Must(s.Load(path))(t)
		require.Equal(t, standin.Loaded{Gone: 1}, loaded, "the message of a removed subscription")
		require.NoError(t, os.WriteFile(path, []byte("{\n"), 0o600))
		_, err := s.Load(path)
		require.ErrorIs(t, err, boltstore.ErrDamaged)
		require.ErrorContains(t, err, path)
	})
}

// A push in flight when its queue is paused ends as usual: refused, its message waits with the others.
func TestAPausedQueueIsNotPushedAndResumesInOrder(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		var s *bench
		pausing, began := true, time.Now().UTC()
		s = newBench(t, func(received) int {
			if !pausing {
				return http.StatusNoContent
			}
			if err := s.Pause(t.Context(), paused, time.Time{}); err != nil {
				t.Error(err)
			}
			return http.StatusInternalServerError
		}, waiting())
		holds := func() backlog.Held {
			all, at := filetest.Both(s.Backlogs(t.Context()))(t)
			require.Equal(t, time.Now(), at)
			require.Contains(t, all, "hold", "an empty subscription has a count of 0")
			return all[paused.PushSubscription()]
		}
		stands := func(q catalog.Queue) pause.Standing {
			return filetest.Must(s.Standing(t.Context(), q))(t)
		}
		require.Equal(t, pause.Pushing, stands(paused))
		s.publishTo("paused", "k", "a")
		s.publishTo("paused", "k", "b")
		s.advance(100 * time.Minute)
		s.publishTo("paused", "k", "c")
		require.Equal(t, pause.Paused, stands(paused))
		require.Equal(t, []string{"a"}, s.worker.texts())
		require.Equal(t, backlog.Held{Messages: 3, Oldest: began}, holds())
		pausing = false
		require.NoError(t, s.Resume(t.Context(), paused))
		require.NoError(t, s.Idle(t.Context()))
		require.Equal(t, []string{"a", "a", "b", "c"}, s.worker.texts())
		require.Equal(t, backlog.Held{}, holds())

		require.Error(t, s.Pause(t.Context(), missing, time.Time{}))
		require.Error(t, s.Resume(t.Context(), missing))
		require.Equal(t, pause.Missing, stands(missing))
	})
}
