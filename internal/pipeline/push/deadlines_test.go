package push_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/dedupe"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/store"
	"billhook/internal/retry"
)

// TestAttemptWhoseTimeIsUpOrWhoseCallerLeaves is the table of what ends an attempt from outside: whether it
// counts, whether its lease stands, and what later deliveries find. What is late changes nothing.
func TestAttemptWhoseTimeIsUpOrWhoseCallerLeaves(t *testing.T) {
	t.Parallel()
	const ignored, asks, commits = "it ignores that", "it asks and ignores that", "its effect is committed"
	table, _ := enumerate([]dimension{
		{"ended by", []string{"its deadline", "its caller"}},
		{"while", []string{"it runs", ignored, asks, commits}},
		{"handler", []string{tx, leasedMany}},
		{"returns", []string{
			"nothing: it is done", "writes that no store takes", "permanent 422", "transient 500", "timeout 504",
			"down 503", "outage of what all need",
			"busy, not counted",
		}},
	}, func(c cell) (what, cost string) {
		invalid := c["returns"] == "writes that no store takes"
		done := c["returns"] == failures[0].name
		switch {
		case c["while"] == commits && !done && !invalid, c["while"] == asks && (c["handler"] == tx || !done),
			// which of the two comes first is by chance
			c["while"] == "it runs" && c["handler"] == tx && (invalid || c["returns"] == "permanent 422"):
			return "", ""
		}
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, c["handler"] == leasedMany, setup{live: true})
			m := b.event()
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			ends := func() {
				if c["ended by"] == "its caller" {
					leave()
				}
			}
			if invalid {
				b.effect = func(handler.Event) handler.Effect {
					return handler.Effect{
						Writes: []store.Write{store.Set(store.Key{Collection: "c", ID: "i"}, map[string]any{"n": 1.5})},
					}
				}
			}
			returns := make(chan struct{})
			switch c["while"] {
			case commits:
				b.faults.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
					if b.calls.Load() == 0 || b.faults.OnCommit == nil { // that of a claim
						return do()
					}
					b.faults.OnCommit = nil
					if ends(); c["ended by"] == "its deadline" {
						<-ctx.Done()
					}
					return do()
				}
			case asks:
				b.seed("failed and due", m)
				b.reconcile(func() (handler.Reconciled, error) {
					ends()
					<-returns
					return handler.Reconciled{Done: true, Effect: handler.Effect{Result: "found"}}, nil
				})
			default:
				b.during = func(ctx context.Context) {
					if ends(); c["while"] == ignored {
						<-returns
						return
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute): // a leased handler has all its time
					}
				}
			}
			b.failing(c)
			what, _ = b.observe(m, func() reply { return b.serve(request(ctx, "/push/orders", m.envelope())) })
			synctest.Wait()
			before, _ := b.record(m.attributes["event_id"])
			close(returns)
			synctest.Wait()
			after, _ := b.record(m.attributes["event_id"])
			require.Equal(t, before, after, "what comes too late is nobody's: %s", c)
			b.fails, b.faults.OnCommit, b.effect = nil, nil, nil
			then, _ := b.observe(m, func() reply { return b.deliverNow(m.again(2)) })
			b.pass(2*time.Minute + time.Second)
			got, _ := b.observe(m, func() reply { return b.deliverNow(m.again(3)) })
			what += " -- then: " + then + " -- after its lease: " + got
		})
		return what, ""
	})
	filetest.Recorded(t, table, "testdata", "deadlines.txt")
}

// reconciles are what a leased handler may learn of the attempt before.
var reconciles = map[string]func() (handler.Reconciled, error){
	"the effect is there": func() (handler.Reconciled, error) {
		return handler.Reconciled{Done: true, Effect: handler.Effect{Result: "found"}}, nil
	},
	"the effect is not there": func() (handler.Reconciled, error) { return handler.Reconciled{}, nil },
	"an error":                func() (handler.Reconciled, error) { return handler.Reconciled{}, errHandler },
	"permanent 422": func() (handler.Reconciled, error) {
		return handler.Reconciled{}, retry.Permanent("refused", nil)
	},
	"busy, not counted": func() (handler.Reconciled, error) {
		return handler.Reconciled{}, retry.Busy("busy", nil)
	},
	"an outage": func() (handler.Reconciled, error) { return handler.Reconciled{}, retry.Outage("outage", nil) },
	"a panic":   func() (handler.Reconciled, error) { panic("ilse@example.org") },
}

