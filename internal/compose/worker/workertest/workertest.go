// Package workertest simulates a worker under load, with the latencies of production. Time is the fake time
// of testing/synctest, in which computing takes none: the results depend only on slots, waits and nacks. It
// does not measure the load that a processor can carry.
package workertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/compose/worker"
	"billhook/internal/console/access"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/platform/telemetry"
)

// The latencies of production for a publish, for a push, and for a call of the store.
const (
	PublishTakes = 30 * time.Millisecond
	PushTakes    = 10 * time.Millisecond
	StoreTakes   = 20 * time.Millisecond
)

// Load is events of one type, PerSecond of which are published to a queue. After two seconds Burst more are
// published at once, or the store does not answer for Stall.
type Load struct {
	Queue, EventType          string
	PerSecond, Burst, Seconds int
	Stall                     time.Duration
}

// Found has the results. Waits are the times from webhook to effect, by the second in which it was published.
type Found struct {
	Waits [][]time.Duration
	// Slots is the sum of the times that events had a slot or waited for one. Refused counts refused pushes.
	Slots   time.Duration
	Refused int
}

// Within returns the time within which 99 of 100 events took effect, of those published from a second on.
func (f Found) Within(second int) time.Duration {
	all := slices.Sorted(slices.Values(slices.Concat(f.Waits[second:]...)))
	return all[len(all)*99/100].Truncate(time.Millisecond)
}

// production publishes with the latency of production.
type production struct{}

func (production) Publish(context.Context, string, contract.Message) (string, error) {
	<-time.After(PublishTakes)
	return "1", nil
}

// Transport pushes without a network, so that time in a bubble passes.
type Transport func(http.ResponseWriter, *http.Request)

// RoundTrip pushes after PushTakes.
func (p Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	<-time.After(PushTakes)
	answer := httptest.NewRecorder()
	p(answer, r)
	return answer.Result(), nil
}

// Anyone accepts every push, or refuses it with Err.
type Anyone struct{ Err error }

// Verify returns the error.
func (a Anyone) Verify(context.Context, string) error { return a.Err }

// Secret is the secret of each target.
const Secret = "a-secret-of-more-than-24-bytes"

// Targets are the targets of a catalog, all of them at one URL.
func Targets(t testing.TB, c *catalog.Catalog, url string) delivery.Targets {
	t.Helper()
	targets := filetest.Must(delivery.Open(c, "", func(catalog.Target) (string, []string) {
		return url, []string{Secret}
	}, time.Now))(t)
	t.Cleanup(targets.Close)
	return targets
}

// Config is that of a worker of the shipped catalog on a new store. It has no broker, and reaches no target.
func Config(t testing.TB) worker.Config {
	t.Helper()
	c := catalogtest.Shipped()
	return worker.Config{
		Catalog: c, Targets: Targets(t, c, "http://127.0.0.1:1"), Store: storetest.Open(t), Authenticator: Anyone{},
		Access: access.Access{OpenOnLoopback: true}, Log: slog.New(slog.DiscardHandler),
		Metrics: telemetry.NewMetrics(), Now: time.Now,
	}
}

// open makes one instance of a worker, whose store stalls two seconds after began.
func open(t *testing.T, c worker.Config, began time.Time, stall time.Duration) *worker.Worker {
	t.Helper()
	answers := func(do func() error) error {
		if <-time.After(StoreTakes); time.Since(began) > 2*time.Second {
			<-time.After(time.Until(began.Add(2*time.Second + stall)))
		}
		return do()
	}
	c.Publisher, c.Store = production{}, &storetest.Faults{
		Store: c.Store, OnRead: answers,
		OnCommit: func(_ context.Context, _ []store.Write, do func() error) error { return answers(do) },
	}
	w := filetest.Must(worker.New(c))(t)
	t.Cleanup(w.Drain)
	return w
}

// Simulate has one instance of the shipped worker handle unrelated events. Each must take effect.
func Simulate(t *testing.T, l Load) Found {
	t.Helper()
	var mu sync.Mutex
	began, came, found := time.Now(), map[string]time.Time{}, Found{Waits: make([][]time.Duration, l.Seconds)}
	config := Config(t)
	c, w := config.Catalog, open(t, config, began, l.Stall)
	push := func(out http.ResponseWriter, r *http.Request) {
		var push struct {
			Message struct{ Attributes map[string]string }
		}
		body, answer, pushed := bytes.Buffer{}, httptest.NewRecorder(), time.Now()
		assert.NoError(t, json.NewDecoder(io.TeeReader(r.Body, &body)).Decode(&push))
		r.Body = io.NopCloser(&body)
		w.ServeHTTP(answer, r)
		out.WriteHeader(answer.Code)
		mu.Lock()
		defer mu.Unlock()
		if found.Slots += time.Since(pushed); answer.Code != http.StatusOK {
			found.Refused++
			return
		}
		at := came[push.Message.Attributes[contract.AttrEventID]]
		second := at.Sub(began) / time.Second
		found.Waits[second] = append(found.Waits[second], time.Since(at))
	}
	simulator := standin.NewSimulator(standin.SimulatorConfig{
		ProjectID: "p", Subscriptions: standin.Topology(c.Queues), Transport: Transport(push),
	})
	simulator.PushTo("http://worker")
	t.Cleanup(func() { require.NoError(t, simulator.Close()) })
	q, _ := c.Queue(l.Queue)
	send := func() {
		unique := fmt.Sprint(len(came))
		data := filetest.Must(samples.Message(c, q, l.EventType, unique, began))(t)
		id, key := samples.IDPrefix+unique, "key-"+unique
		mu.Lock()
		came[id] = time.Now()
		mu.Unlock()
		m := contract.Message{Data: data, OrderingKey: key, Attributes: map[string]string{
			contract.AttrEventID: id, "ordering_key": key,
			"event_type": l.EventType, "routing_key": l.EventType,
		}}
		time.AfterFunc(PublishTakes, func() {
			_, err := simulator.Publish(t.Context(), q.Topic(), m)
			assert.NoError(t, err)
		})
	}
	for i := range l.PerSecond * l.Seconds {
		due := began.Add(time.Duration(i) * time.Second / time.Duration(l.PerSecond))
		<-time.After(time.Until(due))
		if send(); i == 2*l.PerSecond {
			for range l.Burst {
				send()
			}
		}
	}
	<-time.After(time.Minute)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, slices.Concat(found.Waits...), len(came), "each takes effect once")
	return found
}
