package delivery_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		"a body within the bound": {
			say(200, "12345", false), 5, delivery.Answer{Status: 200, Body: []byte("12345")}, "",
		},
		"a body beyond it, of unknown length": {
			say(200, "123456", true), 5, delivery.Answer{Status: 200}, "callee_answer_too_long",
		},
		"a body that nobody wants": {say(200, "123456", false), 0, delivery.Answer{Status: 200}, ""},
		"no body":                  {say(200, "", false), 5, delivery.Answer{Status: 200, Body: []byte{}}, ""},
		"a refusal with its reasons": {
			say(402, "12345", true), 5, delivery.Answer{Status: 402, Body: []byte("12345")}, "callee_refused_402",
		},
		"a refusal with too many of them": {
			say(402, "123456", true), 5, delivery.Answer{Status: 402}, "callee_refused_402",
		},
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
		answer, err := target(t, test.answer).Call(t.Context(),
			delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: test.most})
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
			document, `{"type":"https://pay.example/limits","title":"The limit is reached","status":422,` +
				`"code":"limit_reached","detail":"of Ilse","instance":"/x"}`,
			`type "https://pay.example/limits", code "limit_reached", title "The limit is reached"`,
		},
		"its title alone": {document + "; charset=utf-8", `{"title":"No plan gold"}`, `title "No plan gold"`},
		"an address": {
			document, `{"title":"ilse@example.org is unknown","code":"unknown"}`,
			`code "unknown", title left out: email`,
		},
		"a card": {document, `{"title":"card 4111 1111 1111 1111 is refused"}`, `title left out: card`},
		"what moves the cursor": {
			document, `{"title":"\u001b[2Jfine"}`, `title left out: it does not print`,
		},
		"what reverses the text": {
			document, `{"title":"a\u202eb"}`, `title left out: it does not print`,
		},
		"a novel": {
			document, `{"title":"` + strings.Repeat("ä", 150) + `"}`, `title "` + strings.Repeat("ä", 100) + `"...`,
		},
		"a book":               {document, `{"title":"` + strings.Repeat("a", 9<<10) + `"}`, ``},
		"numbers for texts":    {document, `{"type":1,"code":["a"],"title":null}`, ``},
		"nothing":              {document, ``, ``},
		"no object":            {document, `"limit_reached"`, ``},
		"a body of no problem": {"application/json", `{"title":"The limit is reached"}`, ``},
	} {
		refuses := target(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", test.contentType)
			w.WriteHeader(http.StatusUnprocessableEntity)
			_, _ = fmt.Fprint(w, test.body)
		})
		for _, most := range []int64{0, 16 << 10} {
			_, err := refuses.Call(t.Context(),
				delivery.Request{Method: http.MethodPost, ID: "evt-1", MaxAnswer: most})
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
	for _, host := range []string{
		"127.0.0.1", "localhost", "0x7f.1", "2130706433", "0", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::1]",
		"[::]", "[::127.0.0.1]",
	} {
		_, err = at(t, delivery.Config{Target: declared, BaseURL: "http://" + host + ":" + port}).Post(payment).
			Do(t.Context(), event())
		require.ErrorContains(t, err, "callee_unreachable", host)
		require.Equal(t, retry.Unavailable, retry.Decide(err).Class)
		if host == "127.0.0.1" || host == "localhost" {
			require.EqualError(t, err, "callee_unreachable: address not public", "after the name is resolved")
		}
	}
	require.False(t, asked.Load())
	for address, want := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "2001:4860:4860::8888": true,
		"::ffff:93.184.216.34": true,
		"127.0.0.1":            false, "10.1.2.3": false, "172.16.0.1": false, "192.168.1.1": false,
		"169.254.169.254": false,
		"100.64.0.1":      false,
		"0.0.0.0":         false, "0.1.2.3": false, "224.0.0.1": false, "255.255.255.255": false,
		"198.18.0.1": false,
		"192.0.0.8":  false, "192.0.2.1": false,
		"::1": false, "::": false, "fd00::1": false, "fd20:ce::254": false, "fe80::1": false, "fe80::1%eth0": false,
		"fec0::1": false, "ff02::1": false,
		"::ffff:127.0.0.1": false, "::ffff:100.64.0.1": false, "::ffff:0:127.0.0.1": false, "::127.0.0.1": false,
		"::a9fe:a9fe":     false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::a9fe:a9fe": false, "2002:7f00:1::": false, "2001:0:7f00:1::": false,
		"2001:db8::1": false,
		"3fff::1":     false, "100::1": false, "5f00::1": false, "2606:2800:220:1::1%eth0": false,
	} {
		require.Equal(t, want, delivery.Public(netip.MustParseAddr(address)), address)
	}
	require.False(t, delivery.Public(netip.Addr{}))
}