// TestALeasedHandlerIsAskedWhatBecameOfTheAttemptBefore is the table of an event whose earlier attempt may
// have had its effect outside.
func TestALeasedHandlerIsAskedWhatBecameOfTheAttemptBefore(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{
			"record", []string{
				"none", "failed and due", "of a worker that died", "of workers that died in all attempts",
				"dead-lettered with another payload", "dead-lettered",
			},
		},
		{
			"reconcile says", []string{
				"nothing: there is none", "the effect is there", "the effect is not there", "an error", "permanent 422",
				"busy, not counted", "an outage", "a panic",
			},
		},
		{"corrections", []string{"refused", "accepted"}},
		{"delivery", []string{firstDelivery, replayed}},
		{"handler", []string{leasedMany}},
	}, func(c cell) (what, cost string) {
		b := benches{}.ready(t, c)
		m := b.event()
		if record := c["record"]; record != "of workers that died in all attempts" {
			b.seed(record, m)
		} else {
			for range 4 {
				b.during = func(context.Context) { b.faults.Down(true) }
				b.deliverNow(m)
				b.faults.Down(false)
				b.pass(2*time.Minute + time.Second)
			}
		}
		b.pass(2 * time.Second)
		b.fails = nil
		if asked := reconciles[c["reconcile says"]]; asked != nil {
			b.reconcile(func() (handler.Reconciled, error) {
				b.lines.add("asked")
				return asked()
			})
		}
		m = c.comes(m)
		return b.observe(m, func() reply { return b.deliverNow(m) })
	})
	filetest.Recorded(t, table, "testdata", "takeovers.txt")
}

// TestAWorkerThatComesLateChangesNothing is the table of a worker whose lease has ended while it was at work,
// and whose event another one has taken over.
func TestAWorkerThatComesLateChangesNothing(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{
			"the other", []string{
				"has completed it", "has failed it", "has dead-lettered it", "gave it back", "still has it",
				"was a sweep",
			},
		},
		{
			"returns", []string{
				"nothing: it is done", "transient 500", "permanent 422", "busy, not counted", "outage of what all need",
				"missing: waits for another event",
			},
		},
		{"handler", []string{leasedMany}},
	}, func(c cell) (what, cost string) {
		b := benches{}.ready(t, c)
		b.effect = counted
		m := b.event()
		b.failing(c)
		var meanwhile dedupe.Record
		b.during = func(context.Context) {
			b.pass(2*time.Minute + time.Second)
			b.fails = map[string][]error{
				"has failed it": {errHandler}, "has dead-lettered it": {retry.Permanent("refused", nil)},
				"gave it back": {retry.Outage("outage", nil)},
			}[c["the other"]]
			switch c["the other"] {
			case "was a sweep":
				now := b.config.Now()
				swept, err := dedupe.Sweep(context.Background(), b.db, now, now, 10,
					func(context.Context, dedupe.Record) (bool, error) { return true, nil })
				require.NoError(t, err)
				require.Equal(t, 1, swept.Republished)
			case "still has it":
				b.during = func(context.Context) { b.faults.Down(true) }
				b.deliverNow(m)
				b.faults.Down(false)
			default:
				b.deliverNow(m)
			}
			meanwhile, _ = b.record(m.attributes["event_id"])
		}
		what, _ = b.observe(m, func() reply { return b.deliverNow(m) })
		record, _ := b.record(m.attributes["event_id"])
		require.Equal(t, meanwhile, record, fmt.Sprint(c))
		return fmt.Sprint(what, "; effects ", b.effects(m.attributes["event_id"])), ""
	})
	filetest.Recorded(t, table, "testdata", "late.txt")
}
