package push_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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
func (r *rig) published(t *testing.T, event string) (positions []int) {
	of := handler.Event{Queue: "orders", Tenant: dedupe.DefaultTenant, ID: event}
	ids := []string{lane.ID(of, 0), lane.ID(of, 1), lane.ID(of, 2)}
	for _, m := range r.broker.taken[updates] {
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
func (r *rig) emits(c cell) (m message) {
	r.do, m = doing(emitting), r.event()
	second := func(change func(handler.Event, *handler.Emission)) {
		r.do = doing(func(e handler.Event) handler.Effect {
			effect := emitting(e)
			change(e, &effect.Emit[1])
			return effect
		})
	}
	switch c["but"] {
	case "the broker is down":
		r.broker.down = true
	case "the commit's answer is lost", "the commit is not made":
		kind := map[string]string{
			"the commit's answer is lost": "commit without an answer", "the commit is not made": "commit not made",
		}[c["but"]]
		r.fault(kind, map[string]int{tx: 1, leasedMany: 2}[c["handler"]])
	case "the store is down":
		r.faults.Down(true)
	case "it is refused":
		r.fails = []error{retry.Permanent("refused", nil)}
	case "it failed before":
		r.seed("failed and due", m)
	case "its record has expired":
		r.deliverNow(m)
		r.pass(31 * 24 * time.Hour)
	case "the second is for an undeclared topic":
		// A topic that a handler takes from its message may hold personal data.
		second(func(_ handler.Event, emission *handler.Emission) { emission.To = "topic-of-ilse" })
	case "the second is due later":
		second(func(e handler.Event, emission *handler.Emission) {
			emission.Due, emission.Name = e.PublishedAt.Add(15*time.Minute), "the second"
		})
		m.published = r.config.Now()
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
		r := all.ready(t, c)
		r.broker.taken[updates] = nil
		m := r.emits(c)
		event, committed := m.attributes["event_id"], true
		r.broker.before = func(topic string) {
			record, _ := r.record(event)
			committed = committed && (topic != updates || record.Status == dedupe.Completed)
		}
		what, _ = r.observe(m, func() reply { return r.deliverNow(m) })
		r.broker.down, r.faults.OnRead, r.faults.OnCommit = false, nil, nil
		r.faults.Down(false)
		what += fmt.Sprint("; published ", r.published(t, event), ", waiting ",
			len(r.documents(lane.Outbox.Entries())), ", effects ", r.effects(event))
		r.pass(16 * time.Minute)
		delayed := *r.relay
		delayed.Of = lane.Delayed
		for _, relay := range []*lane.Relay{r.relay, &delayed} {
			_, err := relay.Due(t.Context(), 10, func(string, error) {})
			require.NoError(t, err)
		}
		require.Empty(t, r.documents(lane.Outbox.Entries()))
		require.Empty(t, r.documents(lane.Outbox.Lanes()))
		require.True(t, committed, "nothing is published before its commit")
		require.NotContains(t, fmt.Sprint(r.deadLetters()), "ilse")
		record, _ := r.record(event)
		return fmt.Sprint(what, "; later; published ", r.published(t, event), ", record of ",
			len(record.Emitted)), ""
	})
	filetest.Recorded(t, table, "testdata", "emissions.txt")
}

// TestAnswerHasTheRefOfTheEffect: also the answer to a duplicate, which then has a body.
func TestAnswerHasTheRefOfTheEffect(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{leased: true})
	r.do = doing(func(e handler.Event) handler.Effect {
		return handler.Effect{Result: "sent", Ref: map[string]string{"e1": "made-e1"}[e.ID]}
	})
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
	require.Equal(t, "made-e1", r.log.lines("delivery")[0]["ref"])
}

// TestMessageIsInItsRecordWhileASweepMayNeedIt: while a leased handler runs, unless it is too large.
func TestMessageIsInItsRecordWhileASweepMayNeedIt(t *testing.T) {
	t.Parallel()
	good := paid("e1", known, 1)
	for name, test := range map[string]struct {
		deliver message
		kept    bool
	}{
		"an ordinary message":                             {good, true},
		"one that is too large":                           {good.padded(contract.MaxKept + 1), false},
		"one of the largest size":                         {good.padded(contract.MaxKept), true},
		"one with an attribute that no document can hold": {good.set("__own__", "x"), false},
	} {
		r := newRig(t, setup{leased: true})
		var during dedupe.Record
		r.during = func(context.Context) { during, _ = r.record("e1") }
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
func (r *rig) fault(kind string, number int) (reached func() bool, heal func()) {
	reads, commits := 0, 0
	r.faults.OnRead = func(do func() error) error {
		if reads++; kind == "read" && reads == number {
			return retry.Outage("store_unavailable", nil)
		}
		return do()
	}
	r.faults.OnCommit = func(_ context.Context, _ []store.Write, do func() error) error {
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
	return reached, func() { r.faults.OnRead, r.faults.OnCommit = nil, nil }
}

// end delivers the message until it is acknowledged, releases its lane, and describes the end of its event.
func (r *rig) end(t *testing.T, m message, acknowledged bool) string {
	for round := range 6 {
		r.pass(10 * time.Minute)
		if !acknowledged {
			m.attempt = 2 + round
			acknowledged = r.deliverNow(m).code < 300
		}
		for _, back := range r.release(t) {
			m, acknowledged = back, r.deliverNow(back).code < 300
		}
		record, ok := r.record(m.attributes["event_id"])
		if acknowledged && ok && (record.Status == dedupe.Completed || record.Status == dedupe.DeadLettered) &&
			r.keptMessages() == 0 {
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
		r := all.ready(t, c)
		m := c.comes(r.event().again(1))
		switch c["delivery"] {
		case unreadable:
			m.body = "{"
		case scheduled:
			m.attributes[contract.AttrDeliverAt] = r.config.Now().Add(time.Minute).Format(time.RFC3339Nano)
		}
		r.failing(c)
		reached, heal := r.fault(c["fails"], int(c["number"][0]-'0'))
		if c["fails"] == "alarm" {
			r.alarms.err = errBroker
			reached = func() bool { return c["number"] == "1" && len(r.alarms.at) > 0 }
			defer func() { r.alarms.err = nil }()
		}
		var got reply
		what, _ = r.observe(m, func() reply { got = r.deliverNow(m); return got })
		heal()
		if !reached() {
			return "", ""
		}
		return what + r.end(t, m, got.code < 300), ""
	})
	filetest.Recorded(t, table, "testdata", "faults.txt")
}
