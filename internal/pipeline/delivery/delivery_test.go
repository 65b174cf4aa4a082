package delivery_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
	"billhook/internal/retry"
)

const (
	secret = "a-secret-of-more-than-24-bytes"
	second = "another-secret-of-enough-bytes"
)

var now = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

func clock() time.Time { return now }

func envelope() *contract.Envelope {
	return &contract.Envelope{
		ID: "evt-1", Action: "renewal", CorrelationID: "sub-7", IdempotencyKey: "412345678901234567",
		CreatedAt: "2026-11-20T08:59:58Z", Attempts: 3, MaxAttempts: 5,
		Payload: contract.Payload{SubscriptionID: "sub-7", OrderID: "order-9", Currency: "EUR", Amount: "9.90", Cycle: 2},
	}
}

func event() handler.Event {
	return handler.Event{Queue: "pay-subscription-update", Tenant: "acme", ID: "evt-1", Type: "renewal", Attempt: 1, Body: contract.Of(envelope())}
}

// service is a target at an address of this machine, without limits.
var service = catalog.Target{
	Name: "service", Scheme: catalog.SchemeGeneric, Internal: true, Timeouts: catalog.Timeouts{Connect: 5 * time.Second, Total: time.Minute},
}

// payment is what the queue of updates posts.
var payment = catalog.Post{Target: "service", Path: "/v1/webhooks/payment", Reconcile: "/v1/webhooks/payment/{id}"}

func leased(t testing.TB, baseURL string) handler.Leased {
	t.Helper()
	target, err := delivery.New(delivery.Config{Target: service, BaseURL: baseURL, Secret: secret, Now: clock})
	require.NoError(t, err)
	t.Cleanup(target.Close)
	return target.Post(payment)
}

// callee serves what a test says, until the test ends.
func callee(t testing.TB, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

func receiver(t testing.TB, secrets ...string) (*standin.Receiver, string) {
	t.Helper()
	r, err := standin.NewReceiver(standin.ReceiverConfig{Secrets: secrets, Tolerance: 5 * time.Minute, Now: clock})
	require.NoError(t, err)
	server := httptest.NewServer(r)
	t.Cleanup(func() { r.Close(); server.Close() })
	return r, server.URL
}

func TestTheWebhookIsWhatTheCalleeWasPromised(t *testing.T) {
	t.Parallel()
	verifier, err := signature.NewVerifier(signature.Generic, []string{secret}, time.Second, clock)
	require.NoError(t, err)
	var bodies []string
	do := leased(t, strings.Replace(callee(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || verifier.Verify(r.Header.Values, body) != nil {
			t.Error("the signature is not over what arrived")
		}
		user, password, _ := r.BasicAuth()
		bodies = append(bodies, fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.Header["Idempotency-Key"], " ",
			r.Header.Get("Content-Type"), " ", user, " ", password, " ", string(body)))
	}), "http://", "http://alice:hush@", 1)+"/billing/").Do
	for attempt := range 2 {
		again := event()
		again.Attempt, again.Try = attempt+1, attempt
		result, err := do(t.Context(), again)
		require.NoError(t, err)
		require.Equal(t, delivery.Delivered, result.Result)
	}
	key := event().CalleeKey()
	require.Equal(t, `POST /billing/v1/webhooks/payment [`+key+`] application/json alice hush `+
		`{"event_id":"`+key+`","tenant":"acme","source_event_id":"evt-1","action":"renewal","subscription_id":"sub-7",`+
		`"correlation_id":"sub-7","created_at":"2026-11-20T08:59:58Z",`+
		`"payload":{"subscription_id":"sub-7","order_id":"order-9","currency":"EUR","amount":"9.90","cycle":2}}`, bodies[0])
	require.Equal(t, bodies[0], bodies[1], "every attempt says the same")
}

