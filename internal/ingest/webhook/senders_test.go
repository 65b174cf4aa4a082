package webhook_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/filetest"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/platform/signature"
)

type measured struct {
	io.Reader
	read int
	err  error
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	m.read += n
	if errors.Is(err, io.EOF) && m.err != nil {
		err = m.err
	}
	return n, err
}

func (*measured) Close() error { return nil }

// headed is a change of a request's headers, a row of testdata/requests.yaml.
type headed struct {
	What, Without, Method, Path, Code string

	Set, Add map[string]string
	Status   int
	Unread   bool
	also     func(*http.Request) // what YAML cannot hold; may be nil
}

func (h headed) change(r *http.Request) {
	r.Header.Del(h.Without)
	for name, value := range h.Set {
		r.Header.Set(name, value)
	}
	for name, value := range h.Add {
		r.Header.Add(name, value)
	}
	r.Method, r.URL.Path = cmp.Or(h.Method, r.Method), cmp.Or(h.Path, r.URL.Path)
	if h.also != nil {
		h.also(r)
	}
}

// requestCases change a request of PayNow with a body. Those of testdata/requests.yaml change headers.
func requestCases(t *testing.T, body []byte) []headed {
	own, byPayNow := goldens(t, contract.PaymentV1)["order_paid.json"], loaded().Providers["paynow"].Signature
	read := func(body io.Reader) func(*http.Request) {
		return func(r *http.Request) { r.Body = &measured{Reader: body} }
	}
	signed := func(scheme signature.Scheme, path, secret string) func(*http.Request) {
		return func(r *http.Request) {
			other := request(t, path, nil)
			sign(t, other, path, scheme, secret, own)
			r.URL.Path, r.Header, r.Body, r.ContentLength = path, other.Header,
				&measured{Reader: bytes.NewReader(own)}, int64(len(own))
		}
	}
	length := func(n int64) func(*http.Request) { return func(r *http.Request) { r.ContentLength = n } }
	const inside, mismatch = "/queues/paynow-events/messages", "signature_mismatch"
	changed := strings.Replace(string(body), `"quantity": 2`, `"quantity": 9`, 1)
	return append(requests(t).Headers, []headed{
		{What: "as PayNow sends it", Status: 202},
		{What: "a length that is not announced", also: length(-1), Status: 202},
		{What: "too much, announced", also: length(1 << 40), Status: 413, Code: "too_large", Unread: true},
		{What: "a body in single bytes", also: read(iotest.OneByteReader(bytes.NewReader(body))), Status: 202},
		{What: "a body in halves", also: read(iotest.HalfReader(bytes.NewReader(body))), Status: 202},
		{
			What: "a body that fails at its end", Status: 400, Code: "body_unread",
			also: func(r *http.Request) { r.Body = &measured{Reader: bytes.NewReader(body), err: errDown} },
		},
		{What: "a changed body", also: read(strings.NewReader(changed)), Status: 401, Code: mismatch},
		{What: "no JSON, and not signed", also: read(strings.NewReader("{")), Status: 401, Code: mismatch},
		{
			What: "a secret of another source", also: signed(signature.Generic, inside, paynowSecret), Status: 401,
			Code: mismatch,
		},
		{
			What: "a scheme of another source", also: signed(byPayNow, "/webhooks/generic", genericSecret),
			Status: 401, Code: "signature_missing", Unread: true,
		},
		{What: "Standard Webhooks", also: signed(signature.Standard, "/webhooks/acme", genericSecret), Status: 202},
	}...)
}

// A request that is refused by its headers is refused before its body is read.
func TestRequestIsAcceptedOrRefusedByItsHeadersAndSignature(t *testing.T) {
	t.Parallel()
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	for _, test := range requestCases(t, body) {
		d := open(t, func(c *webhook.Config) {
			events := c.Catalog.Sources["generic"].Events
			source("acme", func(s *catalog.Source) {
				*s = catalog.Source{
					Name: "acme", Scheme: catalog.SchemeStandard, SecretVariable: "WEBHOOK_SECRET_ACME",
					MaxBodyBytes: 1 << 20, Events: events,
				}
			})(c)
			c.Secrets["acme"] = []string{genericSecret}
		})
		r := payNow(t, body)
		r.Body = &measured{Reader: bytes.NewReader(body)}
		test.change(r)
		sent, given := r.Body.(*measured), r.Header.Get("PayNow-Signature")
		w := d.send(r)
		if test.Unread {
			require.Zero(t, sent.read, test.What)
		}
		require.Equal(t, test.Status, w.Code, "%s: %s", test.What, w.Body)
		if test.Code == "" {
			require.Len(t, d.broker.all(), 1, test.What)
			continue
		}
		requireProblem(t, d, w, test.Status, test.Code, given)
		if test.Status == http.StatusMethodNotAllowed {
			require.Equal(t, http.MethodPost, w.Header().Get("Allow")) // RFC 9110, 15.5.6
		}
	}
}

