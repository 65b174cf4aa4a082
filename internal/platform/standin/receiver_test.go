package standin_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/platform/signature"
	"billhook/internal/platform/standin"
)

const (
	receiverSecret = "a-secret-of-more-than-24-bytes"
	otherSecret    = "another-secret-of-enough-bytes"
	webhookPath    = "/v1/webhooks/payment"
)

func newReceiver(t testing.TB) *standin.Receiver {
	t.Helper()
	r, err := standin.NewReceiver(standin.ReceiverConfig{
		Secrets: []string{otherSecret, receiverSecret}, Tolerance: 5 * time.Minute, Now: func() time.Time { return start },
	})
	require.NoError(t, err)
	return r
}

func notice(id string) string {
	return `{"event_id":"` + id + `","action":"renewal","subscription_id":"sub-1","created_at":"2026-11-20T09:00:00Z","payload":{}}`
}

// signed returns a request as the sender makes it.
func signed(t testing.TB, method, path, body string, at time.Time) *http.Request {
	t.Helper()
	signer, err := signature.NewSigner(signature.Generic, receiverSecret)
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for name, value := range signer.Sign("", []byte(body), at) {
		request.Header.Set(name, value)
	}
	return request
}

// post delivers an event. cut reports whether the connection ended without an answer.
func post(t testing.TB, r http.Handler, id, body string) (status int, answer string, cut bool) {
	t.Helper()
	request := signed(t, http.MethodPost, webhookPath, body, start)
	request.Header.Set("Idempotency-Key", id)
	return serveOnce(r, request)
}

func serveOnce(r http.Handler, request *http.Request) (status int, answer string, cut bool) {
	recorder := httptest.NewRecorder()
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler { //nolint:errorlint // net/http compares in the same way
				panic(p)
			}
			status, answer, cut = 0, "", true
		}
	}()
	r.ServeHTTP(recorder, request)
	return recorder.Code, recorder.Body.String(), false
}

func outcomes(r *standin.Receiver) (all []string) {
	for _, d := range r.Deliveries() {
		all = append(all, d.EventID+" "+d.Outcome)
	}
	return all
}