func TestAnAnswerSaysWhatBecomesOfTheMessage(t *testing.T) {
	t.Parallel()
	type verdict = retry.Verdict
	for name, test := range map[string]struct {
		statuses []int
		want     verdict // none: delivered
	}{
		"it is taken":                           {[]int{200, 201, 202, 204, 299}, verdict{}},
		"it is refused":                         {[]int{400, 402, 404, 405, 413, 415, 422, 451, 499}, verdict{Class: retry.Rejected, Reason: "callee_refused_", Counts: true}},
		"a redirect":                            {[]int{300, 301, 302, 303, 304, 307, 308, 399}, verdict{Class: retry.Rejected, Reason: "callee_redirects_", Counts: true}},
		"our secret is not theirs":              {[]int{401, 403, 407}, verdict{Class: retry.Unavailable, Reason: "callee_unauthorized_", Counts: true}},
		"it has no time for us":                 {[]int{425, 429}, verdict{Class: retry.Unavailable, Reason: "callee_busy_", Counts: true}},
		"it is gone for good":                   {[]int{410}, verdict{Class: retry.Rejected, Reason: "callee_gone_", Counts: true}},
		"it waited for us too long":             {[]int{408}, verdict{Class: retry.TimedOut, Reason: "callee_timeout_", Counts: true}},
		"it failed":                             {[]int{500, 501, 502, 503, 504, 599}, verdict{Class: retry.Failed, Reason: "callee_failed_", Counts: true}},
		"it says what nobody knows the like of": {[]int{600, 999}, verdict{Class: retry.Failed, Reason: "callee_unclear_", Counts: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, status := range test.statuses {
				var asked atomic.Int32
				do := leased(t, callee(t, func(w http.ResponseWriter, _ *http.Request) {
					asked.Add(1)
					w.Header().Set("Location", "/elsewhere")
					w.WriteHeader(status)
				})).Do
				result, err := do(t.Context(), event())
				require.EqualValues(t, 1, asked.Load(), "one attempt is one request")
				if test.want == (verdict{}) {
					require.NoError(t, err)
					require.Equal(t, delivery.Delivered, result.Result)
					continue
				}
				want := test.want
				want.Reason += strconv.Itoa(status)
				require.Empty(t, result)
				require.Equal(t, want, retry.Decide(err))
				require.EqualError(t, err, want.Reason)
			}
		})
	}
}

func TestAskedWhatBecameOfIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		statuses []int
		done     bool
		want     string // reason of the error, without the status
	}{
		"it has it":                     {[]int{200}, true, ""},
		"it has not, or cannot be told": {[]int{404, 405, 501}, false, ""},
		"it does not know us":           {[]int{401, 403}, false, "callee_unauthorized_"},
		"it has no time for us":         {[]int{425, 429}, false, "callee_busy_"},
		"it waited for us too long":     {[]int{408}, false, "callee_timeout_"},
		"it failed":                     {[]int{500, 503}, false, "callee_failed_"},
		"it says neither yes nor no":    {[]int{201, 204, 302, 400, 409, 410, 422, 600}, false, "callee_unclear_"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, status := range test.statuses {
				reconcile := leased(t, callee(t, func(w http.ResponseWriter, r *http.Request) {
					if r.Method != http.MethodGet || r.URL.Path != "/v1/webhooks/payment/"+event().CalleeKey() {
						t.Error("asked something else")
					}
					w.WriteHeader(status)
				})).Reconcile
				result, done, err := reconcile(t.Context(), event())
				require.Equal(t, test.done, done, status)
				require.Equal(t, test.done, result.Result == delivery.Delivered, status)
				if test.want == "" {
					require.NoError(t, err)
					continue
				}
				require.EqualError(t, err, test.want+strconv.Itoa(status))
				require.False(t, retry.Decide(err).Class.Terminal(), "what is not known is no reason to give up")
			}
		})
	}
}

func TestAConflictIsSettledByAsking(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		known int
		want  string
	}{
		"the callee has the event":          {http.StatusOK, ""},
		"the callee does not have it":       {http.StatusNotFound, "callee_refused_409"},
		"the callee cannot be asked now":    {http.StatusServiceUnavailable, "callee_failed_503"},
		"the callee answers that with that": {http.StatusConflict, "callee_unclear_409"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			do := leased(t, callee(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPost {
					w.WriteHeader(http.StatusConflict)
					return
				}
				w.WriteHeader(test.known)
			})).Do
			result, err := do(t.Context(), event())
			if test.want == "" {
				require.NoError(t, err)
				require.Equal(t, delivery.Delivered, result.Result)
				return
			}
			require.EqualError(t, err, test.want)
		})
	}
}

