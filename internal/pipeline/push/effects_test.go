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

// TestEmissionIsPublishedAfterItsCommitOrNotAtAll is the table of what an effect emits, by what goes wrong:
// what was published when it is answered, what then waits, and what the relay publishes later. A repetition
// emits the same ids, so that a consumer recognizes them.
func TestEmissionIsPublishedAfterItsCommitOrNotAtAll(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, _ := enumerate([]dimension{
		{"but", []string{
			"nothing goes wrong", "the broker is down", "the commit's answer is lost", "the commit is not made",
			"the store is down", "it is refused",
			"it failed before", "it was forgotten", "the second is for a topic of nobody", "the second is due later",
		}},
		{"handler", []string{tx, leasedMany}},
		{"attempts", []string{left, last}},
	}, func(c cell) (what, cost string) {
		b := all.ready(t, c)
		b.broker.taken[updates] = nil
		b.effect = emitting
		m := b.event()
		event := m.attributes["event_id"]
		published := func() string { // by their places in the effect
			of := handler.Event{Queue: "orders", Tenant: dedupe.DefaultTenant, ID: event}
			ids := []string{lane.ID(of, 0), lane.ID(of, 1), lane.ID(of, 2)}
			var places []int
			for _, m := range b.broker.taken[updates] {
				place := slices.Index(ids, m.Attributes[contract.AttrEventID])
				require.Equal(t,
					[]string{fmt.Sprint(event, "-", place), dedupe.DefaultTenant, "billing.sub.renewed"}, []string{
						m.Attributes[contract.AttrCorrelationID], m.Attributes[contract.AttrTenant],
						m.Attributes[contract.AttrRoutingKey],
					})
				places = append(places, place)
			}
			return fmt.Sprint("; published ", places)
		}
		met := true
		b.broker.before = func(topic string) {
			record, _ := b.record(event)
			met = met && (topic != updates || record.Status == dedupe.Completed)
		}
		switch c["but"] {
		case "the broker is down":
			b.broker.down = true
		case "the commit's answer is lost", "the commit is not made":
			_, heal := b.fault(map[bool]string{
				true: "commit without an answer", false: "commit not made",
			}[strings.HasSuffix(c["but"], "lost")],
				map[string]int{tx: 1, leasedMany: 2}[c["handler"]])
			defer heal()
		case "the store is down":
			b.faults.Down(true)
		case "it is refused":
			b.fails = []error{retry.Permanent("refused", nil)}
		case "it failed before":
			b.seed("failed and due", m)
		case "it was forgotten":
			b.deliverNow(m)
			b.pass(31 * 24 * time.Hour)
		case "the second is for a topic of nobody":
			b.effect = func(e handler.Event) handler.Effect {
				effect := emitting(e)
				effect.Emit[1].To = "topic-of-ilse" // what a handler makes of a message may be the message's
				return effect
			}
		case "the second is due later":
			b.effect = func(e handler.Event) handler.Effect {
				effect := emitting(e)
				effect.Emit[1].Due, effect.Emit[1].Name = e.PublishedAt.Add(15*time.Minute), "the second"
				return effect
			}
			m.published = b.config.Now()
		}
		what, _ = b.observe(m, func() reply { return b.deliverNow(m) })
		b.broker.down = false
		b.faults.Down(false)
		waiting := len(b.documents(lane.Outbox.Entries()))
		what += fmt.Sprint(published(), ", waiting ", waiting, ", effects ", b.effects(event))
		b.pass(16 * time.Minute)
		_, err := b.relay.Due(t.Context(), 10, func(string, error) {})
		require.NoError(t, err)
		delayed := *b.relay
		delayed.Of = lane.Delayed
		_, err = delayed.Due(t.Context(), 10, func(string, error) {})
		require.NoError(t, err)
		require.Empty(t, b.documents(lane.Outbox.Entries()))
		require.Empty(t, b.documents(lane.Outbox.Lanes()))
		require.True(t, met, "nothing is published before its commit")
		require.NotContains(t, fmt.Sprint(b.deadLetters()), "ilse")
		record, _ := b.record(event)
		return fmt.Sprint(what, "; later", published(), ", record of ", len(record.Emitted)), ""
	})
	filetest.Recorded(t, table, "testdata", "emissions.txt")
}

