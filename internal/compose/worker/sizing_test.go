package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/internal/compose/worker"
	"billhook/internal/contract"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
)

// What production takes for a publish, for a push on its way, and for a call of the store.
const (
	publishTakes = 30 * time.Millisecond
	pushTakes    = 10 * time.Millisecond
	storeTakes   = 20 * time.Millisecond
)

// arrivals are events that come by a schedule: so many a second. At the beginning of the third second burst more come at
// once, and the store answers nothing for as long as stall.
type arrivals struct {
	perSecond, burst, seconds int
	stall                     time.Duration
}

// distant is a store whose answers take their time: more of it while it is stalled.
type distant struct {
	store.Store
	stalled, over time.Time
}

func (d distant) travel(ctx context.Context) error {
	takes, now := storeTakes, time.Now()
	if !now.Before(d.stalled) {
		takes = max(takes, d.over.Sub(now))
	}
	select {
	case <-time.After(takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d distant) Get(ctx context.Context, key store.Key) (store.Document, error) {
	if err := d.travel(ctx); err != nil {
		return store.Document{}, err
	}
	return d.Store.Get(ctx, key)
}

func (d distant) Query(ctx context.Context, query store.Query) (store.Page, error) {
	if err := d.travel(ctx); err != nil {
		return store.Page{}, err
	}
	return d.Store.Query(ctx, query)
}

func (d distant) Commit(ctx context.Context, writes []store.Write) ([]store.Version, error) {
	if err := d.travel(ctx); err != nil {
		return nil, err
	}
	return d.Store.Commit(ctx, writes)
}

// simulate has one instance of the shipped worker credit orders of different customers, in the time of a bubble, in
// which work takes none. It returns the waits from webhook to effect by the second in which an event came, and how many
// pushes were refused.
func simulate(t *testing.T, a arrivals) (waits [][]time.Duration, refused int) {
	t.Helper()
	var mu sync.Mutex
	came := map[string]time.Time{}
	began, waits := time.Now(), make([][]time.Duration, a.seconds)
	stalled := began.Add(2 * time.Second)
	var topology []standin.Subscription
	w := open(t, func(c *worker.Config) {
		c.Store, topology = distant{c.Store, stalled, stalled.Add(a.stall)}, standin.Topology(c.Catalog.Queues)
	})
	simulator := standin.NewSimulator(standin.SimulatorConfig{
		ProjectID: "p", Subscriptions: topology, Transport: inProcess(func(out http.ResponseWriter, r *http.Request) {
			<-time.After(pushTakes)
			var push struct {
				Message struct{ Attributes map[string]string }
			}
			body, answer := bytes.Buffer{}, httptest.NewRecorder()
			assert.NoError(t, json.NewDecoder(io.TeeReader(r.Body, &body)).Decode(&push))
			r.Body = io.NopCloser(&body)
			w.ServeHTTP(answer, r)
			out.WriteHeader(answer.Code)
			mu.Lock()
			defer mu.Unlock()
			if answer.Code != http.StatusOK {
				refused++
				return
			}
			at := came[push.Message.Attributes[contract.AttrEventID]]
			second := int(at.Sub(began) / time.Second)
			waits[second] = append(waits[second], time.Since(at))
		}),
	})
	simulator.PushTo("http://worker")
	t.Cleanup(func() { w.Drain(); require.NoError(t, simulator.Close()) })
	send := func() {
		mu.Lock()
		id := fmt.Sprint("event-", len(came))
		came[id] = time.Now()
		mu.Unlock()
		data, err := paidOrder(id, "customer-"+id, "411486491630370501").Append(nil)
		require.NoError(t, err)
		time.AfterFunc(publishTakes, func() {
			_, err := simulator.Publish(t.Context(), "paynow-events", contract.Message{Data: data, OrderingKey: id, Attributes: map[string]string{
				contract.AttrEventID: id, "event_type": contract.OrderPaid, "ordering_key": id, "paynow_customer_id": "customer-" + id,
			}})
			assert.NoError(t, err)
		})
	}
	for i := range a.perSecond * a.seconds {
		<-time.After(time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(a.perSecond))))
		if send(); i == 2*a.perSecond {
			for range a.burst {
				send()
			}
		}
	}
	<-time.After(time.Minute)
	return waits, refused
}

// within is in what time 99 of 100 took effect.
func within(waits [][]time.Duration) time.Duration {
	all := slices.Sorted(slices.Values(slices.Concat(waits...)))
	return all[len(all)*99/100].Truncate(time.Millisecond)
}

// TestABurstAndAStallOfTheStoreAreWaitedOut: no push is refused, and what comes after them is soon as fast as before.
func TestABurstAndAStallOfTheStoreAreWaitedOut(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		arrivals
		// most is the p99 of all events that come from a second on.
		from int
		most time.Duration
	}{
		"500 a second":                          {arrivals{perSecond: 500, seconds: 3}, 1, 100 * time.Millisecond},
		"a burst of 1,000 on 490 a second":      {arrivals{perSecond: 490, burst: 1000, seconds: 4}, 2, 600 * time.Millisecond},
		"a stall of 5 s at 490 a second":        {arrivals{perSecond: 490, seconds: 14, stall: 5 * time.Second}, 12, 100 * time.Millisecond},
		"a stall of nearly 10 s at 50 a second": {arrivals{perSecond: 50, seconds: 14, stall: 9900 * time.Millisecond}, 13, 100 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				waits, refused := simulate(t, test.arrivals)
				require.Len(t, slices.Concat(waits...), test.perSecond*test.seconds+test.burst, "each takes effect once")
				require.Zero(t, refused)
				require.LessOrEqual(t, within(waits[test.from:]), test.most)
			})
		})
	}
}
