package operations_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/apps/ledger"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/inspect/events"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/pause"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// event looks at an event, each place, step and emission of which has a sentence.
func (r *rig) event(t require.TestingT, id string) events.Event {
	event := look[events.Event](t, r, "events/"+id)
	require.Regexp(t, "^(It|A worker) .*\\.$", event.Happened())
	for _, spot := range event.Places {
		require.NotEqual(t, string(spot.Place), spot.String())
	}
	for _, step := range event.History {
		word := step.What == events.StepPublished || step.What == events.StepDone
		require.Equal(t, !word, strings.Contains(step.Happened(), " "), step.What)
	}
	for _, one := range event.Emissions {
		stateless := one
		stateless.State = ""
		require.NotEqual(t, stateless.String(), one.String())
	}
	return event
}

func (r *rig) begin(t *testing.T, runs bool) (op bulk.Operation) {
	t.Helper()
	op = filetest.Must(r.operator.Begin(t.Context(), bulk.Operation{
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders"}, Why: "the product is set",
	}, audit.Author{Proof: audit.Identity, Name: "ilse-ops"}, 1))(t)
	if runs {
		require.NoError(t, filetest.ErrorOf(r.operator.Run(t.Context(), op.ID)))
	}
	return op
}

func paused(queue string) store.Write {
	return store.Create(store.Key{Collection: pause.Collection, ID: queue},
		store.Encode(&pause.Pause{Queue: queue, Who: "ilse-ops", Why: "the books are closed", At: at}))
}

// delayedLane is the head of a lane whose newest message is the second.
func delayedLane(id string, due time.Time) store.Write {
	return store.Create(store.Key{Collection: lane.Delayed.Lanes(), ID: id},
		map[string]any{"newest": id + "-2", "due_at": due, "stays": true, "queue": "orders"})
}

// placed describes where an event waits. Random ids are replaced by their count.
func placed(s events.Spot) string {
	text := fmt.Sprintf("%s of %s since %s", s.Place, s.Queue, s.Since.Sub(at))
	if !s.Until.IsZero() {
		text += " until " + s.Until.Sub(at).String()
	}
	if len(s.DeadLetters) > 0 || s.Operation != "" {
		text += fmt.Sprintf(", %d dead letters, %d operations", len(s.DeadLetters),
			len(strings.Fields(s.Operation)))
	}
	rest := []string{text, s.Topic, s.OrderingKey, s.Behind, s.Who, s.Why}
	return strings.TrimRight(strings.Join(rest, " "), " ")
}

