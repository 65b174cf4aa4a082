package standin_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store/storetest"
)

func TestMain(m *testing.M) { storetest.Main(m) }

var start = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

type received struct {
	After   time.Duration // since the simulator began
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

// A status of 0 hangs until the request is canceled.
type worker struct {
	answer func(received) (status int)

	began time.Time
	mu    sync.Mutex
	all   []received
}

func (w *worker) RoundTrip(request *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	push := received{
		After: time.Since(w.began), Path: request.URL.Path, Header: request.Header, Raw: string(body),
	}
	if err := json.Unmarshal(body, &push); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.all = append(w.all, push)
	w.mu.Unlock()
	status := w.answer(push)
	if status == 0 {
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

func (w *worker) texts() []string { return filetest.Map(w.pushes(), received.text) }

// moments are the pushes, a line for each time: those of an ordered key in their order, and all else sorted.
func (w *worker) moments(ordered bool) (lines []string) {
	pushes := w.pushes()
	slices.SortStableFunc(pushes, func(a, b received) int {
		text := cmp.Compare(a.text(), b.text())
		if ordered && a.Message.OrderingKey != "" {
			text = 0
		}
		return cmp.Or(cmp.Compare(a.After, b.After), cmp.Compare(a.Path, b.Path),
			cmp.Compare(a.Message.OrderingKey, b.Message.OrderingKey), text)
	})
	for i, push := range pushes {
		text := push.text()
		if push.Path != "/push/orders" {
			text = push.Path + ":" + text
		}
		if push.DeliveryAttempt > 0 {
			text += fmt.Sprint("#", push.DeliveryAttempt)
		}
		if i > 0 && push.After == pushes[i-1].After {
			lines[len(lines)-1] += " " + text
		} else {
			lines = append(lines, push.After.String()+" "+text)
		}
	}
	return lines
}

func always(status int) func(received) int { return func(received) int { return status } }

type bench struct {
	*standin.Simulator
	t      testing.TB
	worker *worker
}

func newBench(tb testing.TB, answer func(received) int, config standin.SimulatorConfig) *bench {
	tb.Helper()
	s := &bench{t: tb, worker: &worker{began: time.Now(), answer: answer}}
	config.ProjectID, config.Transport = "demo-project", s.worker
	s.Simulator = standin.NewSimulator(config)
	s.PushTo("http://worker.test")
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func (s *bench) stats() standin.Stats { return s.Stats("orders-push") }

func (s *bench) advance(d time.Duration) {
	s.t.Helper()
	if d > 0 {
		<-time.After(d)
	}
	synctest.Wait()
}

func (s *bench) publish(key string, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		s.publishTo("orders", key, text)
	}
}

func (s *bench) publishTo(topic, key, text string) {
	s.t.Helper()
	_, err := s.Publish(s.t.Context(), topic,
		contract.Message{Data: []byte(text), Attributes: map[string]string{"routing_key": text}, OrderingKey: key})
	require.NoError(s.t, err)
}

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
			standin.Subscription{
				ID: "orders-dlq-push", Topic: sub.DeadLetterTopic, Path: "/letters", AckDeadline: 30 * time.Second,
			},
		)
	}
	return config
}

func ordered(sub *standin.Subscription) { sub.Ordered = true }

func deadLetterAfter(attempts int) func(*standin.Subscription) {
	return func(s *standin.Subscription) { s.DeadLetterTopic, s.MaxDeliveryAttempts = "orders-dlq", attempts }
}

func backoff(minimum, maximum time.Duration) func(*standin.Subscription) {
	return func(sub *standin.Subscription) { sub.MinimumBackoff, sub.MaximumBackoff = minimum, maximum }
}

