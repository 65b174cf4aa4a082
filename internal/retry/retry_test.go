package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"billhook/internal/retry"
)

func TestDecideTurnsEveryKindOfErrorIntoItsVerdict(t *testing.T) {
	t.Parallel()
	free := func(class retry.Class, reason string) retry.Verdict {
		return retry.Verdict{Class: class, Reason: reason}
	}
	plain, permanent := errors.New("an unknown failure"), retry.Permanent("p", nil)
	for name, test := range map[string]struct {
		err  error
		want retry.Verdict
	}{
		"unmarked is tried again":    {plain, counted(500, "handler_error")},
		"a deadline is a timeout":    {context.DeadlineExceeded, counted(504, "handler_timeout")},
		"a wrapped deadline as well": {wrapped(context.DeadlineExceeded), counted(504, "handler_timeout")},
		"canceled is no attempt":     {context.Canceled, free(503, "canceled")},
		"wrapped canceled as well":   {wrapped(context.Canceled), free(503, "canceled")},
		"permanent is rejected":      {permanent, counted(422, "p")},
		"unreadable is malformed":    {retry.Unreadable("body_malformed", nil), counted(400, "body_malformed")},
		"conflicting is a conflict":  {retry.Conflicting("c", nil), counted(409, "c")},
		"transient has failed":       {retry.Transient("order_not_seen", nil), counted(500, "order_not_seen")},
		"down is an attempt":         {retry.Down("down", plain), counted(503, "down")},
		"busy is no attempt":         {retry.Busy("b", nil), free(503, "b")},
		"an outage concerns every message, and is no attempt": {
			retry.Outage("o", plain), retry.Verdict{Class: 503, Reason: "o", Scope: retry.EveryMessage},
		},
		"missing waits for another event, and is an attempt": {
			retry.Missing("m", nil), retry.Verdict{Class: 500, Reason: "m", Counts: true, Scope: retry.OtherEvent},
		},
		"a wrapped mark is found": {wrapped(retry.Permanent("p", plain)), counted(422, "p")},
		"a joined mark is found":  {errors.Join(plain, retry.Busy("full", nil)), free(503, "full")},
		"the outermost mark wins": {retry.Down("down", permanent), counted(503, "down")},
		"a mark hides a deadline": {retry.Down("down", context.DeadlineExceeded), counted(503, "down")},
		"a mark without a class is tried again": {
			&retry.Error{Err: plain}, counted(500, "handler_error"),
		},
		"a mark with an unknown class as well": {
			&retry.Error{Verdict: free(200, "fine")}, counted(500, "handler_error"),
		},
	} {
		require.Equal(t, test.want, retry.Decide(test.err), name)
	}
}

func counted(class retry.Class, reason string) retry.Verdict {
	return retry.Verdict{Class: class, Reason: reason, Counts: true}
}

func wrapped(err error) error { return fmt.Errorf("handle: %w", err) }

func TestOnlyTheFirstThreeClassesAreTerminal(t *testing.T) {
	t.Parallel()
	for class, want := range map[retry.Class]bool{
		retry.Malformed: true, retry.Conflict: true, retry.Rejected: true,
		retry.Failed: false, retry.Unavailable: false, retry.TimedOut: false,
	} {
		require.Equal(t, want, class.Terminal(), class)
	}
}

func TestMarkedErrorHasItsReasonAndItsCause(t *testing.T) {
	t.Parallel()
	err := retry.Down("store_unavailable", io.ErrUnexpectedEOF)
	require.EqualError(t, err, "store_unavailable: unexpected EOF")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.EqualError(t, retry.Permanent("unknown_product", nil), "unknown_product")
}

func TestEveryStatusOfHTTPHasItsVerdict(t *testing.T) {
	t.Parallel()
	type meaning struct {
		class  retry.Class // 0: no error
		reason string      // without the status
	}
	for want, statuses := range map[meaning][]int{
		{}:                            {200, 202, 204, 299},
		{500, "callee_unclear_"}:      {-1, 0, 100, 600},
		{422, "callee_redirects_"}:    {300, 308},
		{422, "callee_refused_"}:      {400, 404, 409, 422},
		{503, "callee_unauthorized_"}: {401, 403, 407},
		{504, "callee_timeout_"}:      {408},
		{422, "callee_gone_"}:         {410},
		{503, "callee_busy_"}:         {425, 429},
		{500, "callee_failed_"}:       {500, 503, 504, 599},
	} {
		for _, status := range statuses {
			err := retry.HTTPStatus(status)
			if want.class == 0 {
				require.NoError(t, err, status)
				continue
			}
			verdict := counted(want.class, want.reason+strconv.Itoa(status))
			require.Equal(t, verdict, retry.Decide(err))
			require.Equal(t, verdict, retry.Decide(retry.After(time.Minute, err)), "a wait does not change it")
			require.EqualError(t, err, verdict.Reason)
		}
	}
}

