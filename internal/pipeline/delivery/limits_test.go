package delivery_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/platform/signature"
	"billhook/internal/retry"
)

func TestOnlyAnInternalTargetIsDialledAtAPrivateAddress(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	url := callee(t, func(http.ResponseWriter, *http.Request) { asked.Store(true) })
	declared := service
	declared.Internal = false
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "0x7f.1", "2130706433", "0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1]", "[::]", "[::127.0.0.1]"} {
		target, err := delivery.New(delivery.Config{Target: declared, BaseURL: "http://" + host + ":" + port, Secret: secret, Now: clock})
		require.NoError(t, err)
		t.Cleanup(target.Close)
		_, err = target.Post(payment).Do(t.Context(), event())
		require.ErrorContains(t, err, "callee_unreachable", host)
		require.Equal(t, retry.Unavailable, retry.Decide(err).Class)
		if host == "127.0.0.1" || host == "localhost" {
			require.EqualError(t, err, "callee_unreachable: address not public", "after the name is resolved")
		}
	}
	require.False(t, asked.Load())
	for address, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "2001:4860:4860::8888": true, "::ffff:93.184.216.34": true,
		"127.0.0.1": false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false, "100.64.0.1": false,
		"0.0.0.0": false, "0.1.2.3": false, "224.0.0.1": false, "255.255.255.255": false, "198.18.0.1": false, "192.0.0.8": false, "192.0.2.1": false,
		"::1": false, "::": false, "fd00::1": false, "fd20:ce::254": false, "fe80::1": false, "fe80::1%eth0": false, "fec0::1": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::ffff:100.64.0.1": false, "::ffff:0:127.0.0.1": false, "::127.0.0.1": false, "::a9fe:a9fe": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::a9fe:a9fe": false, "2002:7f00:1::": false, "2001:0:7f00:1::": false, "2001:db8::1": false,
		"3fff::1": false, "100::1": false, "5f00::1": false, "2606:2800:220:1::1%eth0": false,
	} {
		require.Equal(t, want, delivery.Public(netip.MustParseAddr(address)), address)
	}
	require.False(t, delivery.Public(netip.Addr{}))
}

// What another contract posts is its data, and what the target needs to apply it once.
func TestADocumentIsWhatTheCalleeWasPromised(t *testing.T) {
	t.Parallel()
	const standard = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifier, err := signature.NewVerifier(signature.Standard, []string{standard}, time.Second, clock)
	require.NoError(t, err)
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || verifier.Verify(r.Header.Values, body) != nil || r.Header.Get("Webhook-Id") != r.Header.Get("Idempotency-Key") {
			t.Error("the signature is not over what arrived")
		}
		bodies = append(bodies, r.Method+" "+r.URL.Path+" "+r.Header.Get("Idempotency-Key")+" "+string(body))
	}))
	t.Cleanup(server.Close)
	declared := service
	declared.Scheme = catalog.SchemeStandard
	target, err := delivery.New(delivery.Config{Target: declared, BaseURL: server.URL, Secret: standard, Now: clock})
	require.NoError(t, err)
	t.Cleanup(target.Close)
	post := target.Post(catalog.Post{Target: "service", Path: "/hooks"})
	require.True(t, post.SafeToRepeat, "a target without a question applies a key once")
	require.Nil(t, post.Reconcile)
	for attempt := range 2 {
		effect, err := post.Do(t.Context(), handler.Event{
			Queue: "paynow-events", Tenant: "acme", ID: "evt-2", Type: contract.OrderPaid, CorrelationID: "order-9", Attempt: attempt + 1,
			Body: contract.Of(&contract.PayNow{
				EventID: "evt-2", EventType: contract.OrderPaid, Timestamp: "2026-11-20T08:59:58Z",
				Data: contract.PayNowData{Order: &contract.Order{ID: "order-9", CustomerID: "customer-1", Items: []contract.Item{{ProductID: "p", Quantity: 1}}}},
			}),
		})
		require.NoError(t, err)
		require.Equal(t, delivery.Delivered, effect.Result)
	}
	require.Equal(t, bodies[0], bodies[1], "every attempt says the same")
	key := handler.CalleeKey("paynow-events", "acme", "evt-2")
	require.Contains(t, bodies[0], `POST /hooks `+key+` {"event_id":"`+key+`","tenant":"acme","source_event_id":"evt-2","event_type":"order.paid","created_at":"2026-11-20T08:59:58Z","data":{"order":{"id":"order-9",`)
}

func TestWhatIsMissingForATargetIsToldAtOnceAndWithoutItsSecret(t *testing.T) {
	t.Parallel()
	of := func(name string) catalog.Target {
		upper := strings.ToUpper(name)
		return catalog.Target{Name: name, URLVariable: upper + "_URL", SecretVariable: upper + "_SECRET", Scheme: catalog.SchemeGeneric, Timeouts: catalog.Timeouts{Connect: 1, Total: 1}}
	}
	c := &catalog.Catalog{
		Targets: map[string]catalog.Target{"here": of("here"), "lost": of("lost"), "weak": of("weak"), "idle": of("idle")},
		Queues: []catalog.Queue{{ID: "q", Enabled: true, Pool: "p", Handlers: map[string]catalog.Handler{
			"a": {Name: "a", Post: catalog.Post{Target: "here"}}, "b": {Name: "b", Post: catalog.Post{Target: "lost"}}, "c": {Name: "c", Post: catalog.Post{Target: "weak"}},
		}}, {ID: "off", Handlers: map[string]catalog.Handler{"d": {Name: "d", Post: catalog.Post{Target: "idle"}}}}},
	}
	place := func(t catalog.Target) (string, []string) {
		return map[string]string{"here": "http://here.example", "weak": "http://weak.example"}[t.Name],
			map[string][]string{"here": {secret, second}, "lost": {secret}, "weak": {"hush"}}[t.Name]
	}
	_, err := delivery.Open(c, "p", place, clock)
	require.ErrorContains(t, err, "LOST_URL and LOST_SECRET: required to post to lost")
	require.ErrorContains(t, err, "WEAK_URL and WEAK_SECRET: ")
	require.NotContains(t, err.Error(), "hush")
	require.NotContains(t, err.Error(), "HERE")
	require.NotContains(t, err.Error(), "IDLE")
	targets, err := delivery.Open(c, "another", place, clock)
	require.NoError(t, err)
	require.Empty(t, targets, "a pool needs its own targets alone")
	targets.Close()
}
