package bulk_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/bulk/bulktest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
)

var (
	queue = catalog.Queue{
		ID: "orders", DeadLetter: catalog.DeadLetter{Topic: "orders-dlq", Retention: 14 * 24 * time.Hour},
	}
	dead = time.Date(2026, 3, 2, 10, 15, 0, 123_456_789, time.UTC)
)

type rig struct {
	*bulk.Operator
	store  *storetest.Faults
	relay  *lane.Relay
	broker *broker
	now    time.Time
	queue  *catalog.Queue
	waited time.Duration
	ids    atomic.Int64
}

// broker confirms every message that Pub/Sub would take.
type broker struct {
	messages []contract.Message
	topics   []string
	err      error
}

func (b *broker) Publish(_ context.Context, topic string, m contract.Message) (string, error) {
	if err := cmp.Or(b.err, m.Check()); err != nil {
		return "", err
	}
	b.messages, b.topics = append(b.messages, m), append(b.topics, topic)
	return "1", nil
}

func newRig(t *testing.T) *rig {
	t.Helper()
	c := &catalog.Catalog{Queues: []catalog.Queue{queue}}
	d := &rig{
		store: &storetest.Faults{Store: storetest.Open(t)}, broker: &broker{}, now: dead, queue: &c.Queues[0],
	}
	d.queue.OrderingKey = []string{"uid"}
	d.relay = &lane.Relay{
		Of: lane.Outbox, Store: d.store, Publisher: d.broker, Now: func() time.Time { return d.now },
	}
	d.Operator = d.operator(c)
	return d
}

func (d *rig) operator(c *catalog.Catalog) *bulk.Operator {
	return &bulk.Operator{
		Store: d.store, Now: func() time.Time { return d.now }, NewID: func() string {
			return fmt.Sprint("id-", d.ids.Add(1))
		},
		Catalog: c,
		Wait: func(ctx context.Context, wait time.Duration) error {
			d.waited += max(wait, 0)
			d.now = d.now.Add(max(wait, 0))
			return ctx.Err()
		},
		Relay: func(ctx context.Context, lane string) error {
			_, err := d.relay.Lane(ctx, lane)
			return err
		},
	}
}

func (d *rig) bury(t *testing.T, n int, key, reason string, change func(*contract.Message)) {
	t.Helper()
	m := contract.Message{Data: fmt.Appendf(nil, `{"eventId":"e%d"}`, n), Attributes: map[string]string{
		"event_id": fmt.Sprint("e", n), "event_type": "order.paid", "ordering_key": key, "contract": "payment.v1",
		"dead_letter_reason": reason, "dead_letter_status": "422", "source_message_id": fmt.Sprint(1000 + n),
		"delivery_attempts":  "5",
		"dead_lettered_at":   d.now.Format(time.RFC3339Nano),
		"first_published_at": dead.Add(time.Duration(n) * time.Second).Format(time.RFC3339Nano),
		"replay_count":       "0", "source_queue": "orders", "trace": "x",
	}}
	if change != nil {
		change(&m)
	}
	_, err := deadletter.Keep(t.Context(), d.store, *d.queue, m, fmt.Sprint(9000+n), d.now)
	require.NoError(t, err)
}

func (d *rig) begin(
	t *testing.T, kind deadletter.Kind, f bulk.Filter, change func(*bulk.Operation),
) bulk.Operation {
	t.Helper()
	total := filetest.Must(d.Total(t.Context(), f))(t)
	op := bulk.Operation{Kind: kind, Filter: f, Why: "the product is known now", Rate: 1000}
	if change != nil {
		change(&op)
	}
	op = filetest.Must(d.Begin(t.Context(), op, ilse, total))(t)
	return op
}

var ilse = audit.Author{Proof: audit.Identity, Name: "ilse"}

func byName(who, why string) audit.Change {
	return audit.Change{Who: audit.Author{Proof: audit.Identity, Name: who}, Why: why}
}

