package delivery_test

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
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
		Payload: contract.Payload{
			SubscriptionID: "sub-7", OrderID: "order-9", Currency: "EUR", Amount: "9.90", Cycle: 2,
		},
	}
}

func event() handler.Event {
	return handler.Event{
		Queue: "pay-subscription-update", Tenant: "acme", ID: "evt-1", Type: "renewal", Attempt: 1,
		Body: contract.Of(envelope()),
	}
}

// service is a target on this machine, without limits.
var service = catalog.Target{
	Name: "service", Scheme: catalog.SchemeGeneric, Internal: true,
	Timeouts: catalog.Timeouts{Connect: 5 * time.Second, Total: time.Minute},
}

// payment is what the queue of updates posts.
var payment = catalog.Post{
	Target: "service", Path: "/v1/webhooks/payment", Reconcile: "/v1/webhooks/payment/{id}",
}

// at is the target of a configuration, by default service.
func at(t testing.TB, config delivery.Config) *delivery.Target {
	t.Helper()
	if config.Target.Name == "" {
		config.Target = service
	}
	config.BaseURL, config.Secrets = cmp.Or(config.BaseURL, "http://service.example"),
		append(config.Secrets, secret)[:1]
	if config.Now == nil {
		config.Now = clock
	}
	target := filetest.Must(delivery.New(config))(t)
	t.Cleanup(delivery.Targets{"": target}.Close)
	return target
}

type exchange func(*http.Request) (*http.Response, error)

func (e exchange) RoundTrip(r *http.Request) (*http.Response, error) { return e(r) }

// offline is service, changed by declare, without a network and on the clock of its test.
func offline(t testing.TB, declare func(*catalog.Target), callee exchange) *delivery.Target {
	t.Helper()
	declared := service
	if declare != nil {
		declare(&declared)
	}
	return at(t, delivery.Config{Target: declared, Now: time.Now, Transport: callee})
}

func answers(status int, header http.Header) exchange {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: r}, nil
	}
}

func callee(t testing.TB, answer http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return server.URL
}

// recorded is a target that checks signatures, and keeps method, path, key, type, user and body of requests.
func recorded(t testing.TB, scheme signature.Scheme, secret string) (url string, requests *[]string) {
	t.Helper()
	verifier := filetest.Must(signature.NewVerifier(scheme, []string{secret}, time.Second, clock))(t)
	requests = new([]string)
	return callee(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		noID := scheme == signature.Standard && r.Header.Get("Webhook-Id") == ""
		if err != nil || verifier.Verify(r.Header.Values, body) != nil || noID {
			t.Error("the signature is not that of the request")
		}
		user, password, _ := r.BasicAuth()
		*requests = append(*requests, strings.Join([]string{
			r.Method, r.URL.Path, fmt.Sprint(r.Header["Idempotency-Key"]), r.Header.Get("Content-Type"),
			user + ":" + password, string(body),
		}, " "))
	}), requests
}

func TestEveryAttemptPostsTheDocumentedRequest(t *testing.T) {
	t.Parallel()
	const standard = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	items := []contract.Item{{ProductID: "p", Quantity: 1}}
	order := handler.Event{
		Queue: "paynow-events", Tenant: "acme", ID: "evt\r\nX-Other: 2", Type: contract.OrderPaid,
		CorrelationID: "order-9",
		Body: contract.Of(&contract.Payment{
			EventID: "evt-2", EventType: contract.OrderPaid, Timestamp: "2026-11-20T08:59:58Z",
			Data: contract.PaymentData{Order: &contract.Order{ID: "order-9", CustomerID: "customer-1", Items: items}},
		}),
	}
	renewal, paid := event().CalleeKey(), order.CalleeKey()
	type row struct {
		scheme catalog.Scheme
		secret string
		post   catalog.Post
		event  handler.Event
		want   string // the beginning of the request
	}
	filetest.Each(t, map[string]row{
		"an update": {
			catalog.SchemeGeneric, secret, payment, event(),
			`POST /billing/v1/webhooks/payment [` + renewal + `] application/json alice:hush {"event_id":"` + renewal +
				`","tenant":"acme","source_event_id":"evt-1","action":"renewal","subscription_id":"sub-7",` +
				`"correlation_id":"sub-7","created_at":"2026-11-20T08:59:58Z",` +
				`"payload":{"subscription_id":"sub-7","order_id":"order-9","currency":"EUR","amount":"9.90","cycle":2}}`,
		},
		"another contract's data, by Standard Webhooks": {
			catalog.SchemeStandard, standard,
			catalog.Post{Target: "service", Path: "/hooks"},
			order,
			`POST /billing/hooks [` + paid + `] application/json alice:hush ` +
				`{"event_id":"` + paid + `","tenant":"acme","source_event_id":"evt-2","event_type":"order.paid",` +
				`"created_at":"2026-11-20T08:59:58Z","data":{"order":{"id":"order-9",`,
		},
	}, func(t *testing.T, test row) {
		declared := service
		declared.Scheme = test.scheme
		url, requests := recorded(t, signature.Own[string(test.scheme)], test.secret)
		url = strings.Replace(url, "http://", "http://alice:hush@", 1) + "/billing/"
		config := delivery.Config{Target: declared, BaseURL: url, Secrets: []string{test.secret}}
		post := at(t, config).Post(test.post)
		require.Equal(t, test.post.Reconcile == "", post.SafeToRepeat, "such a target applies a key once")
		require.Equal(t, test.post.Reconcile == "", post.Reconcile == nil)
		for attempt := range 2 {
			test.event.Attempt, test.event.Try = attempt+1, attempt
			require.Equal(t, delivery.Delivered, filetest.Must(post.Do(t.Context(), test.event))(t).Result)
		}
		require.True(t, strings.HasPrefix((*requests)[0], test.want), (*requests)[0])
		require.Equal(t, (*requests)[0], (*requests)[1])
	})
}