func TestWhatIsMissingForATargetIsReportedAtOnceAndWithoutItsSecret(t *testing.T) {
	t.Parallel()
	of := func(name string) catalog.Target {
		upper := strings.ToUpper(name)
		return catalog.Target{
			Name: name, URLVariable: upper + "_URL", SecretVariable: upper + "_SECRET", Scheme: catalog.SchemeGeneric,
			Timeouts: catalog.Timeouts{Connect: 1, Total: 1},
		}
	}
	c := &catalog.Catalog{
		Targets: map[string]catalog.Target{
			"here": of("here"), "lost": of("lost"), "weak": of("weak"), "idle": of("idle"),
		},
		Queues: []catalog.Queue{
			{ID: "q", Enabled: true, Pool: "p", Handlers: map[string]catalog.Handler{
				"a": {Name: "a", Post: catalog.Post{Target: "here"}},
				"b": {Name: "b", Post: catalog.Post{Target: "lost"}},
				"c": {Name: "c", Post: catalog.Post{Target: "weak"}},
			}},
			{ID: "off", Handlers: map[string]catalog.Handler{"d": {Name: "d", Post: catalog.Post{Target: "idle"}}}},
		},
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

// raw serves connections as a test says, until it ends.
func raw(t testing.TB, answer func(net.Conn)) string {
	t.Helper()
	listener := filetest.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				answer(conn)
			}()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-ended })
	return listener.Addr().String()
}

