package worker_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/alarm"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// fiveMinutes is the difference between the clocks of the two workers.
const fiveMinutes = 5 * time.Minute

// ours configures a worker with one queue, whose handler is the test's.
func ours(register func(*handler.Registry)) func(*worker.Config) {
	return func(c *worker.Config) {
		q := catalog.Queue{
			ID: "ours", Enabled: true, Contract: contract.MessageV1, Pool: "p", Concurrency: 10,
			RememberFor: 48 * 24 * time.Hour, MaxAttempts: 5,
			AckDeadline: time.Minute, Lease: 2 * time.Minute, HandlerTimeout: 30 * time.Second,
			Backoff:    retry.Policy{Schedule: []time.Duration{0, 30 * time.Second}},
			DeadLetter: catalog.DeadLetter{Topic: "ours-dlq", Retention: 14 * 24 * time.Hour},
		}
		q.Handlers = map[string]catalog.Handler{
			"order.confirmed": {Name: "ours", MaxAttempts: 5, Timeout: 30 * time.Second, Backoff: q.Backoff},
		}
		c.Catalog = &catalog.Catalog{Contracts: c.Catalog.Contracts, Queues: []catalog.Queue{q}}
		c.Handlers = register
	}
}

// TestWaitEndsOnceBetweenClocksFiveMinutesApart: a message that waits until a time is handled once, at most
// five minutes early or late, and no attempt is lost or counted twice. An early alarm releases nothing; the
// task of the next minute does.
func TestWaitEndsOnceBetweenClocksFiveMinutesApart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fails      int
		attributes []string
		wait       time.Duration
	}{
		"a failed attempt":   {fails: 3, wait: 90 * time.Second},
		"a time of delivery": {attributes: []string{"deliver_at", "2026-03-02T10:10:00Z"}, wait: 10 * time.Minute},
	} {
		for pair := range 4 { // the worker that releases the message, and the one that handles it
			t.Run(fmt.Sprint(name, pair), func(t *testing.T) {
				t.Parallel()
				calls := 0
				clock, broker := newClock(morning.Truncate(time.Hour)), &shelves{}
				c := config(t, ours(func(r *handler.Registry) {
					r.Tx("ours", func(context.Context, handler.Event) (handler.Effect, error) {
						if calls++; calls <= test.fails {
							return handler.Effect{}, retry.Transient("not_yet", nil)
						}
						return handler.Effect{Result: "done"}, nil
					})
				}))
				c.Publisher = broker
				var workers []*worker.Worker
				for _, ahead := range []time.Duration{0, fiveMinutes} {
					c.Now = func() time.Time { return clock.Now().Add(ahead) }
					w := filetest.Must(worker.New(c))(t)
					workers = append(workers, w)
				}
				posted(t, workers[0], "/push/ours", contract.Of(&contract.Event{
					ID: "e1", Type: "order.confirmed", Timestamp: "2026-03-02T10:00:00Z", Version: 1,
					Data: map[string]any{"order_id": "e1"},
				}), test.attributes...)
				took := time.Duration(-1)
				for step := range 40 {
					task(t, workers[pair/2], "release-delayed")
					for _, m := range broker.take("ours") {
						code, outcome, reason := pushed(t, workers[pair%2], "/push/ours", fmt.Sprint("m", step), clock.Now(), m)
						require.Less(t, code, 300, reason)
						if outcome == "processed" {
							require.Negative(t, took, "once")
							took = time.Duration(step) * 30 * time.Second
						}
					}
					clock.pass(30 * time.Second)
				}
				require.Equal(t, test.fails+1, calls)
				most := float64(max(test.fails, 1))*fiveMinutes.Seconds() + 30
				require.InDelta(t, test.wait.Seconds(), took.Seconds(), most,
					"each wait is early or late by five minutes at most")
			})
		}
	}
}

type recorder []time.Time

func (r *recorder) At(_ context.Context, at time.Time) error {
	*r = append(*r, at)
	return nil
}

// TestAlarmOfAWorkerReleasesMessagesWithoutTheScheduler: at most a quarter of a second after they are due. A
// draining worker releases nothing, and one with a given alarm has none of its own.
func TestAlarmOfAWorkerReleasesMessagesWithoutTheScheduler(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		broker := &shelves{}
		var db store.Store
		w := open(t, func(c *worker.Config) {
			c.Publisher, c.AfterFunc, db = broker, alarm.AfterFunc, c.Store
		})
		pass := func(d time.Duration) {
			<-time.After(d)
			synctest.Wait()
		}
		for i, wait := range []time.Duration{
			100 * time.Millisecond, 3001 * time.Millisecond, 755 * time.Second, 0,
		} {
			due := time.Now().Add(wait)
			kept := filetest.Must(lane.Open(t.Context(), db, lane.Name{Queue: "q", Message: string(rune('a' + i))}))(t)
			_, writes := filetest.Both(kept.Put(lane.Kept{
				Topic: "q", Content: lane.Content{Message: contract.Message{Data: []byte("{}")}}, DueAt: due,
				Source: lane.Source{EventID: "e"},
			}, due, "", time.Now()))(t)
			storetest.Put(t, db, writes...)
			require.NoError(t, w.Alarm.At(t.Context(), due))
			if wait == 0 {
				w.Drain()
			}
			pass(max(0, wait-time.Millisecond))
			require.Empty(t, broker.all(), "not before it is due")
			pass(251 * time.Millisecond)
			require.Equal(t, wait > 0, len(broker.all()) == 1, wait)
		}
		given := &recorder{}
		w = open(t, func(c *worker.Config) {
			c.Alarm, c.AfterFunc = given, func(time.Duration, func()) func() {
				t.Error("it has its own alarm")
				return func() {}
			}
		})
		require.NoError(t, w.Alarm.At(t.Context(), morning))
		require.Equal(t, &recorder{morning}, given)
	})
}

// A push that Cloud Run ended would be delivered again although it may have been handled.
func TestRequestTimeoutOfCloudRunIsLongerThanAnyPush(t *testing.T) {
	t.Parallel()
	var c *catalog.Catalog
	w := open(t, func(config *worker.Config) { c = config.Catalog })
	deadlines := filetest.Map(c.Queues, func(q catalog.Queue) time.Duration { return q.AckDeadline })
	said := filetest.Read(t, "..", "..", "..", "terraform", "main.tf")
	more := regexp.MustCompile(`timeout_seconds = each\.value\.timeout \+ (\d+)\n`).FindStringSubmatch(said)
	require.NotNil(t, more)
	beside := filetest.Must(time.ParseDuration(more[1] + "s"))(t)
	require.LessOrEqual(t, w.Longest(), slices.Max(deadlines)+beside)
}
