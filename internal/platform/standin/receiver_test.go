package standin_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/catalog"
	"billhook/internal/filetest"
	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
)

const (
	receiverSecret = "a-secret-of-more-than-24-bytes"
	otherSecret    = "another-secret-of-enough-bytes"
	webhookPath    = "/v1/webhooks/payment"
)

func newReceiver(t testing.TB, posts ...catalog.Post) *standin.Receiver {
	t.Helper()
	return filetest.Must(standin.NewReceiver(standin.ServiceConfig{
		Secrets: []string{otherSecret, receiverSecret}, Tolerance: 5 * time.Minute, Posts: posts,
		Now: func() time.Time { return start },
	}))(t)
}

func notice(id string) string {
	return `{"event_id":"` + id +
		`","action":"renewal","subscription_id":"sub-1","created_at":"2026-11-20T09:00:00Z","payload":{}}`
}

func signedBy(
	t testing.TB, scheme signature.Scheme, secret, method, path, id, body string, at time.Time,
) *http.Request {
	t.Helper()
	signer := filetest.Must(signature.NewSigner(scheme, secret))(t)
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for name, value := range signer.Sign(id, []byte(body), at) {
		request.Header.Set(name, value)
	}
	return request
}

func signed(t testing.TB, method, path, body string, at time.Time) *http.Request {
	t.Helper()
	return signedBy(t, signature.Generic, receiverSecret, method, path, "", body, at)
}

func post(t testing.TB, h http.Handler, path, id, body string) (status int, answer string) {
	t.Helper()
	request := signed(t, http.MethodPost, path, body, start)
	request.Header.Set("Idempotency-Key", id)
	return serveOnce(h, request)
}

func unsigned(t testing.TB, h http.Handler, method, path, body string) (status int, answer string) {
	t.Helper()
	return serveOnce(h, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
}

// serveOnce returns the answer; a status of 0: the connection was cut.
func serveOnce(h http.Handler, request *http.Request) (status int, answer string) {
	recorder := httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http compares in the same way
				panic(p)
			}
			status, answer = 0, ""
		}
	}()
	h.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String()
}

// services are those of testdata/services.yaml, which says what each member is.
type services struct {
	Gateway []behaved
	Posts   []posted
	Behave  map[string]int
}

func readServices(t *testing.T) services {
	return filetest.YAML[services](t, "testdata", "services.yaml")
}

func outcomes(r *standin.Receiver) []string {
	return filetest.Map(r.Deliveries(), func(d standin.Delivery) string { return d.EventID + " " + d.Outcome })
}

// In the model modes are used up in order, a key is applied once, and a key with another body is
// another event, which is refused.
func TestTheReceiverAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	type order struct {
		mode standin.Mode
		of   string
	}
	modes := map[standin.Mode]string{
		standin.Fail: standin.Failed, standin.Refuse: standin.Refused, standin.Hang: standin.Hung,
		standin.Forget: standin.Forgotten,
	}
	drawID := func(rt *rapid.T) string { return fmt.Sprintf("evt-%d", rapid.IntRange(0, 2).Draw(rt, "id")) }
	rapid.Check(t, func(rt *rapid.T) {
		r := newReceiver(t)
		r.Close() // or a hanging request would last until the end
		var orders []order
		var delivered []string
		bodies := map[string]string{} // of what was applied
		rt.Repeat(map[string]func(*rapid.T){
			"instruct": func(rt *rapid.T) {
				one := order{
					rapid.SampledFrom(slices.Sorted(maps.Keys(modes))).Draw(rt, "mode"),
					rapid.SampledFrom([]string{"", "", "evt-1"}).Draw(rt, "of"),
				}
				times := rapid.IntRange(1, 3).Draw(rt, "times")
				require.NoError(rt, r.Behave(one.of, one.mode, times))
				orders = append(orders, slices.Repeat([]order{one}, times)...)
			},
			"return to normal": func(rt *rapid.T) {
				of := rapid.SampledFrom([]string{"", "evt-1"}).Draw(rt, "of")
				require.NoError(rt, r.Behave(of, standin.Normal, 0))
				orders = slices.DeleteFunc(orders, func(o order) bool { return of == "" || o.of == of })
			},
			"post": func(rt *rapid.T) {
				id, mode := drawID(rt), standin.Normal
				if i := slices.IndexFunc(orders, func(o order) bool { return o.of == "" || o.of == id }); i >= 0 {
					mode = orders[i].mode
					orders = slices.Delete(orders, i, i+1)
				}
				body := strings.Replace(notice(id), "sub-1",
					rapid.SampledFrom([]string{"sub-1", "sub-1", "sub-2"}).Draw(rt, "subscription"), 1)
				want, before := standin.Applied, bodies[id]
				switch {
				case mode != standin.Normal && mode != standin.Forget:
					want = modes[mode]
				case before != "" && before != body:
					want = standin.Refused
				case mode == standin.Forget:
					want, bodies[id] = standin.Forgotten, body
				case before != "":
					want = standin.Duplicate
				default:
					bodies[id] = body
				}
				status, answer := post(t, r, webhookPath, id, body)
				require.Equal(rt, map[string]int{ // hung and forgotten ones are cut
					standin.Applied: 200, standin.Duplicate: 200, standin.Failed: 503, standin.Refused: 422,
				}[want], status)
				require.Equal(rt, want == standin.Duplicate, strings.Contains(answer, `"duplicate":true`))
				delivered = append(delivered, id+" "+want)
			},
			"look up": func(rt *rapid.T) {
				id := drawID(rt)
				status, _ := serveOnce(r, signed(t, http.MethodGet, webhookPath+"/"+id, "", start))
				require.Equal(rt, map[bool]int{true: 200, false: 404}[bodies[id] != ""], status)
			},
			"": func(rt *rapid.T) {
				for i := range 3 {
					id := fmt.Sprint("evt-", i)
					require.Equal(rt, bodies[id] != "", r.Applied(id) == 1)
				}
				require.Equal(rt, delivered, outcomes(r))
			},
		})
	})
}

