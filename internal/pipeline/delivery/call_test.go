package delivery_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/pipeline/handler"
	"billhook/internal/retry"
)

// target has no limits, and answers by a handler.
func target(t testing.TB, answer http.HandlerFunc) *delivery.Target {
	t.Helper()
	return at(t, delivery.Config{BaseURL: callee(t, answer)})
}

func TestCallReturnsNoMoreThanMaxAnswer(t *testing.T) {
	t.Parallel()
	five := []byte("12345")
	const length = "\r\nContent-Length: "
	type row struct {
		answer string // what follows the version of HTTP; of unknown length, it ends with the connection
		most   int64
		want   delivery.Answer
		reason string
	}
	filetest.Each(t, map[string]row{
		"a body within the bound": {
			"200" + length + "5\r\n\r\n12345", 5, delivery.Answer{Status: 200, Body: five}, "",
		},
		"a body that is not read": {"200" + length + "6\r\n\r\n123456", 0, delivery.Answer{Status: 200}, ""},
		"no body": {
			"200" + length + "0\r\n\r\n", 5, delivery.Answer{Status: 200, Body: []byte{}}, "",
		},
		"a body that breaks off": {"200" + length + "5\r\n\r\n123", 5, delivery.Answer{}, "callee_unreachable"},
		"a refusal that breaks off": {
			"502" + length + "5\r\n\r\n123", 5, delivery.Answer{Status: 502}, "callee_failed_502",
		},
		"a refusal with a long body": {
			"402\r\n\r\n123456", 5, delivery.Answer{Status: 402}, "callee_refused_402",
		},
		"a refusal with its body": {
			"402\r\n\r\n12345", 5, delivery.Answer{Status: 402, Body: five}, "callee_refused_402",
		},
		"a longer body of unknown length": {
			"200\r\n\r\n123456", 5, delivery.Answer{Status: 200}, "callee_answer_too_long",
		},
	}, func(t *testing.T, test row) {
		url, _ := says("HTTP/1.1 "+test.answer, nil)(t)
		answer, err := at(t, delivery.Config{BaseURL: url}).Call(t.Context(),
			delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: test.most})
		require.Equal(t, test.want, answer)
		if test.reason == "" {
			require.NoError(t, err)
			return
		}
		require.Equal(t, test.reason, retry.Decide(err).Reason)
		require.NotContains(t, err.Error(), "123", "no error repeats a body")
	})
}

func TestSafeMembersOfAProblemDocumentAreKept(t *testing.T) {
	t.Parallel()
	const document = "application/problem+json"
	title := func(text string) string { return `{"title":"` + text + `"}` }
	for name, test := range map[string]struct{ contentType, body, said string }{
		"all of it": {
			document, `{"type":"https://pay.example/limits","title":"The limit is reached","status":422,` +
				`"code":"limit_reached","detail":"of Ilse","instance":"/x"}`,
			`type "https://pay.example/limits", code "limit_reached", title "The limit is reached"`,
		},
		"an address": {
			document, `{"title":"ilse@example.org is unknown","code":"unknown"}`,
			`code "unknown", title left out: email`,
		},
		"a title alone": {document + "; charset=utf-8", title("No plan gold"), `title "No plan gold"`},
		"a card":        {document, title("card 4111 1111 1111 1111 is refused"), `title left out: card`},
		"an escape sequence": {
			document, title(`\u001b[2Jfine`), `title left out: it does not print`,
		},
		"a reversed text": {
			document, title(`a\u202eb`), `title left out: it does not print`,
		},
		"a long text": {document, title(strings.Repeat("ä", 150)), `title "` + strings.Repeat("ä", 100) + `"...`},
		"too long a document": {
			document, title(strings.Repeat("a", 9<<10)), ``,
		},
		"numbers for texts":  {document, `{"type":1,"code":["a"],"title":null}`, ``},
		"nothing":            {document, ``, ``},
		"no object":          {document, `"limit_reached"`, ``},
		"another media type": {"application/json", title("The limit is reached"), ``},
	} {
		refuses := target(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.contentType)
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, test.body)
		})
		for _, most := range []int64{0, 16 << 10} {
			_, err := refuses.Call(t.Context(),
				delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: most})
			require.EqualError(t, err, "callee_refused_422", "the error's text holds nothing of it")
			if most == 0 || name != "too long a document" { // with a MaxAnswer more is read
				require.Equal(t, test.said, retry.Said(err), name)
			}
		}
	}
}

