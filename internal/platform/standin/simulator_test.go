package standin_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/standin/clocktest"
)

func TestMain(m *testing.M) {
	// OpenCensus, which Google's transport imports, starts a goroutine in an init function.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

var start = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// received is one push that the worker got.
type received struct {
	After   time.Duration // since start
	Path    string
	Header  http.Header
	Raw     string
	Message struct {
		Data        []byte            `json:"data"`
		Attributes  map[string]string `json:"attributes"`
		MessageID   string            `json:"messageId"`
		OrderingKey string            `json:"orderingKey"`
	} `json:"message"`
	Subscription    string `json:"subscription"`
	DeliveryAttempt int    `json:"deliveryAttempt"`
}

func (r received) text() string { return string(r.Message.Data) }

// worker answers pushes without a network.
type worker struct {
	clock  standin.Clock
	answer func(received) (status int, err error)

	mu  sync.Mutex
	all []received
}

func (w *worker) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	push := received{After: w.clock.Now().Sub(start), Path: request.URL.Path, Header: request.Header, Raw: string(body)}
	if err := json.Unmarshal(body, &push); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.all = append(w.all, push)
	w.mu.Unlock()
	status, err := w.answer(push)
	if err != nil {
		return nil, err
	}
	if status == 0 { // hang until the request is canceled
		<-request.Context().Done()
		return nil, request.Context().Err()
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: request}, nil
}

func (w *worker) pushes() []received {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

func (w *worker) texts() []string {
	var texts []string
	for _, push := range w.pushes() {
		texts = append(texts, push.text())
	}
	return texts
}

func (w *worker) times() []time.Duration {
	var times []time.Duration
	for _, push := range w.pushes() {
		times = append(times, push.After)
	}
	return times
}

func always(status int) func(received) (int, error) {
	return func(received) (int, error) { return status, nil }
}

// bench is a simulator with its worker on a clock that the test moves.
type bench struct {
	*standin.Simulator
	t      testing.TB
	clock  *clocktest.Clock
	worker *worker
}

func newBench(tb testing.TB, answer func(received) (int, error), config standin.SimulatorConfig) *bench {
	tb.Helper()
	clock := clocktest.New(start)
	s := &bench{t: tb, clock: clock, worker: &worker{clock: clock, answer: answer}}
	config.ProjectID, config.PushBaseURL = "demo-project", cmp.Or(config.PushBaseURL, "http://worker.test")
	config.Clock, config.Client = clock, &http.Client{Transport: s.worker}
	simulator, err := standin.NewSimulator(config)
	require.NoError(tb, err)
	s.Simulator = simulator
	tb.Cleanup(func() { require.NoError(tb, simulator.Close()) })
	return s
}

// settle waits until everything waits for the clock.
func (s *bench) settle() {
	s.t.Helper()
	require.NoError(s.t, s.Settled(s.t.Context()))
}

// advance moves the clock by d and runs everything on the way.
func (s *bench) advance(d time.Duration) {
	s.t.Helper()
	s.settle()
	for d > 0 {
		moved, rang := s.clock.Next(d)
		s.settle()
		d -= moved
		if !rang {
			return
		}
	}
}

func (s *bench) publish(key string, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		_, err := s.Publish(s.t.Context(), "orders", contract.Message{Data: []byte(text), OrderingKey: key})
		require.NoError(s.t, err)
	}
}

// plain configures one subscription without order and dead letters, with changes.
func plain(changes ...func(*standin.Subscription)) standin.SimulatorConfig {
	sub := standin.Subscription{
		ID: "orders-push", Topic: "orders", Path: "/push/orders", AckDeadline: 30 * time.Second,
		MinimumBackoff: 10 * time.Second, MaximumBackoff: 600 * time.Second, Retention: 7 * 24 * time.Hour,
	}
	for _, change := range changes {
		change(&sub)
	}
	config := standin.SimulatorConfig{Subscriptions: []standin.Subscription{sub}}
	if sub.DeadLetterTopic != "" {
		config.Subscriptions = append(config.Subscriptions,
			standin.Subscription{ID: "orders-dlq-hold", Topic: sub.DeadLetterTopic, Retention: 14 * 24 * time.Hour},
			standin.Subscription{ID: "orders-dlq-push", Topic: sub.DeadLetterTopic, Path: "/push/dead-letters/orders", AckDeadline: 30 * time.Second},
		)
	}
	return config
}