func TestAnswersToReconcileHaveTheirMeaningsAlsoAfterAConflict(t *testing.T) {
	t.Parallel()
	type row struct {
		statuses []int
		want     string // reason of the error, without the status
		opens    bool   // the breaker
	}
	filetest.Each(t, map[string]row{
		"it has the event":                   {[]int{200}, "", false},
		"it does not have it, or cannot say": {[]int{404, 405, 501}, "", false},
		"it does not authorize":              {[]int{401, 403}, "callee_unauthorized_", true},
		"it is busy":                         {[]int{425, 429}, "callee_busy_", true},
		"the request was too slow":           {[]int{408}, "callee_timeout_", true},
		"it failed":                          {[]int{500, 503}, "callee_failed_", true},
		"its answer is unclear":              {[]int{201, 204, 302, 400, 409, 410, 422}, "callee_unclear_", false},
		"its status is unknown":              {[]int{600}, "callee_unclear_", true},
	}, func(t *testing.T, test row) {
		odd := event()
		odd.ID = "../../admin"
		for _, status := range test.statuses {
			calls := 0
			breaker := func(c *catalog.Target) { c.Breaker = catalog.Breaker{Failures: 1, Rest: time.Hour} }
			target := offline(t, breaker, func(r *http.Request) (*http.Response, error) {
				require.Len(t, r.Header, 4, "signature, time, User-Agent and Accept, but no Idempotency-Key")
				require.Equal(t, "GET /v1/webhooks/payment/"+odd.CalleeKey(), r.Method+" "+r.URL.Path)
				calls++
				return answers(status, nil)(r)
			})
			known, err := target.Post(payment).Reconcile(t.Context(), odd)
			require.Equal(t, status == 200, known.Done, status)
			require.Equal(t, status == 200, known.Effect.Result == delivery.Delivered, status)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want+strconv.Itoa(status))
				require.False(t, retry.Decide(err).Class.Terminal(), "an unknown outcome is not terminal")
			}
			_, _ = target.Post(payment).Reconcile(t.Context(), odd)
			require.Equal(t, test.opens, calls == 1, status)
			conflict := offline(t, nil, func(r *http.Request) (*http.Response, error) {
				return answers(map[string]int{http.MethodPost: 409, http.MethodGet: status}[r.Method], nil)(r)
			})
			effect, err := conflict.Post(payment).Do(t.Context(), odd)
			switch {
			case status == 200:
				require.NoError(t, err)
				require.Equal(t, known.Effect, effect, "a conflict with the event itself")
			case test.want == "":
				require.EqualError(t, err, "callee_refused_409")
			default:
				require.EqualError(t, err, test.want+strconv.Itoa(status), "it is unknown what conflicts")
			}
			_, err = conflict.Post(catalog.Post{Path: payment.Path}).Do(t.Context(), odd)
			require.EqualError(t, err, "callee_refused_409", "without a path for Reconcile")
		}
	})
}

