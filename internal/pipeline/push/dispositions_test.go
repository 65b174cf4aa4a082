package push_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/contract/routing"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/deadletter"
	"billhook/internal/pipeline/lane"
	"billhook/internal/pipeline/push"
	"billhook/internal/platform/store"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

type failure struct {
	name string
	err  error
}

var failures = []failure{
	{"success", nil},
	{"permanent 422", retry.Permanent("refused", nil)},
	{"unreadable 400", retry.BadRequest("refused", nil)},
	{"conflict 409", retry.Conflicting("refused", nil)},
	{"an error without a mark", errHandler},
	{"transient 500", retry.Transient("handler_error", nil)},
	{"transient 500, retry after 1m", retry.After(time.Minute, retry.Transient("failed", nil))},
	{"down 503", retry.Down("down", nil)},
	{"down 503, retry after 1m", retry.After(time.Minute, retry.Down("down", nil))},
	{"timeout 504", context.DeadlineExceeded},
	{"outage for all messages", retry.Outage("outage", nil)},
	{"outage, retry after 1m", retry.After(time.Minute, retry.Outage("outage", nil))},
	{"busy, not counted", retry.Busy("busy", nil)},
	{"busy, retry after 1m", retry.After(time.Minute, retry.Busy("busy", nil))},
	{"missing: waits for another event", retry.Missing("missing", nil)},
	{"early by a minute", retry.Early("early", time.Minute, nil)},
}

func failureNames() []string { return filetest.Map(failures, func(f failure) string { return f.name }) }

// failureOf returns the error of a failure; nil without one.
func failureOf(name string) (err error) {
	for _, f := range failures {
		if f.name == name {
			err = f.err
		}
	}
	return err
}

func (r *rig) failing(c cell) { r.fails = []error{failureOf(c["returns"])} }

const (
	tx, leasedMany, leasedOne = "Tx", "leased", "leased, all to one target"
	leasedKind                = "leased, all to many places of a kind"
	uncounted, firstDelivery  = "not counted", "1"
	secondDelivery, fifth     = "2", "5"
	fromLane, replayed        = "back from a lane", "replayed"
	sentAgain                 = "1, sent again"
	anyOrder, inKeyOrder      = "no", "yes"
	left, last                = "left", "the last"
	soon, late                = "1s", "10s"
	keepsTime, budgetUsed     = "the broker's", "the broker's, nacks used up"
	ownTime                   = "its own"
	remembered, forgotten     = "yes", "no"
	deadLettersAlone          = "its dead letters alone"
	dropped                   = "accepted, dead letters dropped"
)

// differs is what a value of a dimension changes of the queue.
var differs = map[[2]string]func(q *catalog.Queue){
	{"backoff", soon}:               func(q *catalog.Queue) { q.Backoff.Base = time.Second },
	{"waits are", ownTime}:          func(q *catalog.Queue) { q.Backoff.Multiplier = 3 },
	{"waits are", budgetUsed}:       func(q *catalog.Queue) { q.NackBudget = 10_000 * time.Hour },
	{"remembers", forgotten}:        func(q *catalog.Queue) { q.RememberFor = 0; drops(q) },
	{"remembers", deadLettersAlone}: func(q *catalog.Queue) { q.RememberFor = 0 },
	{"dead letters", "dropped"}:     drops,
	{"terminal", "ack"}:             func(q *catalog.Queue) { q.OnTerminal = catalog.Ack },
	{"corrections", "accepted"}:     accepts,
	{"corrections", dropped}:        func(q *catalog.Queue) { accepts(q); drops(q) },
	{"in order", inKeyOrder}:        inOrder,
}

func drops(q *catalog.Queue)   { q.DeadLetter = catalog.DeadLetter{Drop: true} }
func accepts(q *catalog.Queue) { q.OnCorrected = catalog.Accept }

func (c cell) policy(q *catalog.Queue) {
	q.Backoff, q.SlotWait = times10(10), 2*time.Second
	for dimension, value := range c {
		if change := differs[[2]string{dimension, value}]; change != nil {
			change(q)
		}
	}
	if c["dead letters"] != "" {
		q.MessageTTL, q.SharedTopic, q.Bindings = time.Hour, "orders", []routing.Pattern{"order.*"}
	}
	for eventType, h := range q.Handlers {
		h.Backoff = q.Backoff
		if c["timeout"] != "" {
			h.Timeout, _ = time.ParseDuration(c["timeout"])
		}
		if h.MaxAttempts = 4; c["attempts"] == last {
			h.MaxAttempts = 1
		}
		if c["handler"] == leasedOne || c["handler"] == leasedKind {
			h.Post = catalog.Post{Target: "service", Path: "/" + eventType} // paths do not matter
		}
		q.Handlers[eventType] = h
	}
}

