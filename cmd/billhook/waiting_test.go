package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"billhook/internal/console/ops"
)

func TestACellSaysWhatWaitsAndWhere(t *testing.T) {
	t.Parallel()
	n := func(i int64) *int64 { return &i }
	of := func(i int64) ops.Count { return ops.Count{Count: i} }
	for name, test := range map[string]struct {
		queue ops.Queue
		want  string
	}{
		"nothing":                    {ops.Queue{Enabled: true, Waiting: ops.Waiting{Unacknowledged: n(0)}}, ""},
		"it is not known":            {ops.Queue{Enabled: true}, "broker unknown"},
		"a queue that does not run":  {ops.Queue{}, ""},
		"the broker's, with a bound": {ops.Queue{Enabled: true, Waiting: ops.Waiting{Unacknowledged: n(7), OldestUnackedSeconds: n(61)}, Backlog: &ops.Backlog{Max: 9}}, "7 of 9 in broker for 1m1s"},
		"every place": {
			ops.Queue{Waiting: ops.Waiting{Unacknowledged: n(1), Delayed: of(2), Outbox: of(4), InReplay: of(5), ForApproval: of(6)}},
			"1 in broker, 2 delayed, 4 in outbox, 5 in replay, 6 for approval",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, waiting(test.queue))
		})
	}
}

func TestAListEndsWithWhatIsNoLineOfIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		waits ops.Elsewhere
		want  string
	}{
		"nothing": {ops.Elsewhere{}, "\nNothing waits in the broker, delayed, in the outbox, in a replay or for approval.\n"},
		"some": {
			ops.Elsewhere{
				Waiting:  ops.Waiting{Delayed: ops.Count{Count: 2}, ForApproval: ops.Count{Count: 1}},
				InBroker: []ops.InBroker{{Queue: "orders", Messages: 12, OldestSeconds: 90}}, Unknown: []string{"clicks"},
			},
			"\nBeside these, or not yet among them, there wait\n  12       in the broker, orders for 1m30s\n  2        delayed\n  1        for approval\n" +
				"  unknown  in the broker, 1 queue that has not been counted\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			(&program{stdout: &out}).printWaits(test.waits)
			require.Equal(t, test.want, out.String())
		})
	}
}
