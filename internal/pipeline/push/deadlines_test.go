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

const (
	runs, ignores = "it runs", "it ignores that"
	reconciling   = "it reconciles and ignores that"
	commits       = "its effect is committed"
	invalidWrites = "writes that no store takes"
	itsDeadline   = "its deadline"
)

// ended is a bench whose attempt is ended from outside as its cell says.
type ended struct {
	*bench
	cell
	leave   context.CancelFunc
	returns chan struct{} // closed when a handler that ignores the end is to return
}

func (e *ended) end() {
	if e.cell["ended by"] != itsDeadline {
		e.leave()
	}
}

// prepare has the attempt end in the step that the cell names.
func (e *ended) prepare(m message) {
	switch e.cell["while"] {
	case commits:
		e.faults.OnCommit = func(ctx context.Context, _ []store.Write, do func() error) error {
			if e.calls.Load() == 0 || e.faults.OnCommit == nil { // that of a claim
				return do()
			}
			e.faults.OnCommit = nil
			if e.end(); e.cell["ended by"] == itsDeadline {
				<-ctx.Done()
			}
			return do()
		}
	case reconciling:
		e.seed("failed and due", m)
		e.reconcile(func() (handler.Reconciled, error) {
			e.end()
			<-e.returns
			return handler.Reconciled{Done: true, Effect: handler.Effect{Result: "found"}}, nil
		})
	default:
		e.during = func(ctx context.Context) {
			if e.end(); e.cell["while"] == ignores {
				<-e.returns
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute): // a leased handler has all its time
			}
		}
	}
}

// TestAttemptIsEndedByItsDeadlineOrItsCaller is the table of what ends an attempt from outside: whether it
// counts, whether its lease stays, and what later deliveries find. What returns too late changes nothing.
func TestAttemptIsEndedByItsDeadlineOrItsCaller(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{"ended by", []string{itsDeadline, "its caller"}},
		{"while", []string{runs, ignores, reconciling, commits}},
		{"handler", []string{tx, leasedMany}},
		{"returns", []string{
			"success", invalidWrites, "permanent 422", "transient 500", "timeout 504", "down 503",
			"outage for all messages", "busy, not counted",
		}},
	}, func(c cell) (what, cost string) {
		invalid, done := c["returns"] == invalidWrites, c["returns"] == failures[0].name
		switch {
		case c["while"] == commits && !done && !invalid, c["while"] == reconciling && (c["handler"] == tx || !done),
			// which of the two comes first is by chance
			c["while"] == runs && c["handler"] == tx && (invalid || c["returns"] == "permanent 422"):
			return "", ""
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			b := &ended{newBench(t, c["handler"] == leasedMany, setup{live: true}), c, leave, make(chan struct{})}
			m := b.event()
			if invalid {
				b.effect = func(handler.Event) handler.Effect {
					return handler.Effect{
						Writes: []store.Write{store.Set(store.Key{Collection: "c", ID: "i"}, map[string]any{"n": 1.5})},
					}
				}
			}
			b.prepare(m)
			b.failing(c)
			what, _ = b.observe(m, func() reply { return b.serve(request(ctx, "/push/orders", m.envelope())) })
			synctest.Wait()
			before, _ := b.record(m.attributes["event_id"])
			close(b.returns)
			synctest.Wait()
			after, _ := b.record(m.attributes["event_id"])
			require.Equal(t, before, after, "what returns too late changes nothing: %s", c)
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

// reconciles are what Reconcile may return about the attempt before.
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

// TestLeasedHandlerReconcilesTheAttemptBefore is the table of an event with an earlier attempt of unknown
// effect.
func TestLeasedHandlerReconcilesTheAttemptBefore(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{"record", []string{
			"none", "failed and due", "of a worker that died", "of workers that died in all attempts",
			"dead-lettered with another payload", "dead-lettered",
		}},
		{"reconcile says", []string{
			"nothing: there is none", "the effect is there", "the effect is not there", "an error", "permanent 422",
			"busy, not counted", "an outage", "a panic",
		}},
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
		if reconcile := reconciles[c["reconcile says"]]; reconcile != nil {
			b.reconcile(func() (handler.Reconciled, error) {
				b.lines.add("reconciled")
				return reconcile()
			})
		}
		m = c.comes(m)
		return b.observe(m, func() reply { return b.deliverNow(m) })
	})
	filetest.Recorded(t, table, "testdata", "takeovers.txt")
}

// TestWorkerWhoseLeaseHasEndedChangesNothing is the table of a worker whose lease ended while its handler
// ran, and whose event another worker has claimed.
func TestWorkerWhoseLeaseHasEndedChangesNothing(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{"the other", []string{
			"has completed it", "has failed it", "has dead-lettered it", "gave it back", "still has it",
			"was a sweep",
		}},
		{"returns", []string{
			"success", "transient 500", "permanent 422", "busy, not counted", "outage for all messages",
			"missing: waits for another event",
		}},
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