// Against a simple model: modes are used up in order, a key is applied once unless the mode is Double, and a key
// with another body is another event, which is refused.
func TestTheReceiverAgreesWithItsModel(t *testing.T) {
	t.Parallel()
	type order struct {
		mode standin.Mode
		of   string
	}
	type state struct {
		body  string
		times int
	}
	modes := []standin.Mode{standin.Fail, standin.Refuse, standin.Hang, standin.Forget, standin.Double}
	drawID := func(rt *rapid.T) string { return fmt.Sprintf("evt-%d", rapid.IntRange(0, 2).Draw(rt, "id")) }
	rapid.Check(t, func(rt *rapid.T) {
		r := newReceiver(t)
		r.Close() // or a hanging request would last until the end
		var told []order
		var delivered []string
		events := map[string]state{}
		rt.Repeat(map[string]func(*rapid.T){
			"tell": func(rt *rapid.T) {
				one := order{rapid.SampledFrom(modes).Draw(rt, "mode"), rapid.SampledFrom([]string{"", "", "evt-1"}).Draw(rt, "of")}
				times := rapid.IntRange(1, 3).Draw(rt, "times")
				require.NoError(rt, r.TellOf(one.of, one.mode, times))
				told = append(told, slices.Repeat([]order{one}, times)...)
			},
			"take back": func(rt *rapid.T) {
				of := rapid.SampledFrom([]string{"", "evt-1"}).Draw(rt, "of")
				require.NoError(rt, r.TellOf(of, standin.Normal, 0))
				told = slices.DeleteFunc(told, func(o order) bool { return of == "" || o.of == of })
			},
			"post": func(rt *rapid.T) {
				id, mode := drawID(rt), standin.Mode("")
				if i := slices.IndexFunc(told, func(o order) bool { return o.of == "" || o.of == id }); i >= 0 {
					mode = told[i].mode
					told = slices.Delete(told, i, i+1)
				}
				body := strings.Replace(notice(id), "sub-1", rapid.SampledFrom([]string{"sub-1", "sub-1", "sub-2"}).Draw(rt, "subscription"), 1)
				want, event := standin.Applied, events[id]
				switch {
				case mode == standin.Fail:
					want = standin.Failed
				case mode == standin.Hang:
					want = standin.Hung
				case mode == standin.Refuse || (event.times > 0 && mode != standin.Double && event.body != body):
					want = standin.Refused
				case event.times == 0 || mode == standin.Double:
					events[id] = state{cmp.Or(event.body, body), event.times + 1}
				case mode != standin.Forget:
					want = standin.Duplicate
				}
				if mode == standin.Forget && want == standin.Applied {
					want = standin.Forgotten
				}
				status, answer, cut := post(t, r, id, body)
				require.Equal(rt, want == standin.Hung || want == standin.Forgotten, cut)
				require.Equal(rt, map[string]int{standin.Applied: 200, standin.Duplicate: 200, standin.Failed: 503, standin.Refused: 422}[want], status)
				require.Equal(rt, want == standin.Duplicate, strings.Contains(answer, `"duplicate":true`))
				delivered = append(delivered, id+" "+want)
			},
			"ask": func(rt *rapid.T) {
				id := drawID(rt)
				status, _, _ := serveOnce(r, signed(t, http.MethodGet, webhookPath+"/"+id, "", start))
				require.Equal(rt, map[bool]int{true: 200, false: 404}[events[id].times > 0], status)
			},
			"": func(rt *rapid.T) {
				for i := range 3 {
					require.Equal(rt, events[fmt.Sprint("evt-", i)].times, r.Applied(fmt.Sprint("evt-", i)))
				}
				require.Equal(rt, delivered, outcomes(r))
			},
		})
	})
}