var orders = bulk.Filter{Queue: "orders"}

func TestAReplayIsTheMessageAsItWasFirstPublishedAndCounted(t *testing.T) {
	t.Parallel()
	type row struct {
		topic    string
		bindings []routing.Pattern
		own      map[string]string // further attributes
	}
	filetest.Each(t, map[string]row{
		"on a queue's own topic": {},
		"on a shared topic, for the queue alone": {
			"sales", []routing.Pattern{"order.#"}, map[string]string{"queue": "orders"},
		},
	}, func(t *testing.T, test row) {
		d := newRig(t)
		d.queue.SharedTopic, d.queue.Bindings = test.topic, test.bindings
		d.bury(t, 1, "u1", "unknown_product", nil)
		id := d.only(t).ID
		op := d.run(t, deadletter.Replay)
		want := map[string]string{
			"event_id": "e1", "event_type": "order.paid", "ordering_key": "u1", "contract": "payment.v1", "trace": "x",
			"first_published_at": dead.Add(time.Second).Format(time.RFC3339Nano), "replay_count": "1", "replay_of": id,
		}
		maps.Copy(want, test.own)
		require.Equal(t, []contract.Message{
			{Data: []byte(`{"eventId":"e1"}`), OrderingKey: "u1", Attributes: want},
		}, d.broker.messages)
		require.Equal(t, []string{cmp.Or(test.topic, "orders")}, d.broker.topics)
		again := filetest.Must(d.Run(t.Context(), op.ID))(t)
		require.Equal(t, []any{bulk.Finished, op.Done}, []any{again.Progress, again.Done})
		require.Len(t, d.broker.messages, 1, "a finished operation does nothing")
	})
}

func TestAReplayKeepsToItsRate(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	for n := range 21 {
		d.bury(t, n, "u1", "unknown_product", nil)
	}
	_, err := d.Run(t.Context(), d.begin(t, deadletter.Replay, orders, func(op *bulk.Operation) {
		op.Rate = 5
	}).ID)
	require.NoError(t, err)
	require.Equal(t, 4*time.Second, d.waited, "five at once, and a second after each five but the last")
}

// TestAReplayThatFailsAgainIsTheSameItem: it is passed by after three replays unless somebody insists, and
// its history is bounded.
func TestAReplayThatFailsAgainIsTheSameItem(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	d.bury(t, 1, "u1", "unknown_product", nil)
	var op bulk.Operation
	for replays := range deadletter.MaxHistory + 2 {
		if replays == bulk.MaxReplays {
			op = d.run(t, deadletter.Replay)
			require.Equal(t, []int64{0, 1}, []int64{op.Done, op.Skipped})
		}
		op = d.begin(t, deadletter.Replay, orders, func(op *bulk.Operation) {
			op.Force, op.Why = replays >= bulk.MaxReplays, fmt.Sprint("try ", replays)
		})
		require.NoError(t, filetest.ErrorOf(d.Run(t.Context(), op.ID)))
		d.now = d.now.Add(time.Minute)
		again := d.broker.messages[replays]
		require.Equal(t, fmt.Sprint(replays+1), again.Attributes["replay_count"])
		for range 2 { // the dead letter's own redelivery changes nothing
			d.dies(t, again)
		}
		item := d.only(t)
		require.Equal(t, []any{deadletter.Open, int64(replays + 1), "attempts_exhausted", "1001"},
			[]any{item.State, item.ReplayCount, item.Reason, item.SourceMessageID})
	}
	history := d.only(t).History
	require.Len(t, history, deadletter.MaxHistory)
	require.Equal(t, deadletter.Act{
		Kind: deadletter.Replay, Operation: op.ID, Who: "ilse", Why: "try 11",
		At: d.now.Add(-time.Minute).Truncate(time.Microsecond),
	}, history[0], "the newest first")
	require.Equal(t, "try 2", history[len(history)-1].Why)
}

