package pubsub_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"cloud.google.com/go/pubsub/v2/pstest"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/gcp/pubsub"
)

// opened is a publisher to an installation's topic t of an in-memory server, through a hook of its requests.
func opened(t *testing.T, publish func(invoke func() error) error) (*pubsub.Publisher, *pstest.Server) {
	t.Helper()
	server := pstest.NewServer()
	t.Cleanup(func() { _ = server.Close() })
	topic := &pb.Topic{Name: "projects/p/topics/shop-t"}
	require.NoError(t, filetest.ErrorOf(server.GServer.CreateTopic(t.Context(), topic)))
	options := intercepted(pubsub.EmulatorOptions(server.Addr), func(c call) error {
		if _, ok := c.request.(*pb.PublishRequest); ok {
			return publish(c.invoke)
		}
		return c.invoke()
	})
	names := pubsub.Names{ProjectID: "p", Installation: "shop"}
	publisher := filetest.Must(pubsub.NewPublisher(t.Context(), names, options...))(t)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return publisher, server
}

var message = contract.Message{Data: []byte("x"), OrderingKey: "uid-of-somebody"}

func TestOnTheEmulatorConcurrentPublishersKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	p := emulated(t)
	tap := &pb.Subscription{Name: p.subscription("tap"), Topic: p.topic("orders-test")}
	tap.EnableMessageOrdering = true
	_, err := p.admin.SubscriptionAdminClient.CreateSubscription(t.Context(), tap)
	require.NoError(t, err)
	publisher := filetest.Must(pubsub.NewPublisher(t.Context(), p.target.Names, p.options...))(t)
	defer func() { require.NoError(t, publisher.Close()) }()
	const keys, each = 8, 20
	group, ctx := errgroup.WithContext(t.Context())
	for k := range keys {
		group.Go(func() error {
			for i := range each {
				message := contract.Message{
					Data: fmt.Append(nil, i), Attributes: map[string]string{"event_id": fmt.Sprint("e", i)},
					OrderingKey: fmt.Sprint("u", k),
				}
				if _, err := publisher.Publish(ctx, "orders-test", message); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	next := map[string]int{}
	for received := 0; received < keys*each; {
		answer, err := p.admin.SubscriptionAdminClient.Pull(t.Context(),
			&pb.PullRequest{Subscription: tap.Name, MaxMessages: 100})
		require.NoError(t, err)
		acks := &pb.AcknowledgeRequest{Subscription: tap.Name}
		for _, m := range answer.ReceivedMessages {
			key, data := m.Message.OrderingKey, string(m.Message.Data)
			require.Equal(t, fmt.Sprint(next[key]), data, key)
			require.Equal(t, map[string]string{"event_id": "e" + data}, m.Message.Attributes)
			next[key]++
			received, acks.AckIds = received+1, append(acks.AckIds, m.AckId)
		}
		require.NoError(t, p.admin.SubscriptionAdminClient.Acknowledge(t.Context(), acks))
	}
}

// Each cause is repaired by other people. While the broker does not answer, the library repeats the request,
// also beyond the caller's time.
func TestErrorOfPublishNamesItsCauseAndNoID(t *testing.T) {
	t.Parallel()
	large := func(size int) contract.Message {
		return contract.Message{Data: make([]byte, size), OrderingKey: message.OrderingKey}
	}
	attributes := large(contract.MaxMessageBytes)
	attributes.Attributes = map[string]string{"a": "b"}
	denied, limit, missing := contract.ErrPublishDenied, contract.ErrLimit, contract.ErrTopicMissing
	type example struct {
		topic   string
		message contract.Message
		code    codes.Code    // of the broker; OK: the in-memory server answers
		wait    time.Duration // of the caller
		want    error
		cause   string
	}
	const down, soon, late = "broker_unavailable", 200 * time.Millisecond, time.Minute
	filetest.Each(t, map[string]example{
		"the topic is missing":      {"absent", message, codes.OK, late, missing, "topic_missing"},
		"the grant is missing":      {"t", message, codes.PermissionDenied, late, denied, "grant_missing"},
		"the account is unknown":    {"t", message, codes.Unauthenticated, late, denied, "grant_missing"},
		"the library gives up":      {"t", message, codes.Unavailable, late, nil, down},
		"the caller gives up":       {"t", message, codes.Unavailable, soon, context.DeadlineExceeded, down},
		"the caller gave up before": {"t", message, codes.OK, -1, context.DeadlineExceeded, down},
		"another failure":           {"t", message, codes.FailedPrecondition, late, nil, "unknown"},
		"data over the limit":       {"t", large(contract.MaxMessageBytes + 1), codes.OK, late, limit, ""},
		"attributes over the limit": {"t", attributes, codes.OK, late, limit, ""},
		"a request over the limit":  {"t", large(contract.MaxMessageBytes), codes.OK, late, limit, ""},
		"invalid, by the broker":    {"t", message, codes.InvalidArgument, late, limit, ""},
	}, func(t *testing.T, test example) {
		var tried atomic.Bool
		publisher, server := opened(t, func(invoke func() error) error {
			if test.code != codes.OK {
				tried.Store(true)
				return status.Error(test.code, "quotes a value")
			}
			return invoke()
		})
		ctx, giveUp := context.WithTimeout(t.Context(), test.wait)
		defer giveUp()
		_, err := publisher.Publish(ctx, test.topic, test.message)
		require.Error(t, err)
		require.NotContains(t, err.Error(), message.OrderingKey)
		require.Empty(t, server.Messages())
		require.Equal(t, test.code != codes.OK, tried.Load())
		if test.topic == "absent" {
			require.ErrorContains(t, err, "publish to shop-absent: ", "the topic's name at Pub/Sub")
		}
		if test.want != nil {
			require.ErrorIs(t, err, test.want)
		}
		if errors.Is(test.want, contract.ErrLimit) {
			require.NotContains(t, err.Error(), "quotes a value")
			return
		}
		require.NotErrorIs(t, err, contract.ErrLimit, "trying again may help")
		require.Equal(t, test.cause, contract.PublishCause(err))
	})
	closed, _ := opened(t, nil)
	require.NoError(t, closed.Close())
	_, err := closed.Publish(t.Context(), "t", message)
	require.ErrorContains(t, err, "the publisher is closed")
}

func TestConcurrentFailuresOfOneKeyLeaveItUsableAndDoNotNameIt(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	release := make(chan struct{})
	publisher, _ := opened(t, func(invoke func() error) error {
		if mended.Load() {
			return invoke()
		}
		<-release
		return status.Error(codes.PermissionDenied, "no")
	})
	errs, starting := make(chan error, 50), make(chan struct{})
	for range cap(errs) {
		go func() {
			starting <- struct{}{}
			_, err := publisher.Publish(t.Context(), "t", message)
			errs <- err
		}()
	}
	for range cap(errs) {
		<-starting
	}
	close(release) // one is in flight, the others wait behind it
	for range cap(errs) {
		err := <-errs
		require.Error(t, err)
		require.NotErrorIs(t, err, contract.ErrLimit, "trying again may help")
		require.NotContains(t, err.Error(), message.OrderingKey)
	}
	mended.Store(true)
	require.NoError(t, filetest.ErrorOf(publisher.Publish(t.Context(), "t", message)))
}

func TestCloseWaitsForAPublishThatItsCallerGaveUpAndItsKeyStaysUsable(t *testing.T) {
	t.Parallel()
	release, arrived := make(chan struct{}), make(chan context.CancelFunc, 1)
	var calls atomic.Int64
	publisher, server := opened(t, func(invoke func() error) error {
		switch calls.Add(1) {
		case 1:
			(<-arrived)()
			<-release
			return status.Error(codes.PermissionDenied, "no")
		case 2:
			return invoke()
		default:
			(<-arrived)()
			return invoke()
		}
	})
	givingUp := func() error {
		ctx, giveUp := context.WithCancel(t.Context())
		arrived <- giveUp
		_, err := publisher.Publish(ctx, "t", message)
		return err
	}
	require.ErrorIs(t, givingUp(), context.Canceled)
	close(release)
	require.Eventually(t, func() bool {
		_, err := publisher.Publish(t.Context(), "t", message)
		return err == nil
	}, 20*time.Second, 10*time.Millisecond)
	require.ErrorIs(t, givingUp(), context.Canceled)
	require.NoError(t, publisher.Close())
	require.Len(t, server.Messages(), 2, "closing waits for what its caller no longer waits for")
}

func TestPublishToAFullPublisherNamesThatCause(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	publisher, _ := opened(t, func(func() error) error {
		<-release
		return status.Error(codes.PermissionDenied, "no") // which the library does not repeat
	})
	// As much as may wait for the broker, in a few large messages.
	large := contract.Message{Data: make([]byte, 8<<20)}
	ended := make(chan struct{}, 8)
	for range cap(ended) {
		go func() {
			_, _ = publisher.Publish(t.Context(), "t", large) // it may have come too late for the library
			ended <- struct{}{}
		}()
	}
	require.Eventually(t, func() bool {
		ctx, giveUp := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer giveUp()
		_, err := publisher.Publish(ctx, "t", large)
		return contract.PublishCause(err) == "flow_control"
	}, 20*time.Second, time.Millisecond)
	close(release)
	for range cap(ended) {
		<-ended
	}
}

func TestNewestSampleOfEachSubscriptionIsItsBacklog(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	all := filetest.YAML[[]struct {
		What, Installation string
		Answers            []struct {
			Metric, Page string
			Answer       map[string]any
		}
		Held    map[string]backlog.Held
		Counted time.Duration
	}](t, "testdata", "series.yaml")
	for _, test := range all {
		t.Run(test.What, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				start, _ := time.Parse(time.RFC3339, query.Get("interval.startTime"))
				end, _ := time.Parse(time.RFC3339, query.Get("interval.endTime"))
				for _, page := range test.Answers {
					filter := `metric.type = "pubsub.googleapis.com/subscription/` + page.Metric + `"`
					if test.Installation != "" {
						filter += ` AND resource.labels.subscription_id = starts_with("shop-")`
					}
					if query.Get("filter") == filter && query.Get("pageToken") == page.Page &&
						end.Sub(start) == 4*time.Minute && r.URL.Path == "/v3/projects/p/timeSeries" {
						w.Header().Set("Content-Type", "application/json")
						_ = json.NewEncoder(w).Encode(page.Answer)
						return
					}
				}
				w.WriteHeader(http.StatusForbidden)
			}))
			t.Cleanup(server.Close)
			now := func() time.Time { return noon.Add(4 * time.Minute) }
			b, err := pubsub.NewBacklogs(t.Context(), pubsub.Names{ProjectID: "p", Installation: test.Installation},
				now, option.WithEndpoint(server.URL), option.WithHTTPClient(server.Client()))
			require.NoError(t, err)
			held, counted, err := b.Backlogs(t.Context())
			if test.Answers == nil {
				require.ErrorContains(t, err, "pubsub: backlogs: ")
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.Held, held)
			require.Equal(t, noon.Add(test.Counted), counted, "the oldest of them")
		})
	}
}
