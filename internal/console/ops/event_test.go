package ops_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/console/ops"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/backlog"
	"billhook/internal/platform/standin"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// waits is the document of a message that an event emits, or that is the event's own where emits is
// empty.
func waits(in lane.Kind, id, event, emits string, change func(fields map[string]any)) store.Write {
	fields := map[string]any{
		"queue": "orders", "tenant": "default", "event_id": event, "topic": "orders", "created_at": at,
		"message": store.Encode(&contract.Message{
			Data: []byte("{}"), OrderingKey: "u1", Attributes: map[string]string{"event_id": event, "event_type": "order.paid", "ordering_key": "u1"},
		}),
	}
	if emits != "" {
		fields["emits"] = emits
	}
	if change != nil {
		change(fields)
	}
	return store.Create(store.Key{Collection: in.Entries(), ID: id}, fields)
}

// keep dead-letters a message of an event, and returns the id of its letter.
func (r *rig) keep(t *testing.T, event, messageID string) string {
	t.Helper()
	m := contract.Message{Data: []byte("{}"), Attributes: map[string]string{
		"event_id": event, "ordering_key": "u1", "dead_letter_reason": "unknown_product", "source_message_id": messageID, "dead_lettered_at": at.Format(time.RFC3339),
	}}
	_, err := deadletter.Keep(t.Context(), r.store, queues.Queues[0], m, messageID, at)
	require.NoError(t, err)
	return deadletter.ItemID(queues.Queues[0], messageID, m)
}

func (r *rig) event(t *testing.T, id string) (event ops.Event) {
	t.Helper()
	require.Equal(t, http.StatusOK, r.ask(t, "/v1/ops/events/"+id, nil, &event).Code)
	return event
}