func TestFailureKeepsTheRequestedWait(t *testing.T) {
	t.Parallel()
	failure := retry.Down("callee_busy_429", context.DeadlineExceeded)
	for name, test := range map[string]struct {
		err  error
		want time.Duration
	}{
		"as it was requested":       {retry.After(time.Minute, failure), time.Minute},
		"through another error":     {wrapped(retry.After(time.Minute, failure)), time.Minute},
		"the outermost":             {retry.After(time.Second, retry.After(time.Minute, failure)), time.Second},
		"a day at most":             {retry.After(25*time.Hour, failure), 24 * time.Hour},
		"no wait of zero":           {retry.After(0, failure), 0},
		"zero keeps the one before": {retry.After(0, retry.After(time.Minute, failure)), time.Minute},
		"no wait that has passed":   {retry.After(-time.Second, failure), 0},
		"no wait where none is requested": {
			failure, 0,
		},
		"no wait without a failure": {retry.After(time.Minute, nil), 0},
	} {
		require.Equal(t, test.want, retry.RequestedWait(test.err), name)
		if test.err != nil {
			require.ErrorIs(t, test.err, context.DeadlineExceeded, name)
			require.ErrorContains(t, test.err, failure.Error(), name)
		}
	}
	require.NoError(t, retry.After(time.Minute, nil))
}

func TestExhaustedFailureKeepsItsReason(t *testing.T) {
	t.Parallel()
	failure := wrapped(retry.Says(`title "Closed"`, retry.Transient("callee_failed_503", nil)))
	last := retry.Exhausted(retry.Decide(failure), failure)
	require.Equal(t, counted(422, "callee_failed_503"), retry.Decide(last))
	require.EqualError(t, last, "callee_failed_503: attempts_exhausted")
	require.Equal(t, `title "Closed"`, retry.Said(last))
	require.NotContains(t, last.Error(), "Closed", "the error's text does not have the called service's")
	require.NoError(t, retry.Says("x", nil))
	require.Empty(t, retry.Said(errors.New("x")))
}

func TestBadRequestNamesOnlyIDs(t *testing.T) {
	t.Parallel()
	cause, tooLong := errors.New("why"), strings.Repeat("9", 129)
	for given, want := range map[string][]string{
		"": nil, "411486491630370501": {"411486491630370501"},
		"ilse@example.org,,a b,hat," + tooLong: {"hat"}, "1,2,3,4,5,6": {"1", "2", "3", "4", "5"},
	} {
		err := wrapped(retry.BadRequest("unknown_product", cause, strings.Split(given, ",")...))
		require.Equal(t, counted(400, "unknown_product"), retry.Decide(err))
		require.ErrorIs(t, err, cause)
		var marked *retry.Error
		require.ErrorAs(t, err, &marked)
		require.ElementsMatch(t, want, marked.Subjects)
		require.EqualError(t, marked, "unknown_product: why", "the text has no ids")
	}
}

func TestPolicyWaits(t *testing.T) {
	t.Parallel()
	waits := []time.Duration{0, 5 * time.Second, 30 * time.Second, 2 * time.Minute, 10 * time.Minute}
	schedule := retry.Policy{Schedule: waits}
	doubling := retry.Policy{Base: 10 * time.Second, Multiplier: 2, Max: 600 * time.Second}
	jittered := retry.Policy{Base: time.Minute, Multiplier: 2, Max: time.Hour, Jitter: 30 * time.Second}
	uncapped := retry.Policy{Base: time.Second, Multiplier: 2}
	for name, test := range map[string]struct {
		policy retry.Policy
		failed int
		dice   float64
		want   time.Duration
	}{
		"5 s after the first of the schedule":    {schedule, 1, 0.9, 5 * time.Second},
		"30 s after its second":                  {schedule, 2, 0.9, 30 * time.Second},
		"2 min after its third":                  {schedule, 3, 0.9, 2 * time.Minute},
		"10 min after its fourth":                {schedule, 4, 0.9, 10 * time.Minute},
		"10 min after its fifth, and ever after": {schedule, 5, 0.9, 10 * time.Minute},
		"the only entry of a schedule, always":   {retry.Policy{Schedule: waits[1:2]}, 7, 0, 5 * time.Second},
		"the base first":                         {doubling, 1, 0, 10 * time.Second},
		"twice the base then":                    {doubling, 2, 0, 20 * time.Second},
		"320 s after the sixth":                  {doubling, 6, 0, 320 * time.Second},
		"the cap where doubling would pass it":   {doubling, 7, 0, 600 * time.Second},
		"the cap for ever":                       {doubling, 1_000_000, 0, 600 * time.Second},
		"the base for attempt 0":                 {doubling, 0, 0, 10 * time.Second},
		"half the jitter on top":                 {jittered, 1, 0.5, 75 * time.Second},
		"no more than the cap with jitter":       {jittered, 7, 0.999, time.Hour},
		"the base alone without a multiplier":    {retry.Policy{Base: time.Second}, 9, 0, time.Second},
		"nothing without a base, however often":  {retry.Policy{Multiplier: 2, Max: time.Minute}, 1_000_000, 0, 0},
		"no overflow without a cap":              {uncapped, 1_000_000, 0, math.MaxInt64 / 2},
		"nothing from an empty policy":           {retry.Policy{}, 3, 0.5, 0},
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
