package webhook_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/platform/serve"
)

// What only a real connection can show: senders that are slow, that announce no
// length or a wrong one, and that send on after they were refused.
func TestBadSendersOnARealConnectionGetAnAnswer(t *testing.T) {
	t.Parallel()
	body := string(samples.Read(samples.OrderCompleted, samples.Event{}))
	big := strings.Repeat(" ", 1<<20+1)
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	for name, test := range map[string]struct {
		headers, sent string
		status        int
		code          string
	}{
		"a sender that stops in the middle": {
			fmt.Sprintf("Content-Length: %d\r\n", len(body)), body[:len(body)/2], http.StatusBadRequest, "body_unread",
		},
		"a sender of chunks that never ends": {
			"Transfer-Encoding: chunked\r\n", chunk(body), http.StatusBadRequest, "body_unread",
		},
		"a chunk that is none":                      {"Transfer-Encoding: chunked\r\n", "mette\r\n", http.StatusBadRequest, "body_unread"},
		"1 MiB and a byte, announced and sent":      {fmt.Sprintf("Content-Length: %d\r\n", len(big)), big, http.StatusRequestEntityTooLarge, "too_large"},
		"1 MiB and a byte, in chunks":               {"Transfer-Encoding: chunked\r\n", chunk(big) + chunk(""), http.StatusRequestEntityTooLarge, "too_large"},
		"no length and no body":                     {"", "", http.StatusUnauthorized, "signature_mismatch"},
		"chunks that end, of a body that is signed": {"Transfer-Encoding: chunked\r\n", chunk(body[:99]) + chunk(body[99:]) + chunk(""), http.StatusAccepted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			listener, err := serve.Listen(t.Context(), "127.0.0.1", "0")
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			patience := time.Minute
			if test.code == "body_unread" {
				patience = time.Second // of which the headers may take what they need
			}
			server := &serve.Server{Name: "test", Handler: d, Log: slog.New(slog.DiscardHandler), Drain: time.Minute, ReadTimeout: patience, Longest: time.Minute}
			go func() { ended <- server.Run(ctx, listener) }()
			defer func() {
				stop()
				require.NoError(t, <-ended)
			}()

			var request strings.Builder
			request.WriteString("POST /webhooks/paynow HTTP/1.1\r\nHost: billhook.test\r\nContent-Type: application/json\r\n" + test.headers)
			require.NoError(t, payNow(t, []byte(body)).Header.WriteSubset(&request, map[string]bool{"Content-Type": true}))
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			go func() { _, _ = io.WriteString(conn, request.String()+"\r\n"+test.sent) }() // it may be cut off
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err)
			defer func() { _ = response.Body.Close() }()
			answer := httptest.NewRecorder()
			answer.Code = response.StatusCode
			for header, values := range response.Header {
				answer.Header()[header] = values
			}
			_, err = io.Copy(answer.Body, response.Body)
			require.NoError(t, err)
			if test.status == http.StatusAccepted {
				require.Equal(t, test.status, answer.Code, "%s", answer.Body)
				return
			}
			requireProblem(t, d, answer, test.status, test.code, "mette")
		})
	}
}