func TestTheReceiverAndTheWebhookAgree(t *testing.T) {
	t.Parallel()
	type step struct {
		do   bool   // else reconcile
		want string // the error's text; empty: delivered, or not done
		done bool
	}
	const cut = "callee_unreachable: unexpected EOF"
	for name, test := range map[string]struct {
		secrets []string
		told    []standin.Mode
		steps   []step
		applied int
	}{
		"delivered":                               {nil, nil, []step{{do: true}, {done: true}}, 1},
		"delivered twice":                         {nil, nil, []step{{do: true}, {do: true}}, 1},
		"asked before it was sent":                {nil, nil, []step{{}}, 0},
		"under the old secret":                    {[]string{second, secret}, nil, []step{{do: true}, {done: true}}, 1},
		"under a secret that it does not have":    {[]string{second}, nil, []step{{do: true, want: "callee_unauthorized_401"}, {want: "callee_unauthorized_401"}}, 0},
		"failed, then delivered":                  {nil, []standin.Mode{standin.Fail}, []step{{do: true, want: "callee_failed_503"}, {}, {do: true}, {done: true}}, 1},
		"refused":                                 {nil, []standin.Mode{standin.Refuse}, []step{{do: true, want: "callee_refused_422"}}, 0},
		"the answer lost, and asked":              {nil, []standin.Mode{standin.Forget}, []step{{do: true, want: cut}, {done: true}}, 1},
		"the answer lost, and sent again":         {nil, []standin.Mode{standin.Forget}, []step{{do: true, want: cut}, {do: true}}, 1},
		"lost on a connection that was kept":      {nil, []standin.Mode{standin.Double, standin.Forget}, []step{{do: true}, {do: true, want: cut}, {done: true}}, 1},
		"sent again to one that keeps no keys":    {nil, []standin.Mode{standin.Forget, standin.Double}, []step{{do: true, want: cut}, {do: true}}, 2},
		"asked, and so once without keys as well": {nil, []standin.Mode{standin.Forget, standin.Double}, []step{{do: true, want: cut}, {done: true}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			secrets := test.secrets
			if secrets == nil {
				secrets = []string{secret}
			}
			r, url := receiver(t, secrets...)
			for _, mode := range test.told {
				require.NoError(t, r.Tell(mode, 1))
			}
			webhook, sent := leased(t, url), 0
			for i, step := range test.steps {
				var err error
				if step.do {
					sent++
					_, err = webhook.Do(t.Context(), event())
				} else {
					var done bool
					_, done, err = webhook.Reconcile(t.Context(), event())
					require.Equal(t, step.done, done, i)
				}
				if step.want == "" {
					require.NoError(t, err, i)
				} else {
					require.EqualError(t, err, step.want, i)
				}
			}
			require.Equal(t, test.applied, r.Applied("evt-1"))
			if test.secrets == nil {
				require.Len(t, r.Deliveries(), sent, "nothing below us sends again")
			}
		})
	}
}

func TestNoAnswerInTimeIsATimeout(t *testing.T) {
	t.Parallel()
	r, url := receiver(t, secret)
	require.NoError(t, r.Tell(standin.Hang, 1))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := leased(t, url).Do(ctx, event())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Equal(t, retry.Verdict{Class: retry.TimedOut, Reason: "handler_timeout", Counts: true}, retry.Decide(err))
	require.NotContains(t, err.Error(), url)

	client, err := delivery.New(delivery.Config{
		Target: service, BaseURL: callee(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); <-r.Context().Done() }),
		Secret: secret, Now: clock, Client: &http.Client{Timeout: 50 * time.Millisecond, Transport: &http.Transport{DisableKeepAlives: true}},
	})
	require.NoError(t, err)
	_, err = client.Post(payment).Do(t.Context(), event())
	require.Equal(t, retry.TimedOut, retry.Decide(err).Class, "the caller's own client gave up")
}

