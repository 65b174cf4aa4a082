package delivery_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/filetest"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

// target is one without limits, whose answers a test gives.
func target(t testing.TB, answer http.HandlerFunc) *delivery.Target {
	t.Helper()
	return at(t, delivery.Config{BaseURL: callee(t, answer)})
}

func TestACallReturnsNoMoreThanWasAskedFor(t *testing.T) {
	t.Parallel()
	say := func(status int, body string, chunked bool) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if !chunked {
				w.Header().Set("Content-Length", strconv.Itoa(len(body)))
			}
			w.WriteHeader(status)
			_ = http.NewResponseController(w).Flush()
			_, _ = io.WriteString(w, body)
		}
	}
	type row struct {
		answer http.HandlerFunc
		most   int64
		want   delivery.Answer
		reason string
	}
	filetest.Each(t, map[string]row{
		"a body within the bound":             {say(200, "12345", false), 5, delivery.Answer{Status: 200, Body: []byte("12345")}, ""},
		"a body beyond it, of unknown length": {say(200, "123456", true), 5, delivery.Answer{Status: 200}, "callee_answer_too_long"},
		"a body that nobody wants":            {say(200, "123456", false), 0, delivery.Answer{Status: 200}, ""},
		"no body":                             {say(200, "", false), 5, delivery.Answer{Status: 200, Body: []byte{}}, ""},
		"a refusal with its reasons":          {say(402, "12345", true), 5, delivery.Answer{Status: 402, Body: []byte("12345")}, "callee_refused_402"},
		"a refusal with too many of them":     {say(402, "123456", true), 5, delivery.Answer{Status: 402}, "callee_refused_402"},
		"a body that breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "123")
		}, 5, delivery.Answer{}, "callee_unreachable"},
		"a refusal that breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "5")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "123")
		}, 5, delivery.Answer{Status: 502}, "callee_failed_502"},
	}, func(t *testing.T, test row) {
		answer, err := target(t, test.answer).Call(t.Context(), delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: test.most})
		require.Equal(t, test.want, answer)
		if test.reason == "" {
			require.NoError(t, err)
			return
		}
		require.Equal(t, test.reason, retry.Decide(err).Reason)
		require.NotContains(t, err.Error(), "123", "nothing of a body is repeated")
	})
}

func TestWhatARefusalSaysIsKeptAsFarAsItMay(t *testing.T) {
	t.Parallel()
	const document = "application/problem+json"
	for name, test := range map[string]struct{ contentType, body, said string }{
		"all of it": {
			document, `{"type":"https://pay.example/limits","title":"The limit is reached","status":422,"code":"limit_reached","detail":"of Ilse","instance":"/x"}`,
			`type "https://pay.example/limits", code "limit_reached", title "The limit is reached"`,
		},
		"its title alone":        {document + "; charset=utf-8", `{"title":"No plan gold"}`, `title "No plan gold"`},
		"an address":             {document, `{"title":"ilse@example.org is unknown","code":"unknown"}`, `code "unknown", title left out: email`},
		"a card":                 {document, `{"title":"card 4111 1111 1111 1111 is refused"}`, `title left out: card`},
		"what moves the cursor":  {document, `{"title":"\u001b[2Jfine"}`, `title left out: it does not print`},
		"what reverses the text": {document, `{"title":"a\u202eb"}`, `title left out: it does not print`},
		"a novel":                {document, `{"title":"` + strings.Repeat("ä", 150) + `"}`, `title "` + strings.Repeat("ä", 100) + `"...`},
		"a book":                 {document, `{"title":"` + strings.Repeat("a", 9<<10) + `"}`, ``},
		"numbers for texts":      {document, `{"type":1,"code":["a"],"title":null}`, ``},
		"nothing":                {document, ``, ``},
		"no object":              {document, `"limit_reached"`, ``},
		"a body of no problem":   {"application/json", `{"title":"The limit is reached"}`, ``},
	} {
		refuses := target(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.contentType)
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, test.body)
		})
		for _, most := range []int64{0, 16 << 10} {
			_, err := refuses.Call(t.Context(), delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: most})
			require.EqualError(t, err, "callee_refused_422", "the text of the error holds nothing of it")
			if most == 0 || name != "a book" { // of an answer that is wanted more is read
				require.Equal(t, test.said, retry.Said(err), name)
			}
		}
	}
}

func TestOnlyAnInternalTargetIsDialledAtAPrivateAddress(t *testing.T) {
	t.Parallel()
	var asked atomic.Bool
	url := callee(t, func(http.ResponseWriter, *http.Request) { asked.Store(true) })
	declared := service
	declared.Internal = false
	_, port, err := net.SplitHostPort(strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost", "0x7f.1", "2130706433", "0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1]", "[::]", "[::127.0.0.1]"} {
		_, err = at(t, delivery.Config{Target: declared, BaseURL: "http://" + host + ":" + port}).Post(payment).Do(t.Context(), event())
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

func TestWhatIsMissingForATargetIsReportedAtOnceAndWithoutItsSecret(t *testing.T) {
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
	targets := filetest.Must(delivery.Open(c, "another", place, clock))(t)
	require.Empty(t, targets, "a pool needs its own targets alone")
	targets.Close()
}

func TestMain(m *testing.M) { storetest.Main(m) }
