package push_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/retry"
)

// accepting is a queue that takes corrections.
func accepting(q *catalog.Queue) { q.OnCorrected = catalog.Accept }

// corrected is another payload under the id of an event: of n of the known product.
func corrected(event string, n int) message {
	return paid(event, known, n).with(func(m *message) { m.id = "corrected-" + m.id + "-" + string(rune('0'+n)) })
}

// keep stores the nth letter on the dead-letter topic, and returns its item's id.
func (r *rig) keep(t *testing.T, n int) string {
	t.Helper()
	m := r.letters()[n]
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", letter("dlq-"+string(rune('0'+n)), m).envelope()).code)
	return deadletter.ItemID(r.queue, m.Attributes["source_message_id"], m)
}

// states are those of the items in the store, by their ids.
func (r *rig) states(t *testing.T) map[string]deadletter.State {
	t.Helper()
	states := map[string]deadletter.State{}
	for _, doc := range r.items(t) {
		item, err := deadletter.ItemOf(doc)
		require.NoError(t, err)
		states[item.ID] = item.State
	}
	return states
}

func (r *rig) operator() *deadletter.Operator {
	return &deadletter.Operator{
		Store: r.faults, Queue: func(string) (catalog.Queue, bool) { return r.queue, true }, Now: func() time.Time { return time.Unix(0, r.now.Load()).UTC() },
		NewID: func() string { return fmt.Sprint("id-", r.ids.Add(1)) },
		Wait:  func(context.Context, time.Duration) error { return nil },
		Relay: func(ctx context.Context, lane string) error { _, err := r.relay.Lane(ctx, lane); return err },
	}
}

// replay replays an item and returns what came on the queue.
func (r *rig) replay(t *testing.T, id string) message {
	t.Helper()
	desk := r.operator()
	op, err := desk.Begin(t.Context(), deadletter.Operation{Kind: deadletter.Replay, Filter: deadletter.Filter{Queue: "orders", Item: id}, Why: "mended"}, audit.Author{Proof: audit.Identity, Name: "ilse"}, 1)
	require.NoError(t, err)
	op, err = desk.Run(t.Context(), op.ID)
	require.NoError(t, err)
	require.EqualValues(t, 1, op.Done)
	m := r.broker.returned[len(r.broker.returned)-1]
	return message{id: "replayed", body: string(m.Data), attributes: m.Attributes, published: time.Unix(0, r.now.Load()).UTC()}
}

func TestACorrectedPayloadIsProcessedAndItsDeadLetterCloses(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{queue: accepting})
	require.Equal(t, "dead_lettered", r.deliver(paid("e1", unknown, 1)).Outcome)
	id := r.keep(t, 0)
	r.pass(time.Hour)
	got := r.deliver(corrected("e1", 2))
	require.Equal(t, "processed", got.Outcome, got.text)
	require.Equal(t, 1, got.Attempt, "with all attempts")
	require.EqualValues(t, 2000, r.balance(t))
	record, _ := r.record(t, "e1")
	require.Equal(t, dedupe.Completed, record.Status)
	require.Len(t, record.Corrected, 1)
	require.Empty(t, record.DeadLetters)

	item, err := r.operator().Show(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, deadletter.Corrected, item.State)
	require.Equal(t, "corrected-m-e1-2", item.CorrectedBy)
	require.Equal(t, start.Add(time.Hour), item.Closed)
	require.Equal(t, "unknown_product", item.Reason, "it is what it was")
	require.NotEmpty(t, item.Data)
	standing, err := deadletter.Look(t.Context(), r.faults, r.queue, start)
	require.NoError(t, err)
	require.Zero(t, standing.Open, "and counts no longer")

	for _, late := range []message{paid("e1", unknown, 1), paid("e1", unknown, 1).again(2), replayOf(r.letters()[0], "1")} {
		require.Equal(t, http.StatusNoContent, r.deliver(late).code, "what comes late is of the payload that it took the place of")
	}
	require.Len(t, r.letters(), 1)
	require.Equal(t, "corrected_before", r.log.lines(t, "delivery")[2]["reason"])
	require.Equal(t, http.StatusNoContent, r.deliver(corrected("e1", 2)).code)
	require.Equal(t, "payload_conflict", r.deliver(corrected("e1", 3)).Reason, "and is corrected no more")
	require.EqualValues(t, 2000, r.balance(t))
}

func TestAReplayAndACorrectionAtOnceHaveOneEffect(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		// mended: the old payload can be processed now.
		mended bool
		// inside says which of the two is delivered while the other's handler runs.
		replayInside  bool
		outer, inner  string
		balance       int64
		state         deadletter.State
		letters, open int
	}{
		"the replay between, and it works":         {mended: true, replayInside: true, inner: "processed", outer: "dead_lettered", balance: 1000, state: deadletter.Processed, letters: 2},
		"the replay between, and it fails":         {replayInside: true, inner: "dead_lettered", outer: "processed", balance: 2000, state: deadletter.Corrected, letters: 2},
		"the correction between, and both work":    {mended: true, inner: "processed", outer: "", balance: 2000, state: deadletter.Corrected, letters: 1},
		"the correction between, the replay fails": {inner: "processed", outer: "", balance: 2000, state: deadletter.Corrected, letters: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var between func()
			mended := false
			r := newRig(t, setup{queue: accepting, credit: func(_ *rig, own handler.Tx) handler.Tx {
				return func(ctx context.Context, event handler.Event) (handler.Effect, error) {
					if f := between; f != nil && event.MessageID != "m-e1" {
						between = nil
						f()
					}
					if body, err := contract.As[*contract.PayNow](event.Body); err == nil && body.Data.Order.Items[0].Quantity == 1 && !mended {
						return handler.Effect{}, retry.Permanent("unknown_product", nil)
					}
					return own(ctx, event)
				}
			}})
			r.deliver(paid("e1", known, 1))
			id := r.keep(t, 0)
			mended = test.mended
			replay, correction := r.replay(t, id), corrected("e1", 2)
			outer, inner := replay, correction
			if test.replayInside {
				outer, inner = correction, replay
			}
			var within reply
			between = func() { within = r.deliver(inner) }
			got := r.deliver(outer)
			require.Equal(t, test.inner, within.Outcome)
			require.Equal(t, test.outer, got.Outcome, "an acknowledged duplicate has no body")
			require.Equal(t, test.balance, r.balance(t))
			require.Len(t, r.letters(), test.letters)
			for n := range r.letters() {
				r.keep(t, n)
			}
			require.Equal(t, test.state, r.states(t)[id])
		})
	}
}