func TestOnlyTheFiveDocumentedStatusesAcknowledge(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		acks := []int{102, 200, 201, 202, 204}
		for _, status := range append(acks, 100, 103, 203, 205, 206, 226, 300, 301, 302, 303, 304, 307, 308, 400,
			401, 403, 404, 409, 422, 429, 500, 502, 503, 504, 599) {
			s := newBench(t, always(status), plain())
			s.publish("", "a")
			synctest.Wait()
			require.Equal(t, slices.Contains(acks, status), s.stats().Backlog == 0, status)
			require.Len(t, s.worker.pushes(), 1, "a redirect is not followed")
		}
	})
}

func TestPushBodyIsWrapped(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		const id = "946684800000001" // the clock's microseconds plus one
		for want, test := range map[string]struct {
			config  standin.SimulatorConfig
			message contract.Message
		}{
			`{"message":{"attributes":{"event_id":"e-1"},"data":"aGVsbG8=","messageId":"` + id + `",
			"message_id":"` + id + `","orderingKey":"c-1",
			"publishTime":"2000-01-01T00:00:00.000Z","publish_time":"2000-01-01T00:00:00.000Z"},
			"subscription":"projects/demo-project/subscriptions/orders-push","deliveryAttempt":1}`: {
				plain(ordered, deadLetterAfter(5)),
				contract.Message{
					Data: []byte("hello"), Attributes: map[string]string{"event_id": "e-1"}, OrderingKey: "c-1",
				},
			},
			`{"message":{"data":"aGVsbG8=","messageId":"` + id + `","message_id":"` + id + `",
			"publishTime":"2000-01-01T00:00:00.000Z","publish_time":"2000-01-01T00:00:00.000Z"},
			"subscription":"projects/demo-project/subscriptions/orders-push"}`: {
				plain(), contract.Message{Data: []byte("hello")},
			},
		} {
			test.config.Token = func() (string, error) { return "a.b.c", nil }
			s := newBench(t, always(200), test.config)
			require.Equal(t, id, filetest.Must(s.Publish(t.Context(), "orders", test.message))(t))
			require.NoError(t, s.Idle(t.Context()))
			push := s.worker.pushes()[0]
			require.JSONEq(t, want, push.Raw)
			require.Equal(t, "application/json", push.Header.Get("Content-Type"))
			require.Equal(t, "Bearer a.b.c", push.Header.Get("Authorization"))
		}
	})
}

func TestAnUnansweredPushIsCutAtTheAckDeadline(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		s := newBench(t, func(push received) int {
			return map[int]int{2: http.StatusOK}[push.DeliveryAttempt]
		}, plain(deadLetterAfter(5)))
		s.publish("", "a")
		s.advance(30*time.Second - time.Nanosecond)
		require.Equal(t, 1, s.stats().Outstanding)
		s.advance(time.Nanosecond)
		require.Equal(t, []int{0, 1}, []int{s.stats().Outstanding, s.stats().Backlog})
		s.advance(10 * time.Second)
		require.Zero(t, s.stats().Backlog)
	})
}

func TestADeadLetterNamesItsSourceAndIsHeldForItsRetention(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		s := newBench(t, func(push received) int {
			return map[string]int{"/push/orders": 500, "/letters": 200}[push.Path]
		}, plain(ordered, deadLetterAfter(1)))
		message := contract.Message{
			Data: []byte("bad"), Attributes: map[string]string{"event_id": "e-1"}, OrderingKey: "c-1",
		}
		id := filetest.Must(s.Publish(t.Context(), "orders", message))(t)
		copy(message.Data, "odd") // a published message does not change
		message.Attributes["event_id"] = "e-2"
		require.NoError(t, filetest.ErrorOf(s.Publish(t.Context(), "orders",
			contract.Message{Data: []byte("bare")})))
		s.advance(time.Hour)
		held := s.Held("orders-dlq-hold")
		require.Len(t, held, 2)
		deadLetter := held[slices.IndexFunc(held, func(m standin.Message) bool { return m.OrderingKey == "c-1" })]
		require.NotEqual(t, id, deadLetter.ID, "a dead letter is a new message")
		require.Equal(t, "bad", string(deadLetter.Data))
		require.Equal(t, map[string]string{
			"event_id": "e-1",
			"CloudPubSubDeadLetterSourceDeliveryCount":       "1",
			"CloudPubSubDeadLetterSourceSubscription":        "orders-push",
			"CloudPubSubDeadLetterSourceSubscriptionProject": "demo-project",
			"CloudPubSubDeadLetterSourceTopicPublishTime":    "2000-01-01T00:00:00.000+00:00",
		}, deadLetter.Attributes)
		require.Equal(t, 2, s.Stats("orders-dlq-hold").Backlog)
		s.advance(14 * 24 * time.Hour)
		require.Empty(t, s.Held("orders-dlq-hold"))
		require.Empty(t, s.Held("no such subscription"))
	})
}