func TestOnlyAnInternalTargetIsDialledAtAPrivateAddress(t *testing.T) {
	t.Parallel()
	var called atomic.Bool
	url := callee(t, func(http.ResponseWriter, *http.Request) { called.Store(true) })
	declared := service
	declared.Internal = false
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	for host := range strings.FieldsSeq("127.0.0.1 localhost 0x7f.1 2130706433 0 [::ffff:127.0.0.1] " +
		"[::ffff:7f00:1] [::1] [::] [::127.0.0.1]") {
		private := at(t, delivery.Config{Target: declared, BaseURL: "http://" + host + ":" + port})
		_, err = private.Post(payment).Do(t.Context(), event())
		require.ErrorContains(t, err, "callee_unreachable", host)
		require.Equal(t, retry.Unavailable, retry.Decide(err).Class)
		if host == "127.0.0.1" || host == "localhost" {
			require.EqualError(t, err, "callee_unreachable: address not public", "after the name is resolved")
		}
	}
	require.False(t, called.Load())
	for want, addresses := range map[bool]string{
		true: "93.184.216.34 2606:2800:220:1::1 2001:4860:4860::8888 ::ffff:93.184.216.34",
		false: "127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 0.1.2.3 224.0.0.1 " +
			"255.255.255.255 198.18.0.1 192.0.0.8 192.0.2.1 ::1 :: fd00::1 fd20:ce::254 fe80::1 fe80::1%eth0 " +
			"fec0::1 ff02::1 ::ffff:127.0.0.1 ::ffff:100.64.0.1 ::ffff:0:127.0.0.1 ::127.0.0.1 ::a9fe:a9fe " +
			"64:ff9b::7f00:1 64:ff9b:1::a9fe:a9fe 2002:7f00:1:: 2001:0:7f00:1:: 2001:db8::1 3fff::1 100::1 " +
			"5f00::1 2606:2800:220:1::1%eth0",
	} {
		for address := range strings.FieldsSeq(addresses) {
			require.Equal(t, want, delivery.Public(netip.MustParseAddr(address)), address)
		}
	}
	require.False(t, delivery.Public(netip.Addr{}))
}

func TestMistakesOfAllTargetsAreReportedTogetherWithoutSecrets(t *testing.T) {
	t.Parallel()
	targets, handlers := map[string]catalog.Target{}, map[string]catalog.Handler{}
	for _, name := range []string{"here", "lost", "weak", "idle"} {
		upper := strings.ToUpper(name)
		targets[name] = catalog.Target{
			Name: name, URLVariable: upper + "_URL", SecretVariable: upper + "_SECRET", Scheme: catalog.SchemeGeneric,
			Timeouts: catalog.Timeouts{Connect: 1, Total: 1},
		}
		handlers[name] = catalog.Handler{Name: name, Post: catalog.Post{Target: name}}
	}
	off := map[string]catalog.Handler{"idle": handlers["idle"]}
	delete(handlers, "idle")
	c := &catalog.Catalog{Targets: targets, Queues: []catalog.Queue{
		{ID: "q", Enabled: true, Pool: "p", Handlers: handlers}, {ID: "off", Handlers: off},
	}}
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
	require.Empty(t, filetest.Must(delivery.Open(c, "another", place, clock))(t),
		"a pool has only its own targets")
}

func TestPostsOfEnabledQueuesAreRegisteredAndPlanTheirRequest(t *testing.T) {
	t.Parallel()
	post := func(target string, form catalog.Form) catalog.Handler {
		p := catalog.Post{Target: target, Path: "/" + string(form), Form: form}
		return catalog.Handler{Name: target + string(form), Post: p}
	}
	single, bulk := post(service.Name, catalog.Single), post(service.Name, catalog.Bulk)
	registry := handler.NewRegistry()
	c := &catalog.Catalog{Queues: []catalog.Queue{
		{ID: "on", Enabled: true, Pool: "own", Handlers: map[string]catalog.Handler{
			"single": single, "lines": post(service.Name, catalog.NDJSON),
			"elsewhere": post("missing", catalog.Single),
		}},
		{ID: "also", Enabled: true, Pool: "own", Handlers: map[string]catalog.Handler{"again": single}},
		{ID: "off", Pool: "own", Handlers: map[string]catalog.Handler{"bulk": bulk}},
		{ID: "others", Enabled: true, Pool: "other", Handlers: map[string]catalog.Handler{"bulk": bulk}},
	}}
	delivery.Targets{service.Name: offline(t, nil, nil)}.Register(registry, c, "own", nil)
	for form, ends := range map[catalog.Form]string{catalog.Single: "}", catalog.NDJSON: "}\n"} {
		h, ok := registry.Lookup(service.Name + string(form))
		require.True(t, ok)
		plan := filetest.Must(h.Leased.Plan(t.Context(), event()))(t)
		require.Len(t, plan.Calls, 1)
		call := plan.Calls[0]
		require.Equal(t, []string{service.Name, http.MethodPost, "/" + string(form), event().CalleeKey()},
			[]string{call.Target, call.Method, call.Path, call.ID})
		require.True(t, strings.HasSuffix(string(call.Body), ends))
		require.EqualError(t, filetest.ErrorOf(h.Leased.Plan(t.Context(), handler.Event{})), "body_expected")
	}
	for _, name := range []string{"missing", service.Name + string(catalog.Bulk)} {
		_, ok := registry.Lookup(name)
		require.False(t, ok, name)
	}
}

// A dialler's own timeout is a DeadlineExceeded, but nothing was sent.
func TestDialTimeoutIsNoTimeoutOfTheHandler(t *testing.T) {
	t.Parallel()
	for want, reason := range map[string]error{
		unreachable: &net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded},
		late:        context.DeadlineExceeded, // of the caller's own client
	} {
		silent := offline(t, nil, func(*http.Request) (*http.Response, error) { return nil, reason })
		require.EqualError(t, filetest.ErrorOf(silent.Post(payment).Do(t.Context(), event())), want)
	}
}
