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

func (r *rig) event(t require.TestingT, id string) events.Event {
	return look[events.Event](t, r, "events/"+id)
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

// placed is a place that an event waits in, as text. Ids that are made at random are counted.
func placed(s events.Spot) string {
	text := fmt.Sprintf("%s of %s since %s", s.Place, s.Queue, s.Since.Sub(at))
	if !s.Until.IsZero() {
		text += " until " + s.Until.Sub(at).String()
	}
	if len(s.DeadLetters) > 0 || s.Operation != "" {
		text += fmt.Sprintf(", %d letters, %d operations", len(s.DeadLetters), len(strings.Fields(s.Operation)))
	}
	return strings.TrimRight(strings.Join([]string{text, s.Topic, s.OrderingKey, s.Behind, s.Who, s.Why}, " "),
		" ")
}

// TestAnEventIsFoundInEveryPlaceThatItCanWaitIn: with a record or without one.
func TestAnEventIsFoundInEveryPlaceThatItCanWaitIn(t *testing.T) {
	t.Parallel()
	due := at.Add(time.Hour)
	later := func(fields map[string]any) { fields["due_at"] = due }
	recorded := func(status dedupe.Status) store.Write {
		record := record("orders", "default", "e1")
		record.Status, record.ProcessedAt, record.NextRetryAt, record.LeaseUntil = status, time.Time{}, due, due
		return own(record)
	}
	dies := func(t *testing.T, r *rig) { r.bury(t, declared.Queues[0], "e1", "17", "{}") }
	type row struct {
		writes  []store.Write
		happens func(t *testing.T, r *rig)
		status  dedupe.Status
		want    []string
	}
	filetest.Each(t, map[string]row{
		"in the broker, for its next attempt": {
			[]store.Write{recorded(dedupe.Failed)},
			nil, dedupe.Failed,
			[]string{"broker of orders since 1s until 1h0m0s"},
		},
		"with a worker": {
			[]store.Write{recorded(dedupe.Processing)},
			nil, dedupe.Processing,
			[]string{"lease of orders since 1s until 1h0m0s"},
		},
		"delayed, without a record": {
			[]store.Write{delayedLane("l", due), waits(lane.Delayed, "l-2", "e1", "", later)},
			nil, events.Waits,
			[]string{"delayed of orders since 0s until 1h0m0s  u1"},
		},
		"delayed behind another of its key": {
			[]store.Write{
				delayedLane("l", due), waits(lane.Delayed, "l-1", "e0", "", nil),
				waits(lane.Delayed, "l-2", "e1", "", nil), recorded(dedupe.Failed),
			},
			nil,
			dedupe.Failed,
			[]string{"delayed of orders since 0s until 1h0m0s  u1 e0"},
		},
		"in the outbox, to be published first": {
			[]store.Write{waits(lane.Outbox, "l-1", "e0", "e1", nil)},
			nil, events.Waits,
			[]string{"outbox of orders since 0s orders"},
		},
		"emitted for a later time": {
			[]store.Write{delayedLane("l", due), waits(lane.Delayed, "l-emission", "e0", "e1", later)},
			nil,
			events.Waits,
			[]string{"delayed of orders since 0s until 1h0m0s  u1"},
		},
		"on the dead-letter topic": {
			[]store.Write{recorded(dedupe.DeadLettered)},
			nil, dedupe.DeadLettered,
			[]string{"dead_letter_topic of orders since 1s"},
		},
		"in its dead letter": {
			nil, dies, dedupe.DeadLettered,
			[]string{"dead_letter of orders since 0s until 1h0m0s, 1 letters, 0 operations"},
		},
		"in a replay, and in the outbox of it": {
			nil, func(t *testing.T, r *rig) { dies(t, r); r.begin(t, true) }, dedupe.DeadLettered,
			[]string{"outbox of orders since 0s orders", "replay of orders since 0s, 1 letters, 1 operations"},
		},
		"for a second person": {
			nil, func(t *testing.T, r *rig) { r.fourEyes(); dies(t, r); r.begin(t, false) },
			dedupe.DeadLettered,
			[]string{
				"dead_letter of orders since 0s until 1h0m0s, 1 letters, 0 operations",
				"approval of orders since 0s, 1 letters, 1 operations    ilse-ops the product is set",
			},
		},
		"in a paused queue": {
			[]store.Write{recorded(dedupe.Failed), paused("orders")},
			nil, dedupe.Failed,
			[]string{
				"broker of orders since 1s until 1h0m0s", "paused of orders since 0s    ilse-ops the books are closed",
			},
		},
		"nowhere: it is done": {[]store.Write{recorded(dedupe.Completed)}, nil, dedupe.Completed, nil},
	}, func(t *testing.T, test row) {
		r := open(t)
		if test.writes != nil {
			r.commit(t, test.writes...)
		} else {
			test.happens(t, r)
		}
		event := r.event(t, "e1")
		require.Equal(t, test.want, filetest.Map(event.Places, placed))
		require.Equal(t, []any{test.status, "orders"}, []any{event.Status, event.Queue})
	})
}

func TestTheHistoryOfAnEventIsInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	r := open(t)
	second := func(n int) time.Time { return at.Add(time.Duration(n) * time.Second) }
	told := record("orders", "default", "e1")
	told.ReceivedAt, told.PublishedAt = second(-9), second(-9)
	told.Log = []dedupe.Attempt{
		{
			Number: 1, Delivery: 3, MessageID: "17", Instance: "i1", Begun: second(-8), Ended: second(-7),
			Outcome: retry.Retry, Reason: "handler_error", Next: second(-6),
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
	conflict := record("orders", "default", "e1")
	conflict.PayloadHash, conflict.Status, conflict.LastError, conflict.MessageID,
		conflict.UpdatedAt = "sha256:11", dedupe.DeadLettered, "payload_conflict", "19", second(9)
	r.commit(t, own(told), store.Create(dedupe.Key("orders", "default", "e1", "sha256:11"), conflict.Fields()))
	id := r.bury(t, declared.Queues[0], "e1", "17", "{}")
	op := r.begin(t, true)
	event := r.event(t, "e1")
	require.Equal(t, []events.Step{
		{At: second(-9), What: events.StepReceived},
		{At: second(-9), What: events.StepPublished},
		{At: second(-8), What: events.StepSilent, Delivery: 1, Last: 2, MessageID: "17"},
		{
			At: second(-8), What: events.StepTried, End: second(-7), Attempt: 1, Instance: "i1", NextAt: second(-6),
			Delivery: 3, MessageID: "17", Outcome: retry.Retry, Reason: "handler_error",
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
	require.Len(t, event.Log, 4)
	require.Equal(t, "sha256:11", event.Conflicts[0].PayloadHash)
}

// TestAnEventIsToldByWhatThereIsOfIt: without a record by what waits, by a broken message or by a dead
// letter, each of which may say when it was received.
func TestAnEventIsToldByWhatThereIsOfIt(t *testing.T) {
	t.Parallel()
	received := func(text string) func(fields map[string]any) {
		return func(fields map[string]any) {
			fields["message"] = store.Encode(&contract.Message{
				Data: []byte("{}"), Attributes: map[string]string{"event_id": "e1", contract.AttrReceived: text},
			})
		}
	}
	broken := record("orders", "default", "e1")
	broken.Status, broken.LastError, broken.PayloadHash = dedupe.DeadLettered, "body_malformed", ""
	died := dead("orders", "d1", "delivery_attempts_exhausted", 0)
	died.EventID, died.FirstPublished, died.Attributes = "e1", time.Time{},
		map[string]string{contract.AttrReceived: "2026-03-02T10:14:00Z"}
	processed, corrected := died, died
	processed.State, corrected.State = deadletter.Processed, deadletter.Corrected
	type row struct {
		write  store.Write
		status dedupe.Status
		reason string
		want   []events.What
	}
	filetest.Each(t, map[string]row{
		"what waits": {
			waits(lane.Delayed, "l-1", "e1", "", received("2026-03-02T10:14:00Z")), events.Waits, "",
			[]events.What{events.StepReceived, events.StepKept},
		},
		"what waits and came another way": {
			waits(lane.Delayed, "l-1", "e1", "", nil), events.Waits, "", []events.What{events.StepKept},
		},
		"what waits and was received who knows": {
			waits(lane.Delayed, "l-1", "e1", "", received("yesterday")), events.Waits, "",
			[]events.What{events.StepKept},
		},
		"a record without attempts": {
			own(record("orders", "default", "e1")), dedupe.Completed, "",
			[]events.What{events.StepRecorded, events.StepDone},
		},
		"a broken message": {
			store.Create(dedupe.MessageKey("orders", "17", nil), broken.Fields()), dedupe.DeadLettered,
			"body_malformed",
			[]events.What{events.StepConflicted},
		},
		"the broker's dead letter": {
			inStore(died), dedupe.DeadLettered, "delivery_attempts_exhausted",
			[]events.What{events.StepReceived, events.StepDied},
		},
		"one whose replay has ended": {
			inStore(processed), dedupe.DeadLettered, "delivery_attempts_exhausted",
			[]events.What{events.StepReplayEnded, events.StepReceived, events.StepDied},
		},
		"one that was corrected": {
			inStore(corrected), dedupe.DeadLettered, "delivery_attempts_exhausted",
			[]events.What{events.StepCorrected, events.StepReceived, events.StepDied},
		},
	}, func(t *testing.T, test row) {
		r := open(t)
		r.commit(t, test.write)
		event := r.event(t, "e1")
		happened := filetest.Map(event.History, func(of events.Step) events.What { return of.What })
		require.Equal(t, test.want, happened)
		require.Equal(t, []any{test.status, test.reason}, []any{event.Status, event.Reason})
	})
}

func TestAnEventSaysWhatBecameOfWhatItEmitted(t *testing.T) {
	t.Parallel()
	r := open(t)
	told, failed := record("orders", "default", "e1"), record("refunds", "default", "failed")
	told.Emitted = []handler.Emitted{
		{EventID: "later", EventType: "t", To: "orders"},
		{EventID: "soon", EventType: "t", To: "elsewhere"},
		{EventID: "gone", EventType: "t", To: "elsewhere"},
		{EventID: "done", EventType: "t", To: "refunds"},
		{EventID: "failed", EventType: "t", To: "refunds"},
	}
	failed.Status, failed.LastError = dedupe.Failed, "callee_down"
	r.commit(t, own(told), own(record("refunds", "default", "done")), own(failed),
		waits(lane.Outbox, "l-1", "e1", "soon", nil),
		waits(lane.Delayed, "m-emission", "e1", "later", func(fields map[string]any) {
			fields["due_at"] = at.Add(time.Hour)
		}))
	event := r.event(t, "e1")
	require.Equal(t, []events.Emission{
		{
			EventID: "later", Tenant: "default", EventType: "t", Queue: "orders", State: events.EmissionDelayed,
			Until: at.Add(time.Hour),
		},
		{EventID: "soon", Tenant: "default", EventType: "t", Queue: "elsewhere", State: events.EmissionWaiting},
		{EventID: "gone", Tenant: "default", EventType: "t", Queue: "elsewhere", State: events.EmissionPublished},
		{EventID: "done", Tenant: "default", EventType: "t", Queue: "refunds", State: events.EmissionProcessed},
		{
			EventID: "failed", Tenant: "default", EventType: "t", Queue: "refunds", State: events.EmissionFailed,
			Reason: "callee_down",
		},
	}, event.Emissions)
	require.Equal(t, []any{1, 5}, []any{event.Waiting, len(event.Emitted)})
}

func TestAnEventWhoseRecordCannotBeReadIsNotShownInPart(t *testing.T) {
	t.Parallel()
	r := open(t)
	r.commit(t, store.Create(store.Key{Collection: dedupe.Collection, ID: "x"},
		map[string]any{"event_id": "e2"}))
	for _, what := range []string{"", "/payload"} {
		method, body := http.MethodGet, ""
		if what != "" {
			method, body = http.MethodPost, `{"why":"w"}`
		}
		r.refuses(t, method, "/v1/ops/events/e2"+what, body, http.StatusServiceUnavailable, "store_unavailable")
	}
}

// Of this event there is more of everything that costs a read: conflicts, dead letters, operations that wait
// for a second person, what waits in the lanes, and what it has emitted. Its own record is behind the
// conflicts.
func TestAnEventCostsFiftyReadsAtMost(t *testing.T) {
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
		event.Emitted = append(event.Emitted, handler.Emitted{EventID: fmt.Sprint("gone-", i)})
		died := dead("orders", id, "r", time.Duration(i)*time.Second)
		died.EventID = "dearest"
		r.commit(t, inStore(died), delayedLane(id, at), waits(lane.Delayed, id+"-1", "dearest", "", nil),
			waits(lane.Delayed, id+"-2", "other", "", nil),
			waits(lane.Outbox, id, "dearest", fmt.Sprint("gone-", i), nil), waits(lane.Outbox, id+"-emits", "other",
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
	require.Equal(t, []int{1, 5, 10}, []int{len(shown.Effect), len(shown.Conflicts), len(shown.DeadLetters)})
	require.Equal(t, "dearest-00", shown.DeadLetters[0].ID, "the newest first")
	// of one whose message was not read nobody knows whether it is published
	for _, one := range shown.Emissions {
		require.Equal(t, events.EmissionWaiting, one.State)
	}
	require.Contains(t, filetest.Map(shown.Places, placed),
		"paused of orders since 0s    ilse-ops the books are closed")
	require.Contains(t, shown.Notes()[len(shown.Notes())-1], "billhook events ls --event-id dearest")
	require.Contains(t, filetest.Read(t, "..", "..", "..", "docs", "why", "exactly-once.md"),
		"reads at most 50 documents")
}

func TestALinkLeadsToTheLogAndTheTracesOfAnEvent(t *testing.T) {
	t.Parallel()
	told := record("orders", "default", "a:b")
	told.Log = []dedupe.Attempt{
		{Number: 1, Begun: at.Add(90 * time.Second), Trace: "0af7651916cd43dd8448eb211c80319c"},
		{Number: 2, Begun: at.Add(2 * time.Minute)},
	}
	r := open(t)
	r.commit(t, own(told))
	links := func() (all []string) {
		event := r.event(t, "a:b")
		return []string{event.LogLink, event.History[0].TraceLink, event.History[1].TraceLink}
	}
	require.Equal(t, []string{"", "", ""}, links())
	r.over(r.store, func(reads *events.Reads) {
		reads.Links = events.Links{
			Log: "https://log.example/?q={event_id}+{since}", Trace: "https://trace.example/{trace}",
		}
	})
	require.Equal(t, []string{
		"https://log.example/?q=a%3Ab+2026-03-02T10%3A16%3A00Z",
		"https://trace.example/0af7651916cd43dd8448eb211c80319c", "",
	}, links())
}

func TestEachPlaceStepAndStateOfAnEventHasASentence(t *testing.T) {
	t.Parallel()
	for _, place := range []events.Where{
		events.PlaceBroker, events.PlaceLease, events.PlaceDelayed, events.PlaceOutbox, events.PlaceDeadLetterTopic,
		events.PlaceDeadLetter, events.PlaceApproval,
		events.PlaceReplay, events.PlacePaused,
	} {
		require.Contains(t, events.Spot{Place: place, Until: at}.String(), " ", place)
	}
	for _, step := range []events.What{
		events.StepReceived, events.StepKept, events.StepSilent, events.StepTried, events.StepRecorded,
		events.StepConflicted, events.StepDied, events.StepAskedFor,
		events.StepReplayed, events.StepDiscarded, events.StepCompleted, events.StepReplayEnded,
		events.StepCorrected, events.StepPaused,
	} {
		require.Contains(t, events.Step{What: step}.Happened(), " ", step)
	}
	for _, state := range []events.EmissionState{
		events.EmissionWaiting, events.EmissionDelayed, events.EmissionPublished, events.EmissionProcessing,
		events.EmissionFailed, events.EmissionDeadLettered,
	} {
		require.NotEmpty(t, strings.TrimPrefix(events.Emission{State: state}.String(),
			events.Emission{}.String()), state)
	}
	for _, status := range []dedupe.Status{
		events.Waits, dedupe.Processing, dedupe.Failed, dedupe.Completed, dedupe.DeadLettered,
	} {
		require.Regexp(t, "^(It|A worker) .*\\.$", events.Event{Line: events.Line{Status: status}}.Happened())
	}
}