// Under failures, each push of a key is of the first message that is not acknowledged yet, and none is lost.
func TestOrderSurvivesFailures(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		keys, each := rapid.IntRange(1, 4).Draw(r, "keys"), rapid.IntRange(1, 8).Draw(r, "messages of each")
		failing := rapid.SliceOfN(rapid.IntRange(0, 99), 32, 32).Draw(r, "failing")
		limit := rapid.IntRange(0, 60).Draw(r, "percent failing")
		const enough = 200 // the draws repeat for so many pushes; afterwards nothing fails
		var mu sync.Mutex
		count, left, acked, wrong := 0, 1, map[string]int{}, []string{}
		filetest.Bubble(t, func(t *testing.T) {
			s := newBench(t, func(push received) int {
				mu.Lock()
				defer mu.Unlock()
				key := push.Message.OrderingKey
				if n := fmt.Sprint(acked[key] + 1); push.text() != n {
					wrong = append(wrong, fmt.Sprintf("%s: %s in the place of %s", key, push.text(), n))
				}
				if count++; count <= enough && failing[count%len(failing)] < limit {
					return http.StatusInternalServerError
				}
				acked[key]++
				return http.StatusOK
			}, plain(ordered, backoff(time.Second, 8*time.Second)))
			for n := range each {
				for key := range keys {
					s.publish(fmt.Sprint("c-", key), fmt.Sprint(n+1))
				}
			}
			s.advance(24 * time.Hour)
			left = s.stats().Backlog
		})
		require.Zero(r, left)
		require.Empty(r, wrong)
	})
}

func TestPublishRefusesTheSameMessagesAsPubSub(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		s := newBench(t, always(200), plain())
		data := []byte("a")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for name, test := range map[string]struct {
			ctx     context.Context //nolint:containedctx // one caller of several
			topic   string
			message contract.Message
			want    error
		}{
			"no such topic":    {t.Context(), "no-such-topic", contract.Message{Data: data}, contract.ErrTopicMissing},
			"an empty message": {t.Context(), "orders", contract.Message{}, contract.ErrLimit},
			"a long attribute": {
				t.Context(), "orders", contract.Message{
					Data: data, Attributes: map[string]string{"k": strings.Repeat("v", 1025)},
				}, contract.ErrLimit,
			},
			"a cancelled caller": {ended, "orders", contract.Message{Data: data}, context.Canceled},
		} {
			require.ErrorIs(t, filetest.ErrorOf(s.Publish(test.ctx, test.topic, test.message)), test.want, name)
		}
		require.NoError(t, s.Close())
		_, err := s.Publish(t.Context(), "orders", contract.Message{Data: data})
		require.ErrorIs(t, err, standin.ErrClosed)
	})
}

func TestCloseCancelsPushesThatHangAndDropsMessagesThatWait(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		arrived := make(chan struct{})
		s := newBench(t, func(push received) int {
			if push.text() == "fails" {
				return http.StatusInternalServerError
			}
			close(arrived)
			return 0
		}, plain())
		s.publish("", "hangs")
		<-arrived
		s.publish("", "fails")
		require.NoError(t, s.Close())
		s.advance(time.Hour)
		require.Len(t, s.worker.pushes(), 2, "no push is repeated after Close")
	})
}
