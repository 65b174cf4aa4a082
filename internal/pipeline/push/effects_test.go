package push_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/pipeline/lane"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

func repeats(do func(context.Context, handler.Event) (string, error)) *handler.Leased {
	return &handler.Leased{
		SafeToRepeat: true, Do: func(ctx context.Context, event handler.Event) (effect handler.Effect, err error) {
			effect.Result, err = do(ctx, event)
			return effect, err
		},
	}
}

// emitting is an effect that counts itself and emits to updates: twice under one key, and once under another.
func emitting(event handler.Event) handler.Effect {
	effect := counted(event)
	for i, key := range []string{"sub-1", "sub-1", "sub-2"} {
		effect.Emit = append(effect.Emit, handler.Emission{
			To: updates, OrderingKey: key, RoutingKey: "billing.sub.renewed",
			Body: contract.Of(&contract.Envelope{Action: "renewal", CorrelationID: fmt.Sprint(event.ID, "-", i)}),
		})
	}
	return effect
}

// published returns the positions, in the effect of an event, of the emissions that were published, and holds
// each to its event.
func (b *bench) published(t *testing.T, event string) (positions []int) {
	of := handler.Event{Queue: "orders", Tenant: dedupe.DefaultTenant, ID: event}
	ids := []string{lane.ID(of, 0), lane.ID(of, 1), lane.ID(of, 2)}
	for _, m := range b.broker.taken[updates] {
		position := slices.Index(ids, m.Attributes[contract.AttrEventID])
		require.Equal(t, []string{fmt.Sprint(event, "-", position), dedupe.DefaultTenant, "billing.sub.renewed"},
			[]string{
				m.Attributes[contract.AttrCorrelationID], m.Attributes[contract.AttrTenant],
				m.Attributes[contract.AttrRoutingKey],
			})
		positions = append(positions, position)
	}
	return positions
}

// emits prepares a bench for an event whose emission goes as the cell says, and returns the event's message.
func (b *bench) emits(c cell) (m message) {
	b.effect, m = emitting, b.event()
	second := func(change func(handler.Event, *handler.Emission)) {
		b.effect = func(e handler.Event) handler.Effect {
			effect := emitting(e)
			change(e, &effect.Emit[1])
			return effect
		}
	}
	switch c["but"] {
	case "the broker is down":
		b.broker.down = true
	case "the commit's answer is lost", "the commit is not made":
		kind := map[string]string{
			"the commit's answer is lost": "commit without an answer", "the commit is not made": "commit not made",
		}[c["but"]]
		b.fault(kind, map[string]int{tx: 1, leasedMany: 2}[c["handler"]])
	case "the store is down":
		b.faults.Down(true)
	case "it is refused":
		b.fails = []error{retry.Permanent("refused", nil)}
	case "it failed before":
		b.seed("failed and due", m)
	case "its record has expired":
		b.deliverNow(m)
		b.pass(31 * 24 * time.Hour)
	case "the second is for an undeclared topic":
		// A topic that a handler takes from its message may hold personal data.
		second(func(_ handler.Event, emission *handler.Emission) { emission.To = "topic-of-ilse" })
	case "the second is due later":
		second(func(e handler.Event, emission *handler.Emission) {
			emission.Due, emission.Name = e.PublishedAt.Add(15*time.Minute), "the second"
		})
		m.published = b.config.Now()
	}
	return m
}

// TestEmissionIsPublishedAfterItsCommitOrNotAtAll is the table of what an effect emits, by what goes wrong:
// what is published before the answer, what waits, and what the relay publishes later. A repetition emits the
// same ids, so that a consumer recognizes them.
func TestEmissionIsPublishedAfterItsCommitOrNotAtAll(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, _ := enumerate([]dimension{
		{"but", []string{
			"nothing goes wrong", "the broker is down", "the commit's answer is lost", "the commit is not made",
			"the store is down", "it is refused", "it failed before", "its record has expired",
			"the second is for an undeclared topic", "the second is due later",
		}},
		{"handler", []string{tx, leasedMany}},
		{"attempts", []string{left, last}},
	}, func(c cell) (what, cost string) {
		b := all.ready(t, c)
		b.broker.taken[updates] = nil
		m := b.emits(c)
		event, committed := m.attributes["event_id"], true
		b.broker.before = func(topic string) {
			record, _ := b.record(event)
			committed = committed && (topic != updates || record.Status == dedupe.Completed)
		}
		what, _ = b.observe(m, func() reply { return b.deliverNow(m) })
		b.broker.down, b.faults.OnRead, b.faults.OnCommit = false, nil, nil
		b.faults.Down(false)
		what += fmt.Sprint("; published ", b.published(t, event), ", waiting ",
			len(b.documents(lane.Outbox.Entries())), ", effects ", b.effects(event))
		b.pass(16 * time.Minute)
		delayed := *b.relay
		delayed.Of = lane.Delayed
		for _, relay := range []*lane.Relay{b.relay, &delayed} {
			_, err := relay.Due(t.Context(), 10, func(string, error) {})
			require.NoError(t, err)
		}
		require.Empty(t, b.documents(lane.Outbox.Entries()))
		require.Empty(t, b.documents(lane.Outbox.Lanes()))
		require.True(t, committed, "nothing is published before its commit")
		require.NotContains(t, fmt.Sprint(b.deadLetters()), "ilse")
		record, _ := b.record(event)
		return fmt.Sprint(what, "; later; published ", b.published(t, event), ", record of ",
			len(record.Emitted)), ""
	})
	filetest.Recorded(t, table, "testdata", "emissions.txt")
}

