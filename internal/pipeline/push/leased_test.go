package push_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// gateway is the other side of a leased handler, which does as the test says.
type gateway struct {
	mu    sync.Mutex
	calls []string
	// do and asked are what the next calls do; nil: sent, and not there.
	do    func(ctx context.Context, event handler.Event) (string, error)
	asked func(ctx context.Context, event handler.Event) (string, bool, error)
}

func (g *gateway) leased() *handler.Leased {
	h := handler.Outside(g.send, g.ask)
	return &h
}

// repeats is a leased handler that is safe to repeat, and asks nobody.
func repeats(do func(context.Context, handler.Event) (string, error)) *handler.Leased {
	h := handler.Outside(do, nil)
	h.SafeToRepeat = true
	return &h
}

func (g *gateway) send(ctx context.Context, event handler.Event) (string, error) {
	g.note("do %d", event.Attempt)
	if g.do == nil {
		return "sent", nil
	}
	return g.do(ctx, event)
}

func (g *gateway) ask(ctx context.Context, event handler.Event) (string, bool, error) {
	g.note("ask %d", event.Attempt)
	if g.asked == nil {
		return "", false, nil
	}
	return g.asked(ctx, event)
}

func (g *gateway) note(format string, args ...any) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls = append(g.calls, fmt.Sprintf(format, args...))
}

// called returns the calls since it was last called, such as "ask 2, do 2".
func (g *gateway) called() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := strings.Join(g.calls, ", ")
	g.calls = nil
	return calls
}

// leaseOver is when the lease of an attempt that began now has ended.
const leaseOver = 2*time.Minute + time.Microsecond

func TestAHandlerThatSeesItsDeadlineIsATimeoutWhateverItCallsIt(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]error{
		"a deadline": context.DeadlineExceeded, "a dependency": retry.Down("gateway_unavailable", nil), "its own": errHandler, "no room": retry.Busy("full", nil),
		"the store": retry.Outage("store_unavailable", context.DeadlineExceeded),
	} {
		late := func(ctx context.Context, _ handler.Event) (handler.Effect, error) {
			<-ctx.Done()
			return handler.Effect{}, answer
		}
		for kind, with := range map[string]setup{
			tx: {credit: func(*rig, handler.Tx) handler.Tx { return late }}, leasedMany: {leased: &handler.Leased{Do: late, SafeToRepeat: true}},
		} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r := newRig(t, with)
					began := time.Now()
					got := r.deliver(paid("e1", known, 1))
					require.Equal(t, 30*time.Second, time.Since(began))
					require.Equal(t, []any{http.StatusGatewayTimeout, "handler_timeout"}, []any{got.code, got.Reason})
					record, _ := r.record(t, "e1")
					require.Equal(t, dedupe.Failed, record.Status)
					require.EqualValues(t, 1, record.Attempts)
					require.Equal(t, start.Add(10*time.Second), record.NextRetryAt)
				})
			})
		}
	}
}

func TestALeasedHandlerThatEndsWithItsDeadlineIsDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gateway{}
		r := newRig(t, setup{leased: g.leased()})
		g.do = func(ctx context.Context, _ handler.Event) (string, error) {
			<-ctx.Done()
			return "sent", nil
		}
		require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1)).code)
	})
}

// TestALeasedHandlerThatIgnoresItsDeadlineKeepsItsLease: it may still be at work, so
// nobody else may begin before the lease ends.
func TestALeasedHandlerThatIgnoresItsDeadlineKeepsItsLease(t *testing.T) {
	t.Parallel()
	for name, asking := range map[string]bool{"while it acts": false, "while it asks": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gateway{}
				r := newRig(t, setup{leased: g.leased()})
				release := make(chan struct{})
				attempts := int64(1)
				if asking {
					g.do = func(context.Context, handler.Event) (string, error) { return "", errHandler }
					require.Equal(t, http.StatusInternalServerError, r.deliver(paid("e1", known, 1)).code)
					g.asked = func(context.Context, handler.Event) (string, bool, error) {
						<-release
						return "found too late", true, nil
					}
					attempts = 2
				}
				g.do = func(context.Context, handler.Event) (string, error) {
					<-release
					return "sent too late", nil
				}
				began := time.Now()
				got := r.deliver(paid("e1", known, 1))
				require.Equal(t, 31*time.Second, time.Since(began), "one second to say good-bye")
				require.Equal(t, http.StatusGatewayTimeout, got.code)
				require.Equal(t, "handler_timeout", got.Reason)
				require.Len(t, r.log.lines(t, "handler does not return"), 1)
				held, _ := r.record(t, "e1")
				require.Equal(t, dedupe.Processing, held.Status)
				require.Equal(t, attempts, held.Attempts)

				synctest.Wait() // it is stuck, and reads no more of the gateway
				g.do, g.asked = nil, nil
				g.called()
				got = r.deliver(paid("e1", known, 1).again(2))
				require.Equal(t, http.StatusServiceUnavailable, got.code)
				require.Equal(t, "lease_held", got.Reason)
				require.Empty(t, g.called())

				close(release)
				synctest.Wait()
				record, _ := r.record(t, "e1")
				require.Equal(t, held, record, "what comes too late is nobody's")

				r.pass(leaseOver)
				require.Equal(t, http.StatusOK, r.deliver(paid("e1", known, 1).again(3)).code)
				require.Equal(t, fmt.Sprintf("ask %[1]d, do %[1]d", attempts+1), g.called())
			})
		})
	}
}

func TestACallerThatLeavesDoesNotEndALeasedHandler(t *testing.T) {
	t.Parallel()
	ctx, leave := context.WithCancel(t.Context())
	g := &gateway{}
	r := newRig(t, setup{leased: g.leased()})
	g.do = func(ctx context.Context, _ handler.Event) (string, error) {
		leave()
		return "sent", ctx.Err()
	}
	got := r.serve(request(ctx, paid("e1", known, 1)))
	require.Equal(t, http.StatusOK, got.code, got.text)
	record, _ := r.record(t, "e1")
	require.Equal(t, dedupe.Completed, record.Status)
}

func TestTheMessageIsKeptWhileASweepMayNeedIt(t *testing.T) {
	t.Parallel()
	large := paid("e1", known, 1).with(func(m *message) { m.body = string(paid("e1", known, 1).data()) + strings.Repeat(" ", 512<<10) })
	for sentence, test := range map[string]struct {
		deliver message
		kept    bool
	}{
		"as a rule":                         {paid("e1", known, 1), true},
		"not where it is too large":         {large, false},
		"nor where no document can hold it": {paid("e1", known, 1).with(func(m *message) { m.attributes["__own__"] = "x" }), false},
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			g := &gateway{}
			r := newRig(t, setup{leased: g.leased()})
			var during dedupe.Record
			g.do = func(context.Context, handler.Event) (string, error) {
				during, _ = r.record(t, "e1")
				return "sent", nil
			}
			require.Equal(t, http.StatusOK, r.deliver(test.deliver).code)
			require.Equal(t, dedupe.Processing, during.Status)
			require.Equal(t, start.Add(2*time.Minute), during.LeaseUntil)
			if test.kept {
				require.Equal(t, &contract.Message{Data: test.deliver.data(), Attributes: test.deliver.attributes, OrderingKey: buyer}, during.Message)
			} else {
				require.Nil(t, during.Message)
			}
			record, _ := r.record(t, "e1")
			require.Nil(t, record.Message)
		})
	}
}
