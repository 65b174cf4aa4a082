package delivery_test

import (
	"bufio"
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
	"billhook/internal/retry"
)

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
		hints, switches = "HTTP/1.1 103 Early Hints\r\nX-A: a\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tea\r\n\r\n"
	)
	for name, test := range map[string]struct {
		serve func(*testing.T) (string, *http.Client)
		// want is the error's text where MaxAnswer is 0 and where it is most.
		want, wanting string
	}{
		"it takes nothing":                             {plain(gone), late, ""},
		"it hangs before headers":                      {says("", gone), late, ""},
		"it trickles headers":                          {says(ok+"X-A: ", drip("a")), late, ""},
		"its headers do not end":                       {says(ok+"X-A: ", flood), unreachable, ""},
		"it asks for patience for ever":                {says("", func(c net.Conn) { endless(c, []byte(hints)) }), unreachable, ""},
		"it trickles a body":                           {says(ok+"Content-Length: 1000000\r\n\r\n", drip("a")), "-", tooLong},
		"it trickles a body in pieces":                 {says(ok+"Transfer-Encoding: chunked\r\n\r\n", drip("1\r\na\r\n")), "-", late},
		"it answers a gigabyte":                        {says(ok+"Content-Length: 1073741824\r\n\r\n", flood), "-", tooLong},
		"it answers without an end":                    {says(ok+"\r\n", flood), "-", tooLong},
		"it answers in pieces of endless names":        {says(ok+"Transfer-Encoding: chunked\r\n\r\n1;", flood), "-", unreachable},
		"it redirects to metadata":                     {says(found+"http://169.254.169.254/computeMetadata/v1/\r\n\r\n", nil), "callee_redirects_302", ""},
		"it redirects to nowhere":                      {says(found+"http://hush:%zz/\r\n\r\n", nil), unreachable, ""},
		"it switches protocols, and then says nothing": {says(switches, gone), "callee_unclear_101", ""},
		"it resets":                                    {says("", func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) }), unreachable + ": connection reset by peer", ""},
		"it closes in silence":                         {says("", nil), unreachable + ": unexpected EOF", ""},
		"it speaks no HTTP":                            {says("hush hush\r\n\r\n", nil), unreachable, ""},
		"its header is none":                           {says(ok+"hush hush\r\n\r\n", nil), unreachable, ""},
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
			return "https://" + raw(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 64<<10)); _, _ = c.Write(chunk) }), nil
		}, unreachable, ""},
		"it hangs in TLS":         {func(t *testing.T) (string, *http.Client) { return "https://" + raw(t, gone), nil }, unreachable, ""},
		"it floods a stream":      {over2(func(w http.ResponseWriter, _ *http.Request) { endless(w, chunk) }), "-", tooLong},
		"it hangs in a stream":    {over2(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), late, ""},
		"its headers are a flood": {over2(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", string(chunk)) }), unreachable, ""},
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
				trust := &tls.Config{RootCAs: client.Transport.(*http.Transport).TLSClientConfig.RootCAs, MinVersion: tls.VersionTLS12}
				config.Transport = delivery.Transport(declared, trust)
			}
			target := at(t, config)
			for _, wanted := range []int64{0, most} {
				before := allocated()
				answer, err := target.Call(context.Background(), delivery.Request{Method: http.MethodPost, ID: "evt-1", Body: []byte("{}"), MaxAnswer: wanted})
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
		_, err := target.Call(t.Context(), delivery.Request{Method: http.MethodPost, ID: "evt-1", Body: []byte("{}")})
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
	require.Equal(t, []int{64 << 10, 1 << 20}, []int{settings.MaxReceiveBufferPerStream, settings.MaxReceiveBufferPerConnection})
}
