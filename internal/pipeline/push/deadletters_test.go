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

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/inspect/bulk"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func deadLetter(id string, m contract.Message) message {
	return message{id: id, body: string(m.Data), attributes: m.Attributes, published: start}
}

// keep stores the nth dead letter on the dead-letter topic, and returns its item's id.
func (r *rig) keep(t require.TestingT, n int) string {
	m := r.deadLetters()[n]
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders",
		deadLetter(fmt.Sprint("dlq-", n), m).envelope()).code)
	return deadletter.ItemID(r.queue, m.Attributes["source_message_id"], m)
}

func (r *rig) items(t require.TestingT) string {
	var said []string
	for _, doc := range r.documents(deadletter.Collection) {
		item := filetest.Must(deadletter.ItemOf(doc))(t)
		text := fmt.Sprintf("item %s %s", item.Reason, item.State)
		if item.State == deadletter.Processed {
			text += fmt.Sprint(" as ", item.Outcome)
		}
		if item.CorrectedBy != "" {
			text += " by " + strings.TrimRight(item.CorrectedBy, "-me0123456789")
		}
		require.False(t, item.State != deadletter.Open && item.Closed.IsZero(), text)
		said = append(said, text)
	}
	slices.Sort(said)
	return strings.Join(said, ", ")
}

func (r *rig) replay(t require.TestingT, id string) message {
	ctx := context.Background()
	operator := &bulk.Operator{
		Store: r.db, Catalog: &catalog.Catalog{Queues: []catalog.Queue{r.queue}}, Now: r.config.Now,
		NewID: func() string { return fmt.Sprint("id-", r.ids.Add(1)) },
		Wait:  func(context.Context, time.Duration) error { return nil },
		Relay: func(ctx context.Context, lane string) error { _, err := r.relay.Lane(ctx, lane); return err },
	}
	op, err := operator.Begin(ctx, bulk.Operation{
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders", Items: []string{id}}, Why: "mended",
	}, audit.Author{Proof: audit.Identity, Name: "ilse"}, 1)
	require.NoError(t, err)
	op = filetest.Must(operator.Run(ctx, op.ID))(t)
	require.EqualValues(t, 1, op.Done)
	m := r.broker.taken["orders"][len(r.broker.taken["orders"])-1]
	return message{id: "replayed", body: string(m.Data), attributes: m.Attributes, published: r.config.Now()}
}

