package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/retry"
)

func TestDecideTurnsEveryKindOfErrorIntoItsVerdict(t *testing.T) {
	t.Parallel()
	plain := errors.New("what nobody foresaw")
	for name, test := range map[string]struct {
		err  error
		want retry.Verdict
	}{
		"an unmarked error is tried again": {
			plain, retry.Verdict{Class: 500, Reason: "handler_error", Counts: true},
		},
		"a deadline is a timeout": {
			context.DeadlineExceeded, retry.Verdict{Class: 504, Reason: "handler_timeout", Counts: true},
		},
		"a wrapped deadline is a timeout": {
			fmt.Errorf("read: %w", context.DeadlineExceeded),
			retry.Verdict{Class: 504, Reason: "handler_timeout", Counts: true},
		},
		"a caller that left counts nothing": {context.Canceled, retry.Verdict{Class: 503, Reason: "canceled"}},
		"a wrapped cancellation counts nothing": {
			fmt.Errorf("read: %w", context.Canceled), retry.Verdict{Class: 503, Reason: "canceled"},
		},
		"permanent is rejected": {
			retry.Permanent("unknown_product", nil),
			retry.Verdict{Class: 422, Reason: "unknown_product", Counts: true},
		},
		"unreadable is malformed": {
			retry.Unreadable("body_malformed", nil), retry.Verdict{Class: 400, Reason: "body_malformed", Counts: true},
		},
		"conflicting is a conflict": {
			retry.Conflicting("payload_conflict", nil),
			retry.Verdict{Class: 409, Reason: "payload_conflict", Counts: true},
		},
		"transient has failed": {
			retry.Transient("order_not_seen", nil), retry.Verdict{Class: 500, Reason: "order_not_seen", Counts: true},
		},
		"an outage is everybody's, and counts nothing": {
			retry.Outage("store_unavailable", plain),
			retry.Verdict{Class: 503, Reason: "store_unavailable", Scope: retry.EveryMessage},
		},
		"what is missing waits for another event": {
			retry.Missing("order_not_seen", nil),
			retry.Verdict{Class: 500, Reason: "order_not_seen", Counts: true, Scope: retry.OtherEvent},
		},
		"down is unavailable, and counts": {
			retry.Down("store_unavailable", plain),
			retry.Verdict{Class: 503, Reason: "store_unavailable", Counts: true},
		},
		"busy is unavailable, and does not": {
			retry.Busy("lease_held", nil), retry.Verdict{Class: 503, Reason: "lease_held"},
		},
		"a wrapped mark is found": {
			fmt.Errorf("credit: %w", retry.Permanent("unknown_product", plain)),
			retry.Verdict{Class: 422, Reason: "unknown_product", Counts: true},
		},
		"a joined mark is found": {
			errors.Join(plain, retry.Busy("queue_full", nil)), retry.Verdict{Class: 503, Reason: "queue_full"},
		},
		"the outermost mark wins": {
			retry.Down("store_unavailable", retry.Permanent("unknown_product", nil)),
			retry.Verdict{Class: 503, Reason: "store_unavailable", Counts: true},
		},
		"a mark wins over a deadline inside": {
			retry.Down("store_unavailable", context.DeadlineExceeded),
			retry.Verdict{Class: 503, Reason: "store_unavailable", Counts: true},
		},
		"a mark without a class is tried again": {
			&retry.Error{Err: plain}, retry.Verdict{Class: 500, Reason: "handler_error", Counts: true},
		},
		"a mark with a made-up class is as well": {
			&retry.Error{Verdict: retry.Verdict{Class: 200, Reason: "fine"}},
			retry.Verdict{Class: 500, Reason: "handler_error", Counts: true},
		},
	} {
		require.Equal(t, test.want, retry.Decide(test.err), name)
	}
}

func TestOnlyTheFirstThreeClassesAreTerminal(t *testing.T) {
	t.Parallel()
	for class, want := range map[retry.Class]bool{
		retry.Malformed: true, retry.Conflict: true, retry.Rejected: true,
		retry.Failed: false, retry.Unavailable: false, retry.TimedOut: false,
	} {
		require.Equal(t, want, class.Terminal(), class)
	}
}