// TestLeasedHandlerReconcilesAfterAConflict: its effect outside is not made twice.
func TestLeasedHandlerReconcilesAfterAConflict(t *testing.T) {
	t.Parallel()
	var r *rig
	var steps []string
	r = newRig(t, setup{leased: &handler.Leased{
		Do: func(ctx context.Context, _ handler.Event) (handler.Effect, error) {
			steps = append(steps, "do")
			absent := []store.Write{
				store.Create(effectOf(contract.DefaultTenant, "e1"), map[string]any{"n": int64(1)}),
			}
			_, err := r.faults.Commit(ctx, absent)
			return handler.Effect{Result: "sent", Writes: absent}, err
		},
		Reconcile: func(_ context.Context, event handler.Event) (handler.Reconciled, error) {
			steps = append(steps, "reconcile")
			require.Equal(t, 1, event.Try)
			return handler.Reconciled{Done: true, Effect: counted(event)}, nil
		},
	}})
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	require.Equal(t, []string{"do", "reconcile"}, steps)
	require.EqualValues(t, 2, r.effects("e1"))
	record, _ := r.record("e1")
	require.EqualValues(t, 1, record.Attempts, "it was one attempt")
}

// TestAnswerHasTheRefOfTheEffect: also the answer to a duplicate, which then has a body.
func TestAnswerHasTheRefOfTheEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{leased: &handler.Leased{
		SafeToRepeat: true,
		Do: func(_ context.Context, e handler.Event) (handler.Effect, error) {
			return handler.Effect{Result: "sent", Ref: map[string]string{"e1": "made-e1"}[e.ID]}, nil
		},
	}})
	for _, want := range []reply{
		{EventID: "e1", Outcome: "processed", Ref: "made-e1", code: http.StatusOK},
		{EventID: "e1", Outcome: "duplicate", Ref: "made-e1", code: http.StatusOK},
		{EventID: "e2", Outcome: "processed", code: http.StatusOK},
		{EventID: "e2", code: http.StatusNoContent}, // no body
	} {
		got := r.deliver(paid(want.EventID, known, 1))
		require.Equal(t, []any{want.code, want.Outcome, want.Ref}, []any{got.code, got.Outcome, got.Ref})
	}
	record, _ := r.record("e1")
	require.Equal(t, "made-e1", record.Ref)
	require.Equal(t, "made-e1", r.log.lines(t, "delivery")[0]["ref"])
}

// TestMessageIsInItsRecordWhileASweepMayNeedIt: while a leased handler runs, unless it is too large.
func TestMessageIsInItsRecordWhileASweepMayNeedIt(t *testing.T) {
	t.Parallel()
	good := paid("e1", known, 1)
	for name, test := range map[string]struct {
		deliver message
		kept    bool
	}{
		"an ordinary message": {good, true},
		"one that is too large": {
			good.saying(string(good.data()) + strings.Repeat(" ", 512<<10-len(good.data())+1)), false,
		},
		"one of the largest size": {
			good.saying(string(good.data()) + strings.Repeat(" ", 512<<10-len(good.data()))), true,
		},
		"one with an attribute that no document can hold": {good.set("__own__", "x"), false},
	} {
		var r *rig
		var during dedupe.Record
		r = newRig(t, setup{leased: repeats(func(context.Context, handler.Event) (string, error) {
			during, _ = r.record("e1")
			return "sent", nil
		})})
		require.Equal(t, http.StatusOK, r.deliver(test.deliver).code)
		require.Equal(t, dedupe.Processing, during.Status)
		require.Equal(t, start.Add(2*time.Minute), during.LeaseUntil)
		require.Equal(t, test.kept, during.Message != nil, name)
		if test.kept {
			require.Equal(t, contract.Message{
				Data: test.deliver.data(), Attributes: test.deliver.attributes, OrderingKey: buyer,
			}, *during.Message)
		}
		record, _ := r.record("e1")
		require.Nil(t, record.Message)
	}
}