func ordered(sub *standin.Subscription) { sub.Ordered = true }

func deadLetterAfter(attempts int) func(*standin.Subscription) {
	return func(sub *standin.Subscription) {
		sub.DeadLetterTopic, sub.MaxDeliveryAttempts = "orders-dlq", attempts
	}
}

func backoff(minimum, maximum time.Duration) func(*standin.Subscription) {
	return func(sub *standin.Subscription) { sub.MinimumBackoff, sub.MaximumBackoff = minimum, maximum }
}

func TestOnlyTheFiveDocumentedStatusesAcknowledge(t *testing.T) {
	t.Parallel()
	acks := map[int]bool{102: true, 200: true, 201: true, 202: true, 204: true}
	for _, status := range []int{100, 102, 103, 200, 201, 202, 203, 204, 205, 206, 226, 300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 409, 422, 429, 500, 502, 503, 504, 599} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			s := newBench(t, always(status), plain())
			s.publish("", "a")
			s.settle()
			stats := s.Stats()["orders-push"]
			if acks[status] {
				require.Equal(t, 1, stats.Acked)
				require.Zero(t, stats.Backlog)
			} else {
				require.Equal(t, 1, stats.Nacked)
				require.Equal(t, 1, stats.Backlog)
			}
			require.Len(t, s.worker.pushes(), 1, "a redirect is not followed")
		})
	}
}