// TestAnEventIsFoundInEveryPlaceThatItCanWaitIn: with a record or without one.
func TestAnEventIsFoundInEveryPlaceThatItCanWaitIn(t *testing.T) {
	t.Parallel()
	due := at.Add(time.Hour)
	head := func(id string) store.Write {
		return store.Create(store.Key{Collection: lane.Delayed.Lanes(), ID: id}, map[string]any{"newest": id + "-2", "due_at": due, "stays": true, "queue": "orders"})
	}
	status := func(status dedupe.Status) dedupe.Record {
		record := record("orders", "default", "e1")
		record.Status, record.ProcessedAt = status, time.Time{}
		return record
	}
	for name, test := range map[string]struct {
		arrange func(t *testing.T, r *rig) []ops.Spot
		status  dedupe.Status
	}{
		"in the broker, for its next attempt": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			failed := status(dedupe.Failed)
			failed.NextRetryAt = due
			r.commit(t, own(failed))
			return []ops.Spot{{Place: ops.PlaceBroker, Queue: "orders", Since: at.Add(time.Second), Until: due}}
		}, dedupe.Failed},
		"with a worker": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			held := status(dedupe.Processing)
			held.LeaseUntil = due
			r.commit(t, own(held))
			return []ops.Spot{{Place: ops.PlaceLease, Queue: "orders", Since: at.Add(time.Second), Until: due}}
		}, dedupe.Processing},
		"delayed, without a record": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			r.commit(t, head("l"), waits(lane.Delayed, "l-2", "e1", "", func(fields map[string]any) { fields["due_at"] = due }))
			return []ops.Spot{{Place: ops.PlaceDelayed, Queue: "orders", Since: at, Until: due, OrderingKey: "u1"}}
		}, ops.Waits},
		"delayed behind another of its key": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			r.commit(t, head("l"), waits(lane.Delayed, "l-1", "e0", "", nil), waits(lane.Delayed, "l-2", "e1", "", nil), own(status(dedupe.Failed)))
			return []ops.Spot{{Place: ops.PlaceDelayed, Queue: "orders", Since: at, Until: due, OrderingKey: "u1", Behind: "e0"}}
		}, dedupe.Failed},
		"in the outbox, to be published first": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			r.commit(t, waits(lane.Outbox, "l-1", "e0", "e1", nil))
			return []ops.Spot{{Place: ops.PlaceOutbox, Queue: "orders", Topic: "orders", Since: at}}
		}, ops.Waits},
		"emitted for a later time": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			r.commit(t, head("l"), waits(lane.Delayed, "l-emission", "e0", "e1", func(fields map[string]any) { fields["due_at"] = due }))
			return []ops.Spot{{Place: ops.PlaceDelayed, Queue: "orders", Since: at, Until: due, OrderingKey: "u1"}}
		}, ops.Waits},
		"on the dead-letter topic": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			r.commit(t, own(status(dedupe.DeadLettered)))
			return []ops.Spot{{Place: ops.PlaceDeadLetterTopic, Queue: "orders", Since: at.Add(time.Second)}}
		}, dedupe.DeadLettered},
		"in its dead letter": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			id := r.keep(t, "e1", "17")
			return []ops.Spot{{Place: ops.PlaceDeadLetter, Queue: "orders", Since: at, Until: at.Add(time.Hour), DeadLetters: []string{id}}}
		}, dedupe.DeadLettered},
		"in a replay, and in the outbox of it": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			id := r.keep(t, "e1", "17")
			op := r.begin(t, "orders", "ilse-ops")
			_, err := r.operator().Run(t.Context(), op.ID)
			require.NoError(t, err)
			return []ops.Spot{
				{Place: ops.PlaceOutbox, Queue: "orders", Topic: "orders", Since: at},
				{Place: ops.PlaceReplay, Queue: "orders", Since: at, DeadLetters: []string{id}, Operation: op.ID},
			}
		}, dedupe.DeadLettered},
		"for a second person": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			id := r.keep(t, "e1", "17")
			r.fourEyes = true
			op := r.begin(t, "orders", "ilse-ops")
			return []ops.Spot{
				{Place: ops.PlaceDeadLetter, Queue: "orders", Since: at, Until: at.Add(time.Hour), DeadLetters: []string{id}},
				{Place: ops.PlaceApproval, Queue: "orders", Since: at, DeadLetters: []string{id}, Operation: op.ID, Who: "ilse-ops", Why: "the product is set"},
			}
		}, dedupe.DeadLettered},
		"in a paused queue": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			r.commit(t, own(status(dedupe.Failed)), store.Create(store.Key{Collection: pause.Collection, ID: "orders"}, store.Encode(&pause.Pause{Queue: "orders", Who: "ilse-ops", Why: "the books are closed", At: at})))
			return []ops.Spot{
				{Place: ops.PlaceBroker, Queue: "orders", Since: at.Add(time.Second)},
				{Place: ops.PlacePaused, Queue: "orders", Since: at, Who: "ilse-ops", Why: "the books are closed"},
			}
		}, dedupe.Failed},
		"nowhere: it is done": {func(t *testing.T, r *rig) []ops.Spot {
			t.Helper()
			r.commit(t, own(record("orders", "default", "e1")))
			return []ops.Spot{}
		}, dedupe.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			want := test.arrange(t, r)
			event := r.event(t, "e1")
			require.Equal(t, want, event.Places)
			require.Equal(t, test.status, event.Status)
			require.Equal(t, "orders", event.Queue)
		})
	}
}

// operator is one over the rig's store, whose queues need four eyes if the rig's do.
func (r *rig) operator() *deadletter.Operator {
	o := operatorOf(r.store)
	find := o.Queue
	o.Queue = func(id string) (q catalog.Queue, ok bool) {
		q, ok = find(id)
		q.FourEyes = r.fourEyes
		return q, ok
	}
	return o
}

// begin asks for the replay of a queue's dead letters.
func (r *rig) begin(t *testing.T, queue, who string) deadletter.Operation {
	t.Helper()
	op, err := r.operator().Begin(t.Context(), deadletter.Operation{Kind: deadletter.Replay, Filter: deadletter.Filter{Queue: queue}, Why: "the product is set"}, audit.Author{Proof: audit.Identity, Name: who}, 1)
	require.NoError(t, err)
	return op
}

func TestTheHistoryOfAnEventIsInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	r := open(t)
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	told := record("orders", "default", "e1")
	told.DoorReceivedAt, told.PublishedAt = second(-9), second(-9)
	told.Log = []dedupe.Attempt{
		{Number: 1, Delivery: 3, MessageID: "17", Instance: "i1", Begun: second(-8), Ended: second(-7), Outcome: retry.Retry, Reason: "handler_error", Next: second(-6)},
		{Number: 2, Delivery: 4, MessageID: "17", Instance: "i2", Begun: second(-6)},
		{Number: 3, Delivery: 6, MessageID: "17", Instance: "i3", Begun: second(-5), Ended: second(-5), Outcome: retry.DeadLettered, Reason: "unknown_product"},
		{Number: 1, Delivery: 2, MessageID: "18", Instance: "i3", Begun: second(5), Ended: second(6), Outcome: retry.Processed},
	}
	r.commit(t, own(told))
	id := r.keep(t, "e1", "17")
	op := r.begin(t, "orders", "ilse-ops")
	_, err := r.operator().Run(t.Context(), op.ID)
	require.NoError(t, err)
	event := r.event(t, "e1")
	require.Equal(t, []ops.Step{
		{At: second(-9), What: ops.StepReceived},
		{At: second(-9), What: ops.StepPublished},
		{At: second(-8), What: ops.StepSilent, Delivery: 1, Last: 2, MessageID: "17"},
		{At: second(-8), What: ops.StepTried, End: second(-7), Attempt: 1, Instance: "i1", NextAt: second(-6), Delivery: 3, MessageID: "17", Outcome: retry.Retry, Reason: "handler_error"},
		{At: second(-6), What: ops.StepTried, Attempt: 2, Instance: "i2", Delivery: 4, MessageID: "17"},
		{At: second(-5), What: ops.StepSilent, Delivery: 5, Last: 5, MessageID: "17"},
		{At: second(-5), What: ops.StepTried, End: second(-5), Attempt: 3, Instance: "i3", Delivery: 6, MessageID: "17", Outcome: retry.DeadLettered, Reason: "unknown_product"},
		{At: at, What: ops.StepKept, Place: ops.PlaceOutbox},
		{At: at, What: ops.StepDied, DeadLetter: id, Reason: "unknown_product", MessageID: "17"},
		{At: at, What: ops.StepReplayed, DeadLetter: id, Operation: op.ID, Who: "ilse-ops", Why: "the product is set"},
		{At: second(5), What: ops.StepSilent, Delivery: 1, Last: 1, MessageID: "18"},
		{At: second(5), What: ops.StepTried, End: second(6), Attempt: 1, Instance: "i3", Delivery: 2, MessageID: "18", Outcome: retry.Processed},
	}, event.History)
	require.Len(t, event.Log, 4)
}