func TestAWorkerThatStopsIsNoFailureOfTheMessage(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := leased(t, callee(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body) // net/http looks out for the end of a connection behind the body
		cancel()
		<-r.Context().Done()
	})).Do(ctx, event())
	require.Equal(t, retry.Verdict{Class: retry.Unavailable, Reason: "canceled"}, retry.Decide(err))
}

func TestWithoutAConnectionTheCalleeIsDown(t *testing.T) {
	t.Parallel()
	raw := func(answer func(net.Conn)) func(*testing.T) string {
		return func(t *testing.T) string {
			return callee(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.ReadAll(r.Body)
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					answer(conn)
					_ = conn.Close()
				}
			})
		}
	}
	for name, test := range map[string]struct {
		url  func(*testing.T) string
		want string
	}{
		"nobody listens": {func(t *testing.T) string {
			listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
			require.NoError(t, err)
			require.NoError(t, listener.Close())
			return "http://" + listener.Addr().String()
		}, ": connection refused"},
		"the connection is reset": {raw(func(conn net.Conn) { _ = conn.(*net.TCPConn).SetLinger(0) }), ": connection reset by peer"},
		"it is closed in silence": {raw(func(net.Conn) {}), ": unexpected EOF"},
		"it does not speak HTTP":  {raw(func(conn net.Conn) { _, _ = conn.Write([]byte("hush hush\r\n\r\n")) }), ""},
		"a header that is none":   {raw(func(conn net.Conn) { _, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nhush hush\r\n\r\n")) }), ""},
		"a redirect to nowhere": {raw(func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 302 Found\r\nLocation: http://hush:%zz/\r\nContent-Length: 0\r\n\r\n"))
		}), ""},
		"a certificate of its own": {func(t *testing.T) string {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // it is told of the refusal
			server.StartTLS()
			t.Cleanup(server.Close)
			return server.URL
		}, ": certificate not accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			webhook := leased(t, strings.Replace(test.url(t), "://", "://alice:hush@", 1))
			_, err := webhook.Do(t.Context(), event())
			require.EqualError(t, err, "callee_unreachable"+test.want)
			require.Equal(t, retry.Verdict{Class: retry.Unavailable, Reason: "callee_unreachable", Counts: true}, retry.Decide(err))
			_, done, err := webhook.Reconcile(t.Context(), event())
			require.False(t, done)
			require.Equal(t, retry.Unavailable, retry.Decide(err).Class)
		})
	}
}

func TestWhatCannotBeSentIsPermanentAndNotSent(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*handler.Event)
		want   string
	}{
		"no body":                   {func(e *handler.Event) { e.Body = contract.Body{} }, "body_expected"},
		"no subscription":           {func(e *handler.Event) { envelopeOf(e.Body).Payload.SubscriptionID = "" }, "subscription_id_missing"},
		"a string that is not text": {func(e *handler.Event) { envelopeOf(e.Body).Payload.Status = "\xff" }, "body_not_encodable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, url := receiver(t, secret)
			bad := event()
			test.change(&bad)
			_, err := leased(t, url).Do(t.Context(), bad)
			require.EqualError(t, err, test.want)
			require.True(t, retry.Decide(err).Class.Terminal())
			require.Empty(t, r.Deliveries())
		})
	}
}

func TestAnEventsIDIsInNoHeaderAndNoPath(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "evt\r\nX-Other: 1", "../../admin", "evt.1"} {
		var asked []string
		h := leased(t, callee(t, func(_ http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path+" "+r.Header.Get("Idempotency-Key")+r.Header.Get("X-Other"))
		}))
		odd := event()
		odd.ID = id
		_, err := h.Do(t.Context(), odd)
		require.NoError(t, err)
		_, done, err := h.Reconcile(t.Context(), odd)
		require.NoError(t, err)
		require.True(t, done)
		require.Equal(t, []string{"/v1/webhooks/payment " + odd.CalleeKey(), "/v1/webhooks/payment/" + odd.CalleeKey() + " "}, asked)
	}
}