func TestEventIsFoundWhereverItWaits(t *testing.T) {
	t.Parallel()
	due := at.Add(time.Hour)
	later := func(fields map[string]any) { fields["due_at"] = due }
	recorded := func(status dedupe.Status) store.Write {
		record := record("orders", "default", "e1")
		record.Status, record.ProcessedAt, record.NextRetryAt, record.LeaseUntil = status, time.Time{}, due, due
		if status == dedupe.Processing {
			record.Message = &contract.Message{Data: []byte("no\xffJSON")}
		}
		return own(record)
	}
	dies := func(t *testing.T, r *rig) { r.bury(t, declared.Queues[0], "e1", "17", "{}") }
	type row struct {
		status  dedupe.Status
		payload string // where its message is kept; empty: nowhere
		want    []string
		happens func(t *testing.T, r *rig)
	}
	stored := func(status dedupe.Status, payload, want string, writes ...store.Write) row {
		return row{status, payload, []string{want}, func(t *testing.T, r *rig) { r.commit(t, writes...) }}
	}
	const failed, delayed = "broker of orders since 1s until 1h0m0s",
		"delayed of orders since 0s until 1h0m0s  u1"
	const died = "dead_letter of orders since 0s until 1h0m0s, 1 dead letters, 0 operations"
	filetest.Each(t, map[string]row{
		"in the broker, for its next attempt": stored(dedupe.Failed, "", failed, recorded(dedupe.Failed)),
		"with a worker": stored(dedupe.Processing, "lease", "lease of orders since 1s until 1h0m0s",
			recorded(dedupe.Processing)),
		"delayed, without a record": stored(events.Waits, "delayed", delayed, delayedLane("l", due),
			waits(lane.Delayed, "l-2", "e1", "", later)),
		"delayed behind another of its key": stored(dedupe.Failed, "delayed", delayed+" e0", delayedLane("l", due),
			waits(lane.Delayed, "l-1", "e0", "", nil), waits(lane.Delayed, "l-2", "e1", "", nil),
			recorded(dedupe.Failed)),
		"in the outbox, to be published first": stored(events.Waits, "outbox", "outbox of orders since 0s orders",
			waits(lane.Outbox, "l-1", "e0", "e1", nil)),
		"emitted for a later time": stored(events.Waits, "delayed", delayed, delayedLane("l", due),
			waits(lane.Delayed, "l-emission", "e0", "e1", later)),
		"on the dead-letter topic": stored(dedupe.DeadLettered, "", "dead_letter_topic of orders since 1s",
			recorded(dedupe.DeadLettered)),
		"in its dead letter": {dedupe.DeadLettered, "dead_letter", []string{died}, dies},
		"in a replay, and in the outbox of it": {dedupe.DeadLettered, "dead_letter outbox", []string{
			"outbox of orders since 0s orders", "replay of orders since 0s, 1 dead letters, 1 operations",
		}, func(t *testing.T, r *rig) { dies(t, r); r.begin(t, true) }},
		"for a second person": {dedupe.DeadLettered, "dead_letter", []string{
			died, "approval of orders since 0s, 1 dead letters, 1 operations    ilse-ops the product is set",
		}, func(t *testing.T, r *rig) { r.fourEyes(); dies(t, r); r.begin(t, false) }},
		"in a paused queue": {dedupe.Failed, "", []string{
			failed, "paused of orders since 0s    ilse-ops the books are closed",
		}, func(t *testing.T, r *rig) { r.commit(t, recorded(dedupe.Failed), paused("orders")) }},
		"nowhere: it is done": {dedupe.Completed, "", nil, func(t *testing.T, r *rig) {
			r.commit(t, recorded(dedupe.Completed))
		}},
	}, func(t *testing.T, test row) {
		r := open(t)
		test.happens(t, r)
		event := r.event(t, "e1")
		require.Equal(t, test.want, filetest.Map(event.Places, placed))
		require.Equal(t, []any{test.status, "orders", ""}, []any{event.Status, event.Queue, event.LogLink})
		const path, why = "/v1/ops/events/e1/payload", `{"why":"OPS-7"}`
		if test.payload == "" {
			r.refuses(t, http.MethodPost, path, why, http.StatusNotFound, "payload_not_kept")
			return
		}
		var payload events.Payload
		r.does(t, http.MethodPost, path, why, &payload)
		var places []string
		for _, kept := range payload.Items {
			places = append(places, string(kept.Place))
			require.Contains(t, []string{"{}", "no\xffJSON"}, string(kept.Data)+string(kept.Base64))
		}
		require.Equal(t, []any{test.payload, "orders", false},
			[]any{strings.Join(places, " "), payload.Queue, payload.More})
		require.Len(t, r.looked(t, "e1"), 1)
	})
}

