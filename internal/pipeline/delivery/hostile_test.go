package delivery_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/filetest"
	"billhook/internal/pipeline/delivery"
	"billhook/internal/platform/store/storetest"
	"billhook/internal/retry"
)

func TestMain(m *testing.M) { storetest.Main(m) }

func listen(t testing.TB) net.Listener {
	t.Helper()
	return filetest.Must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
}

// raw serves connections by answer, until the test ends.
func raw(t testing.TB, answer func(net.Conn)) string {
	t.Helper()
	listener, ended := listen(t), make(chan struct{})
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

// request reads a request to its end, because a connection that is closed before that is reset.
func request(conn net.Conn) {
	if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
}

func silent(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func drip(more string) func(net.Conn) {
	return func(conn net.Conn) {
		closed := make(chan struct{})
		go func() { defer close(closed); silent(conn) }()
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

var chunk = bytes.Repeat([]byte("x"), 64<<10)

func flood(c net.Conn) { endless(c, chunk) }

// serving starts a hostile target, and returns its URL and, for TLS, a client that trusts it.
type serving func(*testing.T) (string, *http.Client)

func overTLS(h http.HandlerFunc) serving {
	return func(t *testing.T) (string, *http.Client) {
		server := httptest.NewUnstartedServer(h)
		server.EnableHTTP2 = true
		server.StartTLS()
		t.Cleanup(server.Close)
		return server.URL, server.Client()
	}
}

func plain(scheme string, answer func(net.Conn)) serving {
	return func(t *testing.T) (string, *http.Client) { return scheme + "://" + raw(t, answer), nil }
}

func says(first string, then func(net.Conn)) serving {
	return plain("http", func(c net.Conn) {
		request(c)
		_, _ = io.WriteString(c, first)
		if then != nil {
			then(c)
		}
	})
}

func refused(t *testing.T) (string, *http.Client) {
	listener := listen(t)
	require.NoError(t, listener.Close())
	return "http://" + listener.Addr().String(), nil
}

func untrusted(t *testing.T) (string, *http.Client) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // it logs the refusal
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL, nil
}

const (
	ok      = "HTTP/1.1 200 OK\r\n"
	chunked = ok + "Transfer-Encoding: chunked\r\n\r\n"
	found   = "HTTP/1.1 302 Found\r\nConnection: close\r\nContent-Length: 0\r\nLocation: "
	hints   = "HTTP/1.1 103 Early Hints\r\nX-A: a\r\n\r\n"
	upgrade = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tea\r\n\r\n"

	accepted    = "-"
	late        = "delivery: no answer: context deadline exceeded"
	unreachable = "callee_unreachable"
	tooLong     = "callee_answer_too_long"
)

type hostile struct {
	serve serving
	// want is the error's text without a MaxAnswer, and wanting with one, if it differs.
	want, wanting string
}

func hostileTargets() map[string]hostile {
	header := func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", string(chunk)) }
	return map[string]hostile{
		"it reads nothing":            {plain("http", silent), late, ""},
		"it hangs before headers":     {says("", silent), late, ""},
		"it trickles headers":         {says(ok+"X-A: ", drip("a")), late, ""},
		"its headers do not end":      {says(ok+"X-A: ", flood), unreachable, ""},
		"its early hints do not end":  {says("", func(c net.Conn) { endless(c, []byte(hints)) }), unreachable, ""},
		"it trickles a body":          {says(ok+"Content-Length: 1000000\r\n\r\n", drip("a")), accepted, tooLong},
		"it trickles chunks":          {says(chunked, drip("1\r\na\r\n")), accepted, late},
		"it answers a gigabyte":       {says(ok+"Content-Length: 1073741824\r\n\r\n", flood), accepted, tooLong},
		"its body does not end":       {says(ok+"\r\n", flood), accepted, tooLong},
		"a chunk's name does not end": {says(chunked+"1;", flood), accepted, unreachable},
		"it redirects to metadata": {
			says(found+"http://169.254.169.254/v1/\r\n\r\n", nil), "callee_redirects_302", "",
		},
		"it redirects to nowhere":      {says(found+"http://hush:%zz/\r\n\r\n", nil), unreachable, ""},
		"it hangs in another protocol": {says(upgrade, silent), "callee_unclear_101", ""},
		"it resets": {
			says("", func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }),
			unreachable + ": connection reset by peer", "",
		},
		"it closes without an answer": {says("", nil), unreachable + ": unexpected EOF", ""},
		"it does not speak HTTP":      {says("hush hush\r\n\r\n", nil), unreachable, ""},
		"its header is invalid":       {says(ok+"hush hush\r\n\r\n", nil), unreachable, ""},
		"nobody listens":              {refused, unreachable + ": connection refused", ""},
		"its certificate is unknown":  {untrusted, unreachable + ": certificate not accepted", ""},
		"it does not speak TLS": {plain("https", func(c net.Conn) {
			_, _ = c.Read(make([]byte, 64<<10))
			_, _ = c.Write(chunk)
		}), unreachable, ""},
		"it hangs in TLS": {plain("https", silent), unreachable, ""},
		"it floods a stream": {
			overTLS(func(w http.ResponseWriter, _ *http.Request) { endless(w, chunk) }), accepted, tooLong,
		},
		"it hangs in a stream": {
			overTLS(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), late, "",
		},
		"its header is a flood": {overTLS(header), unreachable, ""},
	}
}

// It does not run in parallel, because it counts the bytes that the process allocates.
//
//nolint:paralleltest // see above
func TestHostileTargetTakesNoMoreThanItsTimeAndItsBytes(t *testing.T) {
	const most = 64 << 10
	for name, test := range hostileTargets() {
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
				roots := client.Transport.(*http.Transport).TLSClientConfig.RootCAs
				config.Transport = delivery.Transport(declared, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12})
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
				if want == accepted {
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, answer.Status)
					continue
				}
				require.EqualError(t, err, want)
				require.True(t, retry.Decide(err).Counts, "it is an attempt")
			}
		})
	}
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func TestTargetThatClosesConnectionsGetsEachCallOnce(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	address := raw(t, func(c net.Conn) {
		request(c)
		requests.Add(1)
		_, _ = io.WriteString(c, ok+"Content-Length: 0\r\n\r\n") // it does not announce the close
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
		// It closed during the request, whose outcome is then unknown.
		require.Equal(t, "callee_unreachable", retry.Decide(err).Reason)
	}
	require.Equal(t, answered, requests.Load(), "net/http does not send again")
	require.Positive(t, answered)
}

// net/http announces these settings to a target as the most that it may send before it is read.
func TestUnreadStreamIsSmall(t *testing.T) {
	t.Parallel()
	settings := delivery.Transport(service, nil).HTTP2
	require.Equal(t, 64<<10, settings.MaxReceiveBufferPerStream)
	require.Equal(t, 1<<20, settings.MaxReceiveBufferPerConnection)
}