// Only a real connection shows slow senders, those that announce no length or a wrong one, and those that go
// on sending after they were refused.
func TestBadSendersOnARealConnectionAreAnswered(t *testing.T) {
	t.Parallel()
	body := string(samples.Read(samples.OrderCompleted, samples.Event{}))
	big := strings.Repeat(" ", 1<<20+1)
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	type row struct {
		headers, sent string
		status        int
		code          string
	}
	filetest.Each(t, map[string]row{
		"a sender that stops in the middle": {
			fmt.Sprintf("Content-Length: %d\r\n", len(body)), body[:len(body)/2], http.StatusBadRequest, "body_unread",
		},
		"chunks that do not end": {
			"Transfer-Encoding: chunked\r\n", chunk(body), http.StatusBadRequest, "body_unread",
		},
		"an invalid chunk": {
			"Transfer-Encoding: chunked\r\n", "mette\r\n", http.StatusBadRequest, "body_unread",
		},
		"1 MiB and a byte, announced and sent": {
			fmt.Sprintf("Content-Length: %d\r\n", len(big)), big, http.StatusRequestEntityTooLarge, "too_large",
		},
		"1 MiB and a byte, in chunks": {
			"Transfer-Encoding: chunked\r\n", chunk(big) + chunk(""), http.StatusRequestEntityTooLarge, "too_large",
		},
		"no length and no body": {"", "", http.StatusUnauthorized, "signature_mismatch"},
		"chunks of a signed body": {
			"Transfer-Encoding: chunked\r\n", chunk(body[:99]) + chunk(body[99:]) + chunk(""), http.StatusAccepted, "",
		},
	}, func(t *testing.T, test row) {
		d := open(t, nil)
		server := httptest.NewUnstartedServer(d)
		server.Config.ReadTimeout = time.Minute
		if test.code == "body_unread" {
			server.Config.ReadTimeout = time.Second // of which the headers take a part
		}
		server.Start()
		defer server.Close()
		var request strings.Builder
		request.WriteString("POST /webhooks/paynow HTTP/1.1\r\nHost: billhook.test\r\nContent-Type: " +
			"application/json\r\n" + test.headers)
		require.NoError(t, payNow(t, []byte(body)).Header.WriteSubset(&request,
			map[string]bool{"Content-Type": true}))
		conn := filetest.Must((&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String()))(t)
		defer func() { _ = conn.Close() }()
		go func() { _, _ = io.WriteString(conn, request.String()+"\r\n"+test.sent) }() // it may be cut off
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		defer func() { _ = response.Body.Close() }()
		answer := httptest.NewRecorder()
		answer.Code = response.StatusCode
		maps.Copy(answer.Header(), response.Header)
		_, err = io.Copy(answer.Body, response.Body)
		require.NoError(t, err)
		if test.code == "" {
			require.Equal(t, test.status, answer.Code, "%s", answer.Body)
			return
		}
		requireProblem(t, d, answer, test.status, test.code, "mette")
	})
}

// flood is the body of a sender that stops before its last byte, and sends it when on is closed.
type flood struct {
	left    int
	stopped chan<- struct{}
	on      <-chan struct{}
}

func (f *flood) Read(p []byte) (int, error) {
	switch n := min(f.left-1, len(p)); {
	case f.left == 0:
		return 0, io.EOF
	case n > 0:
		f.left -= n
		return n, nil
	}
	f.stopped <- struct{}{}
	<-f.on
	f.left--
	return copy(p[:1], " "), nil
}

func (f *flood) Close() error { return nil }

// A well-formed and wrong signature is only found with the whole body. The memory that such senders use
// together is bounded, and freed. An announced length alone uses none.
func TestBodiesInFlightHoldNoMoreThanTheirBudget(t *testing.T) {
	t.Parallel()
	const budget, crowd = 8 << 20, 100
	type row struct {
		announced int64
		size      int
	}
	filetest.Each(t, map[string]row{
		"of an announced length": {1 << 20, 1 << 20}, "in chunks": {-1, 1 << 20},
		"announced, and nothing sent": {1 << 20, 1},
	}, func(t *testing.T, test row) {
		d := open(t, func(c *webhook.Config) {
			unlimited(c)
			c.BodyBudget = budget
		})
		on, settled := make(chan struct{}), make(chan struct{}, 2*crowd)
		end := sync.OnceFunc(func() { close(on) })
		defer end()
		var refused, unsigned atomic.Int64
		var group sync.WaitGroup
		for range crowd {
			r := payNow(t, []byte("{}")) // of which this is the signature
			r.Body, r.ContentLength = &flood{left: test.size, stopped: settled, on: on}, test.announced
			group.Go(func() {
				switch w := d.send(r); {
				case w.Code == http.StatusServiceUnavailable && strings.Contains(w.Body.String(), "bodies_in_flight") &&
					w.Header().Get("Retry-After") != "":
					refused.Add(1)
				case w.Code == http.StatusUnauthorized:
					unsigned.Add(1)
				}
				settled <- struct{}{}
			})
		}
		for range crowd {
			<-settled // each has been answered, or has sent all but a byte and stopped
		}
		waiting := crowd - refused.Load()
		require.LessOrEqual(t, waiting*int64(test.size-1), int64(budget))
		require.Positive(t, waiting, "some are in the budget")
		require.Equal(t, test.size == 1, waiting == crowd, "a sender that sends nothing uses no memory")
		const refusals = `billhook_webhooks_total{reason="bodies_in_flight",source="paynow",status="503"}`
		require.Equal(t, test.size > 1, strings.Contains(d.scrape(t), refusals))
		end()
		group.Wait()
		require.Equal(t, int64(crowd), refused.Load()+unsigned.Load())
		order := webhooktest.Order(1<<20 - 4096)
		for range 2 * budget >> 20 { // the whole budget is free again for large bodies, also after panics
			d.broker.before = func(context.Context, contract.Message) error { panic("down") }
			require.Equal(t, http.StatusInternalServerError, d.send(payNow(t, order)).Code)
			d.broker.before = nil
			accepted(t, d, payNow(t, order))
		}
	})
}
