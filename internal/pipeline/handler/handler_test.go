package handler_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/catalog/catalogtest"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pii"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

func nothing(context.Context, handler.Event) (handler.Effect, error) { return handler.Effect{}, nil }

func TestInvalidRegistrationPanics(t *testing.T) {
	t.Parallel()
	for name, register := range map[string]func(*handler.Registry){
		"a name that is empty": func(r *handler.Registry) { r.Tx("", nothing) },
		"no handler":           func(r *handler.Registry) { r.Tx("a", nil) },
		"a name twice":         func(r *handler.Registry) { r.Tx("a", nothing); r.Tx("a", nothing) },
		"a name twice, of two kinds": func(r *handler.Registry) {
			r.Tx("a", nothing)
			r.Leased("a", handler.Leased{Do: nothing, SafeToRepeat: true})
		},
		"a leased handler that does nothing": func(r *handler.Registry) {
			r.Leased("a", handler.Leased{SafeToRepeat: true})
		},
		"a leased handler that can neither reconcile nor be repeated": func(r *handler.Registry) {
			r.Leased("a", handler.Leased{Do: nothing})
		},
	} {
		require.Panics(t, func() { register(handler.NewRegistry()) }, name)
	}
}

func TestCatalogThatDoesNotFitTheHandlersIsRefused(t *testing.T) {
	t.Parallel()
	shipped := catalogtest.Shipped()
	r := handler.NewRegistry()
	r.Tx("plans.change", nothing, "renewals", "mails")
	r.Tx("any", nothing)
	r.Leased("mails.send", handler.Leased{Do: nothing, SafeToRepeat: true})
	r.Leased("search.index", gathering(2, echo).Leased)
	paid := func(context.Context, handler.Event, *contract.Payment) (handler.Effect, error) {
		return handler.Effect{}, nil
	}
	handler.RegisterTx(r, "orders", paid)
	handler.RegisterLeased[*contract.Envelope](r, "bills", handler.Leased{SafeToRepeat: true, Do: nothing})
	for name, tx := range map[string]bool{"any": true, "mails.send": false} {
		h, ok := r.Lookup(name)
		require.Equal(t, []bool{true, tx, !tx}, []bool{ok, h.Tx != nil, h.Leased != nil}, name)
	}
	_, ok := r.Lookup("Any")
	require.False(t, ok)
	queue := catalog.Queue{}
	payments, envelopes := catalog.Queue{Contract: contract.PaymentV1},
		catalog.Queue{Contract: contract.EnvelopeV1}
	batches := catalog.Queue{Batch: catalog.Batch{Size: 2, Wait: time.Millisecond}}
	const disagree = " and the queue disagree on whether attempts are gathered into batches"
	type row struct {
		handler string
		queue   catalog.Queue
		emits   []string
		want    string // of the queue and event type
	}
	filetest.Each(t, map[string]row{
		"a registered handler":           {"any", queue, nil, ""},
		"an unknown handler":             {"points.lose", queue, nil, `no handler is registered as "points.lose"`},
		"its emissions in another order": {"plans.change", queue, []string{"mails", "renewals"}, ""},
		"one emission too few": {
			"plans.change", queue,
			[]string{"renewals"},
			`plans.change emits to ["mails" "renewals"], and the catalog lists ["renewals"]`,
		},
		"one emission too many": {
			"plans.change", queue,
			[]string{"renewals", "mails", "ads"},
			`plans.change emits to ["mails" "renewals"], and the catalog lists ["ads" "mails" "renewals"]`,
		},
		"a leased handler that emits nothing": {
			"mails.send", queue, []string{"renewals"}, `mails.send emits to [], and the catalog lists ["renewals"]`,
		},
		"another contract": {
			"orders", envelopes, nil,
			"orders: format envelope.v1 is taken as *contract.Envelope, and not as *contract.Payment",
		},
		"another contract, under a lease": {
			"bills", payments, nil,
			"bills: format payment.v1 is taken as *contract.Payment, and not as *contract.Envelope",
		},
		"its own contract":                {"orders", payments, nil, ""},
		"its own contract, under a lease": {"bills", envelopes, nil, ""},
		"a handler of any contract":       {"any", payments, nil, ""},
		"queue and handler gather":        {"search.index", batches, nil, ""},
		"only the handler gathers":        {"search.index", queue, nil, "search.index" + disagree},
		"only the queue gathers":          {"any", batches, nil, "any" + disagree},
	}, func(t *testing.T, test row) {
		q := test.queue
		q.ID, q.Enabled = "plans", true
		q.Handlers = map[string]catalog.Handler{"upgrade": {Name: test.handler, Emits: test.emits}}
		asleep := catalog.Queue{ID: "asleep", Handlers: map[string]catalog.Handler{"mail": {Name: "mail.dream"}}}
		err := r.Check(&catalog.Catalog{Contracts: shipped.Contracts, Queues: []catalog.Queue{q, asleep}})
		if test.want == "" {
			require.NoError(t, err)
			return
		}
		require.EqualError(t, err, "queue plans: event type upgrade: "+test.want)
		another := q
		another.ID = "also"
		err = r.Check(&catalog.Catalog{Contracts: shipped.Contracts, Queues: []catalog.Queue{q, another}})
		require.ErrorContains(t, err, "queue plans: ")
		require.ErrorContains(t, err, "queue also: ", "all mistakes are reported together")
	})
}