func TestAMessageThatKeepsTheContractClosesTheDeadLetterOfOneThatBrokeIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		queue func(*catalog.Queue)
		with  func(*message)
		// before is processed first.
		before bool
		closed bool
	}{
		"a broken contract":              {queue: accepting, with: func(m *message) { m.body = paid("e1", known, 0).body }, closed: true},
		"without an attribute":           {queue: accepting, with: func(m *message) { m.body = paid("e1", known, 0).body; delete(m.attributes, "event_id") }, closed: true},
		"a body that cannot be read":     {queue: accepting, with: func(m *message) { m.body = `{"eventId":` }, closed: true},
		"attributes of another event":    {queue: accepting, with: func(m *message) { m.body = paid("e2", known, 0).body }},
		"a body of another event":        {queue: accepting, with: func(m *message) { m.body, m.attributes["event_id"] = paid("e1", known, 0).body, "e2" }},
		"another contract":               {queue: accepting, with: func(m *message) { m.attributes["contract"] = "envelope.v1" }},
		"no tenant":                      {queue: accepting, with: func(m *message) { m.attributes["tenant"] = "a/b" }},
		"another tenant":                 {queue: accepting, with: func(m *message) { m.body, m.attributes["tenant"] = paid("e1", known, 0).body, "other" }},
		"no valid id":                    {queue: accepting, with: func(m *message) { m.body, m.attributes["event_id"] = `{"eventId":`, "a/b" }},
		"where corrections are refused":  {queue: func(*catalog.Queue) {}, with: func(m *message) { m.body = paid("e1", known, 0).body }},
		"after the event was processed":  {queue: accepting, with: func(m *message) { m.body = paid("e1", known, 0).body }, before: true},
		"where dead letters are dropped": {queue: func(q *catalog.Queue) { accepting(q); q.DeadLetter = catalog.DeadLetter{Drop: true} }, with: func(m *message) { m.body = paid("e1", known, 0).body }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{queue: test.queue})
			if test.before {
				r.deliver(paid("e1", known, 1))
			}
			broken := paid("e1", known, 1).with(func(m *message) { m.id = "broken"; test.with(m) })
			r.deliver(broken)
			r.deliver(broken.again(2))
			for n := range r.letters() {
				r.keep(t, n)
			}
			got := r.deliver(paid("e1", known, 1))
			require.Contains(t, []int{200, 204}, got.code, got.text)
			require.EqualValues(t, 1000, r.balance(t), "it is processed in any case")
			for _, state := range r.states(t) {
				require.Equal(t, test.closed, state == deadletter.Corrected)
			}
			r.deliver(broken.again(3))
			require.LessOrEqual(t, len(r.letters()), 1)
		})
	}
}

func TestEveryDeadLetterUnderAnIDClosesWithItsCorrectionAlsoOneThatArrivesLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{queue: accepting})
	r.deliver(paid("e1", unknown, 1))
	for _, id := range []string{"broken-1", "broken-2"} {
		r.deliver(paid("e1", known, 0).with(func(m *message) { m.id = id }))
	}
	r.keep(t, 1)
	require.Equal(t, "processed", r.deliver(corrected("e1", 2)).Outcome)
	for _, n := range []int{0, 0, 2} { // and one of them twice
		r.keep(t, n)
	}
	require.Len(t, r.items(t), 3)
	for _, doc := range r.items(t) {
		item, err := deadletter.ItemOf(doc)
		require.NoError(t, err)
		require.Equal(t, []any{deadletter.Corrected, "corrected-m-e1-2"}, []any{item.State, item.CorrectedBy})
		require.Contains(t, []string{"unknown_product", "contract_broken"}, item.Reason, "it is what it was")
		require.NotEmpty(t, item.Data)
	}
}

func TestWhatBrokeTheContractAndIsReplayedDoesNotCorrectItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{queue: accepting})
	r.deliver(paid("e1", known, 1).with(func(m *message) { m.body = `{"eventId":` }))
	id := r.keep(t, 0)
	replay := r.replay(t, id).with(func(m *message) { m.body = paid("e1", known, 1).body }) // as if the release could read it now
	require.Equal(t, "processed", r.deliver(replay).Outcome)
	require.Equal(t, deadletter.Processed, r.states(t)[id])
}

// replayOf is the letter as its replay delivers it.
func replayOf(letter contract.Message, count string) message {
	m := message{id: "replay-" + count, body: string(letter.Data), attributes: map[string]string{}, published: start}
	for name, value := range letter.Attributes {
		m.attributes[name] = value
	}
	m.attributes[deadletter.AttrReplayOf], m.attributes[deadletter.AttrReplayCount] = "item", count
	return m
}