func TestInvalidRequestIsAPermanentErrorAndNotSent(t *testing.T) {
	t.Parallel()
	_, err := offline(t, nil, nil).Call(t.Context(), delivery.Request{Method: http.MethodPost, ID: "a\r\nb"})
	require.EqualError(t, err, "key_invalid")
	type row struct {
		change func(*handler.Event)
		want   string
	}
	filetest.Each(t, map[string]row{
		"no body": {func(e *handler.Event) { e.Body = contract.Body{} }, "body_expected"},
		"no subscription": {
			func(e *handler.Event) { payloadOf(*e).SubscriptionID = "" }, "subscription_id_missing",
		},
		"invalid UTF-8": {func(e *handler.Event) { payloadOf(*e).Status = "\xff" }, "body_not_encodable"},
	}, func(t *testing.T, test row) {
		bad := event()
		test.change(&bad)
		unsent := offline(t, nil, func(*http.Request) (*http.Response, error) {
			t.Error("it was sent")
			return nil, nil
		})
		_, err := unsent.Post(payment).Do(t.Context(), bad)
		require.EqualError(t, err, test.want)
		require.True(t, retry.Decide(err).Class.Terminal())
	})
}

func TestInvalidConfigurationIsRefusedAndNotPrinted(t *testing.T) {
	t.Parallel()
	const good = "https://subscriptions.example"
	made := func(url, secret string) error {
		config := delivery.Config{Target: service, BaseURL: url, Secrets: []string{secret}, Now: clock}
		return filetest.ErrorOf(delivery.New(config))
	}
	require.NoError(t, made(good, secret))
	for name, err := range map[string]error{
		"no URL": made("", secret), "no scheme": made("hush.example", secret),
		"another scheme": made("ftp://hush.example", secret), "no host": made("http:///hush", secret),
		"not a URL": made("http://alice:hush@%zz", secret), "a query": made("http://hush.example?key=hush", secret),
		"a short secret": made(good, "hush"),
	} {
		require.Error(t, err, name)
		require.NotContains(t, err.Error(), "hush", name)
	}
}

func TestErrorRepeatsNothingOfAnAnswerButItsStatus(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		status := rapid.IntRange(200, 999).Draw(t, "status")
		word := "hush" + hex.EncodeToString(rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "word"))
		headers := []string{"Location", "Retry-After", "Www-Authenticate", "Content-Type", "X-Error"}
		header := rapid.SampledFrom(headers).Draw(t, "header")
		webhook, err := delivery.New(delivery.Config{
			Target: service, BaseURL: "http://alice:" + word + "@subscriptions.example",
			Secrets: []string{word + secret}, Now: clock,
			Transport: exchange(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: status, Status: word, Request: r, Header: http.Header{header: {word}},
					Body: io.NopCloser(strings.NewReader(word)),
				}, nil
			}),
		})
		require.NoError(t, err)
		e := event()
		payloadOf(e).Status = word
		result, err := webhook.Post(payment).Do(t.Context(), e)
		if err == nil {
			require.Equal(t, delivery.Delivered, result.Result)
			require.Less(t, status, 300)
			return
		}
		require.Empty(t, result)
		require.NotContains(t, err.Error(), "hush")
		var marked *retry.Error
		require.ErrorAs(t, err, &marked, "every answer has a verdict")
		require.True(t, marked.Verdict.Counts)
	})
}

func TestRetryAfterOfACalleeIsRead(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		status int
		header string
		want   time.Duration
	}{
		{429, "1200", 20 * time.Minute},
		{503, "30", 30 * time.Second},
		{429, "Fri, 20 Nov 2026 10:00:00 GMT", time.Hour},
		{503, "Friday, 20-Nov-26 10:00:00 GMT", time.Hour},
		{429, "Fri, 20 Nov 2026 08:00:00 GMT", 0}, // in the past
		{429, "90000", 24 * time.Hour},            // a day at most
		{429, "Fri, 20 Nov 2037 10:00:00 GMT", 24 * time.Hour},
		{429, "99999999999999999999999", 24 * time.Hour},
		{429, "", 0},
		{503, "later", 0},
		{503, "-5", 0},
		{500, "1200", 0},
		{308, "1200", 0},
		{413, "1200", 0},
		{422, "1200", 0}, // statuses without the header
	} {
		answer := answers(test.status, http.Header{"Retry-After": {test.header}})
		handlers := at(t, delivery.Config{Transport: answer}).Post(payment)
		_, err := handlers.Do(t.Context(), event())
		require.Equal(t, test.want, retry.RequestedWait(err), "%d %s", test.status, test.header)
		if test.status >= 429 || test.status == 500 {
			_, err = handlers.Reconcile(t.Context(), event())
			require.Equal(t, test.want, retry.RequestedWait(err), "also in Reconcile")
		}
	}
}

func payloadOf(e handler.Event) *contract.Payload {
	m, err := contract.As[*contract.Envelope](e.Body)
	if err != nil {
		panic(err)
	}
	return &m.Payload
}