func TestTypedHandlerRefusesABodyOfAnotherType(t *testing.T) {
	t.Parallel()
	said := func(_ context.Context, _ handler.Event, body *contract.Envelope) (handler.Effect, error) {
		return handler.Effect{Result: body.ID}, nil
	}
	known := func(ctx context.Context, event handler.Event, body *contract.Envelope) (
		handler.Reconciled, error,
	) {
		effect, err := said(ctx, event, body)
		return handler.Reconciled{Done: true, Effect: effect}, err
	}
	leased := handler.Leased{Do: handler.Typed(said), Reconcile: handler.Typed(known)}
	reconcile := func(ctx context.Context, event handler.Event) (handler.Effect, error) {
		known, err := leased.Reconcile(ctx, event)
		require.Equal(t, err == nil, known.Done)
		return known.Effect, err
	}
	for name, call := range map[string]handler.Tx{
		"a Tx": handler.Typed(said), "a Leased": leased.Do, "a Leased that reconciles": reconcile,
	} {
		effect, err := call(t.Context(), handler.Event{Body: contract.Of(&contract.Envelope{ID: "e1"})})
		require.NoError(t, err, name)
		require.Equal(t, "e1", effect.Result, name)
		for _, other := range []contract.Body{{}, contract.Of(&contract.Payment{})} {
			_, err = call(t.Context(), handler.Event{Body: other})
			require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "unexpected_body", Counts: true},
				retry.Decide(err), name)
		}
	}
}

func TestCalleeKeyIsUniqueToQueueTenantAndEvent(t *testing.T) {
	t.Parallel()
	keys := map[string][3]string{}
	for _, of := range [][3]string{
		{"a", "b", "c"},
		{"a", "b", "d"},
		{"a", "d", "c"},
		{"d", "b", "c"},
		{"b", "a", "c"},
		{"a b", "", "c"},
		{"a", "b c", ""},
		{`a" "b`, "", "c"},
	} {
		key := handler.Event{Queue: of[0], Tenant: of[1], ID: of[2]}.CalleeKey()
		require.Equal(t, key, handler.CalleeKey(of[0], of[1], of[2]))
		require.True(t, pii.ID.Valid(key))
		require.NotContains(t, keys, key, "%q is that of %q", of, keys[key])
		keys[key] = of
	}
	// Callees keep it: a release that derives another key would move money twice.
	key := handler.CalleeKey("sub-payment-initiation", "default", "renewal-1")
	require.Equal(t, "8a579226-9aa0-56fd-95bf-ab25793bc9b5", key)
}

// gathered is a batch of at most size events that come within 20 ms, and what it was called with.
type gathered struct {
	handler.Leased
	mu    sync.Mutex
	calls [][]string
}

func gathering(size int, call func(context.Context, []handler.Event) ([]handler.Outcome, error)) *gathered {
	g := &gathered{}
	g.Leased = handler.Batch{
		Queue: func(id string) (catalog.Queue, bool) {
			return catalog.Queue{ID: id, Batch: catalog.Batch{Size: size, Wait: 20 * time.Millisecond}}, true
		},
		Timer: func(d time.Duration) (<-chan time.Time, func() bool) {
			timer := time.NewTimer(d)
			return timer.C, timer.Stop
		},
		Call: func(ctx context.Context, events []handler.Event) ([]handler.Outcome, error) {
			ids := make([]string, len(events))
			for i, e := range events {
				ids[i] = e.ID
			}
			slices.Sort(ids)
			g.mu.Lock()
			g.calls = append(g.calls, ids)
			g.mu.Unlock()
			return call(ctx, events)
		},
	}.Leased()
	return g
}

// together makes so many attempts at once, and waits for their ends.
func together(attempts int, attempt func(i int)) {
	var all sync.WaitGroup
	for i := range attempts {
		all.Go(func() { attempt(i) })
	}
	all.Wait()
}

// echo answers each event with its own id, and refuses those that are called bad.
func echo(_ context.Context, events []handler.Event) ([]handler.Outcome, error) {
	outcomes := make([]handler.Outcome, len(events))
	for i, e := range events {
		outcomes[i].Effect.Result = e.ID
		if e.Type == "bad" {
			outcomes[i] = handler.Outcome{Err: retry.Permanent("bad_"+e.ID, nil)}
		}
	}
	return outcomes, nil
}