func TestAMarkSaysItsReasonAndKeepsItsCause(t *testing.T) {
	t.Parallel()
	err := retry.Down("store_unavailable", io.ErrUnexpectedEOF)
	require.EqualError(t, err, "store_unavailable: unexpected EOF")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.EqualError(t, retry.Permanent("unknown_product", nil), "unknown_product")
}

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
		407: {class: 503, reason: "callee_unauthorized_407"}, 408: {class: 504, reason: "callee_timeout_408"},
		410: {class: 422, reason: "callee_gone_410"},
		425: {class: 503, reason: "callee_busy_425"}, 429: {class: 503, reason: "callee_busy_429"},
		500: {class: 500, reason: "callee_failed_500"}, 503: {class: 500, reason: "callee_failed_503"},
		504: {class: 500, reason: "callee_failed_504"}, 599: {class: 500, reason: "callee_failed_599"},
		600: {class: 500, reason: "callee_unclear_600"}, 0: {class: 500, reason: "callee_unclear_0"},
		-1: {class: 500, reason: "callee_unclear_-1"},
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
		require.Equal(t, test.want, retry.Asked(test.err), name)
		if test.err != nil {
			require.ErrorIs(t, test.err, context.DeadlineExceeded, name)
			require.ErrorContains(t, test.err, failure.Error(), name)
		}
	}
	require.NoError(t, retry.After(time.Minute, nil))
}

// What was the matter is the reason; that it was tried often enough stands behind it.
func TestAFailureThatIsTheLastKeepsItsReason(t *testing.T) {
	t.Parallel()
	failure := fmt.Errorf("post: %w", retry.Says(`title "Closed"`, retry.Transient("callee_failed_503", nil)))
	last := retry.Exhausted(retry.Decide(failure), failure)
	require.Equal(t, retry.Verdict{Class: retry.Rejected, Reason: "callee_failed_503", Counts: true},
		retry.Decide(last))
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
		"": nil, "411486491630370501": {"411486491630370501"}, "ilse@example.org,,a b,hat," +
			strings.Repeat("9", 129): {"hat"},
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

func TestAPolicyWaits(t *testing.T) {
	t.Parallel()
	schedule := retry.Policy{
		Schedule: []time.Duration{0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute},
	}
	doubling := retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: 600 * time.Second}
	jittered := retry.Policy{
		Base: 60 * time.Second, Multiplier: 2, Max: 3600 * time.Second, Jitter: 30 * time.Second,
	}
	for name, test := range map[string]struct {
		policy retry.Policy
		failed int
		dice   float64
		want   time.Duration
	}{
		"5 s after the first attempt of the schedule": {schedule, 1, 0.9, 5 * time.Second},
		"30 s after its second":                       {schedule, 2, 0.9, 30 * time.Second},
		"2 min after its third":                       {schedule, 3, 0.9, 2 * time.Minute},
		"10 min after its fourth":                     {schedule, 4, 0.9, 10 * time.Minute},
		"10 min after its fifth, and ever after":      {schedule, 5, 0.9, 10 * time.Minute},
		"a schedule of one entry, always that": {
			retry.Policy{Schedule: []time.Duration{time.Second}}, 7, 0, time.Second,
		},
		"the base first":                         {doubling, 1, 0, 10 * time.Second},
		"twice the base then":                    {doubling, 2, 0, 20 * time.Second},
		"320 s after the sixth":                  {doubling, 6, 0, 320 * time.Second},
		"the cap where doubling would pass it":   {doubling, 7, 0, 600 * time.Second},
		"the cap for ever":                       {doubling, 1_000_000, 0, 600 * time.Second},
		"the base for an attempt that never was": {doubling, 0, 0, 10 * time.Second},
		"half the jitter on top":                 {jittered, 1, 0.5, 75 * time.Second},
		"no more than the cap with jitter":       {jittered, 7, 0.999, 3600 * time.Second},
		"the base alone without a multiplier":    {retry.Policy{Base: time.Second}, 9, 0, time.Second},
		"nothing without a base, however often":  {retry.Policy{Multiplier: 2, Max: time.Minute}, 1_000_000, 0, 0},
		"no overflow without a cap": {
			retry.Policy{Base: time.Second, Multiplier: 2}, 1_000_000, 0, math.MaxInt64 / 2,
		},
		"nothing from an empty policy": {retry.Policy{}, 3, 0.5, 0},
	} {
		require.Equal(t, test.want, test.policy.Wait(test.failed, test.dice), name)
	}
}

func TestAnyPolicyStaysInItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		policy := retry.Policy{
			Base:       time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "base")),
			Multiplier: rapid.Float64Range(0, 1000).Draw(t, "multiplier"),
			Max:        time.Duration(rapid.Int64Range(1, int64(24*time.Hour)).Draw(t, "max")),
			Jitter:     time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "jitter")),
		}
		failed := rapid.IntRange(1, 1_000_000).Draw(t, "failed")
		dice := rapid.Float64Range(0, 0.999999).Draw(t, "dice")

		wait := policy.Wait(failed, dice)
		require.GreaterOrEqual(t, wait, time.Duration(0))
		require.LessOrEqual(t, wait, policy.Max)
		require.GreaterOrEqual(t, wait, policy.Wait(failed, 0), "jitter only adds")
		require.LessOrEqual(t, policy.Wait(failed, 0), policy.Wait(failed+1, 0),
			"without jitter no wait is shorter than the one before")
	})
}
