package webhook_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/catalog"
	"billhook/internal/contract"
	"billhook/internal/ingest/webhook"
	"billhook/internal/ingest/webhook/samples"
	"billhook/internal/ingest/webhook/webhooktest"
	"billhook/internal/platform/signature"
)

// crowd is how many senders attack at once, and each has a megabyte to send.
const crowd = 600

// scrape returns the service's metrics.
func (d *door) scrape(tb testing.TB) string {
	tb.Helper()
	page := httptest.NewRecorder()
	d.metrics.Handler().ServeHTTP(page, httptest.NewRequestWithContext(tb.Context(), http.MethodGet, "/metrics", http.NoBody))
	return page.Body.String()
}

// flood is the body of a sender that stops before its last byte.
type flood struct {
	size int
	// sent is how much was taken of it.
	sent atomic.Int64
	// stopped is called when all but the last byte has been taken.
	stopped func()
	// on lets it end.
	on <-chan struct{}
}

func (f *flood) Read(p []byte) (int, error) {
	left := f.size - 1 - int(f.sent.Load())
	if left > 0 {
		n := min(left, len(p))
		f.sent.Add(int64(n))
		return n, nil
	}
	if left < 0 {
		return 0, io.EOF
	}
	f.stopped()
	<-f.on
	f.sent.Add(1)
	return copy(p[:1], " "), nil
}

func (f *flood) Close() error { return nil }

// Senders without a signature, with one that no scheme has, and with one of another
// time are refused by their headers: of their megabytes nothing is read.
func TestWhatTheHeadersRefuseCostsNoByteOfItsBody(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(http.Header)
		status int
		code   string
	}{
		"no signature header": {func(h http.Header) { h.Del("PayNow-Signature") }, http.StatusUnauthorized, "signature_missing"},
		"no timestamp":        {func(h http.Header) { h.Del("PayNow-Timestamp") }, http.StatusUnauthorized, "signature_missing"},
		"no base64":           {func(h http.Header) { h.Set("PayNow-Signature", "nonsense") }, http.StatusUnauthorized, "signature_malformed"},
		"two signatures":      {func(h http.Header) { h.Add("PayNow-Signature", "nonsense") }, http.StatusUnauthorized, "signature_malformed"},
		"no number":           {func(h http.Header) { h.Set("PayNow-Timestamp", "yesterday") }, http.StatusUnauthorized, "signature_malformed"},
		"another year's":      {func(h http.Header) { h.Set("PayNow-Timestamp", "1735689600000") }, http.StatusUnauthorized, "timestamp_too_old"},
		"of the future":       {func(h http.Header) { h.Set("PayNow-Timestamp", "1900000000000") }, http.StatusUnauthorized, "timestamp_too_new"},
		"no content type":     {func(h http.Header) { h.Del("Content-Type") }, http.StatusUnsupportedMediaType, "content_type"},
		"a packed body":       {func(h http.Header) { h.Set("Content-Encoding", "gzip") }, http.StatusUnsupportedMediaType, "content_encoding"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			ends := make(chan struct{})
			close(ends)
			var read atomic.Int64
			var group sync.WaitGroup
			for range crowd {
				body := &flood{size: 1 << 20, stopped: func() {}, on: ends}
				r := payNow(t, []byte("{}"))
				r.Body, r.ContentLength = body, int64(body.size)
				test.change(r.Header)
				group.Go(func() {
					w := d.send(r)
					if w.Code != test.status || !strings.Contains(w.Body.String(), `"code":"`+test.code+`"`) {
						t.Errorf("%d %s", w.Code, w.Body)
					}
					read.Add(body.sent.Load())
				})
			}
			group.Wait()
			require.Zero(t, read.Load())
		})
	}
}

// A signature that is well-formed and wrong can only be found out with the whole body.
// What such senders make the service hold together is bounded, and given back.
func TestBodiesInFlightHoldNoMoreThanTheirBudget(t *testing.T) {
	t.Parallel()
	const budget = 8 << 20
	for name, announced := range map[string]int64{"of an announced length": 1 << 20, "in chunks": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := open(t, func(c *webhook.Config) {
				unlimited(c)
				c.BodyBudget = budget
			})
			on := make(chan struct{})
			end := sync.OnceFunc(func() { close(on) })
			defer end()
			settled := make(chan struct{}, 2*crowd)
			type sender struct {
				body   *flood
				answer atomic.Pointer[httptest.ResponseRecorder]
			}
			senders := make([]sender, crowd)
			var group sync.WaitGroup
			for i := range senders {
				s := &senders[i]
				s.body = &flood{size: 1 << 20, stopped: func() { settled <- struct{}{} }, on: on}
				r := payNow(t, []byte("{}")) // of which this is the signature
				r.Body, r.ContentLength = s.body, announced
				group.Go(func() {
					s.answer.Store(d.send(r))
					settled <- struct{}{}
				})
			}
			for range senders {
				<-settled
			}
			// Each has been answered, or has sent what it would and stopped.
			var held int64
			waiting := 0
			for i := range senders {
				w := senders[i].answer.Load()
				if w == nil {
					waiting++
					held += senders[i].body.sent.Load()
					continue
				}
				require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s", w.Body)
				require.Contains(t, w.Body.String(), `"code":"bodies_in_flight"`)
				require.NotEmpty(t, w.Header().Get("Retry-After"))
			}
			require.LessOrEqual(t, held, int64(budget))
			require.Positive(t, waiting, "there is room for some")
			require.Contains(t, d.scrape(t), `billhook_webhooks_total{reason="bodies_in_flight",source="paynow",status="503"}`)

			end()
			group.Wait()
			for i := range senders {
				w := senders[i].answer.Load()
				if w.Code != http.StatusServiceUnavailable {
					require.Equal(t, http.StatusUnauthorized, w.Code, "%s", w.Body)
				}
			}
			// The whole budget is free again for large bodies.
			order := webhooktest.Order(1<<20 - 4096)
			for range 2 * budget >> 20 {
				w := d.send(payNow(t, order))
				require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
			}
		})
	}
}