// ready returns a bench for a cell, with its nacks used up where the cell says so, and without messages or
// dead letters. Cells of the same queue share a bench.
func (all benches) ready(t *testing.T, c cell) *rig {
	name := ""
	for _, of := range []string{
		"handler", "attempts", "remembers", "backoff", "waits are", "in order", "dead letters", "terminal",
		"corrections", "timeout",
	} {
		name += c[of] + "/"
	}
	r := all[name]
	if r == nil {
		r = newRig(t, setup{
			queue: c.policy, leased: c["handler"] != tx && c["handler"] != "", many: c["handler"] == leasedKind,
		})
		all[name] = r
		if c["waits are"] == budgetUsed { // a rejection uses up the budget of nacks
			r.deliverNow(r.event().saying("{"))
		}
	}
	for _, collection := range []string{lane.Delayed.Entries(), lane.Delayed.Lanes(), deadletter.Collection} {
		for _, doc := range r.documents(collection) {
			storetest.Put(t, r.db, store.Delete(doc.Key, 0))
		}
	}
	r.fails, r.during, r.do = nil, nil, returns("done")
	r.pass(2 * time.Second) // the cache of the lanes has expired
	return r
}

type benches map[string]*rig

func TestEveryFailureHasItsDisposition(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, costs := enumerate([]dimension{
		{"returns", failureNames()},
		{"attempts", []string{left, last}},
		{"handler", []string{tx, leasedMany, leasedOne, leasedKind}},
		{"remembers", []string{remembered, forgotten}},
		{"backoff", []string{soon, late}},
		{"waits are", []string{keepsTime, budgetUsed, ownTime}},
		{"in order", []string{anyOrder, inKeyOrder}},
		{"delivery", []string{uncounted, firstDelivery, fifth}},
	}, func(c cell) (what, cost string) {
		r := all.ready(t, c)
		m := r.event().again(map[string]int{uncounted: 0, firstDelivery: 1, fifth: 5}[c["delivery"]])
		r.failing(c)
		what, cost = r.observe(m, func() reply { return r.deliverNow(m) })
		if c["delivery"] != firstDelivery || c["handler"] == leasedOne || c["handler"] == leasedKind ||
			c["backoff"] == soon || c["waits are"] == budgetUsed {
			cost = ""
		}
		return what, cost
	})
	filetest.Recorded(t, table, "testdata", "failures.txt")
	filetest.Recorded(t, costs, "testdata", "failures-cost.txt")
}

func TestTheTableOfDispositionsIsInTheDocs(t *testing.T) {
	t.Parallel()
	const page, begin, end = "../../../docs/why/exactly-once.md",
		"<!-- dispositions: go test ./internal/pipeline/push -update -->\n", "<!-- end of dispositions -->"
	filetest.Part(t, push.Dispositions(), begin, end, page)
}

func TestDeadLetterIsAnsweredAsItsQueueConfigures(t *testing.T) {
	t.Parallel()
	all := benches{}
	at := func(attribute string, d time.Duration) func(*message) {
		return func(m *message) { m.attributes[attribute] = m.published.Add(d).Format(time.RFC3339Nano) }
	}
	says := func(attribute, value string) func(*message) {
		return func(m *message) { m.attributes[attribute] = value }
	}
	older := func(d time.Duration) func(*message) {
		return func(m *message) { m.published = m.published.Add(-d) }
	}
	type row struct {
		name   string
		change func(*message)
	}
	messages := []row{
		{"whole", func(*message) {}},
		{"of an unknown type", func(m *message) {
			body := m.body.(contract.Payment)
			body.EventType = "order.chargeback"
			m.body, m.attributes["event_type"] = body, body.EventType
		}},
		{"unreadable", func(m *message) { m.body = "{" }},
		{"that breaks the contract", says("max_attempts", "no number")},
		{"of another queue", says(contract.AttrRoutingKey, "elsewhere")},
		{"released to another queue", says("queue", "mails")},
		{"an hour old", older(time.Hour)},
		{"older", older(time.Hour + 1)},
		{"older, and published again", at(contract.AttrFirstPublished, -time.Hour-1)},
		{"an hour old, and published again", at(contract.AttrFirstPublished, -time.Hour)},
		{"with an invalid time of its first publishing", says(contract.AttrFirstPublished, "long ago")},
		{"without a publish time", func(m *message) { m.published = time.Time{} }},
		{"to be delivered now", at(contract.AttrDeliverAt, 0)},
		{"to be delivered an hour ago", at(contract.AttrDeliverAt, -time.Hour)},
		{"to be delivered in an hour", at(contract.AttrDeliverAt, time.Hour)},
		{"to be delivered in 31 days", at(contract.AttrDeliverAt, 31*24*time.Hour)},
		{"with an invalid time of delivery", says(contract.AttrDeliverAt, "tomorrow")},
	}
	names := filetest.Map(messages, func(r row) string { return r.name })
	table, _ := enumerate([]dimension{
		{"message", names},
		{"returns", []string{"permanent 422", "transient 500", "missing: waits for another event"}},
		{"dead letters", []string{"published", "not confirmed", "dropped"}},
		{"terminal", []string{"reject", "ack"}},
		{"waits are", []string{keepsTime, budgetUsed}},
		{"attempts", []string{last}},
		{"corrections", []string{"refused", "accepted"}},
	}, func(c cell) (what, cost string) {
		if c["message"] != "whole" && c["returns"] != "permanent 422" {
			return "", "" // the handler is not called
		}
		r := all.ready(t, c)
		m := r.event()
		m.attributes[contract.AttrRoutingKey], m.published = "order.paid", r.config.Now()
		messages[slices.Index(names, c["message"])].change(&m)
		r.failing(c)
		r.broker.down = c["dead letters"] == "not confirmed"
		defer func() { r.broker.down = false }()
		return r.observe(m, func() reply { return r.deliverNow(m) })
	})
	filetest.Recorded(t, table, "testdata", "dead-letters.txt")
}