func TestAConfigurationThatCannotBeMeantIsRefusedAndNotPrinted(t *testing.T) {
	t.Parallel()
	good := delivery.Config{Target: service, BaseURL: "https://subscriptions.example", Secret: secret, Now: clock}
	_, err := delivery.New(good)
	require.NoError(t, err)
	for name, change := range map[string]func(*delivery.Config){
		"no URL":         func(c *delivery.Config) { c.BaseURL = "" },
		"no scheme":      func(c *delivery.Config) { c.BaseURL = "hush.example" },
		"another scheme": func(c *delivery.Config) { c.BaseURL = "ftp://hush.example" },
		"no host":        func(c *delivery.Config) { c.BaseURL = "http:///hush" },
		"not a URL":      func(c *delivery.Config) { c.BaseURL = "http://alice:hush@%zz" },
		"a query":        func(c *delivery.Config) { c.BaseURL = "http://hush.example?key=hush" },
		"a short secret": func(c *delivery.Config) { c.Secret = "hush" },
		"no clock":       func(c *delivery.Config) { c.Now = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bad := good
			change(&bad)
			_, err := delivery.New(bad)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "hush")
		})
	}
}

func TestTheCallersClientKeepsItsRedirectsAndCookies(t *testing.T) {
	t.Parallel()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	client := &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	webhook, err := delivery.New(delivery.Config{Target: service, BaseURL: callee(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") != "" || strings.HasPrefix(r.URL.Path, "/else") {
			t.Error("a cookie was sent back, or a redirect followed")
		}
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}), Secret: secret, Now: clock, Client: client})
	require.NoError(t, err)
	for range 2 {
		_, err = webhook.Post(payment).Do(t.Context(), event())
		require.EqualError(t, err, "callee_redirects_307")
	}
	require.Nil(t, client.CheckRedirect)
}

// kept is a transport that must be left open.
type kept struct{ t *testing.T }

func (k kept) CloseIdleConnections() { k.t.Error("closed the caller's connections") }

// A dialler's own timeout looks like a deadline, but nothing was sent and none passed.
func (k kept) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}
}

func TestADialThatTakesTooLongIsNoTimeoutOfTheHandler(t *testing.T) {
	t.Parallel()
	webhook, err := delivery.New(delivery.Config{
		Target: service, BaseURL: "http://subscriptions.example", Secret: secret, Now: clock, Client: &http.Client{Transport: kept{t}},
	})
	require.NoError(t, err)
	_, err = webhook.Post(payment).Do(t.Context(), event())
	require.EqualError(t, err, "callee_unreachable")
	webhook.Close()
}

// answers is a callee without a network.
type answers func(*http.Request) *http.Response

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) { return a(r), nil }

func TestNothingOfAnAnswerButItsStatusIsRepeated(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		status := rapid.IntRange(200, 999).Draw(t, "status")
		word := "hush" + hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "word"))
		header := rapid.SampledFrom([]string{"Location", "Retry-After", "Www-Authenticate", "Content-Type", "X-Error"}).Draw(t, "header")
		webhook, err := delivery.New(delivery.Config{
			Target: service, BaseURL: "http://alice:" + word + "@subscriptions.example", Secret: word + secret, Now: clock,
			Client: &http.Client{Transport: answers(func(r *http.Request) *http.Response {
				return &http.Response{
					StatusCode: status, Status: word, Request: r, Header: http.Header{header: {word}},
					Body: io.NopCloser(strings.NewReader(word)),
				}
			})},
		})
		require.NoError(t, err)
		e := event()
		envelopeOf(e.Body).Payload.Status = word
		result, err := webhook.Post(payment).Do(t.Context(), e)
		if err == nil {
			require.Equal(t, delivery.Delivered, result.Result)
			require.Less(t, status, 300)
			return
		}
		require.Empty(t, result)
		require.NotContains(t, err.Error(), "hush")
		var marked *retry.Error
		require.ErrorAs(t, err, &marked, "every answer has a verdict of its own")
		require.True(t, marked.Verdict.Counts)
	})
}