func TestAHangEndsWithItsSenderOrWithTheReceiver(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	require.NoError(t, r.Tell(standin.Hang, 3))
	hang := func(ctx context.Context) <-chan bool {
		request := signed(t, http.MethodPost, webhookPath, notice("evt"), start).WithContext(ctx)
		request.Header.Set("Idempotency-Key", "evt")
		ended := make(chan bool)
		go func() {
			_, _, cut := serveOnce(r, request)
			ended <- cut
		}()
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	first, second := hang(ctx), hang(t.Context())
	select {
	case <-first:
		t.Fatal("answered while its sender waits")
	case <-second:
		t.Fatal("answered while its sender waits")
	default:
	}
	cancel()
	require.True(t, <-first)
	r.Close()
	r.Close()
	require.True(t, <-second)
	require.True(t, <-hang(t.Context()), "closed, nothing hangs any more")
	require.Equal(t, []string{"evt hung", "evt hung", "evt hung"}, outcomes(r))
}

func TestTheReceiverAcceptsOnlySignedCompleteRequests(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		body   string
		at     time.Duration // offset from now
		change func(*http.Request)
		want   int
	}{
		"at the edges, old":        {notice("evt"), -5 * time.Minute, nil, 200},
		"too old":                  {notice("evt"), -5*time.Minute - time.Second, nil, 401},
		"too new":                  {notice("evt"), 5*time.Minute + time.Second, nil, 401},
		"no signature":             {notice("evt"), 0, func(r *http.Request) { r.Header.Del("X-Webhook-Signature") }, 401},
		"another body than signed": {notice("evt"), 0, func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader(notice("evu"))) }, 401},
		"a key that is not its id": {notice("evt"), 0, func(r *http.Request) { r.Header.Set("Idempotency-Key", "evu") }, 422},
		"no key":                   {notice("evt"), 0, func(r *http.Request) { r.Header.Del("Idempotency-Key") }, 422},
		"two keys":                 {notice("evt"), 0, func(r *http.Request) { r.Header.Add("Idempotency-Key", "evt") }, 422},
		"no JSON":                  {"evt", 0, nil, 400},
		"one name twice":           {`{"key":"evt","event_id":"evt","key":"evt","event_id":"evt"}`, 0, nil, 400},
		"no action":                {`{"key":"evt","event_id":"evt","subscription_id":"sub-1"}`, 0, nil, 422},
		"no subscription":          {`{"key":"evt","event_id":"evt","action":"renewal"}`, 0, nil, 422},
		"an id that is none":       {notice("../evt"), 0, func(r *http.Request) { r.Header.Set("Idempotency-Key", "../evt") }, 422},
		"too large":                {`{"event_id":"` + strings.Repeat("e", 256<<10) + `"}`, 0, nil, 413},
		"cut short":                {notice("evt"), 0, func(r *http.Request) { r.Body = io.NopCloser(&cutShort{}) }, 400},
		"another method":           {notice("evt"), 0, func(r *http.Request) { r.Method = http.MethodPut }, 405},
		"another path":             {notice("evt"), 0, func(r *http.Request) { r.URL.Path = "/v1/webhooks" }, 404},
	} {
		r := newReceiver(t)
		request := signed(t, http.MethodPost, webhookPath, test.body, start.Add(test.at))
		request.Header.Set("Idempotency-Key", "evt")
		if test.change != nil {
			test.change(request)
		}
		status, answer, _ := serveOnce(r, request)
		require.Equal(t, test.want, status, name)
		require.NotContains(t, answer, "evt", name)
		require.Equal(t, test.want == http.StatusOK, len(r.Deliveries()) == 1, name)
	}
	status, _, _ := serveOnce(newReceiver(t), httptest.NewRequestWithContext(t.Context(), http.MethodGet, webhookPath+"/evt", nil))
	require.Equal(t, http.StatusUnauthorized, status, "a question is signed too")
	for name, config := range map[string]standin.ReceiverConfig{
		"no secret":      {Tolerance: time.Minute},
		"a short secret": {Secrets: []string{"short"}, Tolerance: time.Minute},
		"no window":      {Secrets: []string{receiverSecret}},
	} {
		_, err := standin.NewReceiver(config)
		require.Error(t, err, name)
	}
	_, err := standin.NewReceiver(standin.ReceiverConfig{Secrets: []string{receiverSecret}, Tolerance: time.Minute})
	require.NoError(t, err, "the clock may be the machine's")
}

type cutShort struct{}

func (*cutShort) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestModesAndDeliveriesHaveRoutesForPeople(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	tell := func(body string) int {
		status, _, _ := serveOnce(r, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tell", strings.NewReader(body)))
		return status
	}
	list := func() string {
		status, answer, _ := serveOnce(r, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/deliveries", nil))
		require.Equal(t, http.StatusOK, status)
		return answer
	}
	require.JSONEq(t, `{"items":[]}`, list())
	for body, want := range map[string]int{
		``: 400, `[]`: 400, `{"mode":1}`: 400, `{"mode":"fail","times":1,"when":2}`: 400, `{"mode":"fail","times":1} {}`: 400,
		`{"mode":"` + strings.Repeat("x", 2000) + `"}`: 400,
		`{"mode":"fail"}`: 422, `{"mode":"fail","times":-1}`: 422, `{"mode":"fail","times":1000001}`: 422,
		`{"mode":"","times":1}`: 422, `{"mode":"explode","times":1}`: 422,
		`{"mode":"fail","times":1}`: 204,
	} {
		require.Equal(t, want, tell(body), body)
	}
	_, _, _ = post(t, r, "evt", notice("evt"))
	_, _, _ = post(t, r, "evt", notice("evt"))
	require.JSONEq(t, `{"items":[
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1","at":"2026-11-20T09:00:00Z","outcome":"failed"},
		{"path":"/v1/webhooks/payment","key":"evt","event_id":"evt","action":"renewal","subscription_id":"sub-1","at":"2026-11-20T09:00:00Z","outcome":"applied"}]}`, list())
}
