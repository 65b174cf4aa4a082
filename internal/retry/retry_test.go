package retry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/retry"
)

func TestDecideTurnsEveryKindOfErrorIntoItsVerdict(t *testing.T) {
	t.Parallel()
	plain := errors.New("what nobody foresaw")
	for name, test := range map[string]struct {
		err  error
		want retry.Verdict
	}{
		"an unmarked error is tried again":             {plain, retry.Verdict{Class: 500, Reason: "handler_error", Counts: true}},
		"a panic is tried again":                       {retry.Panicked(), retry.Verdict{Class: 500, Reason: "handler_panic", Counts: true}},
		"a deadline is a timeout":                      {context.DeadlineExceeded, retry.Verdict{Class: 504, Reason: "handler_timeout", Counts: true}},
		"a wrapped deadline is a timeout":              {fmt.Errorf("read: %w", context.DeadlineExceeded), retry.Verdict{Class: 504, Reason: "handler_timeout", Counts: true}},
		"a caller that left counts nothing":            {context.Canceled, retry.Verdict{Class: 503, Reason: "canceled"}},
		"a wrapped cancellation counts nothing":        {fmt.Errorf("read: %w", context.Canceled), retry.Verdict{Class: 503, Reason: "canceled"}},
		"permanent is rejected":                        {retry.Permanent("unknown_product", nil), retry.Verdict{Class: 422, Reason: "unknown_product", Counts: true}},
		"unreadable is malformed":                      {retry.Unreadable("body_malformed", nil), retry.Verdict{Class: 400, Reason: "body_malformed", Counts: true}},
		"conflicting is a conflict":                    {retry.Conflicting("payload_conflict", nil), retry.Verdict{Class: 409, Reason: "payload_conflict", Counts: true}},
		"transient has failed":                         {retry.Transient("order_not_seen", nil), retry.Verdict{Class: 500, Reason: "order_not_seen", Counts: true}},
		"an outage is everybody's, and counts nothing": {retry.Outage("store_unavailable", plain), retry.Verdict{Class: 503, Reason: "store_unavailable", Scope: retry.EveryMessage}},
		"what is missing waits for another event":      {retry.Missing("order_not_seen", nil), retry.Verdict{Class: 500, Reason: "order_not_seen", Counts: true, Scope: retry.OtherEvent}},
		"down is unavailable, and counts":              {retry.Down("store_unavailable", plain), retry.Verdict{Class: 503, Reason: "store_unavailable", Counts: true}},
		"busy is unavailable, and does not":            {retry.Busy("lease_held", nil), retry.Verdict{Class: 503, Reason: "lease_held"}},
		"a wrapped mark is found":                      {fmt.Errorf("credit: %w", retry.Permanent("unknown_product", plain)), retry.Verdict{Class: 422, Reason: "unknown_product", Counts: true}},
		"a joined mark is found":                       {errors.Join(plain, retry.Busy("queue_full", nil)), retry.Verdict{Class: 503, Reason: "queue_full"}},
		"the outermost mark wins":                      {retry.Down("store_unavailable", retry.Permanent("unknown_product", nil)), retry.Verdict{Class: 503, Reason: "store_unavailable", Counts: true}},
		"a mark wins over a deadline inside":           {retry.Down("store_unavailable", context.DeadlineExceeded), retry.Verdict{Class: 503, Reason: "store_unavailable", Counts: true}},
		"a mark without a class is tried again":        {&retry.Error{Err: plain}, retry.Verdict{Class: 500, Reason: "handler_error", Counts: true}},
		"a mark with a made-up class is as well":       {&retry.Error{Verdict: retry.Verdict{Class: 200, Reason: "fine"}}, retry.Verdict{Class: 500, Reason: "handler_error", Counts: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, retry.Decide(test.err))
		})
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
