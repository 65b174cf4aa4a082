package retry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"billhook/internal/retry"
)

func TestEveryStatusOfHTTPHasItsVerdict(t *testing.T) {
	t.Parallel()
	type row struct {
		class  retry.Class // 0: no error
		reason string
	}
	for status, want := range map[int]row{
		200: {}, 202: {}, 204: {}, 299: {},
		100: {class: 500, reason: "callee_unclear_100"},
		300: {class: 422, reason: "callee_redirects_300"}, 308: {class: 422, reason: "callee_redirects_308"},
		400: {class: 422, reason: "callee_refused_400"}, 404: {class: 422, reason: "callee_refused_404"},
		409: {class: 422, reason: "callee_refused_409"}, 422: {class: 422, reason: "callee_refused_422"},
		401: {class: 503, reason: "callee_unauthorized_401"}, 403: {class: 503, reason: "callee_unauthorized_403"},
		407: {class: 503, reason: "callee_unauthorized_407"}, 408: {class: 504, reason: "callee_timeout_408"}, 410: {class: 422, reason: "callee_gone_410"},
		425: {class: 503, reason: "callee_busy_425"}, 429: {class: 503, reason: "callee_busy_429"},
		500: {class: 500, reason: "callee_failed_500"}, 503: {class: 500, reason: "callee_failed_503"},
		504: {class: 500, reason: "callee_failed_504"}, 599: {class: 500, reason: "callee_failed_599"},
		600: {class: 500, reason: "callee_unclear_600"}, 0: {class: 500, reason: "callee_unclear_0"}, -1: {class: 500, reason: "callee_unclear_-1"},
	} {
		err := retry.HTTPStatus(status)
		if want == (row{}) {
			require.NoError(t, err, status)
			continue
		}
		verdict := retry.Verdict{Class: want.class, Reason: want.reason, Counts: true}
		require.Equal(t, verdict, retry.Decide(err))
		require.Equal(t, verdict, retry.Decide(retry.After(time.Minute, err)), "a wait changes nothing of it")
		require.EqualError(t, err, want.reason)
	}
}

func TestAWaitTravelsWithItsFailure(t *testing.T) {
	t.Parallel()
	failure := retry.Down("callee_busy_429", context.DeadlineExceeded)
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"as it was asked for":     {retry.After(time.Minute, failure), time.Minute},
		"through another error":   {fmt.Errorf("notify: %w", retry.After(time.Minute, failure)), time.Minute},
		"the outermost":           {retry.After(time.Second, retry.After(time.Minute, failure)), time.Second},
		"a day at most":           {retry.After(25*time.Hour, failure), 24 * time.Hour},
		"none that is nothing":    {retry.After(0, failure), 0},
		"none over another":       {retry.After(0, retry.After(time.Minute, failure)), time.Minute},
		"none that has passed":    {retry.After(-time.Second, failure), 0},
		"none where nobody asked": {failure, 0},
		"none without a failure":  {retry.After(time.Minute, nil), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, retry.Asked(test.err))
			if test.err != nil {
				require.ErrorIs(t, test.err, context.DeadlineExceeded)
				require.ErrorContains(t, test.err, failure.Error())
			}
		})
	}
	require.NoError(t, retry.After(time.Minute, nil))
}

// What was the matter is the reason; that it was tried often enough stands behind it.
func TestAFailureThatIsTheLastKeepsItsReason(t *testing.T) {
	t.Parallel()
	failure := fmt.Errorf("post: %w", retry.Says(`title "Closed"`, retry.Transient("callee_failed_503", nil)))
	last := retry.Exhausted(retry.Decide(failure), failure)
	require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "callee_failed_503", Counts: true}, retry.Decide(last))
	require.EqualError(t, last, "callee_failed_503: attempts_exhausted")
	require.Equal(t, `title "Closed"`, retry.Said(last))
	require.NotContains(t, last.Error(), "Closed", "what the callee says stands beside the text")
	require.NoError(t, retry.Says("x", nil))
	require.Empty(t, retry.Said(errors.New("x")))
}

func TestABadRequestNamesIDsAlone(t *testing.T) {
	t.Parallel()
	cause := errors.New("why")
	for given, want := range map[string][]string{
		"": nil, "411486491630370501": {"411486491630370501"}, "ilse@example.org,,a b,hat," + strings.Repeat("9", 129): {"hat"},
		"1,2,3,4,5,6": {"1", "2", "3", "4", "5"},
	} {
		err := fmt.Errorf("credit: %w", retry.BadRequest("unknown_product", cause, strings.Split(given, ",")...))
		require.Equal(t, retry.Verdict{Class: 400, Reason: "unknown_product", Counts: true}, retry.Decide(err))
		require.ErrorIs(t, err, cause)
		var marked *retry.Error
		require.ErrorAs(t, err, &marked)
		require.ElementsMatch(t, want, marked.Subjects)
		require.EqualError(t, marked, "unknown_product: why", "ids stand beside the text")
	}
}