// TestRequestWaitsByTheTimeThatItsAttemptTook is the table of when a request waits for its next attempt: 1 s
// of wait, 2 s for a slot, 12 s to write and the timeout must fit in the 60 s of its ack deadline.
func TestRequestWaitsByTheTimeThatItsAttemptTook(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, _ := enumerate([]dimension{
		{"returns", failureNames()},
		{"meanwhile", []string{
			"nothing", "three seconds pass", "the service drains", "its timer runs ahead of the clock",
		}},
		{"timeout", []string{"44s", "45s"}},
		{"handler", []string{tx, leasedMany}},
		{"attempts", []string{left, last}},
		{"backoff", []string{soon}},
	}, func(c cell) (what, cost string) {
		if c["meanwhile"] != "nothing" && c["timeout"] != "44s" {
			return "", ""
		}
		if c["meanwhile"] == "the service drains" {
			clear(all) // that cannot be undone
		}
		r := all.ready(t, c)
		m := r.event()
		r.failing(c)
		defer r.ahead.Store(false)
		r.during = func(context.Context) {
			switch c["meanwhile"] {
			case "its timer runs ahead of the clock":
				r.ahead.Store(true)
			case "three seconds pass":
				r.pass(3 * time.Second)
			case "the service drains":
				r.Drain()
				clear(all)
			}
		}
		return r.observe(m, func() reply { return r.deliverNow(m) })
	})
	filetest.Recorded(t, table, "testdata", "meanwhile.txt")
}

// TestDeliveryIsAnsweredByItsRecord is the table of the answers to a delivery, by its event's record and by
// what waits before it.
func TestDeliveryIsAnsweredByItsRecord(t *testing.T) {
	t.Parallel()
	all := benches{}
	table, costs := enumerate([]dimension{
		{"record", []string{
			"none", "failed and due", "failed, due in 1s", "failed, due in 8s", "kept for 20s",
			"kept, and 20s are over", "completed",
			"completed with another payload", "dead-lettered", "dead-lettered with another payload",
			"being handled", "being handled, nacks used up", "of a worker that died",
			"of a worker that died 8s ago", "broken",
		}},
		{"handler", []string{tx, leasedMany}},
		{"delivery", []string{firstDelivery, secondDelivery, fifth, sentAgain, fromLane, replayed}},
		{"corrections", []string{"refused", "accepted"}},
		{"in order", []string{anyOrder, inKeyOrder}},
		{"before it", []string{"nothing", "another of its key waits"}},
		{"to be delivered", []string{"now", "in a minute"}},
	}, func(c cell) (what, cost string) {
		if c["in order"] == anyOrder && c["before it"] != "nothing" {
			return "", ""
		}
		if c["record"] == "being handled, nacks used up" {
			c["waits are"] = budgetUsed
		}
		r := all.ready(t, c)
		other := r.event()
		m := r.event().again(1)
		r.seed(c["record"], m)
		if c["before it"] != "nothing" {
			r.fails = []error{retry.After(time.Hour, retry.Transient("failed", nil))}
			r.deliverNow(other.set("ordering_key", m.attributes["ordering_key"]))
		}
		r.pass(2 * time.Second)
		if m = c.comes(m); c["to be delivered"] != "now" {
			m = m.set(contract.AttrDeliverAt, r.config.Now().Add(time.Minute).Format(time.RFC3339Nano))
		}
		if !strings.HasPrefix(c["record"], "being handled") {
			r.fails = nil
			what, cost = r.observe(m, func() reply { return r.deliverNow(m) })
			if c["before it"] != "nothing" || c["to be delivered"] != "now" {
				cost = ""
			}
			return what, cost
		}
		r.during = func(context.Context) { what, _ = r.observe(m, func() reply { return r.deliverNow(m) }) }
		r.deliverNow(m.without(contract.AttrDeliverAt))
		return what, ""
	})
	filetest.Recorded(t, table, "testdata", "records.txt")
	filetest.Recorded(t, costs, "testdata", "records-cost.txt")
}
