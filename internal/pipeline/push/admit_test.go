package push_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/platform/serve"
)

// flood is a push of Pub/Sub's largest size whose sender stops before its last byte.
type flood struct {
	sent    atomic.Int64
	stopped func()
	on      <-chan struct{}
}

const floodSize = contract.MaxMessageBytes / 3 * 4

func (f *flood) Read(p []byte) (int, error) {
	if left := floodSize - 1 - int(f.sent.Load()); left > 0 {
		n := min(left, len(p))
		f.sent.Add(int64(n))
		return n, nil
	}
	f.stopped()
	<-f.on
	return 0, io.ErrUnexpectedEOF
}

// A message may have ten megabytes, and a worker takes many at once. Those that it has no
// memory for are delivered again, like those that it has no slot for.
func TestPushesInFlightHoldNoMoreThanTheirBudget(t *testing.T) {
	t.Parallel()
	const senders = 2 * serve.DefaultBodyBudget / floodSize
	r := newRig(t, setup{})
	on := make(chan struct{})
	end := sync.OnceFunc(func() { close(on) })
	defer end()
	settled := make(chan struct{}, 2*senders)
	var floods [senders]flood
	var answers [senders]atomic.Pointer[httptest.ResponseRecorder]
	var group sync.WaitGroup
	for i := range floods {
		floods[i].stopped, floods[i].on = func() { settled <- struct{}{} }, on
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/orders", &floods[i])
		request.ContentLength = floodSize
		request.Header.Set("Authorization", "Bearer good")
		group.Go(func() {
			w := httptest.NewRecorder()
			r.http.ServeHTTP(w, request)
			answers[i].Store(w)
			settled <- struct{}{}
		})
	}
	for range floods {
		<-settled
	}
	var held int64
	for i := range floods {
		w := answers[i].Load()
		if w == nil {
			held += floods[i].sent.Load()
			continue
		}
		require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s", w.Body)
		require.Contains(t, w.Body.String(), `"code":"bodies_in_flight"`)
	}
	require.Positive(t, held)
	require.LessOrEqual(t, held, int64(serve.DefaultBodyBudget))
	end()
	group.Wait()
}

// What an answered push held is given back, whatever the answer was: else the budget were
// used up by a dozen of these.
func TestAnAnsweredPushHoldsNothing(t *testing.T) {
	t.Parallel()
	const rounds = serve.DefaultBodyBudget/floodSize + 2
	for name, test := range map[string]struct{ path, body string }{
		"a push that is none":   {"/push/orders", strings.Repeat(" ", floodSize)},
		"a push":                {"/push/orders", `{"message":{"messageId":"1","data":"` + strings.Repeat("AAAA", floodSize/4) + `"},"subscription":"s"}`},
		"a dead letter":         {"/push/dead-letters/orders", `{"message":{"messageId":"1","data":"` + strings.Repeat("AAAA", floodSize/4) + `"},"subscription":"s"}`},
		"a body that ends soon": {"/push/orders", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, setup{})
			for range rounds {
				request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, strings.NewReader(test.body))
				if test.body == "" {
					short := &flood{stopped: func() {}, on: closed}
					request.Body, request.ContentLength = io.NopCloser(short), floodSize
				}
				request.Header.Set("Authorization", "Bearer good")
				w := httptest.NewRecorder()
				r.http.ServeHTTP(w, request)
				require.NotContains(t, w.Body.String(), "bodies_in_flight")
			}
		})
	}
}

// closed is a channel that nobody waits for.
var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// A body whose sender is not known is not read at all.
func TestNoByteIsReadOfAPushWithoutAToken(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	body := &flood{stopped: func() {}, on: closed}
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/push/orders", body)
	request.ContentLength = floodSize
	w := httptest.NewRecorder()
	r.http.ServeHTTP(w, request)
	require.Equal(t, http.StatusUnauthorized, w.Code)
	require.Zero(t, body.sent.Load())
}