// The model tries a receiver that is closed, where nothing hangs.
func TestAHangEndsWithItsSender(t *testing.T) {
	t.Parallel()
	filetest.Bubble(t, func(t *testing.T) {
		r := newReceiver(t)
		require.NoError(t, r.Behave("", standin.Hang, 1))
		sending, leave := context.WithCancel(t.Context())
		request := signed(t, http.MethodPost, webhookPath, notice("evt"), start).WithContext(sending)
		request.Header.Set("Idempotency-Key", "evt")
		ended := make(chan int, 1)
		go func() {
			status, _ := serveOnce(r, request)
			ended <- status
		}()
		synctest.Wait()
		require.Empty(t, ended, "answered while its sender waits")
		leave()
		require.Zero(t, <-ended)
		require.Equal(t, []string{"evt hung"}, outcomes(r))
	})
}

// posted is a change of a signed post.
type posted struct {
	What, Body, Sent, Without, Method, Path string

	Ago      time.Duration
	Set, Add map[string]string
	Status   int
}

func TestTheReceiverAcceptsOnlySignedCompleteRequests(t *testing.T) {
	t.Parallel()
	rows := readServices(t).Posts
	rows = append(rows, posted{
		What: "too large", Body: `{"event_id":"` + strings.Repeat("e", 256<<10) + `"}`, Status: 413,
	})
	for _, test := range rows {
		r := newReceiver(t)
		request := signed(t, http.MethodPost, webhookPath, cmp.Or(test.Body, notice("evt")), start.Add(-test.Ago))
		request.Header.Set("Idempotency-Key", "evt")
		request.Header.Del(test.Without)
		for name, value := range test.Set {
			request.Header.Set(name, value)
		}
		for name, value := range test.Add {
			request.Header.Add(name, value)
		}
		request.Method, request.URL.Path = cmp.Or(test.Method, request.Method), cmp.Or(test.Path, webhookPath)
		switch {
		case test.Sent == "cut short":
			request.Body = io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))
		case test.Sent != "":
			request.Body = io.NopCloser(strings.NewReader(test.Sent))
		}
		status, answer := serveOnce(r, request)
		require.Equal(t, test.Status, status, test.What)
		require.NotContains(t, answer, "evt", test.What)
		require.Equal(t, status == http.StatusOK, len(r.Deliveries()) == 1, test.What)
	}
	status, _ := unsigned(t, newReceiver(t), http.MethodGet, webhookPath+"/evt", "")
	require.Equal(t, http.StatusUnauthorized, status, "a lookup needs a signature too")
	for name, config := range map[string]standin.ServiceConfig{
		"no secret":      {Tolerance: time.Minute},
		"a short secret": {Secrets: []string{"short"}, Tolerance: time.Minute},
		"no window":      {Secrets: []string{receiverSecret}},
	} {
		require.Error(t, filetest.ErrorOf(standin.NewReceiver(config)), name)
	}
	config := standin.ServiceConfig{Secrets: []string{receiverSecret}, Tolerance: time.Minute}
	require.NoError(t, filetest.ErrorOf(standin.NewReceiver(config)), "the clock may be the machine's")
}