// request reads a request to its end: a connection that is closed before that is reset.
func request(conn net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

func gone(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func drip(more string) func(net.Conn) {
	return func(conn net.Conn) {
		closed := make(chan struct{})
		go func() { defer close(closed); gone(conn) }()
		every := time.NewTicker(5 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-every.C:
				_, _ = io.WriteString(conn, more)
			case <-closed:
				return
			}
		}
	}
}

func endless(w io.Writer, chunk []byte) {
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// It is alone, since it counts what the process allocates.
//
//nolint:paralleltest // see above
func TestATargetThatMeansHarmTakesNoMoreThanItsTimeAndItsBytes(t *testing.T) {
	const most = 64 << 10
	chunk := make([]byte, 64<<10)
	for i := range chunk {
		chunk[i] = 'x'
	}
	over2 := func(h http.HandlerFunc) func(*testing.T) (string, *http.Client) {
		return func(t *testing.T) (string, *http.Client) {
			server := httptest.NewUnstartedServer(h)
			server.EnableHTTP2 = true
			server.StartTLS()
			t.Cleanup(server.Close)
			return server.URL, server.Client()
		}
	}
	plain := func(answer func(net.Conn)) func(*testing.T) (string, *http.Client) {
		return func(t *testing.T) (string, *http.Client) { return "http://" + raw(t, answer), nil }
	}
	says := func(first string, then func(net.Conn)) func(*testing.T) (string, *http.Client) {
		return plain(func(c net.Conn) {
			request(c)
			_, _ = io.WriteString(c, first)
			if then != nil {
				then(c)
			}
		})
	}
	flood := func(c net.Conn) { endless(c, chunk) }
	const (
		ok              = "HTTP/1.1 200 OK\r\n"
		found           = "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\nLocation: "
		late            = "delivery: no answer: context deadline exceeded"
		unreachable     = "callee_unreachable"
		tooLong         = "callee_answer_too_long"
		hints, switches = "HTTP/1.1 103 Early Hints\r\nX-A: a\r\n\r\n",
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tea\r\n\r\n"
	)
	for name, test := range map[string]struct {
		serve func(*testing.T) (string, *http.Client)
		// want is the error's text where MaxAnswer is 0 and where it is most.
		want, wanting string
	}{
		"it takes nothing":        {plain(gone), late, ""},
		"it hangs before headers": {says("", gone), late, ""},
		"it trickles headers":     {says(ok+"X-A: ", drip("a")), late, ""},
		"its headers do not end":  {says(ok+"X-A: ", flood), unreachable, ""},
		"it asks for patience for ever": {
			says("", func(c net.Conn) { endless(c, []byte(hints)) }), unreachable, "",
		},
		"it trickles a body": {says(ok+"Content-Length: 1000000\r\n\r\n", drip("a")), "-", tooLong},
		"it trickles a body in pieces": {
			says(ok+"Transfer-Encoding: chunked\r\n\r\n", drip("1\r\na\r\n")), "-", late,
		},
		"it answers a gigabyte":     {says(ok+"Content-Length: 1073741824\r\n\r\n", flood), "-", tooLong},
		"it answers without an end": {says(ok+"\r\n", flood), "-", tooLong},
		"it answers in pieces of endless names": {
			says(ok+"Transfer-Encoding: chunked\r\n\r\n1;", flood), "-", unreachable,
		},
		"it redirects to metadata": {
			says(found+"http://169.254.169.254/computeMetadata/v1/\r\n\r\n", nil), "callee_redirects_302", "",
		},
		"it redirects to nowhere": {says(found+"http://hush:%zz/\r\n\r\n", nil), unreachable, ""},
		"it switches protocols, and then says nothing": {
			says(switches, gone), "callee_unclear_101", "",
		},
		"it resets": {
			says("", func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }),
			unreachable + ": connection reset by peer", "",
		},
		"it closes in silence": {says("", nil), unreachable + ": unexpected EOF", ""},
		"it speaks no HTTP":    {says("hush hush\r\n\r\n", nil), unreachable, ""},
		"its header is none":   {says(ok+"hush hush\r\n\r\n", nil), unreachable, ""},
		"nobody listens": {func(t *testing.T) (string, *http.Client) {
			listener := filetest.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
			require.NoError(t, listener.Close())
			return "http://" + listener.Addr().String(), nil
		}, unreachable + ": connection refused", ""},
		"it has a certificate of its own": {func(t *testing.T) (string, *http.Client) {
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			server.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs the refusal
			server.StartTLS()
			t.Cleanup(server.Close)
			return server.URL, nil
		}, unreachable + ": certificate not accepted", ""},
		"it speaks no TLS": {func(t *testing.T) (string, *http.Client) {
			return "https://" + raw(t, func(c net.Conn) {
				_, _ = c.Read(make([]byte, 64<<10))
				_, _ = c.Write(chunk)
			}), nil
		}, unreachable, ""},
		"it hangs in TLS": {
			func(t *testing.T) (string, *http.Client) { return "https://" + raw(t, gone), nil }, unreachable, "",
		},
		"it floods a stream": {
			over2(func(w http.ResponseWriter, _ *http.Request) { endless(w, chunk) }), "-", tooLong,
		},
		"it hangs in a stream": {
			over2(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), late, "",
		},
		"its headers are a flood": {
			over2(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", string(chunk)) }),
			unreachable, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			url, client := test.serve(t)
			declared := service
			if test.want == late || test.wanting == late {
				declared.Timeouts.Total = 300 * time.Millisecond
			}
			if name == "it hangs in TLS" {
				declared.Timeouts.Connect = 100 * time.Millisecond
			}
			withPassword := strings.Replace(url, "://", "://alice:hush@", 1) // which no error repeats
			config := delivery.Config{Target: declared, BaseURL: withPassword}
			if client != nil { // our own transport, and its certificate
				trust := &tls.Config{
					RootCAs: client.Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12,
				}
				config.Transport = delivery.Transport(declared, trust)
			}
			target := at(t, config)
			for _, wanted := range []int64{0, most} {
				before := allocated()
				answer, err := target.Call(context.Background(),
					delivery.Request{Method: http.MethodPost, ID: "evt-1", Body: []byte("{}"), MaxAnswer: wanted})
				require.Less(t, allocated()-before, uint64(8<<20), "bytes")
				require.LessOrEqual(t, len(answer.Body), most)
				want := test.want
				if wanted > 0 && test.wanting != "" {
					want = test.wanting
				}
				switch want {
				case "-":
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, answer.Status)
				default:
					require.EqualError(t, err, want)
					require.True(t, retry.Decide(err).Counts, "it is an attempt")
				}
			}
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestATargetThatClosesKeptConnectionsIsAskedOnceForEachCall(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	address := raw(t, func(c net.Conn) {
		request(c)
		asked.Add(1)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") // and says nothing of closing
	})
	target := at(t, delivery.Config{BaseURL: "http://" + address})
	answered := int64(0)
	for range 50 {
		_, err := target.Call(t.Context(),
			delivery.Request{Method: http.MethodPost, ID: "evt-1", Body: []byte("{}")})
		if err == nil {
			answered++
			continue
		}
		// It closed while we sent, so that we do not know.
		require.Equal(t, "callee_unreachable", retry.Decide(err).Reason)
	}
	require.Equal(t, answered, asked.Load(), "nothing below us sends again")
	require.Positive(t, answered)
}

// What a target may send before anybody reads it is what net/http tells it of these settings.
func TestAStreamThatNobodyReadsIsSmall(t *testing.T) {
	t.Parallel()
	settings := delivery.Transport(service, nil).HTTP2
	require.Equal(t, []int{64 << 10, 1 << 20},
		[]int{settings.MaxReceiveBufferPerStream, settings.MaxReceiveBufferPerConnection})
}