// A sender that announces a megabyte and sends nothing takes no room from other senders.
func TestAnAnnouncedLengthHoldsNothing(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) {
		unlimited(c)
		c.BodyBudget = 8 << 20
	})
	on := make(chan struct{})
	end := sync.OnceFunc(func() { close(on) })
	defer end()
	settled := make(chan struct{}, 2*crowd)
	var refused atomic.Int64
	var group sync.WaitGroup
	for range crowd {
		r := payNow(t, []byte("{}"))
		r.Body, r.ContentLength = &flood{size: 1, stopped: func() { settled <- struct{}{} }, on: on}, 1<<20
		group.Go(func() {
			if d.send(r).Code == http.StatusServiceUnavailable {
				refused.Add(1)
			}
			settled <- struct{}{}
		})
	}
	for range crowd {
		<-settled
	}
	require.Zero(t, refused.Load())
	w := d.send(payNow(t, webhooktest.Order(1<<20-4096)))
	require.Equal(t, http.StatusAccepted, w.Code, "%s", w.Body)
	end()
	group.Wait()
}

// panicking is a broker that panics.
type panicking struct{}

func (panicking) Publish(context.Context, string, contract.Message) (string, error) { panic("down") }

func TestAPanicGivesBackWhatItsBodyHeld(t *testing.T) {
	t.Parallel()
	d := open(t, func(c *webhook.Config) {
		unlimited(c)
		c.Publisher, c.BodyBudget = panicking{}, 3<<20
	})
	order := webhooktest.Order(1<<20 - 4096)
	for range 8 {
		require.Equal(t, http.StatusInternalServerError, d.send(payNow(t, order)).Code)
	}
}

func TestABudgetThatHoldsNotEvenOneBodyIsRefused(t *testing.T) {
	t.Parallel()
	c, _, _ := config(t)
	c.BodyBudget = 1 << 20
	_, err := webhook.New(c)
	require.ErrorContains(t, err, "a body budget of 1048576 bytes is too small")
	source("paynow", func(s *catalog.Source) { s.MaxBodyBytes = 4 << 10 })(&c)
	source("generic", func(s *catalog.Source) { s.MaxBodyBytes = 4 << 10 })(&c)
	_, err = webhook.New(c)
	require.NoError(t, err)
}

func TestABodyThatIsNotEncodedMaySaySo(t *testing.T) {
	t.Parallel()
	body := samples.Read(samples.OrderCompleted, samples.Event{})
	for encoding, want := range map[string]int{
		"identity": http.StatusAccepted, "Identity": http.StatusAccepted, "": http.StatusAccepted, "identity, identity": http.StatusAccepted,
		"gzip": http.StatusUnsupportedMediaType, "identity, gzip": http.StatusUnsupportedMediaType, "identity;q=1": http.StatusUnsupportedMediaType,
	} {
		t.Run(encoding, func(t *testing.T) {
			t.Parallel()
			d := open(t, nil)
			r := payNow(t, body)
			r.Header.Set("Content-Encoding", encoding)
			w := d.send(r)
			require.Equal(t, want, w.Code, "%s", w.Body)
		})
	}
}

// FuzzBody sends a body in pieces of any size, with its length or without: what is
// verified is what was sent.
func FuzzBody(f *testing.F) {
	f.Add(uint32(0), uint16(1), true)
	f.Add(uint32(4<<10), uint16(4<<10), false)
	f.Add(uint32(4<<10+1), uint16(1000), true)
	f.Add(uint32(64<<10), uint16(64<<10-1), true)
	f.Add(uint32(200_000), uint16(700), false)
	d := open(f, func(c *webhook.Config) {
		unlimited(c)
		c.Publisher = nowhere{}
		c.BodyBudget = 3 << 20 // of one body and its growth: nothing may stay claimed
	})
	f.Fuzz(func(t *testing.T, size uint32, piece uint16, announced bool) {
		// Behind the document: a reader that loses a byte changes what was signed.
		content := append([]byte(`{"event_type":"ON_PAYOUT","event_id":"5"}`), bytes.Repeat([]byte(" "), int(size%(1<<20-64)))...)
		r := request(t, "/webhooks/paynow", pieces{bytes.NewReader(content), max(int(piece), 1)})
		r.ContentLength = -1
		if announced {
			r.ContentLength = int64(len(content))
		}
		sign(t, r, signature.PayNow, paynowSecret, content, fixed)
		w := d.send(r)
		require.Equal(t, http.StatusOK, w.Code, "%s", w.Body)
	})
}

// pieces is a reader that gives at most so many bytes at once.
type pieces struct {
	from io.Reader
	most int
}

func (p pieces) Read(b []byte) (int, error) { return p.from.Read(b[:min(len(b), p.most)]) }