func TestHistoryOfAnEventIsInOrderOfTime(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.over(r.store, func(reads *events.Reads) {
		reads.Links = events.Links{
			Log: "https://log.example/?q={event_id}+{since}", Trace: "https://trace.example/{trace}",
		}
	})
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	tried := record("orders", "default", "e:1")
	tried.ReceivedAt, tried.PublishedAt = second(-9), second(-9)
	tried.Log = []dedupe.Attempt{
		{
			Number: 1, Delivery: 3, MessageID: "17", Instance: "i1", Begun: second(-8), Ended: second(-7),
			Outcome: retry.Retry, Reason: "handler_error", Next: second(-6), Trace: "0af7",
		},
		{Number: 2, Delivery: 4, MessageID: "17", Instance: "i2", Begun: second(-6)},
		{
			Number: 3, Delivery: 6, MessageID: "17", Instance: "i3", Begun: second(-5), Ended: second(-5),
			Outcome: retry.DeadLettered, Reason: "unknown_product",
		},
		{
			Number: 1, Delivery: 2, MessageID: "18", Instance: "i3", Begun: second(5), Ended: second(6),
			Outcome: retry.Processed,
		},
	}
	conflict := record("orders", "default", "e:1")
	conflict.PayloadHash, conflict.Status, conflict.LastError = "sha256:11", dedupe.DeadLettered,
		"payload_conflict"
	conflict.MessageID, conflict.UpdatedAt = "19", second(9)
	r.commit(t, own(tried), store.Create(dedupe.Key("orders", "default", "e:1", "sha256:11"), conflict.Fields()))
	id := r.bury(t, declared.Queues[0], "e:1", "17", "{}")
	op := r.begin(t, true)
	event := r.event(t, "e:1")
	require.Equal(t, []events.Step{
		{At: second(-9), What: events.StepReceived},
		{At: second(-9), What: events.StepPublished},
		{At: second(-8), What: events.StepSilent, Delivery: 1, Last: 2, MessageID: "17"},
		{
			At: second(-8), What: events.StepTried, End: second(-7), Attempt: 1, Instance: "i1", NextAt: second(-6),
			Delivery: 3, MessageID: "17", Outcome: retry.Retry, Reason: "handler_error", Trace: "0af7",
			TraceLink: "https://trace.example/0af7",
		},
		{At: second(-6), What: events.StepTried, Attempt: 2, Instance: "i2", Delivery: 4, MessageID: "17"},
		{At: second(-5), What: events.StepSilent, Delivery: 5, Last: 5, MessageID: "17"},
		{
			At: second(-5), What: events.StepTried, End: second(-5), Attempt: 3, Instance: "i3", Delivery: 6,
			MessageID: "17", Outcome: retry.DeadLettered, Reason: "unknown_product",
		},
		{At: at, What: events.StepKept, Place: events.PlaceOutbox},
		{At: at, What: events.StepDied, DeadLetter: id, Reason: "unknown_product", MessageID: "17"},
		{
			At: at, What: events.StepReplayed, DeadLetter: id, Operation: op.ID, Who: "ilse-ops",
			Why: "the product is set",
		},
		{At: second(5), What: events.StepSilent, Delivery: 1, Last: 1, MessageID: "18"},
		{
			At: second(5), What: events.StepTried, End: second(6), Attempt: 1, Instance: "i3", Delivery: 2,
			MessageID: "18", Outcome: retry.Processed,
		},
		{At: second(9), What: events.StepConflicted, MessageID: "19", Reason: "payload_conflict"},
	}, event.History)
	require.Equal(t, "https://log.example/?q=e%3A1+2026-03-02T10%3A14%3A00Z", event.LogLink)
	require.Len(t, event.Log, 4)
	require.Equal(t, "sha256:11", event.Conflicts[0].PayloadHash)
}

