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

// keep stores the nth dead letter on the dead-letter topic, and returns its item's id.
func (r *rig) keep(t require.TestingT, n int) string {
	m := r.deadLetters()[n]
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders",
		arrived(fmt.Sprint("dlq-", n), m, start).envelope()).code)
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
		Kind: deadletter.Replay, Filter: bulk.Filter{Queue: "orders", Items: []string{id}}, Why: "repaired",
	}, audit.Author{Proof: audit.Identity, Name: "ilse"}, 1)
	require.NoError(t, err)
	op = filetest.Must(operator.Run(ctx, op.ID))(t)
	require.EqualValues(t, 1, op.Done)
	m := r.broker.taken["orders"][len(r.broker.taken["orders"])-1]
	return arrived("replayed", m, r.config.Now())
}

// What may follow a dead letter.
const (
	itsReplay, readableNow     = "its replay", itsReplay + ", readable now"
	theMessage, anew           = "the message again", "the same payload anew"
	otherPayload, thirdPayload = "another payload", "a third payload"
	invalidOne                 = "one that breaks the contract"
)

var corrections = []dimension{
	{"first", []string{
		"it is refused", "it breaks the contract", "it cannot be read and names no event", "it names another event",
		"its body names another event", "it names another contract", "it names another tenant",
		"it names an invalid tenant", "it names an invalid event",
	}},
	{"corrections", []string{"refused", "accepted", dropped}},
	{"then", []string{
		theMessage, anew, otherPayload, otherPayload + ", refused", itsReplay, itsReplay + ", refused", readableNow,
		invalidOne,
	}},
	{"and", []string{"nothing", otherPayload, thirdPayload, itsReplay, theMessage}},
	{"which comes", []string{"after it", "while it is handled"}},
	{"its dead letter arrives", []string{"at once", "last"}},
}

func (c cell) replays() bool { return strings.Contains(c["then"]+c["and"], itsReplay) }

// impossible reports whether there is nothing to replay, or nothing that the other dimensions change.
func (c cell) impossible() bool {
	return c.replays() && (c["its dead letter arrives"] == "last" || c["corrections"] == dropped) ||
		c["and"] == "nothing" && c["which comes"] != "after it" ||
		c["first"] != "it is refused" && c["first"] != "it breaks the contract" &&
			(c["then"] != anew || c["and"] != "nothing")
}

// follow returns the messages of an event that may follow its dead letter.
func follow(m message) map[string]message {
	quantity := func(id string, n int64) message {
		return m.with(func(m *message) {
			body := m.body.(contract.Payment)
			order := *body.Data.Order
			order.Items = []contract.Item{{ProductID: known, Quantity: n}}
			m.id, body.Data.Order = id+"-"+m.id, &order
			m.body = body
		})
	}
	return map[string]message{
		otherPayload: quantity("corrected", 2), thirdPayload: quantity("third", 3),
		invalidOne: quantity("broken", 0),
		anew:       m.with(func(m *message) { m.id = "anew-" + m.id }),
	}
}

// spoil changes a message so that it becomes a dead letter as its cell says.
func (c cell) spoil(m message) message {
	const unreadable = `{"eventId":`
	switch c["first"] {
	case "it is refused":
		return m
	case "it cannot be read and names no event":
		return m.without("event_id").saying(unreadable)
	case "it names an invalid event":
		return m.set("event_id", "a/b").saying(unreadable)
	case "its body names another event":
		return m.saying(paid("other", known, 0).body)
	}
	named := map[string][2]string{
		"it names another event":    {"event_id", "other"},
		"it names another contract": {"contract", contract.EnvelopeV1},
		"it names another tenant":   {"tenant", "other"}, "it names an invalid tenant": {"tenant", "a/b"},
	}[c["first"]]
	if named[0] != "" {
		m = m.set(named[0], named[1])
	}
	return m.saying(follow(m)[invalidOne].body)
}

// TestDeadLetterClosesOnceItsEventIsDoneAndNeverTwice is the table of what may follow a dead letter: its
// replay, a corrected payload or the message again, one after the other or at once. There is at most one
// effect.
func TestDeadLetterClosesOnceItsEventIsDoneAndNeverTwice(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, _ := enumerate(corrections, func(c cell) (what, cost string) {
		if c.impossible() {
			return "", ""
		}
		r := all.ready(t, c)
		r.broker.taken[dlq] = nil
		r.do = credit
		whole := r.event()
		first := c.spoil(whole)
		fail := func(refused bool) {
			if r.fails = nil; refused {
				r.fails = []error{retry.Permanent("unknown_product", nil)}
			}
		}
		fail(c["first"] == "it is refused")
		r.log.reset()
		r.deliverNow(first)
		died, _ := r.log.outcome()
		require.Regexp(t, "^(dead_lettered|dropped) ", died)
		messages := follow(whole)
		messages[theMessage] = first
		if c["its dead letter arrives"] == "at once" && c["corrections"] != dropped {
			if id := r.keep(t, 0); c.replays() {
				messages[itsReplay] = r.replay(t, id)
				messages[readableNow] = messages[itsReplay].saying(whole.body)
			}
		}
		deliver := func(name string) string {
			name, refused := strings.CutSuffix(name, ", refused")
			fail(refused)
			got, _ := r.observe(whole, func() reply { return r.deliverNow(messages[name]) })
			return got
		}
		inside := ""
		if c["which comes"] == "while it is handled" {
			r.during = func(context.Context) { inside = deliver(c["and"]) }
		}
		what = deliver(c["then"])
		switch {
		case c["and"] == "nothing":
		case r.during != nil: // it was not handled
			r.during = nil
			return "", ""
		case inside == "":
			what = deliver(c["and"])
		default:
			what += " -- the other: " + inside
		}
		for n := range r.deadLetters() {
			r.keep(t, n)
		}
		effects := r.effects(whole.attributes["event_id"])
		require.LessOrEqual(t, effects, int64(1))
		return fmt.Sprint(what, " => effects ", effects, ", ", r.items(t)), ""
	})
	filetest.Recorded(t, table, "testdata", "corrections.txt")
}

