package push_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

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

// end delivers the message as the broker does until it is acknowledged, releases what waits, and says how it ended.
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
		if acknowledged && ok && (record.Status == dedupe.Completed || record.Status == dedupe.DeadLettered) && b.keptMessages() == 0 {
			return fmt.Sprintf("; ends %s %d", record.Status, record.Attempts)
		}
	}
	return "; DOES NOT END"
}

// TestWhicheverCallOfTheStoreFailsTheEventEnds is the table of what is answered where one call of the store fails, and
// of how the event ends when the store answers again.
func TestWhicheverCallOfTheStoreFailsTheEventEnds(t *testing.T) {
	t.Parallel()
	const later, unreadable = "1, to be delivered in a minute", "1, unreadable"
	all := benches{}
	table, _ := enumerate([]dimension{
		{"returns", []string{"nothing: it is done", "transient 500", "permanent 422", "missing: waits for another event", "outage of what all need", "busy, not counted"}},
		{"handler", []string{tx, leasedMany}},
		{"fails", []string{"read", "commit not made", "each commit from", "each meets another's from", "commit without an answer", "alarm"}},
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
		m := b.event().again(1)
		switch c["delivery"] {
		case secondDelivery:
			m.attempt = 2
		case fifth:
			m.attempt = 5
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
	golden(t, "faults.txt", table)
}