func TestAttemptsAreGatheredUntilTheBatchIsFullOrItsWaitEnds(t *testing.T) {
	t.Parallel()
	type row struct {
		arrive []time.Duration
		want   [][]string
	}
	filetest.Each(t, map[string]row{
		"a full batch":          {[]time.Duration{0, 0, 0}, [][]string{{"0", "1", "2"}}},
		"one alone":             {[]time.Duration{0}, [][]string{{"0"}}},
		"before the wait's end": {[]time.Duration{0, 19 * time.Millisecond}, [][]string{{"0", "1"}}},
		"after the wait's end":  {[]time.Duration{0, 21 * time.Millisecond}, [][]string{{"0"}, {"1"}}},
		"the rest of a burst":   {[]time.Duration{0, 1, 2, 3, 4}, [][]string{{"0", "1", "2"}, {"3", "4"}}},
	}, func(t *testing.T, test row) {
		filetest.Bubble(t, func(t *testing.T) {
			g := gathering(3, echo)
			together(len(test.arrive), func(i int) {
				<-time.After(test.arrive[i])
				id := fmt.Sprint(i)
				effect := filetest.Must(g.Do(t.Context(), handler.Event{Queue: "q", ID: id}))(t)
				require.Equal(t, id, effect.Result, "each has the result of its own item")
			})
			require.Equal(t, test.want, g.calls)
		})
	})
}

func TestEachAttemptIsAnsweredByItsOwnItem(t *testing.T) {
	t.Parallel()
	const panicking = "a panic"
	type row struct {
		call func(context.Context, []handler.Event) ([]handler.Outcome, error)
		want [2]string // the results, or the errors, of a good and a bad event
	}
	filetest.Each(t, map[string]row{
		"one is refused": {echo, [2]string{"good", "bad_bad"}},
		"the whole call fails": {func(context.Context, []handler.Event) ([]handler.Outcome, error) {
			return nil, retry.Down("index_down", errors.New("no index"))
		}, [2]string{"index_down: no index", "index_down: no index"}},
		"an item is forgotten": {func(context.Context, []handler.Event) ([]handler.Outcome, error) {
			return make([]handler.Outcome, 1), nil
		}, [2]string{"batch_unanswered", "batch_unanswered"}},
		"the call panics": {func(context.Context, []handler.Event) ([]handler.Outcome, error) {
			panic(panicking)
		}, [2]string{panicking, panicking}},
	}, func(t *testing.T, test row) {
		filetest.Bubble(t, func(t *testing.T) {
			g := gathering(2, test.call)
			together(2, func(i int) {
				id, got := []string{"good", "bad"}[i], ""
				defer func() {
					if panicked := recover(); panicked != nil { // as if the attempt had made the call itself
						got = fmt.Sprint(panicked)
					}
					require.Equal(t, test.want[i], got)
				}()
				effect, err := g.Do(t.Context(), handler.Event{Queue: "q", ID: id, Type: id})
				if got = effect.Result; err != nil {
					got = err.Error()
				}
			})
		})
	})
}

func TestCallEndsAtTheEarliestDeadlineOfItsAttempts(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		started := time.Now()
		g := gathering(2, func(ctx context.Context, _ []handler.Event) ([]handler.Outcome, error) {
			<-ctx.Done()
			<-time.After(time.Second)
			return nil, ctx.Err()
		})
		together(2, func(i int) {
			ctx, cancel := context.WithTimeout(t.Context(), []time.Duration{time.Minute, time.Second}[i])
			defer cancel()
			_, err := g.Do(ctx, handler.Event{Queue: "q", ID: fmt.Sprint(i)})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, 2*time.Second, time.Since(started), "an attempt waits for the end of its call")
		})
	})
}

// Attempts of two queues come and go.
func TestEachAttemptThatStaysIsInOneCall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.IntRange(2, 5).Draw(rt, "size")
		arrive := rapid.SliceOfN(rapid.IntRange(0, 60), 1, 20).Draw(rt, "arrive")
		leave := rapid.SliceOfN(rapid.IntRange(1, 60), len(arrive), len(arrive)).Draw(rt, "leave")
		filetest.Bubble(t, func(t *testing.T) {
			g := gathering(size, echo)
			done := make([]bool, len(arrive))
			together(len(arrive), func(i int) {
				<-time.After(time.Duration(arrive[i]) * time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(leave[i])*time.Millisecond)
				defer cancel()
				effect, err := g.Do(ctx, handler.Event{Queue: []string{"even", "odd"}[i%2], ID: fmt.Sprint(i)})
				done[i] = err == nil
				require.True(t, err != nil || effect.Result == fmt.Sprint(i))
			})
			<-time.After(time.Second)
			called := map[string]int{}
			for _, ids := range g.calls {
				require.LessOrEqual(t, len(ids), size)
				for _, id := range ids {
					called[id]++
					i, _ := strconv.Atoi(id)
					first, _ := strconv.Atoi(ids[0])
					require.Equal(t, first%2, i%2)
				}
			}
			for i := range arrive {
				require.LessOrEqual(t, called[fmt.Sprint(i)], 1)
				require.Equal(t, done[i], called[fmt.Sprint(i)] == 1)
				require.True(t, done[i] || leave[i] <= 20, "only an attempt that leaves early is left out")
			}
		})
	})
}