func TestPushBodyIsTheWrappedOne(t *testing.T) {
	t.Parallel()
	const id = "1795165200000001" // the clock's microseconds plus one
	for name, test := range map[string]struct {
		config  standin.SimulatorConfig
		message contract.Message
		want    string
	}{
		"everything there is": {
			config:  plain(ordered, deadLetterAfter(5)),
			message: contract.Message{Data: []byte("hello"), Attributes: map[string]string{"event_id": "e-1"}, OrderingKey: "c-1"},
			want: `{"message":{"attributes":{"event_id":"e-1"},"data":"aGVsbG8=","messageId":"` + id + `","message_id":"` + id + `","orderingKey":"c-1",
				"publishTime":"2026-11-20T09:00:00.000Z","publish_time":"2026-11-20T09:00:00.000Z"},
				"subscription":"projects/demo-project/subscriptions/orders-push","deliveryAttempt":1}`,
		},
		"no key, no attributes, no dead-letter policy": {
			config:  plain(),
			message: contract.Message{Data: []byte("hello")},
			want: `{"message":{"data":"aGVsbG8=","messageId":"` + id + `","message_id":"` + id + `",
				"publishTime":"2026-11-20T09:00:00.000Z","publish_time":"2026-11-20T09:00:00.000Z"},
				"subscription":"projects/demo-project/subscriptions/orders-push"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.config.Token = func() (string, error) { return "a.b.c", nil }
			s := newBench(t, always(200), test.config)
			got, err := s.Publish(t.Context(), "orders", test.message)
			require.NoError(t, err)
			require.Equal(t, id, got)
			require.NoError(t, s.Idle(t.Context()))
			push := s.worker.pushes()[0]
			require.JSONEq(t, test.want, push.Raw)
			require.Equal(t, "/push/orders", push.Path)
			require.Equal(t, "application/json", push.Header.Get("Content-Type"))
			require.Equal(t, "Bearer a.b.c", push.Header.Get("Authorization"))
		})
	}
}

func TestAPushWithoutItsTokenIsNotSent(t *testing.T) {
	t.Parallel()
	config := plain()
	config.Token = func() (string, error) { return "", errors.New("no token now") }
	s := newBench(t, always(200), config)
	s.publish("", "a")
	s.settle()
	require.Empty(t, s.worker.pushes())
	require.Equal(t, 1, s.Stats()["orders-push"].Nacked)
}

func TestRetriesFollowTheQueuesPolicyToTheMoment(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		minimum, maximum time.Duration
		waits            []time.Duration
	}{
		"doubled from ten seconds to ten minutes": {10 * time.Second, 600 * time.Second, []time.Duration{
			10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second, 320 * time.Second, 600 * time.Second, 600 * time.Second}},
		"always the same":           {90 * time.Second, 90 * time.Second, []time.Duration{90 * time.Second, 90 * time.Second, 90 * time.Second}},
		"at once, then from second": {0, 10 * time.Second, []time.Duration{100 * time.Millisecond /* push backoff */, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 10 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newBench(t, always(503), plain(ordered, backoff(test.minimum, test.maximum)))
			s.publish("c-1", "a")
			s.settle()
			at := time.Duration(0)
			want := []time.Duration{at}
			for _, wait := range test.waits {
				s.advance(wait - time.Nanosecond)
				require.Equal(t, want, s.worker.times(), "not before its time")
				s.advance(time.Nanosecond)
				at += wait
				want = append(want, at)
				require.Equal(t, want, s.worker.times())
			}
		})
	}
}

func TestPushBackoffIsForTheWholeSubscription(t *testing.T) {
	t.Parallel()
	healthy := false
	s := newBench(t, func(received) (int, error) {
		if healthy {
			return 200, nil
		}
		return 500, nil
	}, plain(backoff(0, 0)))
	s.publish("", "a")
	s.settle()
	pause := 100 * time.Millisecond
	at := time.Duration(0)
	for range 12 { // retries are immediate, so only the pauses are between them
		require.Equal(t, pause, s.Stats()["orders-push"].PushBackoff)
		at += pause
		s.advance(pause - time.Nanosecond)
		before := len(s.worker.pushes())
		s.advance(time.Nanosecond)
		require.Len(t, s.worker.pushes(), before+1)
		require.Equal(t, at, s.worker.times()[before])
		pause = min(2*pause, time.Minute)
	}
	require.Equal(t, time.Minute, s.Stats()["orders-push"].PushBackoff, "it grows to a minute")

	s.publish("", "b")
	s.settle()
	require.NotContains(t, s.worker.texts(), "b", "a pause holds every message of the subscription")
	healthy = true
	s.advance(time.Minute)
	require.NoError(t, s.Idle(t.Context()))
	require.Contains(t, s.worker.texts(), "b")
	require.Equal(t, 15*time.Second, s.Stats()["orders-push"].PushBackoff, "two acks halve it twice")
	for range 8 {
		s.publish("", "c")
		require.NoError(t, s.Idle(t.Context()))
	}
	require.Zero(t, s.Stats()["orders-push"].PushBackoff)
}

func TestFailuresOfOneMomentCountOnceForThePushBackoff(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := newBench(t, func(received) (int, error) {
		<-release
		return 500, nil
	}, plain())
	s.publish("", "a", "b", "c", "d", "e")
	close(release)
	s.settle()
	require.Equal(t, 5, s.Stats()["orders-push"].Nacked)
	require.Equal(t, 100*time.Millisecond, s.Stats()["orders-push"].PushBackoff)
}

func TestTheWindowGrowsWithSuccessAndShrinksWithFailure(t *testing.T) {
	t.Parallel()
	status, gate := 200, make(chan struct{})
	s := newBench(t, func(received) (int, error) {
		<-gate
		return status, nil
	}, plain())
	for range 20 {
		s.publish("", "a")
	}
	require.Equal(t, 5, s.Stats()["orders-push"].Outstanding, "it starts small")
	close(gate)
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, 25, s.Stats()["orders-push"].Window)
	status = 500
	s.publish("", "a")
	s.settle()
	require.Equal(t, 12, s.Stats()["orders-push"].Window)
}

func TestASubscriptionWithoutOrderIgnoresOrderingKeys(t *testing.T) {
	t.Parallel()
	s := newBench(t, func(push received) (int, error) {
		if push.text() == "1" {
			return http.StatusInternalServerError, nil
		}
		return http.StatusNoContent, nil
	}, plain())
	s.publish("a", "1", "2")
	s.advance(time.Second)
	require.ElementsMatch(t, []string{"1", "2"}, s.worker.texts(), "the second does not wait for the first")
}

func TestAFailingMessageBlocksItsKeyAlone(t *testing.T) {
	t.Parallel()
	broken := true
	s := newBench(t, func(push received) (int, error) {
		if broken && push.text() == "1a" {
			return 500, nil
		}
		return 200, nil
	}, plain(ordered))
	s.publish("c-1", "1a", "1b")
	s.settle()
	s.publish("c-2", "2a")
	s.publish("", "no key")
	s.advance(time.Second)
	require.Equal(t, []string{"1a", "2a", "no key"}, inOrder(s.worker.texts()))
	broken = false
	require.Equal(t, 1, s.Stats()["orders-push"].Keys)
	s.advance(9 * time.Second)
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, []string{"1a", "1b"}, s.worker.texts()[3:])
	require.Zero(t, s.Stats()["orders-push"].Keys, "a key with nothing left is forgotten")
}

func inOrder(texts []string) []string {
	slices.Sort(texts)
	return texts
}

func TestAnUnansweredPushIsCutAtTheAckDeadline(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	s := newBench(t, func(push received) (int, error) {
		if push.DeliveryAttempt == 1 {
			arrived <- struct{}{}
			return 0, nil
		}
		return 200, nil
	}, plain(deadLetterAfter(5)))
	s.publish("", "a")
	<-arrived
	moved, _ := s.clock.Next(30*time.Second - time.Nanosecond)
	require.Equal(t, 30*time.Second-time.Nanosecond, moved)
	require.Equal(t, 1, s.Stats()["orders-push"].Outstanding)
	_, rang := s.clock.Next(time.Nanosecond)
	require.True(t, rang)
	s.settle()
	require.Equal(t, 1, s.Stats()["orders-push"].Nacked)
	s.advance(10 * time.Second)
	require.NoError(t, s.Idle(t.Context()))
	require.Zero(t, s.clock.Pending(), "nothing of it is left waiting")
}

func TestDeadLetterPolicyForwardsAfterTheLastAttempt(t *testing.T) {
	t.Parallel()
	s := newBench(t, func(push received) (int, error) {
		if push.Path == "/push/orders" && push.text() == "bad" {
			return 500, nil
		}
		return 200, nil
	}, plain(ordered, deadLetterAfter(5)))
	id, err := s.Publish(t.Context(), "orders", contract.Message{
		Data: []byte("bad"), Attributes: map[string]string{"event_id": "e-1"}, OrderingKey: "c-1",
	})
	require.NoError(t, err)
	s.publish("c-1", "good")
	s.advance(time.Hour)
	require.NoError(t, s.Idle(t.Context()))

	var attempts []int
	var after []string
	for _, push := range s.worker.pushes() {
		switch {
		case push.Path == "/push/orders" && push.text() == "bad":
			attempts = append(attempts, push.DeliveryAttempt)
		default:
			after = append(after, push.Path+" "+push.text())
			require.Contains(t, []int{0, 1}, push.DeliveryAttempt)
		}
	}
	require.Equal(t, []int{1, 2, 3, 4, 5}, attempts)
	require.ElementsMatch(t, []string{"/push/orders good", "/push/dead-letters/orders bad"}, after)

	held := s.Held("orders-dlq-hold")
	require.Len(t, held, 1)
	require.NotEqual(t, id, held[0].ID, "it is a new message there")
	require.Equal(t, "bad", string(held[0].Data))
	require.Equal(t, "c-1", held[0].OrderingKey)
	require.Equal(t, map[string]string{
		"event_id": "e-1",
		"CloudPubSubDeadLetterSourceDeliveryCount":       "5",
		"CloudPubSubDeadLetterSourceSubscription":        "orders-push",
		"CloudPubSubDeadLetterSourceSubscriptionProject": "demo-project",
		"CloudPubSubDeadLetterSourceTopicPublishTime":    "2026-11-20T09:00:00.000+00:00",
	}, held[0].Attributes)
	require.Equal(t, 1, s.Stats()["orders-push"].DeadLettered)
	require.Equal(t, 1, s.Stats()["orders-dlq-hold"].Backlog)

	s.advance(14 * 24 * time.Hour)
	require.Empty(t, s.Held("orders-dlq-hold"), "held for its retention and no longer")
}

func TestWithoutADeadLetterPolicyRetriesGoOnUntilRetentionEnds(t *testing.T) {
	t.Parallel()
	s := newBench(t, always(500), plain(backoff(600*time.Second, 600*time.Second), func(sub *standin.Subscription) { sub.Retention = time.Hour }))
	s.publish("", "a")
	s.advance(59 * time.Minute)
	require.Len(t, s.worker.pushes(), 6)
	s.advance(time.Hour)
	require.Len(t, s.worker.pushes(), 6)
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, 1, s.Stats()["orders-push"].Expired)
}

// dice returns a Rand that returns the numbers, then 1.
func dice(numbers ...float64) func() float64 {
	return func() float64 {
		if len(numbers) == 0 {
			return 1
		}
		next := numbers[0]
		numbers = numbers[1:]
		return next
	}
}

func TestALostAckRepeatsTheLaterMessagesOfItsKey(t *testing.T) {
	t.Parallel()
	config := plain(ordered, deadLetterAfter(5))
	config.LostAcks, config.Rand = 0.5, dice(1, 0) // the second ack is lost
	s := newBench(t, always(200), config)
	s.publish("c-1", "1", "2", "3", "4")
	s.settle()
	require.Equal(t, []string{"1", "2", "3", "4"}, s.worker.texts())
	require.Equal(t, 3, s.Stats()["orders-push"].Backlog)

	s.advance(30*time.Second - time.Nanosecond)
	require.Len(t, s.worker.pushes(), 4)
	s.publish("c-1", "5")
	s.settle()
	s.advance(time.Nanosecond)
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, []string{"1", "2", "3", "4", "5", "2", "3", "4", "5"}, s.worker.texts())
	var attempts []int
	for _, push := range s.worker.pushes()[5:] {
		attempts = append(attempts, push.DeliveryAttempt)
	}
	require.Equal(t, []int{2, 1, 1, 1}, attempts, "the missed deadline counts, a repetition does not")
}

func TestTheLastAttemptMayBeALostAck(t *testing.T) {
	t.Parallel()
	config := plain(ordered, deadLetterAfter(1))
	config.LostAcks, config.Rand = 0.5, dice(0)
	s := newBench(t, always(200), config)
	s.publish("c-1", "1", "2")
	s.advance(30 * time.Second)
	require.NoError(t, s.Idle(t.Context()))
	require.Len(t, s.Held("orders-dlq-hold"), 1)
	require.Equal(t, 0, s.Stats()["orders-push"].Backlog)
}

// Under failures and lost acknowledgements, a message is pushed only after all earlier ones of
// its key are acknowledged. One message of a key is pushed at a time, and none is lost.
func TestOrderSurvivesFailuresAndLostAcks(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		keys := rapid.IntRange(1, 4).Draw(r, "keys")
		each := rapid.IntRange(1, 8).Draw(r, "messages of each")
		failing := rapid.SliceOfN(rapid.IntRange(0, 99), 32, 32).Draw(r, "failing")
		limit := rapid.IntRange(0, 60).Draw(r, "percent failing")
		lost := rapid.SliceOfN(rapid.Float64Range(0, 0.999), 32, 32).Draw(r, "lost")

		// The draws are used again and again. Afterwards nothing fails: they may be such that each push
		// meets a failure or a lost acknowledgement for ever.
		const enough = 200
		var mu sync.Mutex
		count, rolls := 0, 0
		out, acked, last := map[string]bool{}, map[string]int{}, map[string]int{}
		lastAcked := map[string]bool{}
		var wrong []string
		config := plain(ordered, backoff(time.Second, 8*time.Second))
		config.LostAcks = 0.1
		config.Rand = func() float64 { // called with the simulator's lock held
			if rolls++; rolls > enough {
				return 1
			}
			return lost[rolls%len(lost)]
		}
		clock := clocktest.New(start)
		config.ProjectID, config.PushBaseURL, config.Clock = "demo-project", "http://worker.test", clock
		answer := func(push received) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			key := push.Message.OrderingKey
			var n int
			if _, err := fmt.Sscanf(push.text(), "%d", &n); err != nil {
				return 0, err
			}
			switch {
			case out[key]:
				wrong = append(wrong, fmt.Sprintf("%s: %d while another is out", key, n))
			case n > acked[key]+1:
				wrong = append(wrong, fmt.Sprintf("%s: %d before %d was acked", key, n, acked[key]+1))
			case n > last[key]+1, n == last[key]+1 && last[key] > 0 && !lastAcked[key]:
				wrong = append(wrong, fmt.Sprintf("%s: %d after %d", key, n, last[key]))
			}
			count++
			ok := count > enough || failing[count%len(failing)] >= limit
			last[key], lastAcked[key] = n, ok
			if !ok {
				return 500, nil
			}
			acked[key] = max(acked[key], n)
			return 200, nil
		}
		config.Client = &http.Client{Transport: &worker{clock: clock, answer: answer}}
		s, err := standin.NewSimulator(config)
		require.NoError(r, err)
		defer func() { require.NoError(r, s.Close()) }()
		for n := range each {
			for key := range keys {
				_, err := s.Publish(t.Context(), "orders", contract.Message{Data: fmt.Append(nil, n+1), OrderingKey: fmt.Sprint("c-", key)})
				require.NoError(r, err)
			}
		}
		for range 10_000 {
			require.NoError(r, s.Settled(t.Context()))
			if s.Stats()["orders-push"].Backlog == 0 {
				break
			}
			_, rang := clock.Next(time.Hour)
			require.True(r, rang, "something waits, so something is set")
		}
		require.NoError(r, s.Idle(t.Context()))
		require.Empty(r, wrong)
		for key := range keys {
			require.Equal(r, each, acked[fmt.Sprint("c-", key)])
		}
	})
}

func TestAFilterSelectsTheMessagesOfASubscription(t *testing.T) {
	t.Parallel()
	config := plain(func(sub *standin.Subscription) {
		sub.Filter = routing.Binding{Queue: "orders", Patterns: []routing.Pattern{"paid"}}.Filter()
	})
	s := newBench(t, always(200), config)
	for _, kind := range []string{"paid", "refunded"} {
		_, err := s.Publish(t.Context(), "orders", contract.Message{Data: []byte(kind), Attributes: map[string]string{"routing_key": kind}})
		require.NoError(t, err)
	}
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, []string{"paid"}, s.worker.texts())
}

func TestMistakesInTheTopologyAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*standin.SimulatorConfig){
		"no id":                                func(c *standin.SimulatorConfig) { c.Subscriptions[0].ID = "" },
		"no topic":                             func(c *standin.SimulatorConfig) { c.Subscriptions[0].Topic = "" },
		"no ack deadline":                      func(c *standin.SimulatorConfig) { c.Subscriptions[0].AckDeadline = 0 },
		"one id twice":                         func(c *standin.SimulatorConfig) { c.Subscriptions = append(c.Subscriptions, c.Subscriptions[0]) },
		"a dead-letter topic that is missing":  func(c *standin.SimulatorConfig) { c.Subscriptions = c.Subscriptions[:1] },
		"a dead-letter policy of no attempts":  func(c *standin.SimulatorConfig) { c.Subscriptions[0].MaxDeliveryAttempts = 0 },
		"dead letters to the topic they leave": func(c *standin.SimulatorConfig) { c.Subscriptions[0].DeadLetterTopic = "orders" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := plain(deadLetterAfter(5))
			change(&config)
			_, err := standin.NewSimulator(config)
			require.Error(t, err)
		})
	}
}

func TestPublishRefusesWhatPubSubWould(t *testing.T) {
	t.Parallel()
	s := newBench(t, always(200), plain())
	_, err := s.Publish(t.Context(), "no-such-topic", contract.Message{Data: []byte("a")})
	require.ErrorIs(t, err, standin.ErrNoTopic)
	_, err = s.Publish(t.Context(), "orders", contract.Message{})
	require.ErrorIs(t, err, contract.ErrLimit)
	_, err = s.Publish(t.Context(), "orders", contract.Message{Data: []byte("a"), Attributes: map[string]string{"k": strings.Repeat("v", 1025)}})
	require.ErrorIs(t, err, contract.ErrLimit)
	require.NoError(t, s.Close())
	_, err = s.Publish(t.Context(), "orders", contract.Message{Data: []byte("a")})
	require.ErrorIs(t, err, standin.ErrClosed)
}

func TestAMessageDoesNotChangeAfterItIsPublished(t *testing.T) {
	t.Parallel()
	s := newBench(t, always(200), standin.SimulatorConfig{Subscriptions: []standin.Subscription{{ID: "hold", Topic: "orders"}}})
	message := contract.Message{Data: []byte("before"), Attributes: map[string]string{"k": "before"}}
	_, err := s.Publish(t.Context(), "orders", message)
	require.NoError(t, err)
	copy(message.Data, "after!")
	maps.Copy(message.Attributes, map[string]string{"k": "after"})
	require.Equal(t, "before", string(s.Held("hold")[0].Data))
	require.Equal(t, "before", s.Held("hold")[0].Attributes["k"])
	require.Empty(t, s.Held("no such subscription"))
}

func TestMessagesWaitForTheWorkersURL(t *testing.T) {
	t.Parallel()
	clock := clocktest.New(start)
	w := &worker{clock: clock, answer: always(200)}
	config := plain()
	config.Clock, config.Client = clock, &http.Client{Transport: w}
	s, err := standin.NewSimulator(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	_, err = s.Publish(t.Context(), "orders", contract.Message{Data: []byte("early")})
	require.NoError(t, err)
	require.NoError(t, s.Settled(t.Context()))
	require.Empty(t, w.pushes())
	s.PushTo("http://worker.test")
	require.NoError(t, s.Idle(t.Context()))
	require.Equal(t, []string{"early"}, w.texts())
}

func TestCloseDropsWaitingMessages(t *testing.T) {
	t.Parallel()
	s := newBench(t, always(500), plain())
	s.publish("", "a")
	s.settle()
	require.NotZero(t, s.clock.Pending())
	require.NoError(t, s.Close())
	require.Zero(t, s.clock.Pending())
}

func TestCloseCancelsHangingPushes(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	s := newBench(t, func(received) (int, error) {
		close(arrived)
		return 0, nil
	}, plain())
	s.publish("", "a")
	<-arrived
	require.NoError(t, s.Close())
	require.Zero(t, s.clock.Pending())
}