// TestDeadLetterClosesOnceItsEventIsDoneAndNeverTwice is the table of what may come after a dead letter: its
// replay, a corrected payload, the message again, one after the other or at once. What was refused has had no
// effect, and there is one effect at most.
func TestDeadLetterClosesOnceItsEventIsDoneAndNeverTwice(t *testing.T) {
	t.Parallel()
	const replay, again, other, anew = "its replay", "the message again", "another payload",
		"the same payload anew"
	const refuses, breaks = "it is refused", "it breaks the contract"
	all := benches{}
	table, _ := enumerate([]dimension{
		{"first", []string{
			refuses, breaks, "it cannot be read and names no event", "it names another event",
			"its body names another event",
			"it names another contract", "it names another tenant", "it names no valid tenant",
			"it names no valid event",
		}},
		{"corrections", []string{"refused", "accepted", dropped}},
		{
			"then", []string{
				again, anew, other, other + ", refused", replay, replay + ", refused", replay + ", readable now",
				"one that breaks the contract",
			},
		},
		{"and", []string{"nothing", other, "a third payload", replay, again}},
		{"which comes", []string{"after it", "while it is handled"}},
		{"its dead letter arrives", []string{"at once", "last"}},
	}, func(c cell) (what, cost string) {
		replayed := strings.Contains(c["then"]+c["and"], replay)
		switch {
		// there is nothing to replay
		case replayed && (c["its dead letter arrives"] == "last" || c["corrections"] == dropped),
			c["and"] == "nothing" && c["which comes"] != "after it",
			c["first"] != refuses && c["first"] != breaks && (c["then"] != anew || c["and"] != "nothing"):
			return "", ""
		}
		b := all.ready(t, c)
		b.broker.taken[dlq] = nil
		b.effect = counted
		m := b.event()
		whole := m
		quantity := func(id string, n int64) message {
			return m.with(func(m *message) {
				body := m.body.(contract.Payment)
				order := *body.Data.Order
				order.Items = []contract.Item{{ProductID: known, Quantity: n}}
				m.id, body.Data.Order = id+"-"+m.id, &order
				m.body = body
			})
		}
		messages := map[string]message{
			other: quantity("corrected", 2), "a third payload": quantity("third", 3), anew: m.with(func(m *message) {
				m.id = "anew-" + m.id
			}),
			"one that breaks the contract": quantity("broken", 0),
		}
		b.fails = nil
		m = m.with(func(m *message) {
			switch c["first"] {
			case refuses:
				b.fails = []error{retry.Permanent("unknown_product", nil)}
				return
			case "it cannot be read and names no event":
				m.body = `{"eventId":`
				delete(m.attributes, "event_id")
				return
			case "it names another event":
				m.attributes["event_id"] = "other"
			case "it names another contract":
				m.attributes["contract"] = contract.EnvelopeV1
			case "it names another tenant":
				m.attributes["tenant"] = "other"
			case "it names no valid tenant":
				m.attributes["tenant"] = "a/b"
			case "it names no valid event":
				m.body, m.attributes["event_id"] = `{"eventId":`, "a/b"
				return
			}
			if m.body = messages["one that breaks the contract"].body; c["first"] == "its body names another event" {
				m.body = paid("other", known, 0).body
			}
		})
		b.deliverNow(m)
		require.Regexp(t, "^(dead_lettered|dropped) ", b.lines.delivered)
		messages[again] = m
		if c["its dead letter arrives"] == "at once" && c["corrections"] != dropped {
			if id := b.keep(t, 0); replayed {
				messages[replay] = b.replay(t, id)
				messages[replay+", readable now"] = messages[replay].with(func(m *message) { m.body = whole.body })
			}
		}
		deliver := func(name string) string {
			comes, refused := strings.CutSuffix(name, ", refused")
			if b.fails = nil; refused {
				b.fails = []error{retry.Permanent("unknown_product", nil)}
			}
			got, _ := b.observe(whole, func() reply { return b.deliverNow(messages[comes]) })
			return got
		}
		inside := ""
		if c["which comes"] == "while it is handled" {
			b.during = func(context.Context) { inside = deliver(c["and"]) }
		}
		what = deliver(c["then"])
		switch {
		case c["and"] == "nothing":
		case b.during != nil: // it was not handled
			b.during = nil
			return "", ""
		case inside == "":
			what = deliver(c["and"])
		default:
			what += " -- the other: " + inside
		}
		for n := range b.deadLetters() {
			b.keep(t, n)
		}
		effects := b.effects(whole.attributes["event_id"])
		require.LessOrEqual(t, effects, int64(1))
		return fmt.Sprint(what, " => effects ", effects, ", ", b.items(t)), ""
	})
	filetest.Recorded(t, table, "testdata", "corrections.txt")
}

