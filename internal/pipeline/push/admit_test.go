package push_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/contract"
	"billhook/internal/dedupe"
	"billhook/internal/platform/serve"
)

// sent is a body that counts what is read of it.
type sent struct {
	io.Reader
	read int
}

func (s *sent) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.read += n
	return n, err
}

// zeros is a body without an end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestPushThatIsNotAdmittedIsNotReadAndChangesNothing: a message and a dead letter are admitted alike.
func TestPushThatIsNotAdmittedIsNotReadAndChangesNothing(t *testing.T) {
	t.Parallel()
	type refusal func(r *rig, q *http.Request)
	header := func(name string, values ...string) refusal {
		return func(_ *rig, q *http.Request) { q.Header[name] = values }
	}
	token := func(err error) refusal { return func(r *rig, _ *http.Request) { r.bouncer.err = err } }
	at := func(queue string) refusal {
		return func(_ *rig, q *http.Request) { q.URL.Path = strings.Replace(q.URL.Path, "orders", queue, 1) }
	}
	body := func(announced int64, content string) refusal {
		return func(_ *rig, q *http.Request) {
			q.ContentLength, q.Body = announced, io.NopCloser(strings.NewReader(content))
		}
	}
	endless := func(announced int64) refusal {
		return func(_ *rig, q *http.Request) { q.ContentLength, q.Body = announced, io.NopCloser(zeros{}) }
	}
	drains := func(r *rig, _ *http.Request) { r.Drain() }
	for name, test := range map[string]struct {
		refusal refusal
		code    int
		problem string
		// most is how much of the body may be read.
		most int
	}{
		"without a token":                             {header("Authorization"), 401, "unauthorized", 0},
		"a token that is wrong":                       {token(errors.New("ilse@example.org")), 401, "unauthorized", 0},
		"a token of somebody else":                    {token(fmt.Errorf("%w: ilse@example.org", serve.ErrNotAllowed)), 403, "forbidden", 0},
		"a token that cannot be checked now":          {token(fmt.Errorf("%w: ilse@example.org", serve.ErrKeysUnavailable)), 503, "keys_unavailable", 0},
		"two tokens":                                  {header("Authorization", "Bearer good", "Bearer another"), 403, "forbidden", 0},
		"a token of Cloud Run beside the other":       {header("X-Serverless-Authorization", "Bearer another"), 403, "forbidden", 0},
		"an empty one":                                {header("X-Serverless-Authorization", ""), 403, "forbidden", 0},
		"a browser's page of another site":            {header("Origin", "https://elsewhere.example"), 403, "cross_origin", 0},
		"a page that hides where it is from":          {header("Origin", ""), 403, "cross_origin", 0},
		"a browser that names no origin":              {header("Sec-Fetch-Site", "none"), 403, "cross_origin", 0},
		"a queue that is unknown":                     {at("nobody"), 404, "queue_unknown", 0},
		"a queue that is disabled":                    {at("asleep"), 404, "queue_unknown", 0},
		"a service that drains":                       {drains, 503, "shutting_down", 0},
		"a body that is no push":                      {body(2, "{}"), 400, "envelope_malformed", 2},
		"a body that breaks off":                      {body(10, "{}"), 503, "body_unread", 2},
		"a body that is too large, and says so":       {endless(1 << 30), 413, "too_large", 0},
		"a body that is too large, and does not":      {endless(-1), 413, "too_large", 32 << 20},
		"a body for which others have left no memory": {func(r *rig, _ *http.Request) { r.BodyBudget(100) }, 503, "bodies_in_flight", 0},
	} {
		for _, path := range []string{"/push/orders", "/push/dead-letters/orders"} {
			t.Run(name+" at "+path, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, setup{})
				held := r.BodyBudget(64 << 20)
				q := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(paid("e1", known, 1).envelope()))
				q.Header.Set("Authorization", "Bearer good")
				test.refusal(r, q)
				content := &sent{Reader: q.Body}
				q.Body = io.NopCloser(content)
				got := r.serve(q)
				require.Equal(t, []any{test.code, test.problem}, []any{got.code, got.Code})
				require.Equal(t, "application/problem+json", got.header.Get("Content-Type"))
				require.LessOrEqual(t, content.read, test.most)
				require.NotContains(t, got.text+r.log.String(), "ilse")
				require.Zero(t, r.counter.Commits.Load()+r.counter.Gets.Load())
				require.Empty(t, r.letters())
				require.Zero(t, held())
			})
		}
	}
}

// TestPushHoldsItsMemoryUntilItIsAnswered: also while its message is handled.
func TestPushHoldsItsMemoryUntilItIsAnswered(t *testing.T) {
	t.Parallel()
	var held func() int64
	during := int64(0)
	r := newRig(t, setup{credit: observing(func() { during = held() })})
	held = r.BodyBudget(64 << 20)
	m := paid("e1", known, 1)
	require.Equal(t, http.StatusOK, r.deliver(m).code)
	require.GreaterOrEqual(t, during, int64(len(m.envelope())))
	require.Zero(t, held())
	r.broker.before = func(string) { during = held() }
	require.Equal(t, http.StatusBadRequest, r.deliver(paid("e2", unknown, 1)).code)
	require.Positive(t, during)
	require.Equal(t, http.StatusNoContent, r.post("/push/dead-letters/orders", m.envelope()).code)
	require.Zero(t, held())
}

func TestLargestMessageOfPubSubIsTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	m := paid("e1", known, 1).with(func(m *message) {
		for i := range 70 {
			m.attributes[fmt.Sprintf("own-%02d", i)] = strings.Repeat("\x01", 1024)
		}
		m.body = strings.Repeat("x", contract.MaxMessageBytes-contract.Message{Attributes: m.attributes}.Size())
	})
	got := r.deliver(m)
	require.Equal(t, []any{http.StatusBadRequest, "body_malformed"}, []any{got.code, got.Reason})
	require.Len(t, r.documents(dedupe.Collection), 1)
	letter := r.letters()[0]
	require.True(t, bytes.Equal(m.data(), letter.Data))
	require.Contains(t, letter.Attributes["dead_letter_detail"], "attributes left out or cut", "for those of the dead letter")
}