// TestTheHistoryBeginsAtTheDoor: a message that waits and has no record tells of it too.
func TestTheHistoryBeginsAtTheDoor(t *testing.T) {
	t.Parallel()
	received := func(text string) func(fields map[string]any) {
		return func(fields map[string]any) {
			fields["message"] = store.Encode(&contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1", contract.AttrDoorReceived: text}})
		}
	}
	for name, test := range map[string]struct {
		arrange func(t *testing.T, r *rig)
		want    []ops.What
	}{
		"of what waits without a record": {func(t *testing.T, r *rig) {
			t.Helper()
			r.commit(t, waits(lane.Delayed, "l-1", "e1", "", received("2026-03-02T10:14:00Z")))
		}, []ops.What{ops.StepReceived, ops.StepKept}},
		"of a dead letter alone": {func(t *testing.T, r *rig) {
			t.Helper()
			m := contract.Message{Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1", "dead_letter_reason": "r", contract.AttrDoorReceived: "2026-03-02T10:14:00Z"}}
			_, err := deadletter.Keep(t.Context(), r.store, queues.Queues[0], m, "17", at)
			require.NoError(t, err)
		}, []ops.What{ops.StepReceived, ops.StepDied}},
		"not where it came another way": {func(t *testing.T, r *rig) {
			t.Helper()
			r.commit(t, waits(lane.Delayed, "l-1", "e1", "", nil))
		}, []ops.What{ops.StepKept}},
		"not where the attribute is no time": {func(t *testing.T, r *rig) {
			t.Helper()
			r.commit(t, waits(lane.Delayed, "l-1", "e1", "", received("yesterday")))
		}, []ops.What{ops.StepKept}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			test.arrange(t, r)
			var happened []ops.What
			for _, step := range r.event(t, "e1").History {
				happened = append(happened, step.What)
			}
			require.Equal(t, test.want, happened)
		})
	}
}

func TestWhatAnEventHasEmittedIsFollowedByOneLevel(t *testing.T) {
	t.Parallel()
	r := open(t)
	told, failed := record("orders", "default", "e1"), record("refunds", "default", "failed")
	for _, id := range []string{"done", "failed", "later", "soon", "gone", "buried"} {
		told.Emitted = append(told.Emitted, handler.Emitted{EventID: id, EventType: "t", To: "elsewhere"})
	}
	r.keep(t, "buried", "m-buried")
	failed.Status, failed.LastError = dedupe.Failed, "callee_down"
	r.commit(t, own(told), own(record("refunds", "default", "done")), own(failed), waits(lane.Outbox, "l-1", "e1", "soon", nil),
		waits(lane.Delayed, "m-emission", "e1", "later", func(fields map[string]any) { fields["due_at"] = at.Add(time.Hour) }))
	require.Equal(t, []ops.Emission{
		{EventID: "done", Tenant: "default", EventType: "t", Queue: "refunds", State: ops.EmissionProcessed},
		{EventID: "failed", Tenant: "default", EventType: "t", Queue: "refunds", State: ops.EmissionFailed, Reason: "callee_down"},
		{EventID: "later", Tenant: "default", EventType: "t", Queue: "elsewhere", State: ops.EmissionDelayed, Until: at.Add(time.Hour)},
		{EventID: "soon", Tenant: "default", EventType: "t", Queue: "elsewhere", State: ops.EmissionWaiting},
		{EventID: "gone", Tenant: "default", EventType: "t", Queue: "elsewhere", State: ops.EmissionPublished},
		{EventID: "buried", Tenant: "default", EventType: "t", Queue: "orders", State: ops.EmissionDeadLettered, Reason: "unknown_product"},
	}, r.event(t, "e1").Emissions)
}

func TestAnUnknownEventIsSaidToBeWhereItMayBe(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		counted map[string]int64
		says    string
	}{
		"where nothing is counted":       {nil, "how many messages wait in the broker is not known"},
		"where messages wait":            {map[string]int64{"orders": 3, "refunds": 0}, "in the broker are orders 3."},
		"where none waited at the count": {map[string]int64{"orders": 0, "refunds": 0}, "nothing waited in the broker"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := open(t)
			if held := map[string]backlog.Held{}; test.counted != nil {
				for queue, n := range test.counted {
					held[queue] = backlog.Held{Messages: n}
				}
				require.NoError(t, backlog.Write(t.Context(), r.store, at, held))
			}
			r.commit(t, store.Create(store.Key{Collection: pause.Collection, ID: "refunds"}, store.Encode(&pause.Pause{Queue: "refunds", Who: "w", Why: "w", At: at})))
			var problem struct{ Code, Detail string }
			require.Equal(t, http.StatusNotFound, r.ask(t, "/v1/ops/events/e9", nil, &problem).Code)
			require.Equal(t, "event_unknown", problem.Code)
			require.Contains(t, problem.Detail, test.says)
			require.Contains(t, problem.Detail, "Paused: refunds.")
		})
	}
}