// Without a record an event is shown by a waiting message, a broken message or a dead letter.
func TestEventIsShownByAnyOfItsDocuments(t *testing.T) {
	t.Parallel()
	received := func(text string) func(fields map[string]any) {
		message := contract.Message{Data: []byte("{}"), Attributes: map[string]string{
			"event_id": "e1", contract.AttrReceived: text,
		}}
		return func(fields map[string]any) {
			fields["message"] = store.Encode(&lane.Content{Message: message, CreatedAt: at})
		}
	}
	broken := record("orders", "default", "e1")
	broken.Status, broken.LastError, broken.PayloadHash = dedupe.DeadLettered, "body_malformed", ""
	const exhausted = "delivery_attempts_exhausted"
	died := dead("orders", "d1", exhausted, 0)
	died.EventID, died.FirstPublished = "e1", time.Time{}
	died.Attributes = map[string]string{contract.AttrReceived: "2026-03-02T10:14:00Z"}
	processed, corrected := died, died
	processed.State, corrected.State = deadletter.Processed, deadletter.Corrected
	corrected.History = []deadletter.Act{{Kind: deadletter.Discard}, {Kind: deadletter.Complete}}
	type row struct {
		status dedupe.Status
		reason string
		want   string
		write  store.Write
	}
	filetest.Each(t, map[string]row{
		"a waiting message": {
			events.Waits, "", "received kept", waits(lane.Delayed, "l-1", "e1", "", received("2026-03-02T10:14:00Z")),
		},
		"one without the time of its receipt": {
			events.Waits, "", "kept", waits(lane.Delayed, "l-1", "e1", "", nil),
		},
		"one with an invalid time of its receipt": {
			events.Waits, "", "kept", waits(lane.Delayed, "l-1", "e1", "", received("yesterday")),
		},
		"a record without attempts": {
			dedupe.Completed, "", "recorded processed", own(record("orders", "default", "e1")),
		},
		"a broken message": {
			dedupe.DeadLettered, "body_malformed", "conflict",
			store.Create(dedupe.MessageKey("orders", "17", nil), broken.Fields()),
		},
		"the broker's dead letter": {dedupe.DeadLettered, exhausted, "received dead_lettered", inStore(died)},
		"one whose replay has ended": {
			dedupe.DeadLettered, exhausted, "replay_ended received dead_lettered", inStore(processed),
		},
		"one that was corrected": {
			dedupe.DeadLettered, exhausted, "discard complete corrected received dead_lettered", inStore(corrected),
		},
	}, func(t *testing.T, test row) {
		r := open(t)
		r.commit(t, test.write)
		event := r.event(t, "e1")
		happened := filetest.Map(event.History, func(of events.Step) string { return string(of.What) })
		require.Equal(t, test.want, strings.Join(happened, " "))
		require.Equal(t, []any{test.status, test.reason}, []any{event.Status, event.Reason})
	})
}

func TestEventShowsTheStateOfItsEmissions(t *testing.T) {
	t.Parallel()
	r := open(t)
	event, failed := record("orders", "default", "e1"), record("refunds", "default", "failed")
	event.Emitted = []handler.Emitted{
		{EventID: "later", EventType: "t", To: "orders"},
		{EventID: "soon", EventType: "t", To: "elsewhere"},
		{EventID: "expired", EventType: "t", To: "elsewhere"},
		{EventID: "done", EventType: "t", To: "refunds"},
		{EventID: "failed", EventType: "t", To: "refunds"},
		{EventID: "runs", EventType: "t", To: "refunds"},
		{EventID: "died", EventType: "t", To: "refunds"},
	}
	failed.Status, failed.LastError = dedupe.Failed, "callee_down"
	later := func(fields map[string]any) { fields["due_at"] = at.Add(time.Hour) }
	r.commit(t, own(event), own(record("refunds", "default", "done")), own(failed),
		own(created("refunds", "runs", dedupe.Processing, 0)),
		own(created("refunds", "died", dedupe.DeadLettered, 0)),
		waits(lane.Outbox, "l-1", "e1", "soon", nil), waits(lane.Delayed, "m-emission", "e1", "later", later))
	shown := r.event(t, "e1")
	emission := func(id, queue string, state events.EmissionState) events.Emission {
		return events.Emission{EventID: id, Tenant: "default", EventType: "t", Queue: queue, State: state}
	}
	want := []events.Emission{
		emission("later", "orders", events.EmissionDelayed), emission("soon", "elsewhere", events.EmissionWaiting),
		emission("expired", "elsewhere", events.EmissionPublished),
		emission("done", "refunds", events.EmissionProcessed),
		emission("failed", "refunds", events.EmissionFailed),
		emission("runs", "refunds", events.EmissionProcessing),
		emission("died", "refunds", events.EmissionDeadLettered),
	}
	want[0].Until, want[4].Reason = at.Add(time.Hour), "callee_down"
	require.Equal(t, want, shown.Emissions)
	require.Equal(t, []any{1, 7}, []any{shown.Waiting, len(shown.Emitted)})
}