// Whatever the fields hold, what is posted is JSON that says the same, or nothing is.
func FuzzTheBody(f *testing.F) {
	f.Add("evt-1", "renewal", "sub-7", "2026-11-20T08:59:58Z", int64(2))
	f.Add("sha256:00", "initial", "s", "", int64(0))
	f.Add("a\r\nb", "\"}", "\x00\u2028", "<script>", int64(-1))
	f.Fuzz(func(t *testing.T, id, action, subscription, created string, cycle int64) {
		var body []byte
		webhook, err := delivery.New(delivery.Config{
			Target: service, BaseURL: "http://subscriptions.example", Secret: secret, Now: clock,
			Client: &http.Client{Transport: answers(func(r *http.Request) *http.Response {
				body, _ = io.ReadAll(r.Body)
				headers := http.Header{} // spelled as a server has them
				for name, values := range r.Header {
					headers[http.CanonicalHeaderKey(name)] = values
				}
				if r.URL.Path != "/v1/webhooks/payment" || headers.Get("Idempotency-Key") != id {
					t.Error("posted elsewhere, or under another key")
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}
			})},
		})
		require.NoError(t, err)
		_, err = webhook.Post(payment).Do(t.Context(), handler.Event{ID: id, Body: contract.Of(&contract.Envelope{
			Action: action, CreatedAt: created, Payload: contract.Payload{SubscriptionID: subscription, Cycle: cycle},
		})})
		if err != nil {
			require.True(t, retry.Decide(err).Class.Terminal())
			require.Nil(t, body)
			return
		}
		var got struct {
			EventID        string `json:"event_id"`
			Action         string `json:"action"`
			SubscriptionID string `json:"subscription_id"`
			CreatedAt      string `json:"created_at"`
			Payload        struct {
				SubscriptionID string `json:"subscription_id"`
				Cycle          int64  `json:"cycle"`
			} `json:"payload"`
		}
		require.NoError(t, json.Unmarshal(body, &got))
		require.Equal(t, []any{id, action, subscription, created, subscription, cycle},
			[]any{got.EventID, got.Action, got.SubscriptionID, got.CreatedAt, got.Payload.SubscriptionID, got.Payload.Cycle})
	})
}

func TestACalleeSaysHowLongItIsToBeLeftAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status int
		header string
		want   time.Duration
	}{
		"in seconds":                    {429, "1200", 20 * time.Minute},
		"in seconds, where it is down":  {503, "30", 30 * time.Second},
		"by a date":                     {429, "Fri, 20 Nov 2026 10:00:00 GMT", time.Hour},
		"by a date in another format":   {503, "Friday, 20-Nov-26 10:00:00 GMT", time.Hour},
		"by a date that has passed":     {429, "Fri, 20 Nov 2026 08:00:00 GMT", 0},
		"until tomorrow at most":        {429, "90000", 24 * time.Hour},
		"by a date, tomorrow at most":   {429, "Fri, 20 Nov 2037 10:00:00 GMT", 24 * time.Hour},
		"longer than anybody can count": {429, "99999999999999999999999", 24 * time.Hour},
		"not at all":                    {429, "", 0},
		"by a word":                     {503, "later", 0},
		"by less than nothing":          {503, "-5", 0},
		"where it may not":              {500, "1200", 0},
		"where it redirects":            {308, "1200", 0},
		"where it takes less":           {413, "1200", 0},
		"where it has refused for good": {422, "1200", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handlers := leased(t, callee(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.header != "" {
					w.Header().Set("Retry-After", test.header)
				}
				w.WriteHeader(test.status)
			}))
			_, err := handlers.Do(t.Context(), event())
			require.Equal(t, test.want, retry.Asked(err))
			if test.status >= 429 || test.status == 500 {
				_, _, err = handlers.Reconcile(t.Context(), event())
				require.Equal(t, test.want, retry.Asked(err), "also when it is only asked")
			}
		})
	}
}

// envelopeOf is the envelope that an event carries.
func envelopeOf(body contract.Body) *contract.Envelope {
	m, err := contract.As[*contract.Envelope](body)
	if err != nil {
		panic(err)
	}
	return m
}