// TestAnEventCostsABoundedNumberOfReads: whatever there is of other events, and of itself.
func TestAnEventCostsABoundedNumberOfReads(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		others int
		path   string
		reads  int64
	}{
		"one that is done":                      {0, "e1", 6},
		"one that is done, among many":          {300, "e1", 6},
		"one that is unknown":                   {300, "e9", 8},
		"one that waits in lines that are gone": {300, "busy", 6 + 10 + 10 + 2*10 + 1},
		"one that costs the most, but one":      {0, "dearest", mostRequests - 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, err := standin.OpenTemporaryStore(filepath.Join(t.TempDir(), "store.db"))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, db.Close()) })
			counter := &storetest.Counter{Store: db}
			r := &rig{store: &storetest.Faults{Store: counter}, access: ops.Access{OpenOnLoopback: true}}
			r.over(r.store)
			busy := record("orders", "default", "busy")
			busy.Status = dedupe.Failed
			for i := range 30 {
				busy.Emitted = append(busy.Emitted, handler.Emitted{EventID: fmt.Sprint("emitted-", i)})
				r.keep(t, "busy", fmt.Sprint("busy-", i))
				r.commit(t, waits(lane.Delayed, fmt.Sprint("busy", i, "-1"), "busy", "", nil))
			}
			r.commit(t, own(record("orders", "default", "e1")), own(busy))
			r.dearest(t)
			for i := range test.others {
				r.commit(t, own(record("orders", "default", fmt.Sprint("other-", i))), waits(lane.Outbox, fmt.Sprint("o-", i), fmt.Sprint("other-", i), "x", nil))
			}
			counter.Gets.Store(0)
			counter.Queries.Store(0)
			r.ask(t, "/v1/ops/events/"+test.path, nil, nil)
			require.Equal(t, test.reads, counter.Gets.Load()+counter.Queries.Load())
		})
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "exactly-once.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), fmt.Sprintf("asks the store at most %d times", mostRequests))
}

// mostRequests is how often one event's story asks the store at most: six queries, two requests for
// each of ten kept messages and of ten emissions, one for each of ten dead letters and for
// the pauses, one for what it has moved, and four for the balances around that.
const mostRequests = 6 + 2*10 + 10 + 2*10 + 1 + 1 + 4

// dearest writes an event of which everything is there that costs a request: its messages are kept,
// and its dead letters name an operation and no history.
func (r *rig) dearest(t *testing.T) {
	t.Helper()
	event := record("orders", "default", "dearest")
	for i := range 30 {
		event.Emitted = append(event.Emitted, handler.Emitted{EventID: fmt.Sprint("gone-", i)})
		id := fmt.Sprint("dearest", i)
		r.commit(t, store.Create(store.Key{Collection: lane.Delayed.Lanes(), ID: id}, map[string]any{"newest": id + "-1", "due_at": at, "stays": true, "queue": "orders"}),
			waits(lane.Delayed, id+"-1", "dearest", "", func(fields map[string]any) {
				fields["message"] = store.Encode(&contract.Message{Data: []byte("{}"), OrderingKey: "u2", Attributes: map[string]string{"event_id": "dearest"}})
			}))
		key := store.Key{Collection: deadletter.Collection, ID: r.keep(t, "dearest", fmt.Sprint("dearest-", i))}
		letter, err := r.store.Get(t.Context(), key)
		require.NoError(t, err)
		letter.Fields["operation"] = "before"
		r.commit(t, store.Replace(key, letter.Version, letter.Fields))
	}
	for i := range 201 { // on an account on which more has moved before and since than is added up
		when := cmp.Compare(i, 100)
		if entry := r.credit(t, []string{"before", "dearest", "after"}[when+1], fmt.Sprint("moved-", i), 1, when); when == 0 {
			event.Ref = entry
		}
	}
	r.commit(t, own(event))
}
