package events_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/dryrun"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

var now = time.Date(2026, 3, 2, 10, 15, 0, 0, time.UTC)

var orders = catalog.Queue{
	ID: "orders", Alias: "q:orders", Enabled: true,
	DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: time.Hour * 24 * 14},
}

// trier is a worker whose trials end as the body of a message says.
type trier struct{}

func (trier) Queue(name string) (catalog.Queue, bool) {
	return orders, name == orders.ID || name == orders.Alias
}

func (trier) Try(_ context.Context, m dryrun.Message) (dryrun.Trial, error) {
	return dryrun.Trial{
		Tried: dryrun.Tried{
			Queue: m.Queue, Tenant: dedupe.DefaultTenant, EventID: m.Attributes["event_id"], From: m.From,
		},
		End: dryrun.End{Outcome: retry.Outcome(m.Data)},
	}, nil
}

func message(id, would string) contract.Message {
	return contract.Message{
		Data: []byte(would), Attributes: map[string]string{"event_id": id, "event_type": "order.paid"},
	}
}

// record is of an event that has had an attempt.
func record(id string, status dedupe.Status, kept *contract.Message) store.Write {
	return store.Create(dedupe.Key("orders", "default", id), dedupe.Record{
		Identity: dedupe.Identity{Queue: "orders", Tenant: "default", EventID: id, PayloadHash: "sha256:00"},
		Status:   status, Tries: dedupe.Tries{LeaseToken: "t", Attempts: 1, Message: kept},
	}.Fields())
}

func keep(t *testing.T, s store.Store) {
	t.Helper()
	for _, m := range []contract.Message{
		message("dead", "processed"), message("of-two", "processed"),
		message("too-large", strings.Repeat(" ", 800<<10)),
	} {
		_, err := deadletter.Keep(t.Context(), s, orders, m, "m-"+m.Attributes["event_id"], now)
		require.NoError(t, err)
	}
	claimed := message("claimed", "calls")
	writes := []store.Write{
		record("delayed", dedupe.Failed, nil), record("claimed", dedupe.Processing, &claimed),
	}
	for id, tenant := range map[string]string{"dead": "default", "delayed": "default", "of-two": "another"} {
		at := filetest.Must(lane.Open(t.Context(), s, lane.Name{Queue: "orders", Message: id}))(t)
		_, put := filetest.Both(at.Put(lane.Kept{
			Topic: "orders", Content: lane.Content{Message: message(id, "retry")},
			Source: lane.Source{Tenant: tenant, EventID: id}, DueAt: now.Add(time.Minute),
		}, time.Time{}, "", now))(t)
		writes = append(writes, put...)
	}
	batch := lane.NewBatch(now)
	batch.Add("orders", "out", message("out", "processed"),
		lane.Source{Queue: "other", Tenant: "default", EventID: "emits-out"})
	storetest.Put(t, s, append(writes, batch.Writes()...)...)
}

func TestAnEventIsTriedByTheMessageThatIsKeptOfIt(t *testing.T) {
	t.Parallel()
	s := &storetest.Faults{Store: storetest.Open(t)}
	keep(t, s)
	d := events.Reads{Worker: func(files map[string]string) (dryrun.Worker, error) {
		if len(files) > 0 {
			return nil, fmt.Errorf("%w: products.yaml: wrong", dryrun.ErrCatalog)
		}
		return trier{}, nil
	}}
	d.Store, d.Now, d.Catalog = s, func() time.Time { return now },
		&catalog.Catalog{Queues: []catalog.Queue{orders}}
	brought := events.Message{Base64: []byte("processed"), Attributes: map[string]string{"event_id": "brought"}}
	for name, test := range map[string]struct {
		asked   events.Try
		from    string
		outcome retry.Outcome
	}{
		"a dead letter comes before what waits": {
			events.Try{EventID: "dead", Queue: "q:orders"}, "dead_letter", "processed",
		},
		"a message that waits":            {events.Try{EventID: "delayed"}, "delayed", "retry"},
		"one that a worker has in hand":   {events.Try{EventID: "claimed"}, "claimed", "calls"},
		"that of the tenant who is named": {events.Try{EventID: "of-two", Tenant: "another"}, "delayed", "retry"},
		"one that somebody brings": {
			events.Try{Message: &events.GivenMessage{Message: brought}, Queue: "orders"}, "", "processed",
		},
	} {
		got, err := d.Try(t.Context(), audit.Author{}, test.asked)
		require.NoError(t, err, name)
		require.Equal(t, test.from, got.From.Kind, name)
		require.Equal(t, test.outcome, got.Outcome, name)
	}
	for want, refused := range map[error][]events.Try{
		events.ErrSeveral: {{EventID: "of-two"}},
		dryrun.ErrNoQueue: {{EventID: "delayed", Queue: "nobody"}},
		dryrun.ErrCatalog: {{EventID: "delayed", Catalog: map[string]string{"products.yaml": ""}}},
		events.ErrUntried: {
			{EventID: "nothing"},
			{EventID: "emits-out"},
			{EventID: "delayed", Tenant: "another"},
			{EventID: "too-large"},
		},
	} {
		for _, asked := range refused {
			require.ErrorIs(t, filetest.ErrorOf(d.Try(t.Context(), audit.Author{}, asked)), want, asked)
		}
	}
	s.FailReads(1)
	_, err := d.Try(t.Context(), audit.Author{}, events.Try{EventID: "delayed"})
	require.ErrorIs(t, err, storetest.ErrFault)
}
