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
	"billhook/internal/platform/store/storetest"
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
	*rig
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
		e.leased.Reconcile = func(context.Context, handler.Event) (handler.Reconciled, error) {
			e.end()
			<-e.returns
			return handler.Reconciled{Done: true, Effect: handler.Effect{Result: "found"}}, nil
		}
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
		filetest.Bubble(t, func(t *testing.T) {
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			with := setup{live: true, leased: c["handler"] == leasedMany}
			r := &ended{newRig(t, with), c, leave, make(chan struct{})}
			m := r.event()
			if invalid {
				r.do = doing(func(handler.Event) handler.Effect {
					return handler.Effect{
						Writes: []store.Write{store.Set(store.Key{Collection: "c", ID: "i"}, map[string]any{"n": 1.5})},
					}
				})
			}
			r.prepare(m)
			r.failing(c)
			what, _ = r.observe(m, func() reply { return r.serve(request(ctx, "/push/orders", m.envelope())) })
			synctest.Wait()
			before, _ := r.record(m.attributes["event_id"])
			close(r.returns)
			synctest.Wait()
			after, _ := r.record(m.attributes["event_id"])
			require.Equal(t, before, after, "what returns too late changes nothing: %s", c)
			r.fails, r.faults.OnCommit, r.do = nil, nil, returns("done")
			then, _ := r.observe(m, func() reply { return r.deliverNow(m.again(2)) })
			r.pass(2*time.Minute + time.Second)
			got, _ := r.observe(m, func() reply { return r.deliverNow(m.again(3)) })
			what += " -- then: " + then + " -- after its lease: " + got
		})
		return what, ""
	})
	filetest.Recorded(t, table, "testdata", "deadlines.txt")
}

// TestLeasedHandlerReconcilesTheAttemptBefore is the table of an event with an earlier attempt of unknown
// effect.
func TestLeasedHandlerReconcilesTheAttemptBefore(t *testing.T) {
	t.Parallel()
	table, _ := enumerate([]dimension{
		{"record", []string{
			"none", "none, and its effect conflicts once", "failed and due", "of a worker that died",
			"of workers that died in all attempts", "dead-lettered with another payload", "dead-lettered",
		}},
		{"reconcile says", []string{
			"nothing: there is none", "the effect is there", "the effect is not there", "an error without a mark",
			"permanent 422", "busy, not counted", "outage for all messages", "a panic",
		}},
		{"corrections", []string{"refused", "accepted"}},
		{"delivery", []string{firstDelivery, replayed}},
		{"handler", []string{leasedMany}},
	}, func(c cell) (what, cost string) {
		r := benches{}.ready(t, c)
		m := r.event()
		switch c["record"] {
		case "of workers that died in all attempts":
			for range 4 {
				r.during = func(context.Context) { r.faults.Down(true) }
				r.deliverNow(m)
				r.faults.Down(false)
				r.pass(2*time.Minute + time.Second)
			}
		case "none, and its effect conflicts once":
			r.do = doing(func(e handler.Event) handler.Effect {
				r.do = credit
				taken := store.Create(effectOf(e.Tenant, e.ID), map[string]any{"n": int64(1)})
				storetest.Put(t, r.db, taken)
				return handler.Effect{Writes: []store.Write{taken}}
			})
		default:
			r.seed(c["record"], m)
		}
		r.pass(2 * time.Second)
		r.fails = nil
		if says := c["reconcile says"]; says != "nothing: there is none" {
			r.leased.Reconcile = func(_ context.Context, e handler.Event) (known handler.Reconciled, err error) {
				r.config.Log.Warn("reconciled")
				require.Equal(t, c["record"] == "none, and its effect conflicts once", e.Try == 1)
				if says == "a panic" {
					panic("ilse@example.org")
				}
				known.Done, known.Effect = says == "the effect is there", counted(e)
				known.Effect.Result = "found"
				return known, failureOf(says)
			}
		}
		m = c.comes(m)
		what, _ = r.observe(m, func() reply { return r.deliverNow(m) })
		return fmt.Sprint(what, "; effects ", r.effects(m.attributes["event_id"])), ""
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
		r := benches{}.ready(t, c)
		r.do = credit
		m := r.event()
		r.failing(c)
		var meanwhile dedupe.Record
		r.during = func(context.Context) {
			r.pass(2*time.Minute + time.Second)
			r.fails = map[string][]error{
				"has failed it": {errHandler}, "has dead-lettered it": {retry.Permanent("refused", nil)},
				"gave it back": {retry.Outage("outage", nil)},
			}[c["the other"]]
			switch c["the other"] {
			case "was a sweep":
				now := r.config.Now()
				swept, err := dedupe.Sweep(context.Background(), r.db, now, now, 10,
					func(context.Context, dedupe.Record) (bool, error) { return true, nil })
				require.NoError(t, err)
				require.Equal(t, 1, swept.Republished)
			case "still has it":
				r.during = func(context.Context) { r.faults.Down(true) }
				r.deliverNow(m)
				r.faults.Down(false)
			default:
				r.deliverNow(m)
			}
			meanwhile, _ = r.record(m.attributes["event_id"])
		}
		what, _ = r.observe(m, func() reply { return r.deliverNow(m) })
		record, _ := r.record(m.attributes["event_id"])
		require.Equal(t, meanwhile, record, fmt.Sprint(c))
		return fmt.Sprint(what, "; effects ", r.effects(m.attributes["event_id"])), ""
	})
	filetest.Recorded(t, table, "testdata", "late.txt")
}