// TestDeadLetterRecordsTheEndOfItsReplay is the table of how a replay ends, also where the store fails. The
// end is written in the commit of the effect, or before the replay is acknowledged.
func TestDeadLetterRecordsTheEndOfItsReplay(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, _ := enumerate([]dimension{
		{"its replay", []string{
			"has its effect", "comes too late", "is refused", "is not for the queue", "finds its event done",
			"finds its event dead by another's dead letter",
			"finds its dead letter removed", "names an unknown dead letter", "names a dead letter of another queue",
		}},
		{"handler", []string{tx, leasedMany}},
		{"remembers", []string{remembered, deadLettersAlone}},
		{"the store", []string{"answers", "fails the first commit"}},
	}, func(c cell) (what, cost string) {
		c["dead letters"] = "published"
		r := all.ready(t, c)
		r.broker.taken[dlq] = nil
		r.do = credit
		m := r.event()
		m.published, m.attributes[contract.AttrRoutingKey] = r.config.Now(), "order.paid"
		refused := retry.Permanent("unknown_product", nil)
		r.fails = []error{refused}
		r.deliverNow(m)
		replay := r.replay(t, r.keep(t, 0))
		switch c["its replay"] {
		case "comes too late":
			r.do = doing(func(handler.Event) handler.Effect {
				return handler.Effect{Result: "newer_seen", Superseded: true}
			})
		case "is refused":
			r.fails = []error{refused}
		case "is not for the queue":
			replay.attributes["queue"] = "elsewhere"
		case "finds its event done":
			r.deliverNow(m.set(deadletter.AttrReplayCount, "1"))
		case "finds its event dead by another's dead letter":
			r.fails = []error{refused}
			r.deliverNow(replay)
			r.keep(t, 1)
			forwarded := m.as("forwarded-" + m.id) // a copy, by the broker's own policy
			require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", forwarded.envelope()).code)
			replay = r.replay(t, deadletter.ItemID(r.queue, forwarded.id, contract.Message{Data: m.data()}))
		case "finds its dead letter removed":
			storetest.Put(t, r.db, store.Delete(r.documents(deadletter.Collection)[0].Key, 0))
		case "names an unknown dead letter":
			replay.attributes[deadletter.AttrReplayOf] = "nothing"
		case "names a dead letter of another queue":
			replay.attributes[deadletter.AttrReplayOf] = "x-mails~1"
		}
		if c["the store"] != "answers" {
			r.faults.FailBefore(1)
		}
		first, _ := r.observe(m, func() reply { return r.deliverNow(replay) })
		closed := r.items(t)
		r.faults.FailBefore(0)
		r.pass(time.Minute)
		r.fails = nil
		again, cost := r.observe(m, func() reply { return r.deliverNow(replay) })
		return fmt.Sprint(first, " => ", closed, " -- again: ", again, " (", cost, ") => effects ",
			r.effects(m.attributes["event_id"]), ", ", r.items(t)), ""
	})
	filetest.Recorded(t, table, "testdata", "replays.txt")
}

// TestDeadLetterStaysOnItsTopicUntilItIsStored: one of the worker, and one of the broker's own policy.
func TestDeadLetterStaysOnItsTopicUntilItIsStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.deliver(paid("e1", unknown, 1))
	died := r.log.lines("delivery")[0]
	require.Equal(t, []any{"unknown_product", unknown}, []any{died["reason"], died["cause"]},
		"the log names the subject beside the reason")
	keep := func(id string, m contract.Message) reply {
		return r.post("/push/dead-letters/orders", arrived(id, m, start).envelope())
	}
	own, bare := r.deadLetters()[0], contract.Message{Data: []byte("ilse@example.org")}
	r.faults.Down(true)
	got := keep("77", bare)
	require.Equal(t, []any{http.StatusServiceUnavailable, "store_unavailable"}, []any{got.code, got.Code})
	r.faults.Down(false)
	for i, fresh := range []bool{true, false, true} {
		require.Equal(t, http.StatusNoContent, keep([]string{"dlq-1", "dlq-2", "77"}[i],
			[]contract.Message{own, own, bare}[i]).code)
		require.Equal(t, fresh, r.log.lines("dead letter kept")[i]["new"])
	}
	require.Equal(t, "item delivery_attempts_exhausted open, item unknown_product open", r.items(t))
	require.NotContains(t, r.log.String()+got.text, "ilse")
}
