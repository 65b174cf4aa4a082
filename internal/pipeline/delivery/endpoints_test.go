package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/apps/endpoints"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/rates"
	"billhook/internal/platform/audit"
	"billhook/internal/platform/signature"
	"billhook/internal/retry"
)

const (
	newSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
	oldSecret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDC2FVsBQIhro="
)

var registered = catalog.Endpoints{
	Timeouts: catalog.Timeouts{Connect: 5 * time.Second, Total: time.Minute}, Concurrency: 2,
	Breaker: catalog.Breaker{Failures: 2, Rest: time.Minute}, Remembered: 3,
}

func posting(t *testing.T, private bool) *delivery.Endpoints {
	t.Helper()
	e := delivery.NewEndpoints(registered, private, clock)
	t.Cleanup(e.Close)
	return e
}

// An endpoint that changes its secret knows only one of the two.
func TestRequestToAnEndpointIsSignedWithItsNewAndItsOldSecret(t *testing.T) {
	t.Parallel()
	for knows, signs := range map[string][]string{newSecret: {newSecret}, oldSecret: {newSecret, oldSecret}} {
		url, requests := recorded(t, signature.Standard, knows)
		status, err := posting(t, true).Post(t.Context(),
			endpoints.Address{ID: "p", URL: url + "/hooks/billing", Secrets: signs}, "evt-1", []byte(`{"a":1}`))
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
		require.Equal(t, []string{`POST /hooks/billing [evt-1] application/json : {"a":1}`}, *requests)
	}
}

func TestOnlyAPublicAddressIsRegistered(t *testing.T) {
	t.Parallel()
	e := posting(t, false)
	e.Resolve(func(_ context.Context, host string) ([]netip.Addr, error) {
		found := map[string][]string{
			"partner.example": {"93.184.216.34", "2606:2800:220:1::1"}, "both.example": {"93.184.216.34", "::1"},
			"inside.example": {"10.1.2.3"}, "metadata.example": {"169.254.169.254"}, "localhost": {"127.0.0.1"},
			"none.example": {},
		}[host]
		if found == nil {
			return nil, errors.New("a foreign text with " + host)
		}
		return filetest.Map(found, netip.MustParseAddr), nil
	})
	for want, addresses := range map[string][]string{
		"": {"https://partner.example/hooks", "https://partner.example:8443/hooks", "https://93.184.216.34/hooks"},
		"called by https": {
			"http://partner.example/hooks", "ftp://partner.example/hooks",
		},
		"no URL with a host": {
			"https://", "https://:443/", "partner.example", "https://a b/",
		},
		"no user, query or fragment": {
			"https://me:pass@partner.example/", "https://partner.example/?key=1", "https://partner.example/?",
			"https://partner.example/#a",
		},
		"an address that is not public": {
			"https://inside.example/", "https://both.example/", "https://metadata.example/", "https://localhost/",
			"https://127.0.0.1/", "https://[::1]/", "https://[::ffff:169.254.169.254]/", "https://[fe80::1%25eth0]/",
		},
		"the host was not found": {"https://none.example/", "https://nowhere.example/"},
	} {
		for _, address := range addresses {
			err := e.Check(t.Context(), address)
			if want == "" {
				require.NoError(t, err, address)
				continue
			}
			require.ErrorIs(t, err, audit.ErrInvalid, address)
			require.ErrorContains(t, err, want, address)
			require.NotContains(t, err.Error(), "example")
		}
	}
	inside := endpoints.Address{ID: "p", URL: callee(t, nil), Secrets: []string{newSecret}}
	_, err := e.Post(t.Context(), inside, "evt-1", nil) // a host's address may change after the registration
	require.EqualError(t, err, "callee_unreachable: address not public")
	require.NoError(t, posting(t, true).Check(t.Context(), "http://127.0.0.1:9000/hooks"), "for development")
	require.Error(t, posting(t, true).Check(t.Context(), "ftp://127.0.0.1:9000/hooks"))
}

