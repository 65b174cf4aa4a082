package pubsub_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
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

func opened(
	t *testing.T, options []option.ClientOption, publish func(invoke func() error) error,
) *pubsub.Publisher {
	t.Helper()
	options = intercepted(options, func(c call) error {
		if _, ok := c.request.(*pb.PublishRequest); ok {
			return publish(c.invoke)
		}
		return c.invoke()
	})
	publisher := filetest.Must(pubsub.NewPublisher(t.Context(), pubsub.Names{ProjectID: "p"}, options...))(t)
	t.Cleanup(func() { require.NoError(t, publisher.Close()) })
	return publisher
}

var message = contract.Message{Data: []byte("x"), OrderingKey: "uid-of-somebody"}

func TestOnTheEmulatorConcurrentPublishersKeepTheOrderOfEachKey(t *testing.T) {
	t.Parallel()
	e := provisioned(t)
	_, err := e.SubscriptionAdminClient.CreateSubscription(t.Context(), &pb.Subscription{
		Name: e.subscription("tap"), Topic: e.topic("paynow-events"), EnableMessageOrdering: true,
	})
	require.NoError(t, err)
	names := pubsub.Names{ProjectID: e.project}
	publisher := filetest.Must(pubsub.NewPublisher(t.Context(), names, e.options...))(t)
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
				if _, err := publisher.Publish(ctx, "paynow-events", message); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
	next := map[string]int{}
	for _, m := range e.pull(t, "tap", keys*each) {
		require.Equal(t, fmt.Sprint(next[m.OrderingKey]), string(m.Data), m.OrderingKey)
		require.Equal(t, map[string]string{"event_id": "e" + string(m.Data)}, m.Attributes)
		next[m.OrderingKey]++
	}
}

// Each cause is repaired by other people.
func TestErrorOfPublishNamesItsCauseAndNoID(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	large := func(size int) contract.Message {
		return contract.Message{Data: make([]byte, size), OrderingKey: message.OrderingKey}
	}
	attributes := large(contract.MaxMessageBytes)
	attributes.Attributes = map[string]string{"a": "b"}
	denied, limit := contract.ErrPublishDenied, contract.ErrLimit
	type example struct {
		topic   string
		message contract.Message
		code    codes.Code // of the broker; OK: the in-memory server answers
		want    error
		cause   string
	}
	filetest.Each(t, map[string]example{
		"the topic is missing":         {"absent", message, codes.OK, contract.ErrTopicMissing, "topic_missing"},
		"the grant is missing":         {"t", message, codes.PermissionDenied, denied, "grant_missing"},
		"the account is unknown":       {"t", message, codes.Unauthenticated, denied, "grant_missing"},
		"another failure":              {"t", message, codes.FailedPrecondition, nil, "unknown"},
		"data over the limit":          {"t", large(contract.MaxMessageBytes + 1), codes.OK, limit, ""},
		"attributes over the limit":    {"t", attributes, codes.OK, limit, ""},
		"a request over the limit":     {"t", large(contract.MaxMessageBytes), codes.OK, limit, ""},
		"invalid, by the broker":       {"t", message, codes.InvalidArgument, limit, ""},
		"the end of the caller's time": {"t", message, codes.OK, context.Canceled, ""},
	}, func(t *testing.T, test example) {
		ctx := t.Context()
		if errors.Is(test.want, context.Canceled) {
			ctx = ended
		}
		server, options := inMemory(t)
		publisher := opened(t, options, func(invoke func() error) error {
			if test.code != codes.OK {
				return status.Error(test.code, "quotes a value")
			}
			return invoke()
		})
		_, err := publisher.Publish(ctx, test.topic, test.message)
		require.Error(t, err)
		require.NotContains(t, err.Error(), message.OrderingKey)
		require.Empty(t, server.Messages())
		if test.want != nil {
			require.ErrorIs(t, err, test.want)
		}
		if errors.Is(test.want, contract.ErrLimit) {
			require.NotContains(t, err.Error(), "quotes a value")
			return
		}
		require.NotErrorIs(t, err, contract.ErrLimit, "trying again may help")
		if test.cause != "" {
			require.Equal(t, test.cause, contract.PublishCause(err))
		}
	})
	_, options := inMemory(t)
	names := pubsub.Names{ProjectID: "p", Installation: "shop"}
	publisher := filetest.Must(pubsub.NewPublisher(t.Context(), names, options...))(t)
	_, err := publisher.Publish(t.Context(), "orders", message)
	require.ErrorContains(t, err, "publish to shop-orders: ", "the topic's name at Pub/Sub")
	require.NoError(t, publisher.Close())
	require.NoError(t, publisher.Close(), "a second Close does nothing")
	_, err = publisher.Publish(t.Context(), "orders", message)
	require.ErrorContains(t, err, "the publisher is closed")
}