// TestLeasedHandlerThatAssumedWhatIsNoLongerSoIsAskedAgain: what it did outside is not done twice.
func TestLeasedHandlerThatAssumedWhatIsNoLongerSoIsAskedAgain(t *testing.T) {
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
			steps = append(steps, "ask")
			require.Equal(t, 1, event.Try)
			return handler.Reconciled{Done: true, Effect: counted(event)}, nil
		},
	}})
	require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	require.Equal(t, []string{"do", "ask"}, steps)
	require.EqualValues(t, 2, r.effects("e1"))
	record, _ := r.record("e1")
	require.EqualValues(t, 1, record.Attempts, "it was one attempt")
}

// TestAnswerNamesWhatTheEventMade: also that of each duplicate, which then has a body to name it in.
func TestAnswerNamesWhatTheEventMade(t *testing.T) {
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

// TestMessageIsInItsRecordWhileASweepMayNeedIt: while a leased handler runs, where it fits.
func TestMessageIsInItsRecordWhileASweepMayNeedIt(t *testing.T) {
	t.Parallel()
	good := paid("e1", known, 1)
	for name, test := range map[string]struct {
		deliver message
		kept    bool
	}{
		"as a rule": {good, true},
		"not where it is too large": {
			good.saying(string(good.data()) + strings.Repeat(" ", 512<<10-len(good.data())+1)), false,
		},
		"but where it is just not": {
			good.saying(string(good.data()) + strings.Repeat(" ", 512<<10-len(good.data()))), true,
		},
		"nor where no document can hold it": {good.set("__own__", "x"), false},
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

// fault fails one call of the store while a cell runs, and reports whether that call was made.
func (b *bench) fault(kind string, number int) (met func() bool, heal func()) {
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
		case kind == "each meets another's from" && commits >= number:
			return store.ErrStale
		}
		return do()
	}
	met = func() bool { return (kind == "read" && reads >= number) || (kind != "read" && commits >= number) }
	return met, func() { b.faults.OnRead, b.faults.OnCommit = nil, nil }
}

// end delivers the message until it is acknowledged, releases what waits, and says how that ended.
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

// TestWhicheverCallOfTheStoreFailsTheEventEnds is the table of what is answered where one call of the store
// fails, and of how the event ends when the store answers again.
func TestWhicheverCallOfTheStoreFailsTheEventEnds(t *testing.T) {
	t.Parallel()
	const later, unreadable = "1, to be delivered in a minute", "1, unreadable"
	all := benches{}
	table, _ := enumerate([]dimension{
		{
			"returns", []string{
				"nothing: it is done", "transient 500", "permanent 422", "missing: waits for another event",
				"outage of what all need", "busy, not counted",
			},
		},
		{"handler", []string{tx, leasedMany}},
		{
			"fails", []string{
				"read", "commit not made", "each commit from", "each meets another's from",
				"commit without an answer", "alarm",
			},
		},
		{"number", []string{"1", "2", "3", "4"}},
		{"waits are", []string{keepsTime, ownTime}},
		{"in order", []string{anyOrder, inKeyOrder}},
		{"delivery", []string{firstDelivery, secondDelivery, fifth, later, unreadable}},
	}, func(c cell) (what, cost string) {
		if (c["delivery"] == later || c["delivery"] == unreadable) && c["returns"] != failures[0].name {
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
		case later:
			m.attributes[contract.AttrDeliverAt] = b.config.Now().Add(time.Minute).Format(time.RFC3339Nano)
		}
		b.failing(c)
		met, heal := b.fault(c["fails"], int(c["number"][0]-'0'))
		if c["fails"] == "alarm" {
			b.alarms.err = errBroker
			met = func() bool { return c["number"] == "1" && len(b.alarms.at) > 0 }
			defer func() { b.alarms.err = nil }()
		}
		var got reply
		what, _ = b.observe(m, func() reply { got = b.deliverNow(m); return got })
		heal()
		if !met() {
			return "", ""
		}
		return what + b.end(t, m, got.code < 300), ""
	})
	filetest.Recorded(t, table, "testdata", "faults.txt")
}