func TestADeadLetterTakesTwoPeopleWhereItIsStoredWhateverTheCallerNames(t *testing.T) {
	t.Parallel()
	d := newRig(t)
	other := *d.queue
	other.ID, d.queue.FourEyes = "others", true
	d.Catalog.Queues = append(d.Catalog.Queues, other)
	d.bury(t, 1, "u1", "unknown_product", nil)
	item := d.only(t).ID
	for expect, f := range []bulk.Filter{
		{Queue: "others"}, {Queue: "others", Items: []string{item}}, {Queue: "others", EventID: "e1"},
	} {
		for _, kind := range []deadletter.Kind{deadletter.Replay, deadletter.Discard, deadletter.Complete} {
			_, err := d.Begin(t.Context(), bulk.Operation{Kind: kind, Filter: f, Why: "w", Force: true}, ilse,
				min(expect, 1))
			require.True(t, errors.Is(err, bulk.ErrRefused) || errors.Is(err, bulk.ErrChanged), "%s of %s", kind, f)
		}
	}
	op := filetest.Must(d.Begin(t.Context(), bulk.Operation{
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: d.queue.ID, Items: []string{item}}, Why: "w",
		Progress: bulk.Running, ApprovedBy: "marta", Force: true,
	}, ilse, 1))(t)
	require.Equal(t, []any{bulk.Waiting, ""}, []any{op.Progress, op.ApprovedBy},
		"nobody approves by what they send")
	require.ErrorIs(t, filetest.ErrorOf(d.End(t.Context(), op.ID, bulk.Rejected, byName(" ILSE", "w"))),
		bulk.ErrRefused, "nobody refuses their own")
	without := bulk.Operation{Kind: deadletter.Replay, Filter: op.Filter, Why: " "}
	require.ErrorIs(t, filetest.ErrorOf(d.Begin(t.Context(), without, ilse, 1)), audit.ErrInvalid)
}

// With -short rapid takes a fifth of its steps, too few to come to each end of an operation.
func TestMain(m *testing.M) { storetest.Stepping(m, "60") }

func TestNoHistoryReplaysAnItemTwiceOrGoesOnAfterItsEnd(t *testing.T) {
	t.Parallel()
	bulktest.Run(t, storetest.Open)
}

// A run reads its operation, then what matches, then each item of a step. Its first commit takes the
// operation.
func TestARunThatIsCutOffLeavesTheOperationToTheNextAtOnce(t *testing.T) {
	t.Parallel()
	type row struct{ read, commit int }
	filetest.Each(t, map[string]row{
		"while it looks for what is left": {read: 3},
		"in the middle of a step":         {read: 8},
		"with its commit":                 {commit: 2},
	}, func(t *testing.T, at row) {
		d := newRig(t)
		d.many(t, 150, nil)
		op := d.begin(t, deadletter.Replay, orders, nil)
		ctx, cancel := context.WithCancel(t.Context())
		reads, commits := 0, 0
		d.store.OnRead = func(do func() error) error {
			if reads++; reads == at.read {
				cancel()
				return ctx.Err()
			}
			return do()
		}
		d.store.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
			err := do()
			if commits++; commits == at.commit { // it is written, and nobody waits for the answer
				cancel()
				return ctx.Err()
			}
			return err
		}
		after, err := d.Run(ctx, op.ID)
		require.NoError(t, err, "how far it is")
		require.Equal(t, bulk.Running, after.Progress)
		require.Less(t, after.Done, int64(150))
		ran := filetest.Must(d.operator(d.Catalog).RunAll(t.Context(), 10, slog.New(slog.DiscardHandler)))(t)
		require.Equal(t, "{1 1 0 0}", fmt.Sprint(ran), "nobody has it any more")
		after = filetest.Must(d.Operation(t.Context(), op.ID))(t)
		require.Equal(t, []int64{150, 150, 0}, []int64{after.Total, after.Done, after.Skipped})
	})
}