func TestEventWithAnUnreadableRecordIsNotShownInPart(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, store.Create(store.Key{Collection: dedupe.Collection, ID: "x"},
		map[string]any{"event_id": "e2"}))
	const path, code = "/v1/ops/events/e2", "store_unavailable"
	r.refuses(t, http.MethodGet, path, "", http.StatusServiceUnavailable, code)
	r.refuses(t, http.MethodPost, path+"/payload", `{"why":"w"}`, http.StatusServiceUnavailable, code)
}

// This event has more of everything that costs a read than is shown: conflicts, dead letters, operations that
// wait for a second person, waiting messages and emissions. Its own record is behind the conflicts.
func TestEventCostsFiftyReadsAtMost(t *testing.T) {
	t.Parallel()
	r := open(t)
	event, conflict := record("orders", "default", "dearest"), record("orders", "default", "dearest")
	conflict.Status = dedupe.DeadLettered
	op := bulk.Operation{
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders"}, Rate: 50, Progress: bulk.Waiting,
		CreatedAt: at,
	}
	r.commit(t, paused("orders"))
	for i := range 30 {
		id := fmt.Sprintf("dearest-%02d", i)
		event.Emitted = append(event.Emitted, handler.Emitted{EventID: fmt.Sprint("expired-", i)})
		died := dead("orders", id, "r", time.Duration(i)*time.Second)
		died.EventID = "dearest"
		r.commit(t, inStore(died), delayedLane(id, at), waits(lane.Delayed, id+"-1", "dearest", "", nil),
			waits(lane.Delayed, id+"-2", "other", "", nil),
			waits(lane.Outbox, id, "dearest", fmt.Sprint("expired-", i), nil), waits(lane.Outbox, id+"-emits", "other",
				"dearest", nil),
			waits(lane.Delayed, id+"-emission", "other", "dearest", nil),
			store.Create(store.Key{Collection: dedupe.Collection, ID: fmt.Sprint("0-", i)}, conflict.Fields()),
			store.Create(store.Key{Collection: audit.Collection, ID: id}, store.Encode(&op)))
	}
	event.Ref = r.credit(t, "default", "dearest", "moved", ledger.UserPoints("u1"), 1, 0)
	r.commit(t, own(event))
	counter := &storetest.Counter{Store: r.store}
	r.over(counter)
	shown := r.event(t, "dearest")
	require.LessOrEqual(t, counter.Reads.Load(), int64(50))
	require.Equal(t, []any{dedupe.Completed, 30, 30, true},
		[]any{shown.Status, len(shown.Emitted), shown.Waiting, shown.More})
	require.Equal(t, []int{1, 8, 10}, []int{len(shown.Effect), len(shown.Conflicts), len(shown.DeadLetters)})
	require.Equal(t, "dearest-00", shown.DeadLetters[0].ID, "the newest first")
	// an emission whose message was not read may be published or not
	for _, one := range shown.Emissions {
		require.Equal(t, events.EmissionWaiting, one.State)
	}
	require.Contains(t, filetest.Map(shown.Places, placed),
		"paused of orders since 0s    ilse-ops the books are closed")
	require.Contains(t, shown.Notes()[len(shown.Notes())-1], "billhook events ls --event-id dearest")
	require.Contains(t, filetest.Read(t, "..", "..", "..", "docs", "why", "exactly-once.md"),
		"reads at most 50 documents")

	failed := record("refunds", "default", "dearest")
	failed.Status = dedupe.Failed
	r.commit(t, own(failed))
	before := counter.Reads.Load()
	of := r.event(t, "dearest?queue=refunds")
	require.Equal(t, []any{"refunds", dedupe.Failed, true}, []any{of.Queue, of.Status, of.More})
	require.LessOrEqual(t, counter.Reads.Load()-before, int64(50), "behind all that was read of other queues")
}