// TestDeadLetterLearnsHowItsReplayHasEnded is the table of the ends of a replay, also where the store does
// not take one: it is noted in the commit of the effect, or before the broker is done with it.
func TestDeadLetterLearnsHowItsReplayHasEnded(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, _ := enumerate([]dimension{
		{"its replay", []string{
			"has its effect", "comes too late", "is refused", "is not for the queue", "finds its event done",
			"finds its event dead by another's dead letter",
			"finds its dead letter removed", "names a dead letter of nobody", "names a dead letter of another queue",
		}},
		{"handler", []string{tx, leasedMany}},
		{"remembers", []string{remembered, deadLettersAlone}},
		{"the store", []string{"answers", "fails the first commit"}},
	}, func(c cell) (what, cost string) {
		c["dead letters"] = "published"
		b := all.ready(t, c)
		b.broker.taken[dlq] = nil
		b.effect = counted
		m := b.event()
		m.published, m.attributes[contract.AttrRoutingKey] = b.config.Now(), "order.paid"
		refused := retry.Permanent("unknown_product", nil)
		b.fails = []error{refused}
		b.deliverNow(m)
		replay := b.replay(t, b.keep(t, 0))
		switch c["its replay"] {
		case "comes too late":
			b.effect = func(handler.Event) handler.Effect {
				return handler.Effect{Result: "newer_seen", Superseded: true}
			}
		case "is refused":
			b.fails = []error{refused}
		case "is not for the queue":
			replay.attributes["queue"] = "elsewhere"
		case "finds its event done":
			b.deliverNow(m.set(deadletter.AttrReplayCount, "1"))
		case "finds its event dead by another's dead letter":
			b.fails = []error{refused}
			b.deliverNow(replay)
			b.keep(t, 1)
			forwarded := m.with(func(m *message) { m.id = "forwarded-" + m.id }) // a copy, by the broker's own policy
			require.Equal(t, http.StatusNoContent, b.post("/push/dead-letters/orders", forwarded.envelope()).code)
			replay = b.replay(t, deadletter.ItemID(b.queue, forwarded.id, contract.Message{Data: m.data()}))
		case "finds its dead letter removed":
			storetest.Put(t, b.db, store.Delete(b.documents(deadletter.Collection)[0].Key, 0))
		case "names a dead letter of nobody":
			replay.attributes[deadletter.AttrReplayOf] = "nothing"
		case "names a dead letter of another queue":
			replay.attributes[deadletter.AttrReplayOf] = "x-mails~1"
		}
		if c["the store"] != "answers" {
			b.faults.FailBefore(1)
		}
		first, _ := b.observe(m, func() reply { return b.deliverNow(replay) })
		closed := b.items(t)
		b.faults.FailBefore(0)
		b.pass(time.Minute)
		b.fails = nil
		again, cost := b.observe(m, func() reply { return b.deliverNow(replay) })
		return fmt.Sprint(first, " => ", closed, " -- again: ", again, " (", cost, ") => effects ",
			b.effects(m.attributes["event_id"]), ", ", b.items(t)), ""
	})
	filetest.Recorded(t, table, "testdata", "replays.txt")
}

// TestDeadLetterStaysOnItsTopicUntilItIsKept: that of the worker, and one of the broker's own policy.
func TestDeadLetterStaysOnItsTopicUntilItIsKept(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.deliver(paid("e1", unknown, 1))
	died := r.log.lines(t, "delivery")[0]
	require.Equal(t, []any{"unknown_product", unknown}, []any{died["reason"], died["cause"]},
		"what it is about stands beside the reason")
	keep := func(id string, m contract.Message) reply {
		return r.post("/push/dead-letters/orders", deadLetter(id, m).envelope())
	}
	own, bare := r.deadLetters()[0], contract.Message{Data: []byte("ilse@example.org")}
	r.faults.Down(true)
	got := keep("77", bare)
	require.Equal(t, []any{http.StatusServiceUnavailable, "store_unavailable"}, []any{got.code, got.Code})
	r.faults.Down(false)
	for i, fresh := range []bool{true, false, true} {
		require.Equal(t, http.StatusNoContent, keep([]string{"dlq-1", "dlq-2", "77"}[i],
			[]contract.Message{own, own, bare}[i]).code)
		require.Equal(t, fresh, r.log.lines(t, "dead letter kept")[i]["new"])
	}
	require.Equal(t, "item delivery_attempts_exhausted open, item unknown_product open", r.items(t))
	require.NotContains(t, r.log.String()+got.text, "ilse")
}