func TestModesAndDeliveriesHaveRoutesForPeople(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	list := func() string {
		status, answer := unsigned(t, r, http.MethodGet, "/deliveries", "")
		require.Equal(t, http.StatusOK, status)
		return answer
	}
	require.JSONEq(t, `{"items":[]}`, list())
	bodies := readServices(t).Behave
	bodies[`{"mode":"`+strings.Repeat("x", 2000)+`"}`] = http.StatusBadRequest
	for body, want := range bodies {
		status, _ := unsigned(t, r, http.MethodPost, "/behave", body)
		require.Equal(t, want, status, body)
	}
	_, _ = post(t, r, webhookPath, "evt", notice("evt"))
	_, _ = post(t, r, webhookPath, "evt", notice("evt"))
	require.JSONEq(t, `{"items":[
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1",
		"at":"2026-11-20T09:00:00Z","outcome":"failed"},
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1",
		"at":"2026-11-20T09:00:00Z","outcome":"applied"}]}`, list())
}

const (
	partnerSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	nextSecret    = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
)

func TestTheThirdPartyAcceptsTheSecretOfItsEndpointAlone(t *testing.T) {
	t.Parallel()
	const body = `{"type":"invoice.paid","timestamp":"2026-03-01T12:00:00Z","data":{"id":"inv-1"}}`
	r := newReceiver(t)
	hook := func(secret, body string, at time.Time) int {
		request := signedBy(t, signature.Standard, secret, http.MethodPost, standin.PartnerPath, "evt-1", body, at)
		status, _ := serveOnce(r, request)
		return status
	}
	require.Equal(t, http.StatusUnauthorized, hook(partnerSecret, body, start),
		"before Trust every webhook is refused")
	require.Error(t, r.Trust("no secret"))
	require.NoError(t, r.Trust(nextSecret))
	require.NoError(t, r.Trust(partnerSecret), "a second secret replaces the first")
	for _, step := range []struct {
		sentence, secret, body string
		at                     time.Time
		want                   int
	}{
		{"of another secret", nextSecret, body, start, http.StatusUnauthorized},
		{"stale", partnerSecret, body, start.Add(-6 * time.Minute), http.StatusUnauthorized},
		{"without a type", partnerSecret, `{"data":{}}`, start, http.StatusBadRequest},
		{"valid", partnerSecret, body, start, http.StatusOK},
		{"again", partnerSecret, body, start, http.StatusOK},
	} {
		require.Equal(t, step.want, hook(step.secret, step.body, step.at), step.sentence)
	}
	require.Equal(t, 1, r.Applied("evt-1"))
	require.Equal(t, []string{"evt-1 applied", "evt-1 duplicate"}, outcomes(r))
}

// bulk is a request to the index, a row of testdata/bulk.yaml.
type bulk struct {
	What, Type, Item string
	Lines            []string
	Cut              bool
	Status           int
}

func (b bulk) sent(t *testing.T, r *standin.Receiver) (status int, answer string) {
	t.Helper()
	body := strings.Join(append(b.Lines, ""), "\n")
	if b.Cut {
		body = strings.TrimSuffix(body, "\n")
	}
	request := signed(t, http.MethodPost, "/products/_bulk", body, start)
	request.Header.Set("Content-Type", cmp.Or(b.Type, "application/x-ndjson"))
	return serveOnce(r, request)
}

func TestTheIndexTakesActionsAndDocumentsAlone(t *testing.T) {
	t.Parallel()
	index := catalog.Post{Path: "/products/_bulk", Form: catalog.Bulk}
	all := filetest.YAML[struct{ Taken, Steps []bulk }](t, "testdata", "bulk.yaml")
	for _, b := range all.Taken {
		r := newReceiver(t, index)
		status, _ := b.sent(t, r)
		require.Equal(t, b.Status, status, b.What)
		require.Equal(t, b.Status == http.StatusOK, len(r.Deliveries()) == 1, b.What)
	}
	r := newReceiver(t, index)
	for _, b := range all.Steps {
		status, answer := b.sent(t, r)
		require.Equal(t, http.StatusOK, status)
		require.JSONEq(t, `{"items":[`+b.Item+`]}`, answer, b.Lines)
	}
	require.Equal(t, 2, r.Applied("a~p-1"))
	for mode, status := range map[standin.Mode]int{
		standin.Fail: 503, standin.Refuse: 400, standin.Hang: 0, standin.Forget: 0,
	} {
		r.Close()
		require.NoError(t, r.Behave("a~p-1", mode, 1))
		_, answer := all.Steps[0].sent(t, r)
		require.Equal(t, status != 0, strings.Contains(answer, fmt.Sprintf(`"status":%d`, status)), mode)
	}
}