// fault has calls of the store fail, until they heal. reached reports whether such a call was made.
func (b *bench) fault(kind string, number int) (reached func() bool, heal func()) {
	reads, commits := 0, 0
	b.faults.OnRead = func(do func() error) error {
		if reads++; kind == "read" && reads == number {
			return retry.Outage("store_unavailable", nil)
		}
		return do()
	}
	b.faults.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
		commits++
		switch {
		case kind == "commit not made" && commits == number, kind == "each commit from" && commits >= number:
			return retry.Outage("store_unavailable", nil)
		case kind == "commit without an answer" && commits == number:
			_ = do()
			return retry.Outage("store_unavailable", nil)
		case kind == "each commit conflicts from" && commits >= number:
			return store.ErrStale
		}
		return do()
	}
	reached = func() bool { return (kind == "read" && reads >= number) || (kind != "read" && commits >= number) }
	return reached, func() { b.faults.OnRead, b.faults.OnCommit = nil, nil }
}

// end delivers the message until it is acknowledged, releases its lane, and describes the end of its event.
func (b *bench) end(t *testing.T, m message, acknowledged bool) string {
	for round := range 6 {
		b.pass(10 * time.Minute)
		if !acknowledged {
			m.attempt = 2 + round
			acknowledged = b.deliverNow(m).code < 300
		}
		for _, back := range b.release(t) {
			m, acknowledged = back, b.deliverNow(back).code < 300
		}
		record, ok := b.record(m.attributes["event_id"])
		if acknowledged && ok && (record.Status == dedupe.Completed || record.Status == dedupe.DeadLettered) &&
			b.keptMessages() == 0 {
			return fmt.Sprintf("; ends %s %d", record.Status, record.Attempts)
		}
	}
	return "; DOES NOT END"
}

// TestEventEndsWhicheverCallOfTheStoreFails is the table of answers where calls of the store or the alarm
// fail, and of the end of the event.
func TestEventEndsWhicheverCallOfTheStoreFails(t *testing.T) {
	t.Parallel()
	const scheduled, unreadable = "1, to be delivered in a minute", "1, unreadable"
	all := benches{}
	table, _ := enumerate([]dimension{
		{"returns", []string{
			"success", "transient 500", "permanent 422", "missing: waits for another event",
			"outage for all messages", "busy, not counted",
		}},
		{"handler", []string{tx, leasedMany}},
		{"fails", []string{
			"read", "commit not made", "each commit from", "each commit conflicts from",
			"commit without an answer", "alarm",
		}},
		{"number", []string{"1", "2", "3", "4"}},
		{"waits are", []string{keepsTime, ownTime}},
		{"in order", []string{anyOrder, inKeyOrder}},
		{"delivery", []string{firstDelivery, secondDelivery, fifth, scheduled, unreadable}},
	}, func(c cell) (what, cost string) {
		if (c["delivery"] == scheduled || c["delivery"] == unreadable) && c["returns"] != failures[0].name {
			return "", "" // the handler is not called
		}
		if c["delivery"] == unreadable {
			c["corrections"] = "accepted" // the event that it claims remembers it
		}
		b := all.ready(t, c)
		m := c.comes(b.event().again(1))
		switch c["delivery"] {
		case unreadable:
			m.body = "{"
		case scheduled:
			m.attributes[contract.AttrDeliverAt] = b.config.Now().Add(time.Minute).Format(time.RFC3339Nano)
		}
		b.failing(c)
		reached, heal := b.fault(c["fails"], int(c["number"][0]-'0'))
		if c["fails"] == "alarm" {
			b.alarms.err = errBroker
			reached = func() bool { return c["number"] == "1" && len(b.alarms.at) > 0 }
			defer func() { b.alarms.err = nil }()
		}
		var got reply
		what, _ = b.observe(m, func() reply { got = b.deliverNow(m); return got })
		heal()
		if !reached() {
			return "", ""
		}
		return what + b.end(t, m, got.code < 300), ""
	})
	filetest.Recorded(t, table, "testdata", "faults.txt")
}
