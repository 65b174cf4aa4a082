package webhook_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
)

type listed struct {
	Results []struct {
		problem
		EventID    string `json:"event_id"`
		Queue      string `json:"queue"`
		RetryAfter int    `json:"retry_after"`
	} `json:"results"`
}

func (d *service) list(t *testing.T, path string, items ...string) listed {
	t.Helper()
	w := d.send(generic(t, path, []byte(`{"messages":[`+strings.Join(items, ",")+`]}`)))
	require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	answer := filetest.JSON[listed](t, w.Body.Bytes())
	require.Len(t, answer.Results, len(items))
	requireNothingLeaks(t, d, w, "Mette")
	return answer
}

func (l listed) codes() (all []string) {
	for _, r := range l.Results {
		all = append(all, fmt.Sprint(r.Status, r.Code))
	}
	return all
}

func of(order, id string) string {
	return fmt.Sprintf(`{"message":{"id":%q,"type":"order.shipped","version":1,"data":{"order_id":%q}}}`, id,
		order)
}

func TestEachMessageOfAListHasItsOwnResult(t *testing.T) {
	t.Parallel()
	d := open(t, producing())
	answer := d.list(t, toOrders,
		of("o1", "e1"), `{"message":{"type":"order.shipped","version":1,"data":{"order_id":"o1","name":"Mette"}}}`,
		`"Mette"`, `{"message":[]}`, `{}`,
		`{"message":{"order_id":"o2"},"routing_key":"order.shipped"}`, `{"message":`+shipped+`,"priority":"low"}`,
		`{"message":{"eventId":"1","eventType":"order.paid"}}`, of("o1", "e9"),
	)
	var paths []string
	for _, r := range answer.Results {
		for _, v := range r.Violations {
			paths = append(paths, v.Path)
		}
	}
	const broken = "422contract_broken"
	require.Equal(t, []string{
		"202", broken, broken, broken, broken, "202", broken, "422contract_unsupported", "202",
	}, answer.codes())
	require.Equal(t, []string{"data.name", "", "message", "message", "priority"}, paths)
	require.Equal(t, []string{"e1", "orders-process"},
		[]string{answer.Results[0].EventID, answer.Results[0].Queue})
	require.Len(t, d.broker.all(), 3)
	require.Equal(t, 9, strings.Count(d.log.String(), `"message":"webhook"`), "each has a line in the log")
}

// moody is a broker that confirms once enough messages have arrived, fails some, and panics at others.
type moody struct {
	recorder
	wants, arrived int
	gather         chan struct{}
	fails, panics  []string
}

func (p *moody) Publish(ctx context.Context, topic string, m contract.Message) (string, error) {
	p.mu.Lock()
	if p.arrived++; p.arrived == p.wants {
		close(p.gather)
	}
	p.mu.Unlock()
	if p.wants > 0 {
		select {
		case <-p.gather:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	switch id := m.Attributes["event_id"]; {
	case slices.Contains(p.panics, id):
		panic("Mette")
	case slices.Contains(p.fails, id):
		return "", errors.New("Mette")
	}
	return p.recorder.Publish(ctx, topic, m)
}

func TestListIsPublishedConcurrentlyAndInOrderOfEachKey(t *testing.T) {
	t.Parallel()
	broker := &moody{wants: 10, gather: make(chan struct{})}
	d := open(t, func(c *webhook.Config) { producing()(c); c.Publisher = broker })
	var items []string
	for i := range 100 {
		items = append(items, of(fmt.Sprint("o", i%10), fmt.Sprintf("e%02d", i)))
	}
	for _, r := range d.list(t, toOrders, items...).Results {
		require.Equal(t, http.StatusAccepted, r.Status)
	}
	last := map[string]string{}
	for _, got := range broker.all() {
		require.Less(t, last[got.message.OrderingKey], got.message.Attributes["event_id"], "in order")
		last[got.message.OrderingKey] = got.message.Attributes["event_id"]
	}
	require.Len(t, broker.all(), 100)
}

func TestMessageDoesNotOvertakeAnUnpublishedOneOfItsKey(t *testing.T) {
	t.Parallel()
	broker := &moody{fails: []string{"e2"}, panics: []string{"p1"}}
	d := open(t, func(c *webhook.Config) { producing()(c); c.Publisher = broker })
	answer := d.list(t, toOrders, of("o1", "e1"), of("o1", "e2"), of("o1", "e3"), of("o2", "e4"), of("o3", "p1"),
		of("o3", "e6"), of("o2", "e7"))
	for _, r := range answer.Results {
		require.Equal(t, r.Status == http.StatusServiceUnavailable, r.RetryAfter > 0)
	}
	require.Equal(t, []string{
		"202", "503publish_unconfirmed", "503key_held_up", "202", "500internal", "500internal", "202",
	}, answer.codes())
	require.Len(t, broker.all(), 3)
}