func TestConcurrentFailuresOfOneKeyLeaveItUsableAndDoNotNameIt(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	var mended atomic.Bool
	release := make(chan struct{})
	publisher := opened(t, options, func(invoke func() error) error {
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
	server, options := inMemory(t)
	release, arrived := make(chan struct{}), make(chan context.CancelFunc, 1)
	var calls atomic.Int64
	publisher := opened(t, options, func(invoke func() error) error {
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

// While the broker does not answer, the library repeats the request beyond the caller's time.
func TestUnavailableBrokerIsTheCauseForEachEndOfTheWait(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	tried := make(chan struct{}, 100)
	publisher := opened(t, options, func(func() error) error {
		tried <- struct{}{}
		return status.Error(codes.Unavailable, "no")
	})
	ctx, giveUp := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer giveUp()
	_, err := publisher.Publish(ctx, "t", contract.Message{Data: []byte("x")})
	require.Equal(t, "broker_unavailable", contract.PublishCause(err))
	require.NotEmpty(t, tried)
	// until the library gives up
	_, err = publisher.Publish(t.Context(), "t", contract.Message{Data: []byte("x")})
	require.Equal(t, "broker_unavailable", contract.PublishCause(err))
}

func TestPublishToAFullPublisherNamesThatCause(t *testing.T) {
	t.Parallel()
	_, options := inMemory(t)
	release := make(chan struct{})
	publisher := opened(t, options, func(func() error) error {
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

// page is a page of Cloud Monitoring's answer, in a row of testdata/series.yaml.
type page struct {
	Next   string
	Series map[string][]string
	Other  []string
}

func (p page) json() string {
	all := p.Other
	for id, points := range p.Series {
		var said []string
		for _, point := range points {
			at, value, _ := strings.Cut(point, " ")
			said = append(said, `{"interval":{"endTime":"2026-11-22T12:`+at+`Z"},"value":{`+value+`}}`)
		}
		all = append(all, `{"resource":{"labels":{"subscription_id":"`+id+`"}},"points":[`+strings.Join(
			said, ",")+`]}`)
	}
	return `{"nextPageToken":"` + p.Next + `","timeSeries":[` + strings.Join(all, ",") + `]}`
}

func TestNewestSampleOfEachSubscriptionIsItsBacklog(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	all := filetest.YAML[[]struct {
		What, Installation string
		Answers            map[string]page // by metric and page; none: it is refused
		Held               map[string]backlog.Held
		Counted            time.Duration
	}](t, "testdata", "series.yaml")
	for _, test := range all {
		t.Run(test.What, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				query := r.URL.Query()
				start, _ := time.Parse(time.RFC3339, query.Get("interval.startTime"))
				end, _ := time.Parse(time.RFC3339, query.Get("interval.endTime"))
				for metric, answer := range test.Answers {
					metric, page := strings.TrimSuffix(metric, "2"), metric[len(strings.TrimSuffix(metric, "2")):]
					filter := `metric.type = "pubsub.googleapis.com/` + metric + `"`
					if test.Installation != "" {
						filter += ` AND resource.labels.subscription_id = starts_with("shop-")`
					}
					if query.Get("filter") == filter && query.Get("pageToken") == page && end.Sub(start) == 4*time.Minute &&
						r.URL.Path == "/v3/projects/p/timeSeries" {
						w.Header().Set("Content-Type", "application/json")
						_, _ = io.WriteString(w, answer.json())
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