func TestBreakerOfAFailingEndpointDoesNotAffectTheOthers(t *testing.T) {
	t.Parallel()
	const failed, resting = "callee_failed_503", "callee_resting"
	down := callee(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	well := callee(t, func(http.ResponseWriter, *http.Request) {})
	e, earlier, both, later := posting(t, true), []string{oldSecret}, []string{newSecret, oldSecret},
		[]string{newSecret}
	for i, step := range []struct {
		id, url string
		secrets []string
		want    string
	}{
		{"a", down, earlier, failed},
		{"a", down, earlier, failed},
		{"a", down, earlier, resting},
		{"a", down, both, resting}, // another secret keeps the breaker
		{"b", well, later, ""},
		{"b", down, later, failed}, // another address does not
		{"c", down, later, failed},
		{"a", down, later, resting},
		{"d", down, later, failed}, // it replaces b, the one used longest ago
		{"d", down, later, failed},
		{"c", down, later, failed},
		{"a", down, later, resting},
		{"b", well, later, ""},
		{"d", down, later, failed}, // forgotten
	} {
		to := endpoints.Address{ID: step.id, URL: step.url, Secrets: step.secrets}
		_, err := e.Post(t.Context(), to, "evt-1", nil)
		if step.want == "" {
			require.NoError(t, err, i)
			continue
		}
		require.Equal(t, step.want, retry.Decide(err).Reason, i)
	}
}

// limited is a target with limits, on the clock of its test's bubble.
type limited struct {
	*delivery.Target
	status, calls int
	seen          []string // the answers that its watcher was given
	holds         bool     // the next request waits for its answer, or for its caller to leave
	answer        chan int
	leave         context.CancelFunc
	ended         chan error
}

func limit(t *testing.T, change func(*catalog.Target)) *limited {
	t.Helper()
	l := &limited{status: http.StatusOK, answer: make(chan int), ended: make(chan error, 1)}
	l.Target = offline(t, change, func(r *http.Request) (*http.Response, error) {
		l.calls++
		status := l.status
		if l.holds {
			l.holds = false
			select {
			case status = <-l.answer:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return &http.Response{StatusCode: status, Body: http.NoBody, Request: r}, nil
	})
	delivery.Targets{service.Name: l.Target}.Watch(l.answered)
	return l
}

// answered is a delivery.Watcher.
func (l *limited) answered(target string, status int, code string, took time.Duration) {
	l.seen = append(l.seen, fmt.Sprint(target, " ", status, " ", code, " ", took))
}

type move string

const (
	posts    move = "" // an event is posted
	begins   move = "a request goes out and has no answer yet"
	answered move = "that request is answered"
	leaves   move = "the caller of that request leaves"
)

type step struct {
	after  time.Duration
	move   move
	status int           // that the target would answer
	want   string        // the reason of the error
	wait   time.Duration // of the message
}

func (l *limited) make(t *testing.T, s step) error {
	t.Helper()
	switch s.move {
	case begins:
		var ctx context.Context
		ctx, l.leave = context.WithCancel(t.Context())
		l.holds = true
		go func() {
			_, err := l.Post(payment).Do(ctx, event())
			l.ended <- err
		}()
		synctest.Wait()
		return nil
	case answered:
		l.answer <- s.status
		return <-l.ended
	case leaves:
		l.leave()
		return <-l.ended
	default:
		l.status = s.status
		_, err := l.Post(payment).Do(t.Context(), event())
		return err
	}
}

func TestLimitsOfATargetHoldBackItsRequests(t *testing.T) {
	t.Parallel()
	const failed, resting, rested = "callee_failed_503", "callee_resting", time.Minute + 1
	breaks := func(failures int) func(*catalog.Target) {
		return func(c *catalog.Target) { c.Breaker = catalog.Breaker{Failures: failures, Rest: time.Minute} }
	}
	type row struct {
		declare func(*catalog.Target)
		steps   []step
	}
	filetest.Each(t, map[string]row{
		"the rate of requests": {func(c *catalog.Target) { c.RatePerSecond, c.Burst = 2, 3 }, []step{
			{status: 200},
			{status: 200},
			{status: 200},
			{want: "callee_rate", wait: 500 * time.Millisecond}, // a refused request uses up nothing
			{want: "callee_rate", wait: 500 * time.Millisecond},
			{after: 500 * time.Millisecond, status: 200},
			{want: "callee_rate", wait: 500 * time.Millisecond},
		}},
		"the number of concurrent requests": {func(c *catalog.Target) { c.Concurrency = 1 }, []step{
			{move: begins}, {want: "callee_crowded"}, {move: answered, status: 200}, {status: 200},
		}},
		"the breaker of a failing target": {breaks(3), []step{
			{status: 503, want: failed},
			{status: 408, want: "callee_timeout_408"},
			{status: 422, want: "callee_refused_422"}, // the refusal of a message is no failure
			{status: 503, want: failed},
			{status: 401, want: "callee_unauthorized_401"},
			{status: 429, want: "callee_busy_429"},
			{want: resting, wait: time.Minute},
			{after: 20 * time.Second, want: resting, wait: 40 * time.Second},
			{after: 40*time.Second + 1, status: 503, want: failed},
			{want: resting, wait: time.Minute}, // one request for each rest
			{after: rested, status: 410, want: "callee_gone_410"},
			{status: 200}, // the breaker is closed
			{status: 503, want: failed},
			{status: 503, want: failed},
			{status: 200},
		}},
		"an open breaker lets one request through, and the others wait for its result": {breaks(1), []step{
			{status: 503, want: failed},
			{after: rested, move: begins},
			{want: resting, wait: time.Minute},
			{want: resting, wait: time.Minute},
			{move: answered, status: 200},
			{status: 200},
		}},
		"a caller that leaves neither opens a breaker nor holds it open": {breaks(1), []step{
			{move: begins},
			{move: leaves, want: "canceled"},
			{status: 503, want: failed},
			{want: resting, wait: time.Minute},
			{after: rested, move: begins},
			{move: leaves, want: "canceled"},
			{status: 200},
		}},
		"a failure of a request from before the breaker opened does not lengthen the rest": {breaks(1), []step{
			{move: begins},
			{status: 503, want: failed},
			{after: 30 * time.Second, move: answered, status: 503, want: failed},
			{want: resting, wait: 30 * time.Second},
		}},
	}, func(t *testing.T, test row) {
		filetest.Bubble(t, func(t *testing.T) { limit(t, test.declare).makeAll(t, test.steps) })
	})
}

func (l *limited) makeAll(t *testing.T, steps []step) {
	t.Helper()
	for i, s := range steps {
		<-time.After(s.after)
		calls := l.calls
		err := l.make(t, s)
		if s.want == "" {
			require.NoError(t, err, i)
			continue
		}
		verdict := retry.Decide(err)
		require.Equal(t, []any{s.want, s.wait}, []any{verdict.Reason, retry.RequestedWait(err)}, i)
		if s.status == 0 && s.move == posts {
			require.False(t, verdict.Counts, "without a request there is no attempt")
			require.Equal(t, calls, l.calls, i)
		}
	}
}

func TestWatcherIsGivenEachAnswerAndBreakersAreListed(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		l := limit(t, func(c *catalog.Target) { c.Breaker = catalog.Breaker{Failures: 2, Rest: time.Minute} })
		open := func(want ...rates.Breaker) {
			t.Helper()
			require.Equal(t, want, delivery.Targets{service.Name: l.Target}.Breakers())
		}
		require.NoError(t, l.make(t, step{status: 200}))
		require.Error(t, l.make(t, step{status: 503}))
		open()
		require.Error(t, l.make(t, step{status: 503}))
		opened := time.Now().UTC()
		open(rates.Breaker{Target: service.Name, State: "open", Since: opened})
		require.Error(t, l.make(t, step{status: 503}))
		<-time.After(time.Minute + 1)
		open(rates.Breaker{Target: service.Name, State: "half_open", Since: opened}) // since the same failure
		require.NoError(t, l.make(t, step{status: 200}))
		open()
		require.Equal(t, []string{
			"service 200  0s", "service 503 callee_failed_503 0s", "service 503 callee_failed_503 0s",
			"service 200  0s",
		}, l.seen, "a request that was not sent has no answer")
	})
}
